"""Files attached to a message at a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacre.channels.file_parts import file_part, max_bytes
from nacre.errors import NacreError


def attached(path: str, folder: str = "") -> dict[str, Any]:
    """A file as a part of a message, named from a folder or in full; raises NacreError if it cannot be one."""
    place = Path(folder, Path(path).expanduser())
    return file_part(path, _read(place, max_bytes(path)))


def split(whole: object) -> tuple[str, list[dict[str, Any]]]:
    """The text of a message and the parts that were attached to it, as `content` put them together."""
    if isinstance(whole, str):
        return whole, []
    parts = [part for part in whole if isinstance(part, dict)] if isinstance(whole, list) else []
    if not parts or parts[-1].get("type") != "text":
        return "", parts
    return str(parts[-1].get("text", "")), parts[:-1]


def _read(place: Path, most: int) -> bytes:
    try:
        with place.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise NacreError(f"{str(place)!r} cannot be read: {error.strerror}") from error
