"""Files that tell agents or git what to do: a command leaves them as they were, and creates none.

Those that exist are mounted read-only by the sandbox. What cannot be mounted is compared before and after each
command: a file that is missing, a link, a file with a second name, files in folders below, and everything where the
sandbox is off. A file that the command made or changed is put aside, out of the project, and the former one is
restored.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from nacre.agent.ports import Finished, Sandbox

GUARDED = (
    *("AGENTS.md", "CLAUDE.md", ".nacre", ".agents", ".claude"),
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules"),
)
_GIT = ".git"
_INSTRUCTIONS = frozenset(("AGENTS.md", "CLAUDE.md", ".nacre", ".agents", ".claude"))
_WORKTREE = ("commondir", "gitdir", "config.worktree")
"""Files of `.git/worktrees/NAME` that say which repository and which settings a worktree has."""
_MAX_FOLDERS = 5_000
_SKIPPED = frozenset(("node_modules", ".venv", "__pycache__", ".tox"))
"""Folders of installed packages: they have many folders, and their instructions are not followed."""
_MAX_FILES, _MAX_BYTES = 500, 8 << 20
# What `git init` writes by itself, and what none of it makes git run.
_PLAIN_CONFIG = re.compile(
    r"(\s*(\[core\]|(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"\s*=\s*(true|false|[01]))\s*\n)*\s*\Z"
)

_Entry = tuple[Literal["file", "folder", "link", "other"], int, bytes]
_Tree = dict[str, _Entry]
"""What is at a path: every entry below it by its relative name, with its kind, mode and content."""


def guarded_paths(workspace: str) -> list[str]:
    """The paths that are to be mounted read-only, where they exist."""
    git = Path(workspace, _GIT)
    # A `.git` that is a file points to a repository elsewhere; a folder must stay writable for commits.
    pointer = [] if git.is_dir() and not git.is_symlink() else [str(git)]
    return [*(str(Path(workspace, name)) for name in GUARDED), *pointer]


class Guarded:
    """A sandbox in which commands change no file that tells agents or git what to do."""

    def __init__(self, inner: Sandbox, workspace: Path, *, aside: Path) -> None:
        self._inner = inner
        self._workspace = workspace
        self._aside = aside
        self._has_mounts = inner.name != "off"
        self._known: set[str] = set()

    @property
    def name(self) -> str:
        return self._inner.name

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        folders, found = _list_guarded(self._workspace)
        # What was found once stays guarded, also if a command makes so many folders that a survey ends early.
        self._known |= found
        before: dict[str, _Tree | None] = {}
        for name in (*GUARDED, _GIT):
            path = self._workspace / name
            is_link = path.is_symlink()
            # A command cannot change a folder `.git`, nor what is mounted.
            is_safe = name == _GIT and path.is_dir() and not is_link
            if self._has_mounts and path.exists() and not is_link and not _has_second_name(path):
                is_safe = True
            before[name] = None if is_safe else _read_tree(path)
        before |= {name: _read_tree(self._workspace / name) for name in self._known}
        notes: list[str] = []
        try:
            finished = await self._inner.run(command, timeout=timeout, max_bytes=max_bytes)
        finally:
            # Also when the caller has gone away: what the command left is there.
            for name in sorted(_list_guarded(self._workspace)[1] - before.keys()):
                # A folder that the command made is not guarded: it may be a clone, and it is not trusted.
                folder, own_name = _split_owner(name)
                if folder in folders and not own_name.startswith(f"{_GIT}/worktrees/"):
                    before[name] = {}
            for name, tree in before.items():
                notes += self._put_back(name, tree)
        return msgspec.structs.replace(finished, notes=tuple(notes))

    def _put_back(self, name: str, before: _Tree | None) -> Iterator[str]:
        """Put aside what the command made or changed, and restore what was there; says what was done."""
        path = self._workspace / name
        if before is None or (_split_owner(name)[1] == _GIT and path.is_dir() and not path.is_symlink()):
            return
        if name not in GUARDED and name != _GIT and not path.parent.is_dir():
            return  # The folder or worktree was removed with everything in it.
        if os.path.realpath(path.parent) != os.path.normpath(Path(os.path.realpath(self._workspace), name).parent):
            # What is there now may be somebody else's: it is neither moved nor overwritten.
            if before:
                yield f"{name} is protected, and a folder above it was replaced by a link: check it"
            return
        now = _read_tree(path)
        if now == before or (now is not None and not before and _is_plain(name, now)):
            return
        try:
            place = None
            if os.path.lexists(path):
                self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
                place = Path(tempfile.mkdtemp(prefix="", dir=self._aside)) / name.rpartition("/")[2]
                _make_movable(path)
                shutil.move(path, place)
            if before:
                path.parent.mkdir(parents=True, exist_ok=True)
            # Each folder before what is in it; the whole tree is ".", which sorts after some names.
            for part, (kind, mode, content) in sorted(before.items(), key=lambda item: Path(item[0]).parts):
                here = path / part
                if kind == "folder":
                    here.mkdir(mode=mode, exist_ok=True)
                elif kind == "link":
                    here.symlink_to(os.fsdecode(content))
                elif kind == "file":
                    here.write_bytes(content)
                    here.chmod(mode)
        except OSError as error:
            yield f"{name} was changed by the command and cannot be moved away ({error}): check it"
            return
        what = "created" if not before else "removed" if place is None else "changed"
        done = f"it is now in {place}" if place is not None else "it was restored"
        if before and place is not None:
            done = f"the former one was restored, and the changed one {done.removeprefix('it ')}"
        yield f"{name} is protected and was {what} by the command: {done}"


def _list_guarded(workspace: Path) -> tuple[set[str], set[str]]:
    """The folders below a workspace, and the protected paths in them; the nearest first, up to a limit."""
    folders, found = {""}, set(_worktree_files(workspace, ""))
    waiting = deque([""])
    while waiting:
        here = waiting.popleft()
        try:
            with os.scandir(workspace / here) as entries:
                listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError:
            continue
        for name, is_folder in listed:
            path = f"{here}/{name}" if here else name
            if name == _GIT or name in _INSTRUCTIONS:
                if here and name == _GIT and is_folder:
                    found |= {f"{here}/{one}" for one in GUARDED if one.startswith(f"{_GIT}/")}
                    found |= set(_worktree_files(workspace, f"{here}/"))
                elif here:
                    found.add(path)
            elif is_folder and name not in _SKIPPED and len(folders) < _MAX_FOLDERS:
                folders.add(path)
                waiting.append(path)
    return folders, found


def _worktree_files(workspace: Path, prefix: str) -> Iterator[str]:
    """The files of a repository's worktrees that are guarded, where a worktree is registered."""
    place = f"{prefix}{_GIT}/worktrees"
    try:
        names = sorted(os.listdir(workspace / place))[:_MAX_FILES]
    except OSError:
        return
    yield from (f"{place}/{name}/{file}" for name in names for file in _WORKTREE)


