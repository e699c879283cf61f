"""Whose turn it is: a lock that says who has it, beside the log and without a say in what is written."""

from __future__ import annotations

import json
import os

from nacre.entries import timestamp
from nacre.errors import Refused, SessionBusy
from nacre.log.ops import Ops
from nacre.log.place import Place, unlink_if_there, write_all

_MOST = 4096


class FileHold:
    """The lock of one session for one process; a file that is there only while somebody cares for it.

    What a killed process left is taken over: its lock went with it.
    """

    def __init__(self, ops: Ops, place: Place) -> None:
        self._ops = ops
        self._key = place.key
        self._folder = f"{place.root}/locks"
        self._path = f"{self._folder}/{place.name}.turn"
        self._fd = -1

    def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another process."""
        try:
            while not self._taken():
                continue
        except OSError as error:
            raise Refused(f"session {self._key!r} cannot be held: {error}") from error

    def close(self) -> None:
        """Let others take it, and leave nothing behind."""
        if self._fd >= 0:
            if self._has_the_name():
                unlink_if_there(self._ops, self._path)
            self._drop()

    def _taken(self) -> bool:
        """Try once; False if the file was taken away meanwhile."""
        if self._fd < 0:
            self._open()
        if not self._ops.flock(self._fd, wait=False):
            who = self._ops.pread(self._fd, _MOST, 0).decode(errors="replace").strip()
            self._drop()
            raise SessionBusy(f"session {self._key!r} is at work in another process: {who or 'it does not say which'}")
        if not self._has_the_name():
            self._drop()
            return False
        self._sign()
        return True

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        try:
            self._fd = self._ops.open(self._path, flags, 0o600)
        except FileNotFoundError:
            self._ops.mkdir(self._folder, 0o700)
            self._fd = self._ops.open(self._path, flags, 0o600)

    def _sign(self) -> None:
        who = {"pid": os.getpid(), "host": os.uname().nodename, "since": timestamp(self._ops.now())}
        self._ops.ftruncate(self._fd, 0)
        write_all(self._ops, self._fd, json.dumps(who).encode())

    def _has_the_name(self) -> bool:
        try:
            named = self._ops.stat(self._path)
        except FileNotFoundError:
            return False
        held = self._ops.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def _drop(self) -> None:
        fd, self._fd = self._fd, -1
        self._ops.close(fd)
