"""Files that tell agents or git what to do: a command leaves them as they were, and creates none.

Those that exist are mounted read-only by the sandbox. What cannot be mounted is compared before and after each
command: a file that is missing, a link, and everything where the sandbox is off. A file that the command made
or changed is put aside, out of the project, and the former one is restored.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
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
_MOST_FILES, _MOST_BYTES = 500, 8 << 20
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

    @property
    def name(self) -> str:
        return self._inner.name

    async def run(self, command: Sequence[str], *, timeout: float, most: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        names = (*GUARDED, _GIT)
        before = {name: self._look(name) for name in names}
        notes: list[str] = []
        try:
            finished = await self._inner.run(command, timeout=timeout, most=most)
        finally:
            # Also when the caller has gone away: what the command left is there.
            for name in names:
                notes += self._settle(name, before[name])
        return msgspec.structs.replace(finished, notes=tuple(notes))

    def _look(self, name: str) -> _Tree | None:
        """What is there now; None if a command cannot change it, or if it is too large to be kept."""
        path = self._workspace / name
        is_folder = path.is_dir() and not path.is_symlink()
        if name == _GIT and is_folder:
            return None
        if self._has_mounts and path.exists() and not path.is_symlink():
            return None
        return _tree(path)

    def _settle(self, name: str, before: _Tree | None) -> Iterator[str]:
        """Put aside what the command made or changed, and restore what was there; says what was done."""
        path = self._workspace / name
        if before is None or (name == _GIT and path.is_dir() and not path.is_symlink()):
            return
        now = _tree(path)
        if now == before or (now is not None and not before and _is_plain(name, now)):
            return
        try:
            place = self._put_aside(path, name) if os.path.lexists(path) else None
            if before:
                _restore(path, before)
        except OSError as error:
            yield f"{name} was changed by the command and cannot be moved away ({error}): check it"
            return
        what = "created" if not before else "removed" if place is None else "changed"
        done = f"it is now in {place}" if place is not None else "it was restored"
        if before and place is not None:
            done = f"the former one was restored, and the changed one {done.removeprefix('it ')}"
        yield f"{name} is protected and was {what} by the command: {done}"

    def _put_aside(self, path: Path, name: str) -> Path:
        self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix="", dir=self._aside)) / name.rpartition("/")[2]
        _open_up(path)
        shutil.move(path, target)
        return target


def _tree(path: Path) -> _Tree | None:
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
        try:
            entry = _entry(here, status)
            if entry[0] == "folder":
                waiting += here.iterdir()
        except OSError:
            entry = ("other", stat.S_IMODE(status.st_mode), b"unreadable")
        size += len(entry[2])
        found[str(here.relative_to(path))] = entry
        if len(found) > _MOST_FILES or size > _MOST_BYTES:
            return None
    return found


def _entry(path: Path, status: os.stat_result) -> _Entry:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return ("link", 0, os.fsencode(path.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return ("folder", mode, b"")
    if not stat.S_ISREG(status.st_mode):
        return ("other", mode, b"")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return ("file", mode, file.read(_MOST_BYTES + 1))


def _restore(path: Path, tree: _Tree) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Each folder before what is in it; the whole tree is ".", which sorts after some names.
    for name, (kind, mode, content) in sorted(tree.items(), key=lambda item: Path(item[0]).parts):
        here = path / name
        if kind == "folder":
            here.mkdir(mode=mode, exist_ok=True)
        elif kind == "link":
            here.symlink_to(os.fsdecode(content))
        elif kind == "file":
            here.write_bytes(content)
            here.chmod(mode)


def _is_plain(name: str, tree: _Tree) -> bool:
    """Tell whether this is what `git init` writes by itself: settings of no consequence, and samples of hooks."""
    if name == ".git/config":
        kind, _, content = tree.get(".", ("other", 0, b""))
        return kind == "file" and _PLAIN_CONFIG.match(content.decode("utf-8", "replace")) is not None
    files = [entry for entry, (kind, _, _) in tree.items() if kind != "folder"]
    return name == ".git/hooks" and all(entry.endswith(".sample") and "/" not in entry for entry in files)


def _open_up(path: Path) -> None:
    """Make a tree that may forbid it movable."""
    if path.is_symlink() or not path.is_dir():
        return
    with suppress(OSError):
        path.chmod(0o700)
        for here, folders, _ in os.walk(path):
            for name in folders:
                if not Path(here, name).is_symlink():
                    Path(here, name).chmod(0o700)
