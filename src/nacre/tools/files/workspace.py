"""The files of a workspace, reached component by component so that no path and no link leads out of it."""

# Paths are taken apart by hand here, and names opened from descriptors.
# ruff: noqa: PTH100, PTH116, PTH118

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import translate
from operator import itemgetter
from typing import NoReturn

from nacre.errors import ToolError

# A descriptor for walking needs no right to read the directory, where the system has such descriptors.
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_DEPTH = 200
"""How many folders there may be on the way to a file; each is held open."""
_NO_LINK = (errno.EINVAL, errno.ENOENT)
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_PROTECTED_FILES = frozenset({"agents.md", "claude.md"})
_PROTECTED_FOLDERS = frozenset({".nacre", ".agents", ".claude", ".git"})


class Workspace:
    """The directory that file tools are confined to.

    `hidden` paths are neither read nor written, `frozen` ones are only read, wherever they are and by
    whatever name they are reached. A link that stays inside is followed by hand, each step of it from
    an open directory; so somebody who swaps a directory for a link in between gains nothing.
    """

    def __init__(self, root: str | os.PathLike[str], *, hidden: Iterable[str] = (), frozen: Iterable[str] = ()) -> None:
        self.root = os.path.realpath(root)
        self._spellings = (self.root, os.path.abspath(root))
        self._hidden = self._below(hidden)
        self._frozen = self._below(frozen)

    def is_protected(self, path: str) -> bool:
        """Tell whether a path names something that tells agents or git what to do, at any depth.

        Such files are changed only after a question each time, whatever is allowed. Links are resolved, and
        case does not matter, since some file systems ignore it.
        """
        if not can_be_path(path):
            return False  # no file has such a name, and the tool says so
        given = os.path.join(self.root, path)
        for place in (os.path.normpath(given), os.path.realpath(given)):
            names = [name.casefold() for name in os.path.relpath(place, self.root).split("/")]
            if names[-1] in _PROTECTED_FILES or not _PROTECTED_FOLDERS.isdisjoint(names):
                return True
        return False

    def read(self, path: str) -> int:
        """Open a regular file for reading; gives its descriptor. Raises ToolError."""
        with self._walk_to(path) as walk:
            fd = _open_at(walk.name, _READ, walk.here, walk.shown)
            try:
                _refuse_irregular(os.fstat(fd), walk.shown)
                self.refuse(self._place(walk), os.fstat(fd), walk.shown, writing=False)
            except BaseException:
                os.close(fd)
                raise
            return fd

    def replace(self, path: str, data: bytes, *, expected: os.stat_result | None = None) -> bool:
        """Write a file whole or not at all, with the directories it needs; tells whether it is new.

        With `expected` it is refused if the file is no longer the one that had this status.
        """
        with self._walk_to(path, writing=True) as walk:
            before = self._status(walk)
            if before is not None:
                _refuse_irregular(before, walk.shown)
                if not before.st_mode & _WRITABLE:
                    raise ToolError(f"{walk.shown!r} is read-only: change its mode first")
            if expected is not None and not _is_same(before, expected):
                raise ToolError(f"{walk.shown!r} was changed meanwhile by someone else: read it again")
            # The new bytes come in its place by a rename, with the owner and mode it had, but never a set-id bit.
            temporary = f".nacre-{secrets.token_hex(8)}.tmp"
            try:
                fd = os.open(temporary, _CREATE, 0o666, dir_fd=walk.here)
                try:
                    with os.fdopen(fd, "wb") as file:
                        file.write(data)
                        file.flush()
                        if before is not None:
                            with suppress(PermissionError):
                                os.fchown(fd, before.st_uid, before.st_gid)
                            # What a model writes must not run with the rights of the file's owner.
                            os.fchmod(fd, stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
                        os.fsync(fd)
                    os.rename(temporary, walk.name, src_dir_fd=walk.here, dst_dir_fd=walk.here)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=walk.here)
                    raise
            except OSError as error:
                raise ToolError(f"{walk.shown!r} was not written: {error.strerror}") from error
            return before is None

    def remove(self, path: str, *, expected: os.stat_result) -> None:
        """Remove a file, if it is still the one that had this status; raises ToolError."""
        with self._walk_to(path, writing=True) as walk:
            if not _is_same(self._status(walk), expected):
                raise ToolError(f"{walk.shown!r} was changed meanwhile by someone else: it is left as it is")
            try:
                os.unlink(walk.name, dir_fd=walk.here)
            except OSError as error:
                raise ToolError(f"{walk.shown!r} was not removed: {error.strerror}") from error

    def entries(self, path: str, *, limit: int) -> tuple[str, list[tuple[str, os.stat_result, str]]]:
        """A directory's path from the root ("" for the root), and what it has, sorted, without what is hidden.

        Each is a name, its status, and where it points if it is a link.
        """
        found: list[tuple[str, os.stat_result, str]] = []
        secret = self._identities(self._hidden)
        with self._walk_to(path) as walk:
            walk.enter_last()
            shown = "" if walk.shown == "." else walk.shown
            fd = _open_at(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, walk.here, path)
            try:
                with os.scandir(fd) as names:
                    for item in names:
                        with suppress(OSError):
                            status = item.stat(follow_symlinks=False)
                            place = os.path.join(self.root, shown, item.name)
                            if (status.st_dev, status.st_ino) not in secret and not _is_within(place, self._hidden):
                                target = os.readlink(item.name, dir_fd=fd) if item.is_symlink() else ""
                                found.append((item.name, status, target))
                        if len(found) >= limit:
                            break
            finally:
                os.close(fd)
            return shown, sorted(found, key=itemgetter(0))

    # ---- walking

    @contextmanager
    def _walk_to(self, path: str, *, writing: bool = False) -> Iterator[_Walk]:
        walk = _Walk(self, path, writing=writing)
        try:
            walk.go()
            yield walk
        finally:
            walk.close()

    def holds(self, path: str) -> bool:
        """Tell whether a full path is one of the workspace, by its name."""
        return _is_within(path, self._spellings)

    def inside(self, path: str) -> list[str]:
        """The components of a path from the root; raises ToolError if it is absolute and elsewhere."""
        if not path or not can_be_path(path):
            raise ToolError(f"{path!r} is not a path")
        if not path.startswith("/"):
            return path.split("/")
        for root in self._spellings:
            if _is_within(path, [root]):
                return path[len(root) :].split("/")
        raise ToolError(f"{path!r} is outside the workspace: give a path relative to it")

    def refuse(self, place: str, status: os.stat_result | None, shown: str, *, writing: bool) -> None:
        """Raise ToolError if this is, or is in, something hidden, or frozen if it is to be changed."""
        if self._is_one_of(self._hidden, place, status):
            raise ToolError(f"{shown!r} belongs to the agent and cannot be used by tools: use another path")
        if writing and self._is_one_of(self._frozen, place, status):
            raise ToolError(f"{shown!r} may be read but not changed")

    def _is_one_of(self, paths: Iterable[str], place: str, status: os.stat_result | None) -> bool:
        known = status is not None and (status.st_dev, status.st_ino) in self._identities(paths)
        return known or _is_within(place, paths)

    def _below(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Where paths really are; one that holds the workspace itself forbids nothing in it."""
        real = [os.path.realpath(path) for path in paths]
        return tuple(path for path in real if not _is_within(self.root, [path]))

    def _place(self, walk: _Walk) -> str:
        return os.path.normpath(os.path.join(self.root, walk.shown))

    def _identities(self, paths: Iterable[str]) -> set[tuple[int, int]]:
        """The inodes of paths, so that hard links and bind mounts are known for what they are."""
        found: set[tuple[int, int]] = set()
        for path in paths:
            with suppress(OSError):
                status = os.stat(path)
                found.add((status.st_dev, status.st_ino))
        return found

    # ---- files

    def _status(self, walk: _Walk) -> os.stat_result | None:
        """What is there now, if anything."""
        try:
            status = os.stat(walk.name, dir_fd=walk.here, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        self.refuse(self._place(walk), status, walk.shown, writing=True)
        return status


class _Walk:
    """One way from the root to the last component of a path, with every directory on it held open."""

    def __init__(self, workspace: Workspace, path: str, *, writing: bool) -> None:
        self._workspace = workspace
        self._path = path
        self._writing = writing
        self._waiting = workspace.inside(path)[::-1]
        self._links = 0
        self._names: list[str] = []
        try:
            root = os.open(workspace.root, _WALK & ~os.O_NOFOLLOW)
        except OSError as error:
            raise ToolError(f"the workspace {workspace.root!r} cannot be opened: {error.strerror}") from error
        self._fds: list[int] = [root]
        self.last = ""

    @property
    def here(self) -> int:
        return self._fds[-1]

    @property
    def name(self) -> str:
        """The last component, in the directory that is open."""
        return self.last or "."

    @property
    def shown(self) -> str:
        """The path from the root as the model may say it."""
        return "/".join([*self._names, *([self.last] if self.last else [])]) or "."

    def go(self) -> None:
        """Walk to the directory of the last component; a link in its place is followed too."""
        while self._waiting:
            name = self._waiting.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                self._leave()
            elif any(part not in {"", "."} for part in self._waiting):
                self._enter(name)
            elif not self._follow_link(name):
                self.last = name

    def enter_last(self) -> None:
        """Walk into the last component too, which must be a directory."""
        while self.last:
            name, self.last = self.last, ""
            self._enter(name)
            self.go()

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def _enter(self, name: str) -> None:
        if len(self._names) >= _MAX_DEPTH:
            raise ToolError(f"{self._path[:100]!r}… leads through more than {_MAX_DEPTH} folders")
        try:
            if self._writing:
                place = os.path.join(self._workspace.root, *self._names, name)
                self._workspace.refuse(place, None, self._path, writing=True)
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=self.here)
            fd = os.open(name, _WALK, dir_fd=self.here)
        except OSError as error:
            # A link shows as one or the other, depending on the system.
            if error.errno in {errno.ELOOP, errno.ENOTDIR} and self._follow_link(name):
                return
            _fail(error, self._path)
        self._fds.append(fd)
        self._names.append(name)
        place = os.path.join(self._workspace.root, *self._names)
        self._workspace.refuse(place, os.fstat(fd), self._path, writing=self._writing)

    def _leave(self) -> None:
        """Go back to the directory that was walked through, not to where `..` may lead by now."""
        if not self._names:
            raise ToolError(f"{self._path!r} leads out of the workspace: use a path inside it")
        self._names.pop()
        os.close(self._fds.pop())

    def _follow_link(self, name: str) -> bool:
        """Put a link's target in its place; False if it is none."""
        try:
            target = os.readlink(name, dir_fd=self.here)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            _fail(error, self._path)
        self._links += 1
        if self._links > _MAX_LINKS:
            raise ToolError(f"{self._path!r} leads through too many links")
        names = target.split("/")
        if target.startswith("/"):
            try:
                names = self._workspace.inside(target)
            except ToolError:
                raise ToolError(f"{self._path!r} is a link that leads out of the workspace") from None
            while self._names:
                self._leave()
        self._waiting += names[::-1]
        return True


def can_be_path(text: str) -> bool:
    """Tell whether the system could have a file of this name: no NUL, no half of a character."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _open_at(name: str, flags: int, directory: int, shown: str) -> int:
    """Open a name in a directory; raises ToolError in words."""
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        _fail(error, shown)


def _fail(error: OSError, shown: str) -> NoReturn:
    reasons = {
        errno.ENOENT: "does not exist: list_files shows the files",
        errno.ENOTDIR: "leads through something that is not a directory",
        errno.EACCES: "may not be opened: no permission",
        errno.ELOOP: "was replaced by a link meanwhile: try again",
        errno.ENAMETOOLONG: "is too long for a path",
    }
    raise ToolError(f"{shown!r} {reasons.get(error.errno or 0, f'cannot be opened: {error.strerror}')}") from error


def _refuse_irregular(status: os.stat_result, shown: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{shown!r} is a directory: list_files shows what is in it")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shown!r} is not a regular file but a device, pipe or socket: it cannot be used")


def _is_same(now: os.stat_result | None, before: os.stat_result) -> bool:
    kept = ("st_ino", "st_size", "st_mtime_ns")
    return now is not None and all(getattr(now, name) == getattr(before, name) for name in kept)


def _is_within(place: str, paths: Iterable[str]) -> bool:
    return any(place == path or place.startswith(path.rstrip("/") + "/") for path in paths)


# ---- patterns of paths

_ANY_DEPTH = "**"


class Pattern:
    """A pattern such as `src/**/*.py`; `**` stands for any number of directories."""

    def __init__(self, text: str) -> None:
        parts = [part for part in text.split("/") if part not in {"", "."}]
        # Several `**` in a row stand for what one does.
        pairs = zip(parts, [*parts[1:], ""], strict=True)
        self._parts: Sequence[str] = [one for one, after in pairs if not one == after == _ANY_DEPTH]
        self._names = [re.compile(translate(part)) for part in self._parts]
        self.start = self._close({0})

    def step(self, states: frozenset[int], name: str) -> tuple[bool, frozenset[int]]:
        """Go one name further: whether the path is meant, and from where in the pattern its content goes on."""
        after: set[int] = set()
        for state in states:
            if state < len(self._parts) and self._parts[state] == _ANY_DEPTH:
                after.add(state)
            elif state < len(self._parts) and self._names[state].match(name):
                after.add(state + 1)
        closed, end = self._close(after), len(self._parts)
        return end in closed, closed - {end}

    def names(self, states: frozenset[int], name: str) -> bool:
        """Whether the pattern says this name itself, and not only through `**`."""
        return any(state < len(self._parts) and self._parts[state] == name for state in states)

    def _close(self, states: set[int]) -> frozenset[int]:
        """States with those that are reached because `**` may stand for nothing."""
        found = set(states)
        for state in sorted(states):
            at = state
            while at < len(self._parts) and self._parts[at] == _ANY_DEPTH:
                at += 1
                found.add(at)
        return frozenset(found)
