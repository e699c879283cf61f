"""The parts of a message as HTML: calls folded to one line, changes as changes, output in colour, pictures, files."""

from __future__ import annotations

import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.responses import Response

from nacre.amounts import size
from nacre.attachments import payload_of
from nacre.messages import Message, ToolCall
from nacre.render.changes import addition_html, edit_html, is_patch, patch_html
from nacre.render.conversation import Call, arguments_of, describe_part, is_text, text_in
from nacre.render.html import ansi, escape, plain
from nacre.render.html_page import amount
from nacre.render.spans import is_linkable
from nacre.render.text import clip, one_line
from nacre.web.http_errors import Fault
from nacre.web.pages import urls

_MAX_LINE = 160
_MAX_TEXT = 200_000
_MIN_SECONDS = 0.1
_MAX_NAMES = 4
MIN_IN_RUN = 3
"""How many calls in a row are folded into one line."""
_MAX_HEIGHT = 448
"""Pixels; the style sheet says the same of pictures whose size is not known."""
_HEAD_BYTES = 256 * 1024
"""How much of a payload is read to see what it is."""
_SIGNS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"....ftypavif", re.DOTALL), "image/avif"),
)
# As a file is attached: its name, then its text.
FILE = re.compile(r'<file name="([^"\n]*)">\n(.*)\n</file>', re.DOTALL)
_JPEG_FRAME = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]..\x08(?P<high>..)(?P<wide>..)", re.DOTALL)
_ALONE = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}


class CallView(Struct, frozen=True, kw_only=True):
    """A call as it was made and its result as text; `since` is when it could have begun at the earliest.

    `is_lost` if nothing came of it; the newest may still be at work.
    """

    call: Call
    given: ToolCall
    text: str
    since: datetime
    end: datetime
    has_failed: bool
    is_lost: bool


def call_line(made: CallView) -> str:
    """A call folded to one line, with its result's own anchor; open if it failed."""
    result, text = made.call.result, made.text
    anchor = f' id="{escape(result.label)}"' if result is not None else ""
    state = ' class="failed" open' if made.has_failed else ""
    if result is None:
        outcome = "<em>no result</em>" if made.is_lost else "<i>no result yet</i>"
    else:
        facts = ", ".join((*_duration(made.end, made.since), amount(text)))
        outcome = f"{'<em>failed</em> ' if made.has_failed else ''}{short(text)} <i>{facts}</i>"
    line = f"{summary(made.given, made.call)} <i>→</i> {outcome}"
    shown = output(text) if result is not None else ""
    return f"<details{anchor}{state}><summary>{line}</summary>{arguments(made.given)}{shown}</details>"


def calls_line(id: str, many: Sequence[CallView], inside: str) -> str:
    """Several calls folded to one line; open if one of them failed."""
    failed, lost = sum(made.has_failed for made in many), sum(made.is_lost for made in many)
    head = [f"<b>{len(many)} tool calls</b>"]
    head += [f"<em>{failed} failed</em>"] if failed else []
    head += [f"<em>{lost} without result</em>"] if lost else []
    names = Counter(one_line(made.call.name) for made in many).most_common()
    listed = [f"{escape(clip(name, 40))}{f' ×{count}' if count > 1 else ''}" for name, count in names[:_MAX_NAMES]]
    listed += ["…"] if len(names) > _MAX_NAMES else []
    took = "".join(f" · {duration}" for duration in _duration(many[-1].end, many[0].since))
    line = f"{', '.join(head)} <i>{', '.join(listed)}{took}</i>"
    return f'<details class="run" id="{id}"{" open" if failed else ""}><summary>{line}</summary>{inside}</details>\n'


def summary(given: ToolCall, call: Call | None = None) -> str:
    """What a call does, in one line."""
    name = call.name if call is not None else given.name
    match name, _mapping(given):
        case "shell", {"command": str(command)}:
            return f"<b>$</b> {short(command)}"
        case _, {"path": str(path)}:
            return f"<b>{escape(one_line(name))}</b> {short(path)}"
        case _:
            return f"<b>{escape(one_line(name))}</b>({short(arguments_of(given))})"


def path_of(given: ToolCall) -> str:
    """The file that a call is about; "" if it names none."""
    arguments = _mapping(given)
    path = arguments.get("path") if isinstance(arguments, Mapping) else None
    return path if isinstance(path, str) else ""


