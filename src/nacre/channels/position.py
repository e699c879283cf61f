"""How far a channel has read: a small value that is replaced whole or not at all."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


class Position:
    """A JSON object in a file; when `write` returns it survives a power loss."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """What was written last; nothing if nothing was, or if it cannot be understood."""
        try:
            found = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        # It is kept for whoever wants to see what it was; the channel begins as it did the first time.
        self._path.replace(self._path.with_name(f"{self._path.name}.unreadable"))
        logger.warning(
            "the saved position of a channel cannot be read; the file was renamed", extra={"file": str(self._path)}
        )
        return {}

    def write(self, value: dict[str, Any]) -> None:
        """Replace the value; raises OSError, and then it is what it was."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.new")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(json.dumps(value).encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        _settle(self._path.parent)


def _settle(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
