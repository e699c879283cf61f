"""A line of a found message, around what was found, safe to print."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from nacre.index.query import Term, spellings
from nacre.index.search_text import UNSPACED, camel_parts, folded, one_spaced
from nacre.index.stems import stem

_WIDTH = 160
_BEFORE = 40
_LONGEST = 1000
"""How much of one match is shown: `a*` may match a word of any length."""
_WHITE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
# What drives a terminal and has no width: bidirectional marks and overrides.
_HIDDEN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Markdown's bold, which would look like the marks of a match; `2**8` and `f(**more)` are none.
_BOLD = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?![\w*])")
_TOKEN = re.compile(rf"(?:(?![{UNSPACED}])[^\W_])+")
_JOINTS = ("-", "'", "’", ",", ".")


class _Span(NamedTuple):
    """A match, and the place of its term among those that were looked for."""

    start: int
    end: int
    term: int


class _Token(NamedTuple):
    """A word of a body, without case and accents, and without its ending."""

    start: int
    end: int
    word: str
    stem: str


def snippet(
    body: str, terms: Sequence[Term], *, near: tuple[int, int] | None = None, is_around_words: bool = True
) -> str:
    """About 160 characters around the best match, matches between `**`, without control characters and other bold.

    Terms come rarest first: what is shown is around the rarest that the body has, and there where most others are.
    What is `near` is between two places: it is shown if there is no match, or if it is not to be around words.
    """
    begin, end = (len(_BOLD.sub(r"\1", body[:place])) for place in near or (0, 0))
    body = _BOLD.sub(r"\1", body)
    spans = sorted(_spans(body, terms))
    # 1. Where to begin: before the best match, or so that all that is near is seen, if there is room for it.
    room = _WIDTH - (end - begin)
    if near is None or (is_around_words and spans):
        start = max(0, _best(spans) - _BEFORE)
    elif room >= 0:
        start = max(0, begin - min(_BEFORE, room))
    else:
        inside = [span for span in spans if begin <= span.start < end]
        start = max(begin, min(_best(inside) - _BEFORE, end - _WIDTH))
    end = min(len(body), start + _WIDTH)
    # 2. The matches that begin there; those that touch each other are one.
    marks: list[tuple[int, int]] = []
    for span in spans:
        if not start <= span.start < end:
            continue
        if marks and span.start <= marks[-1][1]:
            marks[-1] = (marks[-1][0], max(marks[-1][1], span.end))
        else:
            marks.append((span.start, span.end))
    # 3. The text with its marks.
    parts = ["…"] if start else []
    at = start
    for first, found in marks:
        last = min(found, first + _LONGEST)
        parts += [_plain(body[at:first]), "**", _plain(body[first:last]), "**"]
        at = last
    end = max(at, end)
    parts += [_plain(body[at:end]), "…" if end < len(body) else ""]
    return "".join(parts).strip()


def _best(spans: Sequence[_Span]) -> int:
    """Where to begin: at a match of the rarest term, or a little before it, where the most terms are close together."""
    rarest = min((span.term for span in spans), default=0)

    def terms_near(span: _Span) -> int:
        first, last = span.start - _BEFORE, span.start - _BEFORE + _WIDTH
        # Spans are in order: only those that may be near are looked at, of what may be all of a long text.
        start = attrgetter("start")
        near = spans[bisect_left(spans, first, key=start) : bisect_right(spans, last, key=start)]
        return len({other.term for other in near if other.end <= last})

    found = [span for span in spans if span.term == rarest][:_WIDTH]
    return max(found, key=terms_near).start if found else 0


def _spans(body: str, terms: Sequence[Term]) -> Iterator[_Span]:
    """Every match of every term."""
    runs: list[list[_Token]] | None = None
    for place, group in enumerate(terms):
        for term in group.all:
            if term.is_substring or term.is_prefix:
                text = re.escape(_fold(term.text))
                found = re.finditer(rf"{WORD_BEGIN}{text}[^\W_]*" if term.is_prefix else text, _fold(body))
                yield from (_Span(*match.span(), place) for match in found)
                continue
            # Among the words of the body, in any spelling.
            spelled = [words for spelling in spellings(term) if (words := _TOKEN.findall(spelling))]
            wanted = {tuple(words if term.is_exact else map(stem, words)) for words in spelled}
            runs = _runs(body) if runs is None else runs
            for run in runs:
                have = [token.word if term.is_exact else token.stem for token in run]
                for phrase, (at, key) in product(wanted, enumerate(have)):
                    if key == phrase[0] and tuple(have[at : at + len(phrase)]) == phrase:
                        yield _Span(run[at].start, run[at + len(phrase) - 1].end, place)


def _runs(body: str) -> list[list[_Token]]:
    """The words of a body; then, each by itself, the parts of `camelCase`, and `email` for `e-mail`."""
    runs: list[list[_Token]] = [[]]
    before: re.Match[str] | None = None
    for match in _TOKEN.finditer(body):
        runs[0].append(_token(match[0], *match.span()))
        runs += [[_token(part, *match.span()) for part in parts.split()] for parts in camel_parts(match[0])]
        if before is not None and body[before.end() : match.start()] in _JOINTS:
            runs.append([_token(before[0] + match[0], before.start(), match.end())])
        before = match
    return runs


def _token(text: str, start: int, end: int) -> _Token:
    word = folded(text)
    return _Token(start, end, word, stem(word))


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


# ---- Whether a message has what is looked for: candidates of the tables are read again, as these know only parts of it


WORD_BEGIN = rf"(?:(?<![^\W_])|(?<=[{UNSPACED}]))"
WORD_END = rf"(?:(?![^\W_])|(?=[{UNSPACED}]))"
_BETWEEN = r"[\W_]+"
_WORD = re.compile(r"[^\W_]+")
_INSIDE, _PREFIX, _EXACT = "=", "*", '"'


def described(term: Term) -> str:
    """A term, and what will do as well, as the text by which SQL asks for it."""
    parts = []
    for one in term.all:
        kind = _PREFIX if one.is_prefix else _INSIDE if one.is_substring or not one.is_exact else _EXACT
        parts.append(kind + folded(one.text))
    return "\0".join(parts)


def holds(body: str, wanted: str) -> bool:
    """Tell whether a body has what was described."""
    return _check(wanted)(folded(body))


def trigrams(text: str) -> list[str]:
    """Every three neighbouring characters of a text, as the table has them; none of a shorter text."""
    plain = one_spaced(folded(text))
    return list(dict.fromkeys(plain[at : at + 3] for at in range(len(plain) - 2)))


@lru_cache(maxsize=256)
def _check(wanted: str) -> Callable[[str], bool]:
    parts = [(one[0], one[1:]) for one in wanted.split("\0")]
    if len(parts) == 1 and parts[0][0] == _INSIDE:
        return lambda plain: parts[0][1] in plain
    patterns = []
    for kind, text in parts:
        if kind == _EXACT:
            patterns.append(WORD_BEGIN + _BETWEEN.join(map(re.escape, _WORD.findall(text))) + WORD_END)
        else:
            patterns.append((WORD_BEGIN if kind == _PREFIX else "") + re.escape(text))
    found = re.compile("|".join(patterns)).search
    return lambda plain: found(plain) is not None