def _split_owner(name: str) -> tuple[str, str]:
    """The folder that a protected path belongs to, which is the one with `.git` or with the file; and the rest."""
    parts = name.split("/")
    at = parts.index(_GIT) if _GIT in parts else len(parts) - 1
    return "/".join(parts[:at]), "/".join(parts[at:])


def _has_second_name(path: Path) -> bool:
    """Tell whether a file, or one below a folder, has another hard link, by which it can be written."""
    files = [path] if path.is_file() else [Path(here, name) for here, _, names in os.walk(path) for name in names]
    for file in files[: _MAX_FILES + 1]:
        with suppress(OSError):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                return True
    return False


def _read_tree(path: Path) -> _Tree | None:
    """Everything at a path; empty if there is nothing, None if it is too much or cannot be read."""
    found: _Tree = {}
    size = 0
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        mode = stat.S_IMODE(status.st_mode)
        entry: _Entry = ("other", mode, b"")
        try:
            if stat.S_ISLNK(status.st_mode):
                entry = ("link", 0, os.fsencode(here.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                entry = ("folder", mode, b"")
                waiting += here.iterdir()
            elif stat.S_ISREG(status.st_mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(here, flags), "rb") as file:
                    entry = ("file", mode, file.read(_MAX_BYTES + 1))
        except OSError:
            entry = ("other", mode, b"unreadable")
        size += len(entry[2])
        found[str(here.relative_to(path))] = entry
        if len(found) > _MAX_FILES or size > _MAX_BYTES:
            return None
    return found


def _is_plain(name: str, tree: _Tree) -> bool:
    """Tell whether this is what `git init` writes by itself: settings of no consequence, and samples of hooks."""
    own_name = _split_owner(name)[1]
    if own_name == ".git/config":
        kind, _, content = tree.get(".", ("other", 0, b""))
        return kind == "file" and _PLAIN_CONFIG.match(content.decode("utf-8", "replace")) is not None
    files = [entry for entry, (kind, _, _) in tree.items() if kind != "folder"]
    return own_name == ".git/hooks" and all(entry.endswith(".sample") and "/" not in entry for entry in files)


def _make_movable(path: Path) -> None:
    """Make a tree that may forbid it movable."""
    if path.is_symlink() or not path.is_dir():
        return
    with suppress(OSError):
        path.chmod(0o700)
        for here, folders, _ in os.walk(path):
            for name in folders:
                if not Path(here, name).is_symlink():
                    Path(here, name).chmod(0o700)
