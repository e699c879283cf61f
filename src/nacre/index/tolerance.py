"""Other spellings of what is searched for: other forms and ways to write a word, and words that are one typo away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from sqlite3 import Connection
from typing import Protocol

from nacre.index.query import Query, Term
from nacre.index.search_text import folded, other_spellings
from nacre.index.stems import irregular, stem

_TOKEN = re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W\d_]+")
# A shorter word is too often another one with a typo.
_SHORTEST = 6
# A longer one is no word that somebody mistyped, and has hundreds of thousands of neighbours; many words have, too.
_LONGEST = 40
_MOST_WORDS = 8
_SHORTEST_STEM = 5
_MOST_VARIANTS = 8
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψω")


class Vocabulary(Protocol):
    """Which words there are in the messages that are searched."""

    def count(self, word: str) -> int:
        """In how many messages a word is, in any of its forms."""

    def has(self, word: str) -> bool:
        """Tell whether a word is in any message just as it is written, be it inside another."""


def spellings(term: Term) -> list[str]:
    """A term as it may be written in the word table."""
    plain = folded(term.text)
    if term.is_exact:
        return [plain]
    return [plain, *map(folded, other_spellings(term.text)), *irregular(plain)]


def tolerant(vocabulary: Vocabulary, query: Query) -> Query:
    """The query with words that are nowhere, the first of them, taken for others that are one typo away."""
    wanted = list(query.wanted)
    unknown = (at for at, term in enumerate(wanted) if _is_unknown(vocabulary, term))
    for at in islice(unknown, _MOST_WORDS):
        wanted[at] = _tolerant(vocabulary, wanted[at])
    return query._replace(wanted=tuple(wanted))


def rarity(vocabulary: Vocabulary, term: Term) -> int:
    """In how many messages the rarest word of a term is, where it is in any."""
    return min(filter(None, map(vocabulary.count, _TOKEN.findall(folded(term.text)))), default=0)


def count_everywhere(connection: Connection, word: str) -> int:
    """In how many messages of all sessions a word is, in any of its forms."""
    row = connection.execute("SELECT doc FROM stems WHERE term = ?", (stem(word),)).fetchone()
    return row[0] if row is not None else 0


def _is_unknown(vocabulary: Vocabulary, term: Term) -> bool:
    """Tell whether a term is a word that is nowhere and may have a typo."""
    word = folded(term.text)
    is_plain = not term.is_exact and not term.is_inside and _SHORTEST <= len(word) <= _LONGEST
    return is_plain and _WORD.fullmatch(word) is not None and not vocabulary.count(word)


def _tolerant(vocabulary: Vocabulary, term: Term) -> Term:
    word = folded(term.text)
    counts = {near: found for near in _one_edit_away(word) if (found := vocabulary.count(near))}
    # Many a made-up word has a short stem: `illness` is not `all`, but one away from `allness`.
    counts = {near: n for near, n in counts.items() if len(stem(near)) >= _SHORTEST_STEM or vocabulary.has(near)}
    best = sorted(counts, key=counts.__getitem__, reverse=True)[:_MOST_VARIANTS]
    return term._replace(either=(*term.either, *map(Term, best)))


def _one_edit_away(word: str) -> Iterator[str]:
    """Every word with one letter more, less or another, or with two neighbours swapped."""
    letters = next((one for one in _ALPHABETS if word[-1] in one), "")
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in letters:
            yield head + letter + tail
            yield head + letter + tail[1:]
