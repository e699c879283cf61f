"""The files of a store, without what is said in them: whose they are, how large, what is left over, a copy."""

from __future__ import annotations

import os
import shutil
import stat as modes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple, Self

import msgspec

from nacre.codec import parse_time
from nacre.errors import InvalidKey, SessionBusy, StoreError
from nacre.messages import DiskUsage, GenerationInfo, Leftover
from nacre.records import View
from nacre.storage.blobs import unused
from nacre.storage.paths import (
    SessionPaths,
    key_of,
    listed,
    make_folder,
    read_beginning,
    settle_names,
    stem,
    stem_of_log,
    write_all,
)
from nacre.storage.plain_names import path_now
from nacre.storage.system import System
from nacre.storage.view import reading

FOLDERS = ("sessions", "archive", "cold", "quarantine", "base", "blobs", "ids", "trash")
_OF_SESSIONS = ("sessions", "archive", "cold", "quarantine", "ids")
_MAX_HEADER = 4096
_OLD = 3600.0
"""Seconds after which nobody is at a file any more."""


class _Header(msgspec.Struct, frozen=True):
    """What the first line of a log says of its session."""

    sid: str | None = None


# ---- whose a file is


def key_of_log(system: System, path: str, name: str) -> str | None:
    """The key of the log of a session, as its first line or else its name tells; None if that is another session's."""
    try:
        line = read_beginning(system, path, _MAX_HEADER).partition(b"\n")[0]
        key = msgspec.json.decode(line, type=_Header).sid or key_of(name)
        return key if key is not None and stem(key) == name else None
    except (OSError, ValueError, msgspec.DecodeError, RecursionError, InvalidKey):
        return key_of(name)


def key_of_file(system: System, path: str) -> str | None:
    """The key of the session that a log in one of the folders of a store is of; None if it does not tell."""
    return key_of_log(system, path, SessionPaths.of_file("", os.path.basename(path)).name)


def has_other_logs(system: System, root: str, keys: Iterable[str]) -> bool:
    """Tell whether there are logs of other sessions than these."""
    names = set(map(stem, keys))
    files = (file for folder in ("sessions", "archive") for file in listed(system, f"{root}/{folder}"))
    return any(file.endswith(".jsonl") and SessionPaths.of_file(root, file).name not in names for file in files)


# ---- how large it is


