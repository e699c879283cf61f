"""What a message holds besides its text: files in whichever of the usual shapes they stand, and words for them."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from nacre.amounts import size

_MEDIA = ("media_type", "mimeType", "mime_type", "mimetype", "document_mimetype", "audio_mimetype", "video_mimetype")
_DATA = ("data", "blob", "base64", "file_data", "bytes", "audio", "video")
_NAMES = ("filename", "file_name", "name", "title", "display_name")
_PLACES = ("file_url", "file_uri", "fileUri")
_IS_DATA = re.compile(r"data:[^,\s]*;base64,|[A-Za-z0-9+/_-]{256,}+={0,2}\s*\Z")
_MAX_NAME = 200
_OF_ADDRESSES = str.maketrans("-_", "+/")


class Payload(Struct, frozen=True, kw_only=True):
    """Bytes as a message has them; `kind` is what they are said to be."""

    kind: str
    text: str
    is_base64: bool = True
    name: str = ""

    @property
    def size(self) -> int:
        """How many bytes it holds, if it can be read."""
        if not self.is_base64:
            return len(unquote_to_bytes(self.text))
        return len(self.text) * 3 // 4 - self.text.count("=", -2)

    def bytes(self, limit: int = 0) -> bytes:
        """What it holds, or the beginning of that; raises ValueError if it cannot be read."""
        if not self.is_base64:
            return unquote_to_bytes(self.text)
        plain = "".join((self.text[: limit * 4 // 3] if limit else self.text).split()).translate(_OF_ADDRESSES)
        return b64decode(plain[: len(plain) // 4 * 4] if limit else plain + "=" * (-len(plain) % 4), validate=True)


def payload_of(part: Any) -> Payload | None:
    """The bytes in a part of a message; None if it has none."""
    if isinstance(part, str):
        return _of_address(part, "")
    form = named = ""
    for inside in _mappings(part):
        name = _name_in(inside)
        for value in inside.values():
            if isinstance(value, str) and (found := _of_address(value, name)) is not None:
                return found
        # A format may be given outside of the data: {"format": "pdf", "source": {"bytes": …}}.
        if isinstance(given := inside.get("format"), str):
            form, named = given, name
        data = next((value for field in _DATA if isinstance(value := inside.get(field), str | bytes) and value), None)
        kind = next((value for field in _MEDIA if isinstance(value := inside.get(field), str) and value), None)
        if data is None or (kind is None and not form):
            continue
        if kind is None:
            family = str(part.get("type", "")) if isinstance(part, Mapping) else ""
            kind = f"{'application' if family in ('document', 'file') else family.removeprefix('input_')}/{form}"
            name = name or named
        text = b64encode(data).decode() if isinstance(data, bytes) else data
        return Payload(kind=kind, text=text, name=name)
    return None


def describe_file(part: Any) -> str:
    """Words for a file: its media type and size, or where it is, and its name; "" if a part is none."""
    payload = payload_of(part)
    if payload is not None:
        name = _on_one_line(payload.name)
        return f"{_on_one_line(payload.kind)}, {size(payload.size)}{': ' * bool(name)}{name}"
    kind = (part.get("type") if isinstance(part, Mapping) else "") or "file"
    for inside in _mappings(part):
        place = next((value for field in _PLACES if isinstance(value := inside.get(field), str) and value), "")
        if place or isinstance(place := inside.get("filename"), str):
            return f"{kind}: {_on_one_line(place)}"
    return ""


def _on_one_line(text: str) -> str:
    """The beginning of a name, which may be anything that somebody has sent."""
    return " ".join(text[:_MAX_NAME].split())


def is_data(text: str) -> bool:
    """Tell whether a text is base64 or an address that has it, in which nobody reads or finds anything."""
    return _IS_DATA.match(text) is not None


def without_data(value: Any) -> Any:
    """A JSON value with sizes such as `2.1 kB` in the place of base64."""
    match value:
        case str() if is_data(value):
            return describe_file(value) or size(Payload(kind="", text=value).size)
        case list() | tuple():
            return [without_data(item) for item in value]
        case dict():
            return {name: without_data(item) for name, item in value.items()}
        case _:
            return value


def _of_address(text: str, name: str) -> Payload | None:
    if not text.startswith("data:"):
        return None
    head, _, data = text[5:].partition(",")
    kind, *options = head.split(";")
    return Payload(kind=kind or "text/plain", text=data, is_base64="base64" in options, name=name)


def _name_in(inside: Mapping[str, Any]) -> str:
    return next((value for field in _NAMES if isinstance(value := inside.get(field), str) and value), "")


def _mappings(part: Any) -> Iterator[Mapping[str, Any]]:
    """A mapping and those inside of it, outermost first."""
    if isinstance(part, Mapping):
        yield part
        for value in part.values():
            yield from _mappings(value)
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        for value in part:
            yield from _mappings(value)
