"""A text in pieces, each of which means something by itself: its sentences, or more at a time where there are many."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 4000
"""How many characters of a text are read for their meaning, at most."""
MOST = 16
"""How many pieces a text has, at most."""
# What is shorter ("Sure!") goes with what follows. Of about 500 characters the model reads no more.
_LEAST, _WIDEST = 30, 300
# A line that goes on in lower case was only broken there.
_END = re.compile(r"""(?<=[.!?…।؟])["')\]”’»]*\s+|(?<=[。！？])["')\]”’」』]*|\n\s*(?![a-z\s])""")  # noqa: RUF001

Span = tuple[int, int]


def pieces(text: str) -> list[Span]:
    """Where the pieces of a text begin and end, in its first `LONGEST` characters; the same for the same text."""
    text = text[:LONGEST].rstrip()
    least = max(_LEAST, len(text) / MOST)
    found: list[Span] = []
    for start, end in _sentences(text):
        if found and _length(found[-1]) < least:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    if len(found) > 1 and _length(found[-1]) < least:
        _, end = found.pop()
        found[-1] = (found[-1][0], end)
    return found


def _length(span: Span) -> int:
    return span[1] - span[0]


def _sentences(text: str) -> Iterator[Span]:
    """Where the sentences are; one that is too long in parts."""
    start = len(text) - len(text.lstrip())
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        while end - start > _WIDEST:
            # At a space, if there is one.
            middle = text.rfind(" ", start, start + _WIDEST) + 1 or start + _WIDEST
            yield start, middle
            start = middle
        if start < end:
            yield start, end
        start = end
