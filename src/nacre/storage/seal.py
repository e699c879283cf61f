"""The seal of a store of files: `<root>/sealed` says where its sessions were moved, and every write is refused.

Who begins, moves or ends a generation looks for it when it has the lock of the key. Who appends has the lock of the
log, and looks whenever the marks have changed since it last left its own: that costs an append nothing. So a seal is
complete when

1. the file is durable,
2. nobody has the lock of a key any more that was taken before that,
3. the marks have changed,
4. nobody has the lock of a log any more that was taken before that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from shlex import quote

from nacre.errors import Refused
from nacre.storage.paths import read_beginning, replace_file, settle_names
from nacre.storage.system import System

_MAX_PLACE = 65536


def sealed(place: str, store: str = "STORE") -> Refused:
    """The error for one who writes to a store, at `store`, whose sessions were moved elsewhere."""
    return Refused(
        f"nothing was stored: these sessions were moved to {place}; use that store, or take it back with "
        f"`{unseal_command(store)}`"
    )


def unseal_command(store: str) -> str:
    """The command that lets a store accept writes again."""
    return f"nacre sessions unseal {quote(store)}"


class Seal:
    """The seal of one store, for all that write to it in this process.

    `is_watched` says that `expect` is called whenever the store may have been sealed.
    """

    __slots__ = ("_expected", "_is_watched", "_path", "_seen", "_system")

    def __init__(self, system: System, root: str, *, is_watched: bool = False) -> None:
        self._system = system
        self._path = f"{root}/sealed"
        self._is_watched = is_watched
        # A new object with each expectation, and the last one after which there was no seal: a thread that looked
        # before another one's expectation must not fulfil that.
        self._expected: object = object()
        self._seen: object = None

    def expect(self) -> None:
        """Look at the next check: the store may have been sealed."""
        self._expected = object()

    def check(self) -> None:
        """Raise Refused if the store is sealed; the caller has a lock, which a process that seals it waits for."""
        if self._expected is not self._seen:
            self.check_now()

    def check_now(self) -> None:
        """The same, without such a lock, by looking."""
        expected = self._expected
        try:
            self._system.stat(self._path)
        except FileNotFoundError:
            self._seen = expected if self._is_watched else None
            return
        raise sealed(self.read(), os.path.dirname(self._path))

    def read(self) -> str:
        """Where the sessions are; "" if the store is not sealed."""
        with suppress(FileNotFoundError):
            return read_beginning(self._system, self._path, _MAX_PLACE).decode(errors="replace").strip()
        return ""

    def put(self, place: str) -> None:
        """Note where the sessions are, durably."""
        replace_file(self._system, self._path, [f"{place}\n".encode()])

    def remove(self) -> bool:
        """Take the note away, durably; False if there was none."""
        was_there = bool(self.read())
        with suppress(FileNotFoundError):
            self._system.unlink(self._path)
        settle_names(self._system, os.path.dirname(self._path))
        return was_there
