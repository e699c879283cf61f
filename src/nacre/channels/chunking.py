"""Text of chats: cleaned of control characters, cut into messages that a server accepts, and addressed to a name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import accumulate, takewhile

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HALF = re.compile(r"[\ud800-\udfff]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
# Where a cut is welcome, and how much of the piece must be filled for it.
_PLACES = (("\n\n", 0.5), ("\n", 0.25), (" ", 0.0))
_JOINERS = "\u200d\ufe0e\ufe0f"
FENCE_ROOM = 64


def clean(text: str) -> str:
    """Text without control characters, but for line ends and tabs, and without halves of characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HALF.sub("\ufffd", _CONTROL.sub("", text))


def utf8(text: str) -> int:
    """How many bytes a text takes."""
    return len(text.encode())


def utf16(text: str) -> int:
    """How many units of UTF-16 a text takes."""
    return len(text.encode("utf-16-le")) // 2


def split(text: str, limit: int, *, size: Callable[[str], int] = len) -> list[str]:
    """Pieces of at most `limit`, cut between paragraphs, else lines, else words, else characters.

    What was at a cut (an empty line, a line end, a space) is in no piece; nor are pieces of nothing but white space.
    """
    pieces = []
    while True:
        head = text[: limit + 1]
        if len(head) == len(text) and size(head) <= limit:
            break
        # As many characters as fit; at least one, or nothing would ever be sent.
        sizes = accumulate(map(size, head))
        fitting = max(1, sum(1 for _ in takewhile(lambda taken: taken <= limit, sizes)))
        end, skipped = _cut(text, fitting)
        pieces.append(text[:end])
        text = text[end + skipped :]
    return [piece for piece in [*pieces, text] if piece.strip()]


def close_fences(pieces: list[str]) -> list[str]:
    """The pieces, each with the code that a cut left open closed, and opened again in the next.

    It adds at most FENCE_ROOM characters to a piece.
    """
    done, opening = [], ""
    for piece in pieces:
        whole = f"{opening}\n{piece}" if opening else piece
        # The line that opened the code in which the piece ends, and the mark that closes it.
        opening = closing = ""
        for found in _FENCE.finditer(whole):
            mark, info = found[1], found[2].strip()
            if not opening:
                opening, closing = f"{mark[:8]}{info[:20]}", mark[:8]
            elif not info and mark.startswith(closing):
                opening = ""
        done.append(f"{whole}\n{closing}" if opening else whole)
    return done


def _cut(text: str, fitting: int) -> tuple[int, int]:
    """Where to cut, and how many characters there to leave out."""
    for place, least in _PLACES:
        at = text.rfind(place, 1, fitting + len(place))
        if at > fitting * least:
            return at, len(place)
    at = fitting
    while at > 1 and fitting - at < 16 and _is_joined(text, at):  # noqa: PLR2004 - no character is longer
        at -= 1
    return (fitting if at <= 1 or _is_joined(text, at) else at), 0


def _is_joined(text: str, at: int) -> bool:
    """Whether a cut would go through what people see as one character."""
    here = text[at : at + 1]
    return bool(here) and (unicodedata.combining(here) > 0 or here in _JOINERS or text[at - 1] == _JOINERS[0])


# What may be in a name, so that @nacre is not found in @nacre2.
_REST = r"(?![\w\[\]\\`^{|}-])"


def text_to(text: str, name: str) -> str | None:
    """The words in `name: words`, `name, words` or `@name words`; None if they are addressed to nobody or another."""
    word = re.escape(name)
    found = re.match(rf"(?:{word}\s*[:,]|@{word}{_REST}[:,]?)\s*(.*)", text.lstrip(), re.IGNORECASE | re.DOTALL)
    return found[1] if found else None
