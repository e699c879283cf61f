"""Texts, counts and times on one line of a terminal, and in JSON."""

from __future__ import annotations

import os
import re
from datetime import timedelta

from nacre.amounts import several, size
from nacre.cli.failures import Failure
from nacre.render.text import clip as cut
from nacre.render.text import cuts, pad, visible, visible_line, width

__all__ = ["chop", "clean", "clean_json", "cut", "pad", "several", "short_path", "size", "width", "wrap"]

# What JSON lets stand in a string and a terminal would obey: DEL, C1, separators, directions, tags.
_HOSTILE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_LAST_UNIT = 0xFFFF
_SPAN = re.compile(r"(\d{1,6})\s*(s|min|h|d|w|y)\Z")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


def clean(text: str, *, lines: bool = False) -> str:
    """Make control characters visible, so that what people wrote cannot command a terminal.

    With `lines` the line breaks and tabs of a longer text stay what they are.
    """
    return visible(text) if lines else visible_line(text)


def clean_json(text: str) -> str:
    """Escape, in JSON text, what JSON itself lets stand and a terminal would obey."""

    def escape(found: re.Match[str]) -> str:
        point = ord(found[0])
        if point <= _LAST_UNIT:
            return f"\\u{point:04x}"
        point -= _LAST_UNIT + 1
        return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"

    return text if text.isascii() and "\x7f" not in text else _HOSTILE.sub(escape, text)


def wrap(text: str, columns: int) -> list[str]:
    """Break a text between words, so that no line is longer than some columns."""
    return [text[start:end] for start, end in cuts(text, columns)]


def chop(text: str, columns: int) -> list[str]:
    """Break a text anywhere, so that no line is longer than some columns and every character is there."""
    lines: list[str] = []
    while width(text) > columns:
        head = cut(text, columns, mark="") or text[0]
        lines.append(head)
        text = text[len(head) :]
    return [*lines, text]


def is_utf8(text: str) -> bool:
    """Tell whether a text of the command line or the file system can be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def short_path(path: str, limit: int = 30) -> str:
    """A path with ~ for the home directory; the end of it, if it is longer than `limit` characters."""
    home = os.path.expanduser("~")
    short = clean(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path)
    return short if len(short) <= limit else f"…{short[1 - limit :]}"


def parse_duration(text: str) -> timedelta:
    """Read a span of time such as `30d`, `12h` or `2w`."""
    found = _SPAN.match(text.strip())
    if found is None:
        raise Failure("usage", f"{text!r} is not a duration", hint="write it as 45min, 12h, 30d, 2w or 1y")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
