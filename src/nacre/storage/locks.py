"""Two locks of a session that do not lock its log: that of its key, and that of its turn.

Of each kind, all sessions of a store share one empty file, `keys.lock` or `turns.lock`, in which each locks one byte,
chosen by its name: no file is created or removed per session, and what a killed process held is free at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, get_ident, local
from typing import Self
from zlib import crc32

from nacre.errors import LeaseLost, Refused, SessionBusy
from nacre.storage.paths import SessionPaths
from nacre.storage.seal import Seal
from nacre.storage.system import System, ignore_failure, is_from_system, opened

_KEYS_FILE, _TURNS_FILE = "keys.lock", "turns.lock"
_FULL = (errno.ENOSPC, errno.EDQUOT)

# By thread: what it holds, and how often. A thread that has a key may ask for it again.
_mine = local()
# All descriptors with the lock of a key, for which key and thread; a forked child has them too and must close them.
_descriptors: dict[int, tuple[System, tuple[System, str, int], int]] = {}


def byte_of(name: str) -> int:
    """Which byte is a session's; two names share one so rarely that the second may wait for the first."""
    encoded = name.encode()
    return crc32(encoded) << 30 | crc32(encoded[::-1] + b"/") >> 2


class KeyLock:
    """The lock of one key, for one thread of one process: held to begin, move or end a generation, even without a log.

    It is taken before the lock of a log, never while one is held. Who only appends to a session does not take it.
    In a store that is sealed nobody gets it.
    """

    __slots__ = ("_at", "_folder", "_key", "_path", "_seal", "_system")

    def __init__(self, system: System, place: SessionPaths) -> None:
        self._system = system
        self._seal = Seal(system, place.root)
        self._key = place.key or place.name
        self._path = f"{place.root}/{_KEYS_FILE}"
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
                self._seal.check()
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
        """Release it, however often this thread took it, and wherever it was interrupted while it did."""
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


def wait_for_keys(system: System, root: str) -> None:
    """Wait until nobody has the lock of a key of a store that was taken before it was sealed."""
    # The process that has the folder, which is the lock of all keys as long as there is no file.
    key = KeyLock(system, SessionPaths(root, "", ""))
    with suppress(Refused):
        key.take(wait=True)
    key.abandon()
    with opened(system, f"{root}/{_KEYS_FILE}", os.O_RDWR | os.O_NOFOLLOW) as fd:
        system.lock_all_bytes(fd)


def _held() -> dict[tuple[System, str, int], tuple[int, int]]:
    held: dict[tuple[System, str, int], tuple[int, int]] = _mine.__dict__.setdefault("held", {})
    return held


# A process loses its locks on a file when it closes any descriptor of it: there is one, and it stays open.
_turns_guard = Lock()
_open_files: dict[str, int] = {}
_held_turns: set[tuple[str, int]] = set()


class TurnLease:
    """The turn of a session, for one process and in it for one holder, which it names.

    It does not block writes. Its byte is chosen by the session's fence too: who takes the turn over locks another
    byte, while the one before, which may be a stopped process, still has the old one.
    """

    def __init__(
        self,
        system: System,
        place: SessionPaths,
        *,
        fence: Callable[[], int],
        take_over: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """`fence` reads the fence of the session; `take_over` stores a new one, and gives it."""
        self._system = system
        self._path = f"{place.root}/{_TURNS_FILE}"
        self._name = place.name
        self._fence, self._take_over = fence, take_over
        self._at = 0
        self.key = place.key
        self.number: int | None = None

    def __repr__(self) -> str:
        return f"Lease({self.key!r}, number={self.number})"

    def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another."""
        while True:
            fence = self._fence()
            holder = self._claim(fence)
            # It may have been taken over since: then the byte that was looked at is nobody's, or an earlier holder's.
            if self._fence() == fence:
                break
            if not holder:
                self.close()
        if holder:
            raise self._busy(holder)

    def take_over(self) -> None:
        """Take it from another: store a new fence, by which that one's appends are refused; durable when it returns.

        Raises SessionBusy if yet another has taken it since.
        """
        self.close()
        fence = self._take_over(f"{os.uname().nodename} {os.getpid()}")
        if fence is None or (holder := self._claim(fence)):
            raise self._busy(-1 if fence is None else holder)

    def holder(self) -> int:
        """The process that has it: 0 if there is none, or it cannot be known; -1 if it is unknown which.

        Nothing is taken and nothing made.
        """
        at = self._byte(self._fence())
        with _turns_guard:
            if (self._path, at) in _held_turns:
                return os.getpid()
            try:
                return self._system.claimant(self._descriptor(create=False), at)
            except OSError:
                return 0

    def check(self) -> None:
        """Raise LeaseLost if it is not taken, or was taken over."""
        if self.number is None or self._fence() != self.number:
            raise LeaseLost(f"the turn of session {self.key!r} was taken over; nothing was stored")

    def close(self) -> None:
        """Let others take it."""
        with _turns_guard:
            if self.number is not None:
                self.number = None
                _held_turns.discard((self._path, self._at))
                self._system.disclaim(self._descriptor(), self._at)

    def _claim(self, fence: int) -> int:
        """Lock the byte of a fence; returns who has it, 0 if it is this holder now."""
        at = self._byte(fence)
        with _turns_guard:
            if (self._path, at) in _held_turns:
                return os.getpid()
            try:
                holder = self._system.claim(self._descriptor(), at)
            except OSError as error:
                raise Refused(f"session {self.key!r} cannot be locked: {error}") from error
            if not holder:
                _held_turns.add((self._path, at))
                self._at, self.number = at, fence
            return holder

    def _busy(self, holder: int) -> SessionBusy:
        where = "this process" if holder == os.getpid() else "another process"
        return SessionBusy(f"session {self.key!r} is in use by {where} ({holder})")

    def _byte(self, fence: int) -> int:
        return byte_of(f"{self._name}/{fence}" if fence else self._name)

    def _descriptor(self, *, create: bool = True) -> int:
        if self._path not in _open_files:
            flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
            _open_files[self._path] = self._system.open(self._path, flags, 0o600)
        return _open_files[self._path]


def _begin_in_child() -> None:
    """After a fork, in the child: what is locked is the parent's, and a thread of the parent may hold the guard."""
    global _turns_guard  # noqa: PLW0603 - it must be another
    for fd, (system, _, _) in list(_descriptors.items()):
        with ignore_failure():
            system.close(fd)
    _descriptors.clear()
    _held().clear()
    _turns_guard = Lock()
    _held_turns.clear()


os.register_at_fork(after_in_child=_begin_in_child)
