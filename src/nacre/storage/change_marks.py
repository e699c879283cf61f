"""Marks: which logs were written since somebody last looked, so that a list need not look at every log.

`<root>/marks` is a text file. Its first line names it. Before a writer changes a log, and while it has the log's
lock, it appends the log's path below the store as a line. A reader appends an empty line and takes what is before it;
after an empty line writers leave their marks again. Nothing is flushed and no write fails for it: a mark that is lost
is found by a scan.

Why no change is missed, as long as both are alive:

1. A writer has the lock of its log from before it looks at the marks until its change is done.
2. A reader first takes the marks, then looks at each log that is named, and tries to share its lock.
3. If a writer has the lock, the log is looked at again next time. If not, the writer is either done, and its change
   is seen, or has not looked at the marks yet, and will find the empty line and leave its mark again.
"""

from __future__ import annotations

import errno
import os
import re
import stat as modes
from threading import RLock
from typing import NamedTuple

from nacre.storage.paths import write_all
from nacre.storage.seal import Seal
from nacre.storage.system import System, ignore_failure, is_from_system, unlock_and_close

_FILE = "marks"
_PATH = re.compile(rb"(sessions|archive)/[a-z0-9_~.*-]+\.jsonl")
_MAX_BYTES = 256 * 1024
"""Bytes after which the file is started again; a reader that has not read it by then scans the store."""
_TRIES = 4


class Position(NamedTuple):
    """How far a reader has taken marks: the file's first line, and where the next mark will be."""

    file: str = ""
    offset: int = 0


class Taken(NamedTuple):
    """The paths that were marked, and the position after them; not `is_whole` if earlier marks may be lost."""

    paths: set[str]
    position: Position
    is_whole: bool


class _File:
    """An open marks file, closed when nobody uses it any more: another thread may be looking at it."""

    __slots__ = ("_system", "fd")

    def __init__(self, system: System, fd: int) -> None:
        self._system = system
        self.fd = fd

    def __del__(self) -> None:
        # A signal may have struck before it had them.
        system, fd = getattr(self, "_system", None), getattr(self, "fd", None)
        if system is not None and fd is not None:
            with ignore_failure():
                system.close(fd)


class _Seen(NamedTuple):
    """What a writer knows: the paths in the first `size` bytes of the file that no reader has taken yet."""

    file: _File
    size: int
    paths: set[str]


