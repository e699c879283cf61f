"""A file of lines beside the sessions, written by one process at a time: what a long task has done so far."""

from __future__ import annotations

import os
from typing import Self

from nacre.errors import SessionBusy, StoreError
from nacre.storage.paths import make_folder, settle_names, write_all
from nacre.storage.system import System

_LONGEST = 1 << 16


class Journal:
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
        lines = self._system.pread(self._fd, min(size, _LONGEST), max(0, size - _LONGEST)).splitlines()
        return lines[-1] if lines else b""

    def add(self, line: bytes) -> None:
        """Append a line, durably; a torn one before it is ended first."""
        size = self._system.fstat(self._fd).st_size
        is_torn = size > 0 and self._system.pread(self._fd, 1, size - 1) != b"\n"
        write_all(self._system, self._fd, b"\n" * is_torn + line + b"\n")
        self._system.fdatasync(self._fd)
