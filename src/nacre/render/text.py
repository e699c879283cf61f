"""Text that is safe to print: control characters made visible, measured and wrapped by terminal columns; and bars.

Texts are measured by what a terminal shows as one: a letter with its marks, an emoji sequence, a flag, a syllable of
Hangul or Devanagari. `wcwidth` knows these; without it (it comes with the `agent` extra) marks are joined to the
character before them, and sequences are measured too wide, never too narrow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from nacre.amounts import count

# What can drive a terminal or hide text: C0 without newline and tab, DEL, C1, line separators, marks and
# overrides of direction, invisible tag characters; and surrogates, which cannot be written at all.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_WIDE = ("W", "F")
_EMPTY = ("Mn", "Me", "Cf")
_JOINING = (*_EMPTY, "Mc")
_HANGUL_TAILS = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))
"""Vowels and final consonants of Hangul, which are drawn into the consonant before them."""
_EMOJI = "\ufe0f"
"""Asks for the character before it to be drawn as an emoji."""
_PAIRED = ((0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF))
"""Letters of flags, and skin tones."""
_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MAX_LABEL = 32


def visible(text: str) -> str:
    r"""The text with every character that could drive a terminal or hide text as its number: \x1b, \u202e."""
    if text.isascii() and text.isprintable():
        return text

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        if code <= 0xFF:  # noqa: PLR2004 - two digits
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four

    return _UNSAFE.sub(escape, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    r"""The same, with line breaks and tabs visible too: \n, \t."""
    return text if text.isprintable() else visible(text.translate(_BREAKS))


def one_line(text: str) -> str:
    """The first line that says something, safe to print."""
    return visible(text.strip().partition("\n")[0].expandtabs(1)).strip()


def width(text: str) -> int:
    """The number of columns that a text takes on a terminal."""
    return len(text) if text.isascii() else sum(columns for _, columns in _cells(text))


def clip(text: str, columns: int, *, mark: str = "…") -> str:
    """The text if it fits, else its beginning and a mark."""
    room = max(columns - width(mark), 0)
    if text.isascii():
        return text if len(text) <= columns else text[:room] + mark[:columns]
    used, end = 0, -1
    for start, taken in _cells(text):
        used += taken
        if used > room and end < 0:
            end = start
        if used > columns:
            return text[:end] + mark[:columns]
    return text


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text with blanks up to a width, after it or before it."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def cuts(text: str, columns: int) -> Iterator[tuple[int, int]]:
    """Where a line is cut to fit: at blanks, next to wide characters, else anywhere; blanks at a cut are left out."""
    is_ascii = text.isascii()
    # Where each cell begins, and how many columns it takes; of ASCII each takes one.
    cells = [] if is_ascii else list(_cells(text))
    starts = range(len(text)) if is_ascii else [start for start, _ in cells]
    size = len(starts)
    at = 0
    while True:
        limit, room = at, columns
        if is_ascii:
            limit = min(at + columns, size)
        else:
            while limit < size and room >= cells[limit][1]:
                room -= cells[limit][1]
                limit += 1
        limit = max(limit, at + 1)
        start = starts[at] if at < size else len(text)
        if limit >= size:
            yield start, len(text)
            return
        end = _cut(text, starts, at=at, limit=limit)
        piece = text[start : starts[end]]
        yield start, start + (len(piece.rstrip(" ")) or len(piece))
        at = end + 1 if text[starts[end]] == " " else end


def wrap(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, cut to fit."""
    for line in text.split("\n"):
        yield from (line[start:end] for start, end in cuts(line, columns))


def ago(moment: datetime, now: datetime) -> str:
    """How long ago that was, in the largest unit that fits; a date for more than a month."""
    seconds = int((now - moment) / timedelta(seconds=1))
    if seconds < 0 or seconds >= 30 * 86400:
        return f"{moment:%Y-%m-%d %H:%M}"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "just now"


def rfc3339(moment: datetime) -> str:
    """A moment in UTC with milliseconds."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _cells(text: str) -> Iterator[tuple[int, int]]:
    """Where each part of a text begins that a terminal shows as one, and the columns it takes."""
    if not any(map(_joins, set(text))):
        yield from enumerate(map(_columns, text))
        return
    start, wcwidth = 0, _wcwidth()
    if wcwidth is None:
        # Each character with the marks that follow it.
        for end in range(1, len(text) + 1):
            if end == len(text) or _columns(text[end]):
                part = text[start:end]
                yield start, max(sum(map(_columns, part)), 2 * (_EMOJI in part))
                start = end
        return
    for part in wcwidth.iter_graphemes(text):
        yield start, max(wcwidth.wcswidth(part), 0)
        start += len(part)


@cache
def _wcwidth() -> Any:
    try:
        import wcwidth  # noqa: PLC0415 - only for texts that need it
    except ImportError:
        return None
    return wcwidth


@lru_cache(maxsize=4096)
def _joins(character: str) -> bool:
    """Tell whether a character may be drawn together with another."""
    code = ord(character)
    return unicodedata.category(character) in _JOINING or any(
        first <= code <= last for first, last in (*_HANGUL_TAILS, *_PAIRED)
    )


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    code = ord(character)
    if unicodedata.category(character) in _EMPTY or any(first <= code <= last for first, last in _HANGUL_TAILS):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def _cut(text: str, starts: Sequence[int], *, at: int, limit: int) -> int:
    """The last cell, up to `limit`, that a line may be cut before."""
    # Blanks that a line begins with are its indentation, and no place to cut.
    first = at
    while first < limit and text[starts[first]] == " ":
        first += 1
    if text.isascii():
        blank = text.rfind(" ", first + 1, limit + 1)
        return limit if blank < 0 else blank
    for place in range(limit, first, -1):
        here, before = text[starts[place]], text[starts[place - 1]]
        if here == " " or _columns(here) > 1 or _columns(before) > 1:
            return place
    return limit


def bars(rows: Sequence[tuple[str, int]], columns: int, *, is_ascii: bool = False) -> Iterator[str]:
    """A line for each row: its label, its bar, its number; the longest bar takes what is left of the columns."""
    if not rows:
        return
    labels = [clip(label, min(_MAX_LABEL, columns // 2), mark="." if is_ascii else "…") for label, _ in rows]
    numbers = [count(number) for _, number in rows]
    left, right = max(map(width, labels)), max(map(len, numbers))
    room = max(columns - left - right - 4, 1)
    most = max(number for _, number in rows) or 1
    for label, number, (_, value) in zip(labels, numbers, rows, strict=True):
        # A length in proportion; what is more than nothing is seen.
        if is_ascii:
            bar = "#" * max(value * room // most, int(value > 0))
        else:
            whole, part = divmod(max(value * room * 8 // most, int(value > 0)), 8)
            bar = "█" * whole + (_EIGHTHS[part] if part else "")
        yield f"{pad(label, left)}  {pad(bar, room)}  {number:>{right}}"
