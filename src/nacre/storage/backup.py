"""A copy of a whole store, also while it is written.

What others may do meanwhile, and why nothing is missed that was there when it began:

1. A log is copied under its lock, with what was moved out of it: neither ends in the middle of a write.
2. Logs come before what they need: what is moved out of a log or into the archive meanwhile is in the copy twice, as
   a crash would have left it, and is read once; payloads and shared history exist before what needs them.
3. Then what has got another name meanwhile is copied, in the same order: what came back out of the archive before that
   was copied, or went into the trash after.

The copy is no store that anybody uses yet: it is made with plain calls, and flushed once, at the end.
"""

from __future__ import annotations

import os
import shutil
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from nacre.errors import StoreError
from nacre.storage.paths import SessionPaths
from nacre.storage.reader import reading
from nacre.storage.system import System

PARTIAL = ".partial"
"""How the name of a copy ends that is not whole yet."""
_FIRST = ("sessions", "archive", "base", "cold", "quarantine", "blobs")
_UNNEEDED = frozenset(("keys.lock", "marks", "turns.lock"))
_BEING_WRITTEN = (".tmp", ".new")


class Copied(NamedTuple):
    """How much was copied."""

    files: int
    bytes: int


def copy(root: str, goal: str, step: Callable[[], None], *, system: System | None = None) -> Copied:
    """Copy a store into a new folder; the copy has its name when all of it is on the disk."""
    partial = goal + PARTIAL
    os.mkdir(partial, 0o700)
    made = _Copy(system or System(), root, partial, step)
    made.run()
    # One flush for all: a copy that has its name is on the disk.
    os.sync()
    os.rename(partial, goal)
    os.sync()
    return Copied(made.files, made.bytes)


class _Copy:
    """The files of a store, as they are copied."""

    def __init__(self, system: System, root: str, goal: str, step: Callable[[], None]) -> None:
        self._root = root
        self._goal = goal
        self._step = step
        self._system = system
        self._ordered: frozenset[str] = frozenset()
        self._links: dict[tuple[int, int, int], str] = {}
        self.files = 0
        self.bytes = 0

    def run(self) -> None:
        for _ in range(2):
            roots = (self._root, *_folders(f"{self._root}/agents"))
            self._ordered = frozenset(f"{root}/{name}" for root in roots for name in _FIRST)
            self._folder(self._root)
            for root in roots:
                for name in _FIRST:
                    self._folder(f"{root}/{name}")

    def _folder(self, folder: str) -> None:
        """Copy what is in a folder and below it, and is not there yet."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._make(folder)
        has_logs = folder in self._ordered and folder.endswith("/sessions")
        for entry in entries:
            if entry.name in _UNNEEDED or entry.name.endswith(_BEING_WRITTEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in self._ordered:
                    self._folder(entry.path)
            elif has_logs and entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                self._log(entry.path)
            else:
                self._file(entry.path)

    def _log(self, path: str) -> None:
        """Copy a log, and what was moved out of it, while nobody writes it."""
        with _locked(self._system, path) as held:
            if not held or self._has(path):
                return
            root, _, name = path.rpartition("/sessions/")
            place = SessionPaths.of_file(root, name)
            if os.path.lexists(place.birth) and not os.path.getsize(path):
                # Its creation was cut short; without the file beside it, it would look as if it had been emptied.
                return
            uid = _uid(self._system, place)
            for beside in (place.cold(uid), place.quarantine(uid)) if uid else ():
                self._make(os.path.dirname(beside))
                self._file(beside)
            self._file(path)

    def _file(self, path: str) -> None:
        """Copy a file, unless that was done or it is gone; names of one file stay names of one."""
        if self._has(path):
            return
        goal = self._there(path)
        with suppress(FileNotFoundError):
            found = os.lstat(path)
            # A log that a fork shares may have grown since it was copied under its own name.
            inode = (found.st_dev, found.st_ino, found.st_size)
            if modes.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(path), goal)
            elif not modes.S_ISREG(found.st_mode):
                return
            elif inode in self._links:
                os.link(self._links[inode], goal)
            else:
                shutil.copy2(path, goal, follow_symlinks=False)
                self.bytes += found.st_size
            if found.st_nlink > 1:
                self._links[inode] = goal
            self.files += 1
            self._step()

    def _make(self, folder: str) -> None:
        """Make a folder, private as the store's own."""
        with suppress(FileExistsError):
            os.mkdir(self._there(folder), 0o700)

    def _has(self, path: str) -> bool:
        return os.path.lexists(self._there(path))

    def _there(self, path: str) -> str:
        return f"{self._goal}{path.removeprefix(self._root)}"


@contextmanager
def _locked(system: System, path: str) -> Iterator[bool]:
    """Keep writers from a log; False if it is gone."""
    fd = -1
    try:
        with suppress(FileNotFoundError):
            while fd < 0:
                fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                system.flock(fd, wait=True)
                if system.fstat(fd).st_ino != system.stat(path).st_ino:
                    # It got a successor while it was waited for.
                    system.close(fd)
                    fd = -1
        yield fd >= 0
    finally:
        if fd >= 0:
            system.close(fd)


def _uid(system: System, place: SessionPaths) -> str:
    """The uid of a log; "" of one that cannot be read, and is copied as it is."""
    try:
        with reading(system, place) as found:
            return found.view.header.uid if found.view is not None else ""
    except (OSError, StoreError):
        return ""


def _folders(above: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(above) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
