"""Whether a message has what is looked for: candidates of the tables are read again, as these know only parts of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from nacre.index.query import Term
from nacre.index.search_text import UNSPACED, folded, one_spaced

WORD_BEGIN = rf"(?:(?<![^\W_])|(?<=[{UNSPACED}]))"
WORD_END = rf"(?:(?![^\W_])|(?=[{UNSPACED}]))"
_BETWEEN = r"[\W_]+"
_WORD = re.compile(r"[^\W_]+")
_INSIDE, _PREFIX, _EXACT = "=", "*", '"'


def described(term: Term) -> str:
    """A term, and what will do as well, as the text by which SQL asks for it."""
    return "\0".join(_kind(one) + folded(one.text) for one in term.all)


def holds(body: str, wanted: str) -> bool:
    """Tell whether a body has what was described."""
    return _check(wanted)(folded(body))


def trigrams(text: str) -> list[str]:
    """Every three neighbouring characters of a text, as the table has them; none of a shorter text."""
    plain = one_spaced(folded(text))
    return list(dict.fromkeys(plain[at : at + 3] for at in range(len(plain) - 2)))


def _kind(term: Term) -> str:
    return _PREFIX if term.is_prefix else _INSIDE if term.is_substring or not term.is_exact else _EXACT


@lru_cache(maxsize=256)
def _check(wanted: str) -> Callable[[str], bool]:
    parts = [(one[0], one[1:]) for one in wanted.split("\0")]
    if len(parts) == 1 and parts[0][0] == _INSIDE:
        return lambda plain: parts[0][1] in plain
    found = re.compile("|".join(_patterns(parts))).search
    return lambda plain: found(plain) is not None


def _patterns(parts: Iterable[tuple[str, str]]) -> Iterable[str]:
    for kind, text in parts:
        if kind == _INSIDE:
            yield re.escape(text)
        elif kind == _PREFIX:
            yield WORD_BEGIN + re.escape(text)
        else:
            yield WORD_BEGIN + _BETWEEN.join(map(re.escape, _WORD.findall(text))) + WORD_END
