"""Whose turn it is: a lock that says which process has it, beside the log and without a say in what is written.

All sessions of a store share one empty file, `turns.lock`, of which each locks one byte, chosen by its name: nothing
is made or removed for a turn, and what a killed process held is free at once.
"""

from __future__ import annotations

import os
from threading import Lock
from zlib import crc32

from nacre.errors import Refused, SessionBusy
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System

_FILE = "turns.lock"

# A process loses its locks on a file when it closes any descriptor of it: there is one, and it stays open.
_guard = Lock()
_open: dict[str, int] = {}
_held: set[tuple[str, int]] = set()


class FileHold:
    """The lock of one session, for one process and in it for one holder."""

    def __init__(self, system: System, place: SessionPaths) -> None:
        self._system = system
        self._key = place.key
        self._path = f"{place.root}/{_FILE}"
        self._mine = (self._path, byte_of(place.name))
        self._is_taken = False

    def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another."""
        with _guard:
            try:
                holder = os.getpid() if self._mine in _held else self._system.claim(self._descriptor(), self._mine[1])
            except OSError as error:
                raise Refused(f"session {self._key!r} cannot be locked: {error}") from error
            if holder:
                where = "this process" if holder == os.getpid() else "another process"
                raise SessionBusy(f"session {self._key!r} is in use by {where} ({holder})")
            _held.add(self._mine)
            self._is_taken = True

    def holder(self) -> int:
        """The process that has it: 0 if there is none, -1 if it is unknown which. Nothing is taken and nothing made."""
        with _guard:
            if self._mine in _held:
                return os.getpid()
            try:
                return self._system.claimant(self._descriptor(create=False), self._mine[1])
            except FileNotFoundError:
                return 0

    def close(self) -> None:
        """Let others take it."""
        with _guard:
            if self._is_taken:
                self._is_taken = False
                _held.discard(self._mine)
                self._system.disclaim(self._descriptor(), self._mine[1])

    def _descriptor(self, *, create: bool = True) -> int:
        if self._path not in _open:
            flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
            _open[self._path] = self._system.open(self._path, flags, 0o600)
        return _open[self._path]


def byte_of(name: str) -> int:
    """Which byte is a session's; two names share one so rarely that the second may wait for the first."""
    encoded = name.encode()
    return crc32(encoded) << 30 | crc32(encoded[::-1] + b"/") >> 2


def _begin_in_child() -> None:
    """After a fork, in the child: it has none of the parent's locks, and a thread of the parent may hold the guard."""
    global _guard  # noqa: PLW0603 - it must be another
    _guard = Lock()
    _held.clear()


os.register_at_fork(after_in_child=_begin_in_child)
