"""Documents in files: small, read whole, and replaced whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress

from nacre.errors import StoreError
from nacre.storage.paths import make_folder, settle_names, write_all
from nacre.storage.protocol import Lease
from nacre.storage.seal import Seal
from nacre.storage.system import System, opened, wrap_error

FOLDER = "channels"
"""Where in a store documents are: what is kept in them is how far channels have read."""


def path_of(root: str, name: str) -> str:
    """The file of a document."""
    return f"{root}/{FOLDER}/{name}.json"


class FileDocument:
    """A document in a file; not changed once the lease `held` is lost, or the store was sealed before that began."""

    def __init__(
        self, path: str, system: System | None = None, *, held: Lease | None = None, seal: Seal | None = None
    ) -> None:
        self._path, self._system, self._held, self._seal = path, system or System(), held, seal

    def read(self) -> bytes:
        with (
            wrap_error(StoreError, f"{self._path} cannot be read"),
            suppress(FileNotFoundError),
            opened(self._system, self._path) as fd,
        ):
            return self._system.pread(fd, self._system.fstat(fd).st_size, 0)
        return b""

    def write(self, data: bytes) -> None:
        if self._seal is not None:
            self._seal.check_now()
        if self._held is not None:
            self._held.check()
        folder, new = os.path.dirname(self._path), f"{self._path}.new"
        with wrap_error(StoreError, f"{self._path} cannot be written"):
            if not os.path.isdir(folder):
                make_folder(self._system, folder)
            with opened(self._system, new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW) as fd:
                write_all(self._system, fd, data)
                self._system.fsync(fd)
            self._system.rename(new, self._path)
            # The rename is durable when its folder is.
            settle_names(self._system, folder)

    def set_aside(self) -> str:
        aside = f"{self._path}.unreadable"
        with wrap_error(StoreError, f"{self._path} cannot be renamed"):
            self._system.rename(self._path, aside)
            settle_names(self._system, os.path.dirname(self._path))
        return aside
