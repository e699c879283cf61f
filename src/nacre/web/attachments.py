"""What a message holds beside its text: pictures to show, files to keep, and how either is sent."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct
from starlette.responses import Response

from nacre.messages import Message
from nacre.render.conversation import described, is_text, text_in
from nacre.render.html import escaped
from nacre.render.spans import is_linkable
from nacre.render.text import clip, one_line, size
from nacre.web.http_errors import Fault
from nacre.web.pages import urls
from nacre.web.pages.call_html import cut

_LONGEST_LINE = 160
_HIGHEST = 448
"""Pixels; the style sheet says the same of pictures whose size is not known."""
_ENOUGH = 256 * 1024
_SIGNS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"....ftypavif", re.DOTALL), "image/avif"),
)
# As a file is attached: its name, then its text.
_FILE = re.compile(r'<file name="([^"\n]*)">\n(.*)\n</file>', re.DOTALL)
_JPEG_FRAME = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]..\x08(?P<high>..)(?P<wide>..)", re.DOTALL)
_ALONE = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}


class Payload(Struct, frozen=True, kw_only=True):
    """Bytes as a message has them; `kind` is what they are said to be."""

    kind: str
    text: str
    is_base64: bool = True
    name: str = ""

    def bytes(self, most: int = 0) -> bytes:
        """What it holds, or the beginning of that; raises ValueError if it cannot be read."""
        if not self.is_base64:
            return unquote_to_bytes(self.text)
        plain = "".join(self.text.split()) if not most else "".join(self.text[: most * 4 // 3].split())
        return b64decode(plain[: len(plain) // 4 * 4] if most else plain + "=" * (-len(plain) % 4), validate=True)


def parts(message: Message) -> list[Any]:
    """All that a message holds beside its text, in order."""
    content = message.content if isinstance(message.content, list) else []
    return [*(part for part in content if not is_text(part)), *message.media]


def html(message: Message, n: str, *, key: str, generation: str) -> Iterator[str]:
    """Each of them: a picture that is loaded when it comes into view, a file to keep, or words for it.

    Text files that a person attached are folded.
    """
    if message.role == "user" and isinstance(message.content, list):
        yield from (_file(found) for part in message.content if (found := _FILE.fullmatch(text_in(part) or "")))
    for at, part in enumerate(parts(message), 1):
        payload = payload_of(part)
        address = urls.to("blob", key, n=n, part=at, g=generation)
        yield _words(part) if payload is None else _shown(payload, part, escaped(address))


def is_file(text: str) -> bool:
    """Tell whether a text is a file that was attached."""
    return _FILE.fullmatch(text) is not None


def sent(message: Message, at: int) -> Response:
    """A part of a message for a browser: only pictures are shown, whatever they are said to be."""
    found = parts(message)
    payload = payload_of(found[at - 1]) if 0 < at <= len(found) else None
    if payload is None:
        raise Fault("not_found", "this message has no such attachment")
    try:
        data = payload.bytes()
    except ValueError as error:
        raise Fault("not_found", f"the attachment cannot be read: {error}") from error
    kind = _kind(data)
    if kind:
        return Response(data, media_type=kind, headers=_ALONE)
    name = quote(clip(one_line(payload.name), _LONGEST_LINE) or "attachment", safe="")
    headers = {**_ALONE, "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def payload_of(part: Any) -> Payload | None:
    """The bytes in a part of a message, in whichever of the usual shapes they stand; None if it has none."""
    if isinstance(part, str):
        return _of_address(part, "")
    for inside in _mappings(part):
        name = next((str(inside[field]) for field in ("filename", "name", "title") if inside.get(field)), "")
        for value in inside.values():
            if isinstance(value, str) and (found := _of_address(value, name)) is not None:
                return found
        kind = next((inside[field] for field in ("media_type", "mimeType", "mime_type") if inside.get(field)), None)
        data = inside.get("data") or inside.get("blob")
        if isinstance(kind, str) and isinstance(data, str):
            return Payload(kind=kind, text=data, name=name)
        if isinstance(data, str) and isinstance(inside.get("format"), str):
            return Payload(kind=f"audio/{inside['format']}", text=data, name=name or f"audio.{inside['format']}")
    return None


def _of_address(text: str, name: str) -> Payload | None:
    if not text.startswith("data:"):
        return None
    head, _, data = text[5:].partition(",")
    kind, *options = head.split(";")
    return Payload(kind=kind or "text/plain", text=data, is_base64="base64" in options, name=name)


def _mappings(part: Any) -> Iterator[Mapping[str, Any]]:
    """A mapping and those inside of it, outermost first."""
    if isinstance(part, Mapping):
        yield part
        for value in part.values():
            yield from _mappings(value)
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        for value in part:
            yield from _mappings(value)


def _file(found: re.Match[str]) -> str:
    name, text = escaped(clip(one_line(found[1]), _LONGEST_LINE)), found[2]
    amount = size(len(text.encode(errors="replace")))
    return f'<details><summary>{name} <i>{amount}</i></summary><pre tabindex="0">{escaped(cut(text))}</pre></details>'


def _shown(payload: Payload, part: Any, address: str) -> str:
    try:
        data = payload.bytes(_ENOUGH)
    except (binascii.Error, ValueError):
        return _words(part)
    name = escaped(clip(one_line(payload.name), _LONGEST_LINE))
    amount = size(len(payload.text) * 3 // 4 if payload.is_base64 else len(data))
    if _kind(data):
        words = f"{name or 'Picture'}, {amount}"
        return (
            f'<p class="picture"><a href="{address}" target="_blank" rel="noopener">'
            f'<img src="{address}" alt="{words}" loading="lazy" decoding="async"{_extent(data)}></a></p>'
        )
    kind = escaped(clip(one_line(payload.kind), _LONGEST_LINE))
    return f'<p class="attachment"><a href="{address}" download>{name or kind}</a> {kind if name else ""} {amount}</p>'


def _words(part: Any) -> str:
    """A few words; a picture that is elsewhere is linked, never loaded."""
    words = escaped(clip(one_line(described(part)), _LONGEST_LINE))
    found = re.search(r"https?://[^\s\"'<>]+", described(part))
    if found is None or not is_linkable(found[0]):
        return f'<p class="attachment">[{words}]</p>'
    return f'<p class="attachment">[<a href="{escaped(found[0])}" rel="noopener noreferrer nofollow">{words}</a>]</p>'


def _kind(data: bytes) -> str:
    """What pictures bytes are, by themselves; "" for everything that is not simply drawn."""
    return next((kind for sign, kind in _SIGNS if sign.match(data)), "")


def _extent(data: bytes) -> str:
    """A picture's width and height, so that its place is kept before it is loaded."""
    wide = high = 0
    if data.startswith(b"\x89PNG"):
        wide, high = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif data.startswith(b"GIF8"):
        wide, high = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data.startswith(b"\xff\xd8") and (frame := _JPEG_FRAME.search(data)) is not None:
        wide, high = int.from_bytes(frame["wide"]), int.from_bytes(frame["high"])
    elif data[12:16] == b"VP8X":
        wide, high = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    # As high as it is shown at most, so that nothing moves when it comes.
    shown = min(high, _HIGHEST)
    return f' width="{max(round(wide * shown / high), 1)}" height="{shown}"' if wide and high else ""
