"""A line of a found message, around what was found, safe to print."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from nacre.index.query import Term
from nacre.index.text import UNSPACED

_WIDTH = 160
_BEFORE = 40
_WHITE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
# What drives a terminal and has no width: bidirectional marks and overrides.
_HIDDEN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TOKEN = re.compile(r"[^\W_]+")
_BETWEEN = r"[\W_]+"
_BEGIN = rf"(?:(?<![^\W_])|(?<=[{UNSPACED}]))"
_END = rf"(?:(?![^\W_])|(?=[{UNSPACED}]))"


def snippet(body: str, terms: Sequence[Term]) -> str:
    """About 160 characters around the first match, matches between `**`, without control characters."""
    pattern = _pattern(terms)
    folded = _fold(body)
    first = pattern.search(folded) if pattern is not None else None
    start = max(0, first.start() - _BEFORE) if first is not None else 0
    end = min(len(body), start + _WIDTH)
    parts = ["…"] if start else []
    at = start
    for match in pattern.finditer(folded, start, end) if pattern is not None else ():
        parts += [_plain(body[at : match.start()]), "**", _plain(body[match.start() : match.end()]), "**"]
        at = match.end()
    parts += [_plain(body[at:end]), "…" if end < len(body) else ""]
    return "".join(parts).strip()


def _pattern(terms: Sequence[Term]) -> re.Pattern[str] | None:
    """What to mark, longest first; matches side by side are marked as one."""
    found = sorted({text for term in terms if (text := _spelled(term))}, key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(found)})+") if found else None


def _spelled(term: Term) -> str:
    text = _fold(term.text)
    if term.is_substring:
        return re.escape(text)
    words = _TOKEN.findall(text)
    return f"{_BEGIN}{_BETWEEN.join(map(re.escape, words))}{_END}" if words else ""


def _plain(text: str) -> str:
    return _HIDDEN.sub("", _WHITE.sub(" ", text))


def _fold(text: str) -> str:
    """Lower case without accents, character for character, so that places stay the same."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


class _Folded(dict[int, str]):
    """One character for each character; worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        base = unicodedata.normalize("NFD", char)[0].lower() if code < _PLAIN_SCRIPTS else char
        self[code] = base if len(base) == 1 else char
        return self[code]


_PLAIN_SCRIPTS = 0x2000
_FOLDED = _Folded()
