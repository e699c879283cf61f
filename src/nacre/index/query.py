"""What a person types into a search, taken apart: words, phrases, exclusions and filters; nothing fails."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from nacre.codec import timestamp
from nacre.index.search_text import folded, is_unspaced, other_spellings
from nacre.index.stems import irregular, is_stop_word, stem
from nacre.keys import is_internal

T = TypeVar("T")

_ITEM = re.compile(
    r"""
    (?P<filter>role|tool|session|since|until):(?:"(?P<quoted>[^"]+)"(?=\s|$)|(?P<bare>[^\s"]\S*))
    |(?P<minus>-(?=["\w]))?(?:"(?P<phrase>[^"]*)(?:"|$)|(?P<word>\S+))
    """,
    re.VERBOSE,
)
MOMENT = "a date (2026-11-01), a time or an age (7d)"
"""What `since:` and `until:` take, for people."""
_AGO = re.compile(r"(\d{1,6})([mhdw])\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# Of a long text that is pasted in, the beginning is looked for: all of it would take minutes.
_MAX_LENGTH = 4096
_MAX_VALUES = 128
_PREFIX = re.compile(r"[^\W_]{2,}\*")
_SIGNS = ".,;:!?¿¡()"
_MIN_QUESTION, _MAX_QUESTION = 4, 32


class Term(NamedTuple):
    """A word or a phrase, or any of several.

    It is looked for inside words too with `is_substring`, where words begin with `is_prefix`, and as it is written and
    not in its other forms with `is_exact`, if it was in quotes. One of `either` will do as well.
    """

    text: str
    is_substring: bool = False
    is_exact: bool = False
    is_prefix: bool = False
    either: tuple[Term, ...] = ()

    @property
    def all(self) -> tuple[Term, ...]:
        """This one and those that will do as well."""
        return (self._replace(either=()), *self.either)

    @property
    def is_inside(self) -> bool:
        """Tell whether it, or what will do as well, is not only looked for as whole words."""
        return any(term.is_substring or term.is_prefix for term in self.all)


class Query(NamedTuple):
    """A query: every wanted term must be there and no unwanted one; of one kind of filter any will do.

    With `is_any` one wanted term is enough. Internal sessions are searched with `internal`, or if their key is given.
    `skip` is a session and the number of a record from which on its messages are left out; not those of its archived
    generations. With `fill` messages that have some of the words follow those that have all.
    With a `prefix` only sessions whose key begins with it are searched, with `only` that one, whatever the filters say.
    """

    wanted: tuple[Term, ...] = ()
    unwanted: tuple[Term, ...] = ()
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    is_any: bool = False
    internal: bool = False
    skip: tuple[str, int] | None = None
    fill: bool = False
    prefix: str = ""
    only: str = ""

    @property
    def is_confined(self) -> bool:
        """Tell whether nothing may depend on what other sessions hold."""
        return bool(self.prefix or self.only)

    def takes(self, key: str) -> bool:
        """Tell whether a session is one of those that are searched: in quotes its key, else how it begins."""
        if not key.startswith(self.prefix) or self.only not in ("", key):
            return False
        if is_internal(key) and not self.internal:
            return key in self.keys
        return not (self.keys or self.beginnings) or key in self.keys or key.startswith(self.beginnings)

    @property
    def loosened(self) -> Query:
        """The same with every term as a substring: what is tried when whole words find nothing."""
        return self._replace(wanted=_as_substrings(self.wanted), unwanted=_as_substrings(self.unwanted))

    @property
    def content(self) -> Query:
        """The same without words that every text has, unless there are no others."""
        wanted = tuple(
            term
            for term in self.wanted
            if term.either or term.is_exact or term.is_inside or not is_stop_word(term.text.lower().strip(_SIGNS))
        )
        return self._replace(wanted=wanted) if wanted else self

    @property
    def literal(self) -> tuple[Term, ...]:
        """The terms that nothing else means: in quotes, with `*`, and signs where there are no words next to them."""
        is_signs = not any(_has_word(term.text) for term in self.wanted)
        return tuple(term for term in self.wanted if is_signs or any(one.is_exact or one.is_prefix for one in term.all))

    @property
    def unspaced(self) -> Query:
        """The same without signs next to its words if it has some of a language without spaces; else an empty one."""
        literal = self.literal
        if not any(term.is_inside and _has_word(term.text) and term not in literal for term in self.wanted):
            return Query()
        wanted = (term for term in self.content.wanted if _has_word(term.text) or term in literal)
        return self._replace(wanted=tuple(wanted))

    @property
    def is_question(self) -> bool:
        """Tell whether it may be a question: some plain words and nothing else, of which no answer has all."""
        return len(self.wanted) >= _MIN_QUESTION and not any(
            term.is_inside or term.is_exact or term.either for term in self.wanted
        )

    @property
    def words(self) -> tuple[Term, ...]:
        """The different words of which some are enough: with `fill`, or of a question, as no answer has all of them."""
        is_long = sum(not term.is_inside for term in self.wanted) >= _MIN_QUESTION
        words = tuple(term for term in self.content.wanted if not term.is_inside)
        return words[:_MAX_QUESTION] if self.fill or is_long else ()


def parse(text: str, *, now: float) -> Query:
    """Take a query apart; a filter whose value makes no sense is a word like any other.

    Words count in the first 4,096 characters only, filters everywhere; of each kind the first 128 do.
    """
    found: dict[str, list[str]] = {name: [] for name in ("role", "tool", "session", "key")}
    wanted: list[list[Term]] = []
    unwanted: list[Term] = []
    is_either = False
    times = {"since": "", "until": ""}
    for item in _ITEM.finditer(_clean(text)):
        name, value = item["filter"], item["quoted"] or item["bare"]
        if name in times and (moment := _moment(value, is_end=name == "until", now=now)):
            times[name] = moment
        elif name == "session" and item["quoted"]:
            found["key"].append(value)
        elif name in found:
            found[name].append(value)
        elif item[0] == "OR" and wanted:
            is_either = True
            continue
        elif item.start() < _MAX_LENGTH and (term := _term(item, _MAX_LENGTH - item.start())) is not None:
            if item["minus"]:
                unwanted.append(term)
            elif is_either:
                wanted[-1].append(term)
            else:
                wanted.append([term])
        is_either = False
    return Query(
        wanted=_first(first._replace(either=tuple(dict.fromkeys(others))) for first, *others in wanted),
        unwanted=_first(unwanted),
        roles=_first(found["role"]),
        tools=_first(tool.casefold() for tool in found["tool"]),
        keys=_first(found["key"]),
        beginnings=_first(found["session"]),
        since=times["since"],
        until=times["until"],
    )


def spoken(text: str) -> str:
    """The words of a query as they were written, without filters and exclusions: what a meaning is made of."""
    items = _ITEM.finditer(_clean(text)[:_MAX_LENGTH])
    wanted = (item for item in items if not item["filter"] and not item["minus"] and item[0] != "OR")
    return " ".join(item["word"] or item["phrase"] for item in wanted).strip()


def _clean(text: str) -> str:
    """Text that SQLite can hold: no NUL, no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _term(item: re.Match[str], most: int) -> Term | None:
    """What a piece of a query looks for; None if there is nothing in it."""
    if item["filter"]:
        return Term(item[0][:most])
    is_quoted = item["phrase"] is not None
    text = item["phrase"][:most].strip() if is_quoted else item["word"][:most]
    if not is_quoted and _PREFIX.fullmatch(text) and not is_unspaced(text):
        return Term(text[:-1], is_prefix=True)
    return Term(text, is_unspaced(text) or not _has_word(text), is_exact=is_quoted) if text else None


def _first(values: Iterable[T]) -> tuple[T, ...]:
    """The first of the different values, as many as count."""
    return tuple(dict.fromkeys(values))[:_MAX_VALUES]


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _as_substrings(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(
        term._replace(is_substring=not term.is_prefix, is_exact=False, either=_as_substrings(term.either))
        for term in terms
    )


def describe_unread_times(text: str) -> str:
    """Say which `since:` and `until:` of a query are no times, and so words like any other; "" if all are times."""
    times = (item for item in _ITEM.finditer(_clean(text)) if item["filter"] in {"since", "until"})
    unread = [item[0] for item in times if not is_moment(item["quoted"] or item["bare"])]
    was, it_is = ("was", "it is") if len(unread) == 1 else ("were", "they are")
    return f"{', '.join(unread)} {was} taken for words, since {it_is} not {MOMENT}" if unread else ""


def is_moment(value: str) -> bool:
    """Tell whether a value of `since:` or `until:` is understood."""
    return bool(_moment(value, is_end=False, now=time.time()))


def _moment(value: str, *, is_end: bool, now: float) -> str:
    """A date, a time or an age (`7d`) as records spell times; "" if it is none of these."""
    ago = _AGO.match(value)
    try:
        if ago is not None:
            age = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            return timestamp((datetime.fromtimestamp(now, UTC) - age).timestamp())
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if is_end and len(value) <= len("2026-11-01"):
            # A day as an end is meant with all its hours.
            moment += timedelta(days=1, milliseconds=-1)
        return timestamp(moment.timestamp())
    except (OverflowError, ValueError, OSError):
        return ""


# ---- other spellings: other forms and ways to write a word, and words that are one typo away


_TOKEN = re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W\d_]+")
# A shorter word is too often another one with a typo.
_MIN_MISTYPED = 6
# A longer one is no word that somebody mistyped, and has hundreds of thousands of neighbours; many words have, too.
_MAX_MISTYPED = 40
_MAX_WORDS = 8
_MIN_STEM = 5
_MAX_VARIANTS = 8
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψω")


class Vocabulary(Protocol):
    """Which words there are in the messages that are searched."""

    def count(self, words: Iterable[str]) -> Mapping[str, int]:
        """In how many messages each word is, in any of its forms."""

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
    left = _MAX_WORDS
    for at, term in enumerate(wanted):
        word = folded(term.text)
        is_plain = not term.is_exact and not term.is_inside and _MIN_MISTYPED <= len(word) <= _MAX_MISTYPED
        if left and is_plain and _WORD.fullmatch(word) is not None and not vocabulary.count([word])[word]:
            counted = vocabulary.count(dict.fromkeys(_one_edit_away(word)))
            counts = {near: found for near, found in counted.items() if found}
            # Many a made-up word has a short stem: `illness` is not `all`, but one away from `allness`.
            near = [one for one in counts if len(stem(one)) >= _MIN_STEM or vocabulary.has(one)]
            best = sorted(near, key=counts.__getitem__, reverse=True)[:_MAX_VARIANTS]
            wanted[at] = term._replace(either=(*term.either, *map(Term, best)))
            left -= 1
    return query._replace(wanted=tuple(wanted))


def rarity(vocabulary: Vocabulary, term: Term) -> int:
    """In how many messages the rarest word of a term is, where it is in any."""
    return min(filter(None, vocabulary.count(_TOKEN.findall(folded(term.text))).values()), default=0)


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