def generation(system: System, place: SessionPaths, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
    """One generation of a session; None if it is not there."""
    path = path_now(system, place)
    changed = system.stat(path).st_ctime if path else 0.0
    with reading(system, place) as found:
        if found.view is None:
            return None
        return GenerationInfo(
            key=place.key,
            generation=found.view.uid,
            pinned=is_pinned(found.view),
            updated=parse_time(found.updated),
            changed=datetime.fromtimestamp(changed, UTC),
            bytes=found.size + found.view.header.cold,
        )


def measure(system: System, root: str, keys: Iterable[str]) -> DiskUsage:
    """How much room each folder takes, and each of some sessions; a file with several names counts once."""
    sessions = {stem(key): (key, 0) for key in keys}
    folders = dict.fromkeys(FOLDERS, 0)
    seen: set[tuple[int, int]] = set()
    for folder in FOLDERS:
        for path, found in _walk(system, f"{root}/{folder}"):
            if (found.st_dev, found.st_ino) in seen:
                continue
            if found.st_nlink > 1:
                seen.add((found.st_dev, found.st_ino))
            folders[folder] += found.st_size
            owner = os.path.basename(path).partition(".")[0]
            owner = stem_of_log(owner) if folder == "sessions" else owner
            if folder in _OF_SESSIONS and owner in sessions:
                key, size = sessions[owner]
                sessions[owner] = (key, size + found.st_size)
    return DiskUsage(folders=folders, sessions=dict(sessions.values()))


def _walk(system: System, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The paths of the files in a folder and below it."""
    for name in listed(system, folder):
        path = f"{folder}/{name}"
        with suppress(FileNotFoundError):
            found = system.stat(path)
            if modes.S_ISDIR(found.st_mode):
                yield from _walk(system, path)
            elif modes.S_ISREG(found.st_mode):
                yield path, found


def size_of_file(system: System, path: str) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return system.stat(path).st_size
    except FileNotFoundError:
        return 0


def log_size(system: System, root: str, key: str) -> int:
    """Bytes of the active log of a session; 0 if there is none."""
    return size_of_file(system, SessionPaths.of(root, key).log)


# ---- what is left over


def leftovers(system: System, root: str) -> Iterator[Leftover]:
    """Rewrites of logs whose writer was killed, long enough ago that nobody is at it still, and unused payloads."""
    for path in unused(system, root):
        yield Leftover(path=path, bytes=size_of_file(system, path), reason="a payload that no session uses")
    for folder in ("sessions", "archive", "blobs", "ids"):
        for path, found in sorted(_walk(system, f"{root}/{folder}")):
            is_ours = path.endswith(".tmp") and os.path.dirname(path) == f"{root}/{folder}"
            if is_ours and found.st_mtime < system.now() - _OLD:
                yield Leftover(path=path, bytes=found.st_size, reason="left by a writer that was killed")


def remove(system: System, path: str) -> bool:
    """Remove a leftover unless somebody holds it: a writer locks it from the moment it is made."""
    try:
        fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        if not system.flock(fd, wait=False) or system.fstat(fd).st_ino != system.stat(path).st_ino:
            return False
        system.unlink(path)
        settle_names(system, os.path.dirname(path))
    finally:
        system.close(fd)
    return True


# ---- what a long task has done so far

_MAX_LINE = 1 << 16


class JournalFile:
    """Lines in `receipts/<name>.jsonl`; each is durable when it was added."""

    def __init__(self, system: System, root: str, name: str) -> None:
        self._system = system
        self._path = f"{root}/receipts/{name}.jsonl"
        self._fd = -1

    def __enter__(self) -> Self:
        """Open it; raises SessionBusy if another process has it, StoreError if it cannot be written."""
        folder = os.path.dirname(self._path)
        try:
            make_folder(self._system, folder)
            self._fd = self._system.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
            is_ours = self._system.flock(self._fd, wait=False)
            settle_names(self._system, folder)
        except OSError as error:
            self.__exit__()
            raise StoreError(f"{self._path} cannot be written: {error}") from error
        if not is_ours:
            self.__exit__()
            raise SessionBusy(f"another process is writing {self._path}")
        return self

    def __exit__(self, *_: object) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._system.close(fd)

    def last(self) -> bytes:
        """The last line, whole or torn; nothing if there is none."""
        size = self._system.fstat(self._fd).st_size
        lines = self._system.pread(self._fd, min(size, _MAX_LINE), max(0, size - _MAX_LINE)).splitlines()
        return lines[-1] if lines else b""

    def add(self, line: bytes) -> None:
        """Append a line, durably; a torn one before it is ended first."""
        size = self._system.fstat(self._fd).st_size
        is_torn = size > 0 and self._system.pread(self._fd, 1, size - 1) != b"\n"
        write_all(self._system, self._fd, b"\n" * is_torn + line + b"\n")
        self._system.fdatasync(self._fd)


# ---- a copy of a whole store, also while it is written

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
    """Copy a store into a new folder; the copy has its name when all of it is on the disk.

    What others may do meanwhile, and why nothing is missed that was there when it began:

    1. A log is copied under its lock, with what was moved out of it: neither ends in the middle of a write.
    2. Logs come before what they need: what is moved out of a log or into the archive meanwhile is in the copy twice,
       as a crash would have left it, and is read once; payloads and shared history exist before what needs them.
    3. Then what has got another name meanwhile is copied, in the same order: what came back out of the archive before
       that was copied, or went into the trash after.

    The copy is no store that anybody uses yet: it is made with plain calls, and flushed once, at the end.
    """
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
            roots = [self._root]
            with suppress(FileNotFoundError):
                found = os.scandir(f"{self._root}/agents")
                roots += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
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
                # Its creation was cut short; without the file next to it, it would look as if it had been emptied.
                return
            uid = ""
            # One that cannot be read is copied as it is.
            with suppress(OSError, StoreError), reading(self._system, place) as found:
                uid = found.view.header.uid if found.view is not None else ""
            for other in (place.cold(uid), place.quarantine(uid)) if uid else ():
                self._make(os.path.dirname(other))
                self._file(other)
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
