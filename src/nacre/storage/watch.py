"""Waiting until something in a directory changes, without asking again and again."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from contextlib import suppress
from threading import RLock
from types import TracebackType
from typing import Self

from nacre.storage.paths import log_stem, stem

_MODIFY, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x80, 0x100, 0x200
_PATIENCE = 0.2
_EVENT = struct.Struct("iIII")


class Watch:
    """A directory that is watched from the moment this is made, so that no change is missed before `wait`.

    One that cannot be watched, as one without a name, tells nothing.

    >>> watch = sessions.watch()
    >>> number = sessions.add_message("cli:1", "user", "And a pearl?")
    >>> watch.fd < 0 or watch.name("cli:1") in watch.changed()
    True
    >>> watch.close()
    """

    def __init__(self, folder: str) -> None:
        self._fd = _inotify(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Watch no longer; twice is harmless."""
        # First: the number may be another file's as soon as it is closed.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def fd(self) -> int:
        """What becomes readable when something has changed; -1 where nothing tells."""
        return self._fd

    def name(self, key: str) -> str:
        """What `changed` calls a session."""
        return f"{log_stem(stem(key))}.jsonl"

    def wait(self) -> None:
        """Return when something has changed since the last call; at times also when nothing has."""
        if self._fd < 0:
            time.sleep(_PATIENCE)
            return
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll()
        self.changed()

    def changed(self) -> set[str]:
        """The names of what has changed since the last call; "" if that may be anything. Only when `fd` is readable."""
        data, at, names = os.read(self._fd, 64 * 1024), 0, set[str]()
        while at < len(data):
            _, _, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size + size
            names.add(os.fsdecode(data[at - size : at].rstrip(b"\0")))
        return names


class MemoryWatch(Watch):
    """The same for a store in RAM, which tells it what changes; a pipe is readable when it has."""

    def __init__(self) -> None:
        self._fd = self._bell = -1
        # Re-entrant, since a signal handler may write too.
        self._lock = RLock()
        # Each session once, however often it has changed.
        self._names: dict[str, None] = {}
        with suppress(OSError):
            self._fd, self._bell = os.pipe()
            os.set_blocking(self._bell, False)

    def close(self) -> None:
        with self._lock:
            super().close()
            bell, self._bell = self._bell, -1
            if bell >= 0:
                os.close(bell)

    def tell(self, key: str) -> None:
        """Say that a session has changed."""
        self._tell(self.name(key))

    def _tell(self, name: str) -> None:
        with self._lock:
            if self._bell >= 0:
                self._names[name] = None
                # If the pipe is full, it is readable anyway.
                with suppress(BlockingIOError):
                    os.write(self._bell, b"!")

    def changed(self) -> set[str]:
        # First: what changes from here on makes it readable again.
        os.read(self._fd, 64 * 1024)
        names = set[str]()
        while self._names:
            names.add(self._names.popitem()[0])
        return names


def _inotify(folder: str) -> int:
    """A descriptor that becomes readable when a file in the folder is made, changed, moved there or removed.

    Only Linux has it; -1 elsewhere, and where the folder cannot be watched.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return -1
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(folder), _MODIFY | _MOVED_TO | _CREATE | _DELETE) < 0:
        os.close(fd)
        fd = -1
    return int(fd)
