"""Which messages a query finds, best first: the steps that are the same whatever holds the words.

What holds them, a `Corpus`, answers for one query which messages match, and how many; SQLite and PostgreSQL are two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from nacre.index.query import Query, Term, Vocabulary, rarity, tolerant

POOL = 4096
"""Of more matches than these only the newest are taken, by time: a word that is everywhere ranks nothing."""
PART = 100
"""How many records of a session are taken for one talk."""
MAX_FOUND = 1 << 32
"""More than any index holds, and no more than a database takes for a number."""
MAX_SHOWN = 256 * 1024
"""How many characters of a message are looked at for what to show of it."""
MAX_ROLE = 160
AROUND = 1.3
"""How much what is said around a message counts, where its own words count one."""
# How many messages with a word count half of what all could.
_SATURATION = 0.6

M = TypeVar("M", bound=Hashable)
"""What stands for a message; the newer of two is the greater."""
Part = tuple[Any, int]
"""A session, and the number of a part of it."""


class Matches(Protocol[M]):
    """The messages that match one query."""

    def run(self, limit: int) -> list[M]:
        """Those that match, best first."""

    def scores(self) -> dict[M, float]:
        """Those that match whole words, with their score, as many as are ranked; best first."""

    def counts(self) -> list[tuple[Any, int, int]]:
        """How many match in each part of a session: the session, the number of the part, and how many."""

    def count(self, most: int) -> int:
        """How many match, no more than are to be counted."""


class Corpus(Protocol[M]):
    """All messages that can be searched."""

    def search(self, query: Query) -> Matches[M]:
        """What a query matches."""

    def vocabulary(self, query: Query) -> Vocabulary:
        """Which words there are in the messages that a query searches.

        Of a query that is confined to some sessions, in these alone: what is nowhere, or how rare it is elsewhere,
        would tell something of sessions that are not to be searched.
        """

    def count(self, term: Term, most: int) -> int:
        """In how many messages of all sessions a term is, no more than are to be counted."""

    def total(self) -> int:
        """How many messages there are, about."""

    def parts(self, messages: Iterable[M]) -> Mapping[M, Part]:
        """The part of a session that each message is in."""


def is_empty(query: Query) -> bool:
    """Tell whether a query asks for nothing."""
    return query._replace(internal=False, skip=None, fill=False, prefix="", only="") == Query()


def by_words(corpus: Corpus[M], query: Query, limit: int) -> dict[M, Query]:
    """The messages that have the words of a query, best first, each with the query that found it.

    Looked for inside words too if whole words find none, and one typo away if that finds nothing either. A question is
    ranked as a whole: messages that have the rarest of its words, those in a talk about it first. Where a query is to
    be filled up, these follow what has all of the words.
    """
    content = query.content
    # A question is ranked as a whole; of other queries, what has all the words comes before what has some.
    found = _ranked(corpus, query) if query.is_question else {}
    if not found:
        found = matching(corpus, content, limit) or matching(corpus, content.loosened, limit)
    if not found:
        found = matching(corpus, tolerant(corpus.vocabulary(query), content), limit)
    if len(found) < limit and query.words and not query.is_question:
        found |= {message: by for message, by in _ranked(corpus, query).items() if message not in found}
    return found


def terms_to_show(corpus: Corpus[M], query: Query) -> list[Term]:
    """The terms of a query, the rarest first; what is looked for inside words is as good as rare."""
    if len(query.wanted) < 2:  # noqa: PLR2004 - nothing to sort
        return list(query.wanted)
    words = corpus.vocabulary(query)
    ranks = {term: 0 if term.is_inside else rarity(words, term) for term in query.wanted}
    return sorted(query.wanted, key=ranks.__getitem__)


def matching(corpus: Corpus[M], query: Query, limit: int) -> dict[M, Query]:
    """The messages that match a query, best first, and the query."""
    return dict.fromkeys(corpus.search(query).run(limit), query)


def _ranked(corpus: Corpus[M], query: Query) -> dict[M, Query]:
    """The messages that have any of the words, best first, and the query that found them."""
    eased, _ = ease(corpus, query)
    words = scores(corpus, eased)
    return dict.fromkeys(mixed((words, 1.0), (surroundings(corpus, eased, words), AROUND)), eased)


def ease(corpus: Corpus[M], query: Query) -> tuple[Query, list[tuple[int, Term]]]:
    """The query for any of its words, the rarest first, as many as do not match more than can be ranked.

    Returns also all of its words, without typos, and how many messages have each, as far as can be ranked.
    """
    counted: list[tuple[int, Term]] = []
    for term in tolerant(corpus.vocabulary(query), query._replace(wanted=query.words)).wanted:
        if query.is_confined:
            matches = corpus.search(query._replace(wanted=(term,))).count(POOL + 1)
        else:
            matches = corpus.count(term, POOL + 1)
        counted.append((matches, term._replace(is_exact=False)))
    counted.sort(key=lambda found: (found[0], -len(found[1].text)))
    totals = accumulate(matches for matches, _ in counted)
    wanted = (term for total, (matches, term) in zip(totals, counted, strict=True) if matches and total <= POOL)
    return query._replace(wanted=tuple(wanted), is_any=True), counted


def scores(corpus: Corpus[M], query: Query) -> dict[M, float]:
    """The messages that have any of the words with their score; a corpus counts words in all sessions for its own."""
    if not query.is_confined:
        return corpus.search(query).scores()
    total = count_all(corpus, query)
    found: dict[M, float] = {}
    for term in query.wanted:
        messages = corpus.search(query._replace(wanted=(term,))).run(POOL)
        for message in messages:
            found[message] = found.get(message, 0.0) + weight(total, len(messages))
    return found


def surroundings(corpus: Corpus[M], query: Query, messages: Iterable[M]) -> dict[M, float]:
    """How much of what is asked for is said around each message: a hit in a talk about it is worth more.

    What is around is the part of the session, of a few records, that the message is in. Each word counts by
    how rare it is, and by how many messages of the part have it, each one less than the one before.
    """
    total = count_all(corpus, query)
    parts: dict[Part, float] = {}
    for term in query.wanted:
        counts = corpus.search(query._replace(wanted=(term,))).counts()
        worth = weight(total, sum(count for *_, count in counts))
        for session, part, count in counts:
            parts[session, part] = parts.get((session, part), 0.0) + worth * count / (count + _SATURATION)
    return {message: parts.get(part, 0.0) for message, part in corpus.parts(messages).items()}


def count_all(corpus: Corpus[M], query: Query) -> int:
    """How many messages there are, about; of a query that is confined to some sessions, in these."""
    if query.is_confined:
        return corpus.search(query._replace(wanted=(), unwanted=())).count(MAX_FOUND)
    return corpus.total()


def weight(total: int, matches: int) -> float:
    """How much a word counts that so many of all messages have."""
    return math.log(1 + max(0, total - matches + 0.5) / (matches + 0.5))


def mixed(*kinds: tuple[Mapping[M, float], float]) -> list[M]:
    """The messages best first: each score is a share of the best of its kind, and each kind has its weight."""
    total: dict[M, float] = {}
    for found, share in kinds:
        best = max(found.values(), default=0.0) or 1.0
        for message, score in found.items():
            total[message] = total.get(message, 0.0) + share * score / best
    # Of equal ones the newer comes first.
    newest_first = sorted(total, reverse=True)  # type: ignore[type-var] # they can be compared
    return sorted(newest_first, key=lambda message: -total[message])