def arguments(given: ToolCall) -> str:
    """A call's arguments: a command as it was typed, an edit as what it changes, all else name by name."""
    match _mapping(given):
        case {"old_text": str(old), "new_text": str(new), **rest}:
            return f"{edit_html(cut(old), cut(new))}{_rest(rest)}"
        case {"old_string": str(old), "new_string": str(new), **rest}:
            return f"{edit_html(cut(old), cut(new))}{_rest(rest)}"
        case {"path": str(), "content": str(content), **rest}:
            return f"{addition_html(cut(content))}{_rest(rest)}"
        case {"command": str(command), **rest}:
            return f'<pre tabindex="0">$ {escape(cut(command))}</pre>{_rest(rest)}'
        case {"patch": str(text), **rest} | {"diff": str(text), **rest}:
            return f"{patch_html(cut(text))}{_rest(rest)}"
        case _:
            text = arguments_of(given)
            return f'<pre tabindex="0">{escape(cut(text))}</pre>' if text else ""


def output(text: str) -> str:
    """A tool's output as a terminal would show it."""
    return patch_html(cut(text)) if is_patch(text) else f'<pre tabindex="0">{ansi(cut(text))}</pre>'


def cut(text: str) -> str:
    """A text that a browser can hold; what is left out is in the raw message."""
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… {len(text) - _MAX_TEXT:,} more characters: the .json version has all of them"


def short(text: str) -> str:
    """The first line of a text that says something."""
    return escape(clip(one_line(plain(text[:_MAX_TEXT])), _MAX_LINE))


def _mapping(given: ToolCall) -> Any:
    """A call's arguments by name; some stores keep them as the text that the model wrote."""
    if not isinstance(given.arguments, str):
        return given.arguments
    try:
        return msgspec.json.decode(given.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _rest(arguments: Mapping[Any, object]) -> str:
    """Arguments that are not shown otherwise; the path stands in the line above."""
    left = {name: value for name, value in arguments.items() if name != "path" or not isinstance(value, str)}
    return f'<pre tabindex="0">{escape(cut(arguments_of(ToolCall(arguments=left))))}</pre>' if left else ""


def _duration(end: datetime, since: datetime) -> Iterator[str]:
    took = (end - since).total_seconds()
    if took >= _MIN_SECONDS:
        yield f"{took:.1f} s"


# ---- pictures and files


def attachments(message: Message) -> list[Any]:
    """All that a message holds besides its text, in order."""
    content = message.content if isinstance(message.content, list) else []
    return [*(part for part in content if not is_text(part)), *message.media]


def attachments_html(message: Message, n: str, *, key: str, generation: str) -> Iterator[str]:
    """Each of them: a picture that is loaded when it comes into view, a file to keep, or words for it.

    Text files that a person attached are folded.
    """
    for part in message.content if message.role == "user" and isinstance(message.content, list) else ():
        if found := FILE.fullmatch(text_in(part) or ""):
            name, text = escape(clip(one_line(found[1]), _MAX_LINE)), escape(cut(found[2]))
            amount = size(len(found[2].encode(errors="replace")))
            head = f"<summary>{name} <i>{amount}</i></summary>"
            yield f'<details>{head}<pre tabindex="0">{text}</pre></details>'
    for at, part in enumerate(attachments(message), 1):
        yield _part_html(part, escape(urls.to("blob", key, n=n, part=at, g=generation)))


def send_attachment(message: Message, at: int) -> Response:
    """A part of a message for a browser: only pictures are shown, whatever they are said to be."""
    found = attachments(message)
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
    name = quote(clip(one_line(payload.name), _MAX_LINE) or "attachment", safe="")
    headers = {**_ALONE, "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _part_html(part: Any, address: str) -> str:
    """A picture or a file, if its bytes can be read; else a few words for it."""
    payload, data = payload_of(part), b""
    try:
        data = payload.bytes(_HEAD_BYTES) if payload is not None else b""
    except (binascii.Error, ValueError):
        payload = None
    if payload is None:
        # A picture that is elsewhere is linked, never loaded.
        words = escape(clip(one_line(describe_part(part)), _MAX_LINE))
        found = re.search(r"https?://[^\s\"'<>]+", describe_part(part))
        if found is not None and is_linkable(found[0]):
            words = f'<a href="{escape(found[0])}" rel="noopener noreferrer nofollow">{words}</a>'
        return f'<p class="attachment">[{words}]</p>'
    name = escape(clip(one_line(payload.name), _MAX_LINE))
    amount = size(payload.size)
    if _kind(data):
        words = f"{name or 'Picture'}, {amount}"
        return (
            f'<p class="picture"><a href="{address}" target="_blank" rel="noopener">'
            f'<img src="{address}" alt="{words}" loading="lazy" decoding="async"{_extent(data)}></a></p>'
        )
    kind = escape(clip(one_line(payload.kind), _MAX_LINE))
    return f'<p class="attachment"><a href="{address}" download>{name or kind}</a> {kind if name else ""} {amount}</p>'


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
    shown = min(high, _MAX_HEIGHT)
    return f' width="{max(round(wide * shown / high), 1)}" height="{shown}"' if wide and high else ""
