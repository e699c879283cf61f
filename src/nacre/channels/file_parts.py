"""Files as parts of a message: text as text, images as images."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nacre.errors import NacreError
from nacre.history.pairing import PASTED

MAX_TEXT_BYTES = 400_000
MAX_IMAGE_BYTES = 10_000_000
# A name or an address that somebody pastes is as good as typed.
_MIN_PASTED = 6
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def max_bytes(name: str) -> int:
    """How large a file of that name may be."""
    return MAX_IMAGE_BYTES if _kind(name) in _IMAGES else MAX_TEXT_BYTES


def file_part(name: str, data: bytes) -> dict[str, Any]:
    """A file as a part of a message; raises NacreError if it is too large, or neither text nor an image."""
    if (kind := _kind(name)) in _IMAGES:
        return image_part(name, kind, data)
    # Before it is decoded: what is too large is said to be that, whatever it is.
    _check_size(name, len(data), MAX_TEXT_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NacreError(
            f"{name!r} is neither text nor an image: attach a PNG, JPEG, GIF, WebP or UTF-8 file"
        ) from error
    return text_part(name.rpartition("/")[2], text)


def text_part(name: str, text: str) -> dict[str, Any]:
    """A text as a part of a message, under a name; raises NacreError if it is too large."""
    _check_size(name, len(text.encode("utf-8", "replace")), MAX_TEXT_BYTES)
    return {"type": "text", "text": f'<file name="{name}">\n{text}\n</file>'}


def image_part(name: str, kind: str, data: bytes) -> dict[str, Any]:
    """An image of a media type as a part of a message; raises NacreError if no model can be shown it."""
    if kind not in _IMAGES:
        raise NacreError(f"{name!r:.200} cannot be attached: attach a PNG, JPEG, GIF or WebP image, or text")
    if not data:
        raise NacreError(f"{name!r:.200} is empty: an image has at least one byte")
    _check_size(name, len(data), MAX_IMAGE_BYTES)
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise NacreError(f"{name!r:.200} has more than {limit:,} bytes: too many to attach; let the agent read it")


def mark_pasted(words: str, texts: Iterable[str]) -> dict[str, Any]:
    """Fields for a message's extra that say where its words are not the user's own; memory does not believe those."""
    # Every place of each text: one may have been pasted twice, or have another inside it.
    places = []
    for text in dict.fromkeys(map(str.strip, texts)):
        begin = words.find(text) if len(text.split()) >= _MIN_PASTED else -1
        while begin >= 0:
            places.append((begin, begin + len(text)))
            begin = words.find(text, begin + len(text))
    found: list[list[int]] = []
    for begin, end in sorted(places):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(end, found[-1][1])
        else:
            found.append([begin, end])
    return {PASTED: found} if found else {}


def content(words: str, parts: list[dict[str, Any]]) -> str | list[Any]:
    """The content of a message: its text, and the parts that are attached."""
    return [*parts, {"type": "text", "text": words}] if parts else words


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or ""


def attach(path: str, folder: str = "") -> dict[str, Any]:
    """A file as a part of a message, named from a folder or in full; raises NacreError if it cannot be one."""
    place = Path(folder, Path(path).expanduser())
    try:
        with place.open("rb") as file:
            return file_part(path, file.read(max_bytes(path) + 1))
    except OSError as error:
        raise NacreError(f"{str(place)!r} cannot be read: {error.strerror}") from error


def split(whole: object) -> tuple[str, list[dict[str, Any]]]:
    """The text of a message and the parts that were attached to it, as `content` put them together."""
    if isinstance(whole, str):
        return whole, []
    parts = [part for part in whole if isinstance(part, dict)] if isinstance(whole, list) else []
    if not parts or parts[-1].get("type") != "text":
        return "", parts
    return str(parts[-1].get("text", "")), parts[:-1]
