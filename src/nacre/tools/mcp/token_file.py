"""What logging in to a server gave us, in a private file per server."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from nacre.tools.mcp.client_types import Config, clean
from nacre.user_files import locked, write_whole


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens, until when they are valid, the client that we were registered as, and where all that came from.

    `wanted` is a scope that the server asked for when nobody could be asked to agree.
    """

    tokens: dict[str, Any] | None = None
    expires: float | None = None
    client: dict[str, Any] | None = None
    issuer: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    wanted: str = ""


class TokenFile:
    """The file of one server. Its name has a digest of the address: no other host is ever sent these tokens."""

    def __init__(self, folder: Path, config: Config) -> None:
        digest = sha256(f"{config.name}\n{config.url}".encode()).hexdigest()[:16]
        self._path = folder / f"{clean(config.name)[:40]}~{digest}.json"

    @property
    def stamp(self) -> tuple[int, int] | None:
        """What changes when the file does."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self) -> Record:
        """What is in the file; nothing if there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Record()

    def change(self, **fields: Any) -> None:
        """Replace some of it, durably; only the user may read the file."""
        with locked(self._path.parent):
            write_whole(self._path, msgspec.json.encode(msgspec.structs.replace(self.read(), **fields)))

    def erase(self) -> bool:
        """Remove it; False if there was none."""
        if not self._path.exists():
            return False
        with locked(self._path.parent):
            self._path.unlink(missing_ok=True)
        return True