class Marks:
    """The marks of one store; any number of threads and processes leave and take them."""

    def __init__(self, system: System, root: str, seal: Seal | None = None) -> None:
        self._system = system
        self._path = f"{root}/{_FILE}"
        self._seal = seal or Seal(system, root)
        self._lock = RLock()
        self._seen: _Seen | None = None

    # ---- writers

    def leave(self, path: str) -> None:
        """Say that a log is about to change; the caller has the log's lock. Never raises for the disk."""
        seen = self._seen
        if seen is not None and path in seen.paths:
            try:
                found = self._system.fstat(seen.file.fd)
                if found.st_size == seen.size and found.st_nlink > 0:
                    return
            except OSError as error:
                if not is_from_system(error):
                    raise
        try:
            with self._lock:
                with ignore_failure():
                    if self._append(path):
                        return
                # Readers that find no marks, or others than they know, scan the store.
                self._seen = None
                with ignore_failure():
                    self._system.unlink(self._path)
        finally:
            # What was read of the marks may have been the end that a seal has made.
            self._seal.expect()

    def end(self) -> None:
        """Let every writer leave its marks again; raises OSError if that cannot be done."""
        with self._lock:
            file, _ = self._open()
            try:
                self._system.write(file.fd, b"\n")
            except OSError:
                self._system.unlink(self._path)

    def forget(self, *beginnings: str) -> None:
        """Make the paths with these beginnings, those of a deleted session, unreadable; never raises for the disk.

        `sessions/my-key~<hash>.jsonl` becomes `sessions/******~<hash>.jsonl`: a pattern that still tells readers which
        log to look at. After an empty line writers leave their marks again. The caller has the key's lock.
        """
        with self._lock, ignore_failure():
            fd = self._system.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                # Lines are only added, but for this: two that do it must not undo each other's work.
                self._system.flock(fd, wait=True)
                lines = self._read(fd, 0).split(b"\n")
                starts = tuple(beginning.encode() for beginning in beginnings)
                hidden = [_hide(line) if line.startswith(starts) else line for line in lines]
                if hidden != lines:
                    write_all(self._system, fd, b"\n".join(hidden))
                    file, _ = self._open()
                    self._system.write(file.fd, b"\n")
            finally:
                # Twice: whichever of them a signal strikes, the other is done.
                try:
                    self._system.unlock(fd)
                finally:
                    unlock_and_close(self._system, fd)

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._seen = None

    def begin_in_child(self) -> None:
        """After a fork, in the child: a thread of the parent may hold the lock."""
        self._lock = RLock()
        self._seen = None

    def _append(self, path: str) -> bool:
        """Leave a mark that no reader has taken; False if that cannot be done."""
        line = f"{path}\n".encode()
        for _ in range(_TRIES):
            seen = self._catch_up()
            if path in seen.paths:
                return True
            self._system.write(seen.file.fd, line)
        return path in self._catch_up().paths

    def _catch_up(self) -> _Seen:
        """Read what was added to the file; one that is new to us is read from its end on."""
        seen = self._seen
        found = self._system.fstat(seen.file.fd) if seen is not None else None
        if seen is None or found is None or not found.st_nlink or found.st_size < seen.size:
            file, size = self._open()
            if size > _MAX_BYTES:
                # Nobody has read it for long, and who comes late can scan.
                self._system.unlink(self._path)
                file, size = self._open()
            seen = _Seen(file, size, set())
        elif found.st_size > seen.size:
            # With the byte before: an empty line is a line's end after another.
            added = self._read(seen.file.fd, seen.size - 1)
            _, between, fresh = added.rpartition(b"\n\n")
            paths = _paths(fresh) if between else seen.paths | _paths(added)
            seen = _Seen(seen.file, seen.size - 1 + len(added), paths)
        self._seen = seen
        return seen

    # ---- readers

    def take(self, position: Position) -> Taken:
        """Take the marks after a position; raises OSError if there can be none."""
        with self._lock:
            file, size = self._open()
            data = self._read(file.fd, 0)
            goal = len(data)
            for _ in range(_TRIES):
                name, _, _ = data.partition(b"\n")
                end = max(data.rfind(b"\n\n") + 2, len(name) + 1)
                if end >= goal:
                    break
                self._system.write(file.fd, b"\n")
                data = self._read(file.fd, 0)
            else:
                raise OSError(errno.EIO, "marks cannot be written", self._path)
            is_known = position.file == name.decode(errors="replace") and position.offset <= end
            start = position.offset if is_known else 0
            if size <= _MAX_BYTES:
                return Taken(_paths(data[start:end]), Position(name.decode(errors="replace"), end), is_known)
            # A writer that left a mark meanwhile either finds the file gone and leaves it again, or is read here.
            self._system.unlink(self._path)
            rest = self._read(file.fd, start)
            file, _ = self._open()
            name, _, _ = self._read(file.fd, 0).partition(b"\n")
            return Taken(_paths(rest), Position(name.decode(errors="replace"), len(name) + 1), is_known)

    # ---- the file

    def _open(self) -> tuple[_File, int]:
        """Open the file, or begin it; with its size."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        file = _File(self._system, self._system.open(self._path, flags, 0o600))
        found = self._system.fstat(file.fd)
        if not modes.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "not a regular file of this user", self._path)
        if found.st_size:
            return file, found.st_size
        self._system.write(file.fd, b"#%b\n" % self._system.random(8).hex().encode())
        return file, self._system.fstat(file.fd).st_size

    def _read(self, fd: int, offset: int) -> bytes:
        pieces: list[bytes] = []
        while piece := self._system.pread(fd, _MAX_BYTES, offset):
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)


def _hide(line: bytes) -> bytes:
    """A path without the readable part of the key, the slug or all of it; what is left is as long and matches it."""
    folder, _, file = line.partition(b"/")
    slug, mark, rest = file.partition(b"~" if b"~" in file else b".")
    return folder + b"/" + b"*" * len(slug) + mark + rest


def _paths(data: bytes) -> set[str]:
    """The lines that name a log, or match a deleted one; a full disk or a power cut may leave others."""
    return {line.decode() for line in data.split(b"\n") if _PATH.fullmatch(line)}
