"""Files attached to a message: text as text, images as images."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Any

from nacre.errors import NacreError

_MOST_TEXT = 400_000
_MOST_IMAGE = 10_000_000
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def attached(path: str, folder: str = "") -> dict[str, Any]:
    """A file as a part of a message, named from a folder or in full; raises NacreError if it cannot be one."""
    place = Path(folder, Path(path).expanduser())
    kind = mimetypes.guess_type(place.name)[0] or ""
    is_image = kind in _IMAGES
    data = _read(place, _MOST_IMAGE if is_image else _MOST_TEXT)
    if is_image:
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NacreError(
            f"{path!r} is neither text nor an image: attach a PNG, JPEG, GIF, WebP or UTF-8 file"
        ) from error
    return {"type": "text", "text": f'<file name="{place.name}">\n{text}\n</file>'}


def content(words: str, parts: list[dict[str, Any]]) -> str | list[Any]:
    """The content of a message: its text, and the parts that are attached."""
    return [*parts, {"type": "text", "text": words}] if parts else words


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
            data = file.read(most + 1)
    except OSError as error:
        raise NacreError(f"{str(place)!r} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise NacreError(f"{str(place)!r} has more than {most:,} bytes: too many to attach; let the agent read it")
    return data
