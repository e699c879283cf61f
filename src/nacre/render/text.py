"""Text that is safe to print: control characters made visible, measured and wrapped by terminal columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

# What can drive a terminal or hide text: C0 without newline and tab, DEL, C1, line separators, marks and
# overrides of direction, invisible tag characters; and surrogates, which cannot be written at all.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_WIDE = ("W", "F")
_EMPTY = ("Mn", "Me", "Cf")
_KILO = 1000
_UNITS = "kMGTP"


def visible(text: str) -> str:
    """The text with every character that could drive a terminal or hide text shown as its number."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The first line that says something, safe to print."""
    return visible(text.strip().partition("\n")[0].expandtabs(1)).strip()


def width(text: str) -> int:
    """How many columns a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def clip(text: str, columns: int, *, mark: str = "…") -> str:
    """The text if it fits, else its beginning and a mark."""
    if len(text) <= columns and width(text) <= columns:
        return text
    return text[: _fitting(text, 0, max(columns - width(mark), 0))] + mark[:columns]


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text with blanks up to a width, behind it or before it."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def cuts(text: str, columns: int) -> Iterator[tuple[int, int]]:
    """Where a line is cut to fit: at blanks, beside wide characters, else anywhere; blanks at a cut are left out."""
    start, size = 0, len(text)
    while True:
        limit = max(_fitting(text, start, columns), start + 1)
        if limit >= size:
            yield start, size
            return
        end = _cut(text, start, limit)
        yield start, start + (len(text[start:end].rstrip(" ")) or end - start)
        start = end + 1 if text[end] == " " else end


def wrapped(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, cut to fit."""
    for line in text.split("\n"):
        yield from (line[start:end] for start, end in cuts(line, columns))


def count(number: int) -> str:
    """A count for people: 999, 12.3k, 4.0M."""
    if number < _KILO:
        return str(number)
    power = 0
    value = float(number)
    while value >= _KILO - 0.05 and power < len(_UNITS):
        value /= _KILO
        power += 1
    return f"{value:.1f}{_UNITS[power - 1]}"


def size(bytes_: int) -> str:
    """A size for people: 31 B, 2.1 kB."""
    short = count(bytes_)
    return f"{short} B" if short.isdigit() else f"{short[:-1]} {short[-1]}B"


def ago(moment: datetime, now: datetime) -> str:
    """How long ago that was, in the largest unit that fits; a date for more than a month."""
    seconds = int((now - moment) / timedelta(seconds=1))
    if seconds < 0 or seconds >= 30 * 86400:
        return f"{moment:%Y-%m-%d %H:%M}"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "just now"


def _shown(match: re.Match[str]) -> str:
    r"""The character as an escape of its number: \x1b, \u202e."""
    code = ord(match[0])
    if code <= 0xFF:  # noqa: PLR2004 - two digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in _EMPTY:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def _fitting(text: str, start: int, columns: int) -> int:
    """Where the part that begins at `start` and fits ends."""
    if text.isascii():
        return min(start + columns, len(text))
    room = columns
    for place in range(start, len(text)):
        room -= _columns(text[place])
        if room < 0:
            return place
    return len(text)


def _cut(text: str, start: int, limit: int) -> int:
    """The best place for a cut that is not behind `limit`."""
    # Blanks that a line begins with are its indentation, and no place to cut.
    first = start + len(text[start:limit]) - len(text[start:limit].lstrip(" "))
    for place in range(limit, first, -1):
        if text[place] == " " or _columns(text[place]) > 1 or _columns(text[place - 1]) > 1:
            return place
    return limit
