"""What a person types into a search, taken apart: words, phrases, exclusions and filters; nothing fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nacre.entries import timestamp
from nacre.index.text import is_unspaced
from nacre.keys import is_internal

_ITEM = re.compile(
    r"""
    (?P<filter>role|tool|session|since|until):(?:"(?P<quoted>[^"]+)"(?=\s|$)|(?P<bare>[^\s"]\S*))
    |(?P<minus>-(?=["\w]))?(?:"(?P<phrase>[^"]*)(?:"|$)|(?P<word>\S+))
    """,
    re.VERBOSE,
)
_AGO = re.compile(r"(\d{1,6})([mhdw])\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# Of a long text that is pasted in, the beginning is looked for: all of it would take minutes.
_LONGEST = 4096
_MOST = 128
_SHORTEST = 3
_SHORTEST_QUESTION, _LONGEST_QUESTION = 4, 32


class Term(NamedTuple):
    """A word or a phrase; `is_substring` if it is looked for inside words too."""

    text: str
    is_substring: bool

    @property
    def is_short(self) -> bool:
        """True for a substring that is shorter than what the trigram table holds."""
        return len(self.text) < _SHORTEST


class Query(NamedTuple):
    """A query: every wanted term must be there and no unwanted one; of one kind of filter any will do.

    With `is_any` one wanted term is enough. Internal sessions are searched with `internal`, or if their key is given.
    `skip` is a session and the number of a record from which on its messages are left out. With `fill` messages that
    have some of the words follow those that have all.
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

    def takes(self, key: str) -> bool:
        """Tell whether a session is one of those that are searched: in quotes its key, else how it begins."""
        if is_internal(key) and not self.internal:
            return key in self.keys
        return not (self.keys or self.beginnings) or key in self.keys or key.startswith(self.beginnings)

    @property
    def loosened(self) -> Query:
        """The same with every term as a substring: what is tried when whole words find nothing."""
        return self._replace(wanted=_as_substrings(self.wanted), unwanted=_as_substrings(self.unwanted))

    @property
    def words(self) -> tuple[Term, ...]:
        """The different words of which some are enough: with `fill`, or of a question, as no answer has all of them."""
        words = tuple(dict.fromkeys(term for term in self.wanted if not term.is_substring))
        return words[:_LONGEST_QUESTION] if self.fill or len(words) >= _SHORTEST_QUESTION else ()


def parse(text: str, *, now: float) -> Query:
    """Take a query apart; a filter whose value makes no sense is a word like any other.

    Words count in the first 4,096 characters only, filters everywhere; of each kind the first 128 do.
    """
    found: dict[str, list[str]] = {name: [] for name in ("wanted", "unwanted", "role", "tool", "session", "key")}
    times = {"since": "", "until": ""}
    for item in _ITEM.finditer(_clean(text)):
        name, value = item["filter"], item["quoted"] or item["bare"]
        if name in times and (moment := _moment(value, is_end=name == "until", now=now)):
            times[name] = moment
        elif name == "session" and item["quoted"]:
            found["key"].append(value)
        elif name in found:
            found[name].append(value)
        elif item.start() < _LONGEST:
            found["unwanted" if item["minus"] else "wanted"].append(_term(item)[: _LONGEST - item.start()])
    return Query(
        wanted=_terms(found["wanted"]),
        unwanted=_terms(found["unwanted"]),
        roles=_first(found["role"]),
        tools=_first(tool.casefold() for tool in found["tool"]),
        keys=_first(found["key"]),
        beginnings=_first(found["session"]),
        since=times["since"],
        until=times["until"],
    )


def _clean(text: str) -> str:
    """Text that SQLite can hold: no NUL, no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _term(item: re.Match[str]) -> str:
    if item["filter"]:
        return item[0]
    return str(item["word"] if item["phrase"] is None else item["phrase"])


def _terms(texts: list[str]) -> tuple[Term, ...]:
    found = _first(text.strip() for text in texts if text.strip())
    return tuple(Term(text, is_unspaced(text) or not _has_word(text)) for text in found)


def _first(values: Iterable[str]) -> tuple[str, ...]:
    """The first of the different values, as many as count."""
    return tuple(dict.fromkeys(values))[:_MOST]


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _as_substrings(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(term._replace(is_substring=True) for term in terms)


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
