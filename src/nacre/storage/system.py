"""Every call to the operating system that the log and the file store make, in one object.

Tests pass another object with the same methods: a simulated disk, or one that fails the nth call.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import TypeGuard

from nacre.errors import StoreError

# struct flock, as the system lays it out.
_FLOCK = (
    ("qqihh", ("start", "len", "pid", "type", "whence"))
    if sys.platform == "darwin"
    else ("hhqqi4x", ("type", "whence", "start", "len", "pid"))
)
_FULL_FSYNC = getattr(fcntl, "F_FULLFSYNC", None) if sys.platform == "darwin" else None

# Locks of an open file description, not of a process: they keep threads apart too.
_OFD_WAIT, _OFD_TRY = getattr(fcntl, "F_OFD_SETLKW", None), getattr(fcntl, "F_OFD_SETLK", 0)


def _flock(kind: int, at: int, size: int = 1) -> bytes:
    """A struct flock that is about some bytes, with no size about all from `at` on."""
    layout, names = _FLOCK
    fields = {"type": kind, "whence": os.SEEK_SET, "start": at, "len": size, "pid": 0}
    return struct.pack(layout, *(fields[name] for name in names))


def _flushed(fd: int) -> None:
    """Flush a file; plain fsync leaves the data in the drive's cache on macOS."""
    fcntl.fcntl(fd, _FULL_FSYNC or 0)


def is_from_system(error: BaseException) -> TypeGuard[OSError]:
    """Tell whether an error is one of a system call: those have a number.

    A signal handler may raise TimeoutError, which is an OSError too, in the middle of anything. That one is for the
    interrupted caller; it says nothing of the disk.
    """
    return isinstance(error, OSError) and error.errno is not None


class ignore_failure:  # noqa: N801 - reads like `suppress`
    """Let a system call fail without consequences, for as long as a with statement lasts."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return error is not None and is_from_system(error)


class wrap_error:  # noqa: N801 - reads like `suppress`
    """Raise `kind`, with what could not be done, for a system call that fails within a with statement.

    A class, not a generator: one that a signal parts from its with statement would run at some later time.
    """

    def __init__(self, kind: type[StoreError], what: str) -> None:
        self._kind = kind
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and is_from_system(error):
            raise self._kind(f"{self._what}: {error}") from error


class System:
    """The real operating system."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    # These five, which every append makes, are the system's own: a frame between costs more than they seem to.
    write: Callable[[int, bytes | memoryview], int] = staticmethod(os.write)
    fdatasync: Callable[[int], None] = staticmethod(_flushed if _FULL_FSYNC is not None else os.fdatasync)
    stat: Callable[[str], os.stat_result] = staticmethod(os.lstat)
    fstat: Callable[[int], os.stat_result] = staticmethod(os.fstat)
    now: Callable[[], float] = staticmethod(time.time)

    def fsync(self, fd: int) -> None:
        if _FULL_FSYNC is not None:
            _flushed(fd)
        else:
            os.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def flock(self, fd: int, wait: bool) -> bool:  # noqa: FBT001 - two words of one sentence: flock(fd, wait=…)
        """Take the exclusive lock; False if it is taken and `wait` is False."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(self, fd: int) -> bool:
        """Take the lock together with other readers; False if a writer has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def claim(self, fd: int, at: int) -> int:
        """Lock one byte of a file for this process; 0 if it has it now, else the process that has it, -1 if unknown."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            # It may have been released since: that is not to have it.
            return self.claimant(fd, at) or -1
        return 0

    def claimant(self, fd: int, at: int) -> int:
        """The other process that has claimed a byte: 0 if there is none, -1 if it is unknown which."""
        layout, names = _FLOCK
        packed = fcntl.fcntl(fd, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, at))
        found = dict(zip(names, struct.unpack(layout, packed), strict=True))
        return 0 if found["type"] == fcntl.F_UNLCK else found["pid"] or -1

    def disclaim(self, fd: int, at: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, at)

    def lock_byte(self, fd: int, at: int, wait: bool) -> bool:  # noqa: FBT001 - as in flock
        """Lock one byte of a file for this descriptor; False if it is taken and `wait` is False.

        Where a descriptor cannot lock a part of a file (macOS), it locks all of it.
        """
        if _OFD_WAIT is None:
            return self.flock(fd, wait)
        try:
            fcntl.fcntl(fd, _OFD_WAIT if wait else _OFD_TRY, _flock(fcntl.F_WRLCK, at))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def lock_all_bytes(self, fd: int) -> None:
        """Wait until nobody has locked a byte of a file, and lock all of it until this descriptor is closed."""
        if _OFD_WAIT is None:
            self.flock(fd, wait=True)
        else:
            fcntl.fcntl(fd, _OFD_WAIT, _flock(fcntl.F_WRLCK, 0, 0))

    def unlock_byte(self, fd: int, at: int) -> None:
        if _OFD_WAIT is None:
            return self.unlock(fd)
        fcntl.fcntl(fd, _OFD_TRY, _flock(fcntl.F_UNLCK, at))
        return None

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def random(self, size: int) -> bytes:
        return os.urandom(size)


class opened:  # noqa: N801 - used as `with opened(…) as fd`
    """A file that is open for as long as a with statement lasts."""

    def __init__(self, system: System, path: str, flags: int = os.O_RDONLY | os.O_NOFOLLOW) -> None:
        self._system = system
        self._fd = system.open(path, flags, 0o600)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        self._system.close(self._fd)


def unlock_and_close(system: System, fd: int) -> None:
    """Unlock a file and close it; whichever of the two a signal strikes, it does not stay locked."""
    try:
        with ignore_failure():
            system.unlock(fd)
    finally:
        system.close(fd)
