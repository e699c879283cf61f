"""Marking what was searched for in HTML that is made already, never inside its tags."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from nacre.index.query import parse
from nacre.render.html import escaped

Marker = Callable[[str], str]

_TAG = re.compile(r"(<[^>]*>)")
_ENTITY = r"&(?:amp|lt|gt|quot|#39);"


def marker(query: str) -> Marker:
    """What marks every term of a query; nothing to mark for an empty one."""
    terms = sorted({escaped(term.text) for term in parse(query, now=time.time()).wanted if term.text}, key=len)
    if not terms:
        return _unmarked
    # An entity is passed over whole, so that a search for `amp` does not break one in two.
    wanted = re.compile(f"({'|'.join(map(re.escape, reversed(terms)))})|{_ENTITY}", re.IGNORECASE)

    def mark(html: str) -> str:
        pieces = _TAG.split(html)
        pieces[::2] = [wanted.sub(_marked, text) for text in pieces[::2]]
        return "".join(pieces)

    return mark


def snippet(text: str) -> str:
    """A search's snippet, in which matches stand between double asterisks."""
    pieces = escaped(text).split("**")
    if len(pieces) % 2 == 0:
        # An asterisk pair of the message's own: what is a match cannot be told.
        return "".join(pieces)
    return "".join(f"<mark>{piece}</mark>" if at % 2 else piece for at, piece in enumerate(pieces))


def _marked(match: re.Match[str]) -> str:
    return f"<mark>{match[1]}</mark>" if match[1] else match[0]


def _unmarked(html: str) -> str:
    return html
