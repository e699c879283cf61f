"""The lock of a key: held to begin, move or end a generation, also where the key has no log.

All keys of a store share one empty file, `keys.lock`, in which each key locks one byte, chosen by its name: no file
is created or removed per key, and the lock of a killed process is free at once. It is taken before the lock of a log,
never while one is held. Who only appends to a session does not take it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident, local
from typing import Self

from nacre.errors import Refused, SessionBusy
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System, ignore_failure, is_from_system
from nacre.storage.turn_lock import byte_of

_FILE = "keys.lock"
_FULL = (errno.ENOSPC, errno.EDQUOT)

# By thread: what it holds, and how often. A thread that has a key may ask for it again.
_mine = local()
# All descriptors with a lock, for which key and thread; a forked child has them too and must close them.
_descriptors: dict[int, tuple[System, tuple[System, str, int], int]] = {}


class KeyLock:
    """The lock of one key, for one thread of one process."""

    __slots__ = ("_at", "_folder", "_key", "_path", "_system")

    def __init__(self, system: System, place: SessionPaths) -> None:
        self._system = system
        self._key = place.key or place.name
        self._path = f"{place.root}/{_FILE}"
        self._folder = f"{place.root}/sessions"
        self._at = byte_of(place.name)

    def __enter__(self) -> Self:
        if not self.take(wait=True):
            raise SessionBusy(f"session {self._key!r} is being changed, and this thread is changing another one")
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether this thread has it."""
        return self._name in _held()

    def take(self, *, wait: bool) -> bool:
        """Take it; False if another has it and `wait` is false. Raises Refused if it cannot be taken.

        A thread that has another key of the store does not wait: who has this one may wait for that one, and
        where only whole files can be locked, it is the thread itself.
        """
        held = _held()
        if self._name in held:
            fd, times = held[self._name]
            held[self._name] = (fd, times + 1)
            return True
        try:
            has_another = any(name[:2] == self._name[:2] for name in held)
            fd = self._lock(wait=wait and not has_another)
            if fd >= 0:
                held[self._name] = (fd, 1)
        except BaseException as error:
            # A thread that is interrupted right after it took the lock does not know it; nobody else would release it.
            self.abandon()
            if not is_from_system(error):
                raise
            raise Refused(f"session {self._key!r} cannot be locked, nothing was done: {error}") from error
        return fd >= 0

    def _lock(self, *, wait: bool) -> int:
        """Lock the key's byte and give the descriptor; -1 if another has it.

        As long as the file is missing, the folder of the logs is the lock of all keys: who has that makes the
        file, or does with the folder if the disk is too full even for an empty file.
        """
        with suppress(FileNotFoundError):
            flags = os.O_RDWR | os.O_NOFOLLOW
            return self._open(self._path, flags, lambda fd: self._system.lock_byte(fd, self._at, wait=wait))
        folder = self._open(self._folder, os.O_RDONLY | os.O_DIRECTORY, lambda fd: self._system.flock(fd, wait=wait))
        if folder < 0:
            return -1
        try:
            self._system.close(self._system.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            if error.errno in _FULL:
                return folder
            self._close(folder)
            raise
        self._close(folder)
        return self._lock(wait=wait)

    def _open(self, path: str, flags: int, lock: Callable[[int], bool]) -> int:
        """Open a file and lock it; -1 if another has it."""
        fd = self._system.open(path, flags)
        _descriptors[fd] = (self._system, self._name, get_ident())
        is_locked = False
        try:
            is_locked = lock(fd)
        finally:
            if not is_locked:
                self._close(fd)
        return fd if is_locked else -1

    def release(self) -> None:
        """Let others take it, once it was released as often as it was taken."""
        held = _held()
        fd, times = held[self._name]
        if times > 1:
            held[self._name] = (fd, times - 1)
            return
        # First: if we are interrupted before the rest, it is unlocked.
        self._unlock(fd)
        del held[self._name]
        self._close(fd)

    def abandon(self) -> None:
        """Let go of it, however often this thread took it, and wherever it was interrupted while it did."""
        for fd, (_, name, thread) in list(_descriptors.items()):
            if name == self._name and thread == get_ident():
                self._close(fd)
        _held().pop(self._name, None)

    @property
    def _name(self) -> tuple[System, str, int]:
        return self._system, self._path, self._at

    def _close(self, fd: int) -> None:
        self._unlock(fd)
        # A number may be another file's as soon as it is closed, so it is forgotten before. If we are interrupted in
        # between, a file stays open, but no lock.
        _descriptors.pop(fd, None)
        with ignore_failure():
            self._system.close(fd)

    def _unlock(self, fd: int) -> None:
        """Unlock a descriptor, whether it is one of the file or of the folder; it may be done again.

        A child that was forked meanwhile may have the descriptor still: closing ours would not be enough.
        """
        with ignore_failure():
            self._system.unlock_byte(fd, self._at)
        with ignore_failure():
            self._system.unlock(fd)


def _held() -> dict[tuple[System, str, int], tuple[int, int]]:
    held: dict[tuple[System, str, int], tuple[int, int]] = _mine.__dict__.setdefault("held", {})
    return held


def _begin_in_child() -> None:
    """After a fork, in the child: what is locked is the parent's."""
    for fd, (system, _, _) in list(_descriptors.items()):
        with ignore_failure():
            system.close(fd)
    _descriptors.clear()
    _held().clear()


os.register_at_fork(after_in_child=_begin_in_child)
