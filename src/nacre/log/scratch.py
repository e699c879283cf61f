"""The next version of a log, written beside it and put in its place by one rename."""

from __future__ import annotations

import os

from nacre.log.ops import Ops
from nacre.log.place import Place, unlink_if_there, write_all

_BLOCK = 1024 * 1024


class Scratch:
    """A new log under a name of its own, locked from the start."""

    def __init__(self, ops: Ops, place: Place) -> None:
        self._ops = ops
        self._place = place
        self._held: list[bytes] = []
        self._held_size = 0
        self.size = 0
        unlink_if_there(ops, place.scratch)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self.fd = ops.open(place.scratch, flags, 0o600)
        # Whoever opens the new log by its name must wait until we let go.
        ops.flock(self.fd, wait=True)

    def add(self, line: bytes) -> None:
        self._held.append(line)
        self._held_size += len(line)
        if self._held_size >= _BLOCK:
            self._write()

    def install(self) -> None:
        """Flush the new log and give it the old one's name; the name is not yet settled."""
        self._write()
        self._ops.fsync(self.fd)
        self._ops.rename(self._place.scratch, self._place.log)

    def discard(self) -> None:
        self._ops.close(self.fd)
        try:
            unlink_if_there(self._ops, self._place.scratch)
        except OSError:
            # The next rewrite removes it; the log itself was not touched.
            return

    def _write(self) -> None:
        data = b"".join(self._held)
        write_all(self._ops, self.fd, data)
        self.size += len(data)
        self._held, self._held_size = [], 0
