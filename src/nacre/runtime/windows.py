"""What servers were found to take, kept for a day: the next process need not be refused to know it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from nacre.user_files import locked, state_folder, write_whole

_AGE = 24 * 60 * 60
"""Seconds until a window is asked for again: somebody may have started the server with another one."""


class Known(Struct, frozen=True, kw_only=True):
    """The window of a model in its own tokens, and when that was found."""

    tokens: int
    at: float = 0.0


class Windows:
    """The windows of models by name, in a file that may be deleted at any time; without a path, only in RAM."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = _read(path)

    def of(self, name: str) -> Known | None:
        """What was found of a model within the last day."""
        known = self._known.get(name)
        return known if known is not None and 0 <= time.time() - known.at < _AGE else None

    def remember(self, name: str, found: Known) -> None:
        """Keep what was found; a file that cannot be written costs a refusal in the next process, no more."""
        fresh = msgspec.structs.replace(found, at=time.time())
        self._known[name] = fresh
        if self._path is not None:
            with suppress(OSError), locked(self._path.parent):
                write_whole(self._path, msgspec.json.encode({**_read(self._path), name: fresh}))


def usual_path() -> Path:
    """Where windows are kept."""
    return Path(state_folder()) / "windows.json"


def _read(path: Path | None) -> dict[str, Known]:
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Known]) if path is not None else {}
    return {}
