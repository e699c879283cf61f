"""Running a query on the two full-text tables: which messages match, in which order, and what to show of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from heapq import nlargest
from itertools import islice
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from nacre.errors import StoreError
from nacre.index.database import connect, is_away, pack_time, unpack_head, unpack_time
from nacre.index.meaning import Near, nearest_piece
from nacre.index.query import Query, Term, spellings
from nacre.index.ranking import (
    AROUND,
    MAX_FOUND,
    MAX_ROLE,
    MAX_SHOWN,
    PART,
    POOL,
    Part,
    by_words,
    count_all,
    ease,
    is_empty,
    matching,
    mixed,
    scores,
    surroundings,
    terms_to_show,
    weight,
)
from nacre.index.search_text import folded
from nacre.index.snippet import described, snippet, trigrams
from nacre.index.stems import stem
from nacre.keys import INTERNAL
from nacre.messages import Hit

if TYPE_CHECKING:
    from nacre.index.minilm import Floats

_MAX_TRIGRAMS = 500
# How many of the nearest are ranked at least, and how many are looked at in one step.
_MIXED, _BATCH = 200, 500
# Words count in full, besides a meaning, where a message has so much of the question.
_ENOUGH = 0.4
_NOWHERE = "\ue000\ue001\ue002"
_LAST = "\U0010ffff"
# What comes after the ":" of an internal key is ";".
_END = f"{INTERNAL[:-1]};"
_SHOW = (
    "SELECT key, n, ts, message.role, body, CASE WHEN archived THEN uid ELSE '' END "
    "FROM message JOIN log ON log.id = message.log WHERE message.id = ?"
)


def hits(connection: Connection, query: Query, *, limit: int, vector: Floats | None = None) -> list[Hit]:
    """The messages that a query finds, best first.

    With a vector for the query, messages are found that are near it, too. Raises StoreError if SQLite takes no such
    query, whatever there is to search.
    """
    if limit <= 0 or is_empty(query):
        return []
    limit = min(limit, MAX_FOUND)
    try:
        return _found(connection, query, limit, vector)
    except sqlite3.Error as error:
        if not is_away(error):
            # A query that SQLite does not take fails even where nothing is damaged, since there is nothing.
            with closing(connect(":memory:")) as nothing:
                try:
                    _found(nothing, query, limit, vector)
                except sqlite3.Error:
                    version = sqlite3.sqlite_version
                    raise StoreError(f"SQLite {version} does not take this query: {error}") from error
        raise


def _found(connection: Connection, query: Query, limit: int, vector: Floats | None) -> list[Hit]:
    corpus = _Corpus(connection)
    found = _by_meaning(corpus, query, limit, vector) if vector is not None else {}
    if len(found) < limit:
        found |= {message: by for message, by in by_words(corpus, query, limit).items() if message not in found}
    # What to show of a message: around the rarest of the terms.
    terms = {by: terms_to_show(corpus, by) for by in dict.fromkeys(found.values())}
    hits: list[Hit] = []
    for message, by in islice(found.items(), limit):
        key, n, ts, role, kept, generation = connection.execute(_SHOW, (message,)).fetchone()
        body = unpack_head(kept, MAX_SHOWN)
        near = nearest_piece(connection, message, body, vector) if vector is not None else None
        # Who asks for a few words wants to see them; a question is answered by what is nearest to it.
        line = snippet(body, terms[by], near=near, is_around_words=not query.is_question)
        hits.append(Hit(key=key, n=n, ts=unpack_time(ts), role=role[:MAX_ROLE], snippet=line, generation=generation))
    return hits


class _Corpus:
    """The messages in the two full-text tables."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def search(self, query: Query) -> _Search:
        return _Search(self.connection, query)

    def vocabulary(self, query: Query) -> _Words:
        return _Words(self.connection, query)

    def count(self, term: Term, most: int) -> int:
        count = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {most})"  # noqa: S608 - our own names
        return int(self.connection.execute(count, (_words_match(term),)).fetchone()[0])

    def total(self) -> int:
        return int(self.connection.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()[0])

    def parts(self, messages: Iterable[int]) -> dict[int, Part]:
        where = f"SELECT id, log, n / {PART} FROM message WHERE id IN ({', '.join(map(str, messages))})"  # noqa: S608
        return {message: (log, part) for message, log, part in self.connection.execute(where)}


class _Words:
    """Which words there are in the messages that a query searches; of one that is confined, in these alone."""

    def __init__(self, connection: Connection, query: Query) -> None:
        self._connection = connection
        self._query = query._replace(unwanted=())

    def count(self, words: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for word in words:
            row = self._connection.execute("SELECT doc FROM stems WHERE term = ?", (stem(word),)).fetchone()
            count = int(row[0]) if row is not None else 0
            found[word] = self._search(Term(word)).count(POOL) if count and self._query.is_confined else count
        return found

    def has(self, word: str) -> bool:
        return self._search(Term(word, is_substring=True)).count(1) > 0

    def _search(self, term: Term) -> _Search:
        return _Search(self._connection, self._query._replace(wanted=(term,)))


# ---- by meaning


def _by_meaning(corpus: _Corpus, query: Query, limit: int, vector: Floats) -> dict[int, Query]:
    """The messages that any of the words or the meaning of a query finds, best first.

    Filters, exclusions, phrases in quotes, beginnings of words, and signs without words next to them hold. Of languages
    without spaces, whose words are not ranked, what has all of the words comes first.
    """
    eased, counted = ease(corpus, query._replace(fill=True))
    literal, unspaced = query.literal, query.unspaced
    allowed = corpus.search(query._replace(wanted=literal))
    words = scores(corpus, eased)
    near = Near(corpus.connection, vector, logs=allowed.logs)
    found = dict.fromkeys(words if not literal else _among(allowed, list(words), len(words)))
    found |= dict.fromkeys(_among(allowed, near.close(), max(limit, _MIXED)))
    own = {message: words.get(message, 0.0) for message in found}
    # What has no vectors, or none yet, is taken to be as near as others that have the words.
    known = near.of(words)
    closest = dict.fromkeys(found, sum(known.values()) / len(known) if known else 0.0) | near.of(found)
    # How much of a question a message has, of those that have the most of it; each word counts by how rare it is.
    # Where no message has much of it, words mislead: what is asked for was said in others.
    total = count_all(corpus, eased)
    weights = {term: weight(total, matches) for matches, term in counted}
    had = dict.fromkeys(nlargest(_BATCH, words, key=words.__getitem__), 0.0)
    for term in eased.wanted:
        for message in corpus.search(eased._replace(wanted=(term,))).among(had):
            had[message] += weights[term]
    covered = max(had.values(), default=0.0) / (sum(weights.values()) or 1.0)
    trust = min(1.0, covered / _ENOUGH) ** 2
    around = surroundings(corpus, eased, found)
    best = mixed((own, trust), (closest, 1.0), (around, trust * AROUND))
    first = matching(corpus, unspaced, limit) if unspaced.wanted else {}
    inside = tuple(term for term in (*literal, *unspaced.wanted) if term.is_inside)
    marked = eased._replace(wanted=tuple(dict.fromkeys((*eased.wanted, *inside))))
    return first | dict.fromkeys((one for one in best if one not in first), marked)


def _among(allowed: _Search, messages: Sequence[int], most: int) -> list[int]:
    """The first of some messages that a query allows, about as many as are wanted."""
    found: list[int] = []
    for at in range(0, len(messages), _BATCH):
        if len(found) >= most:
            break
        found += allowed.among(messages[at : at + _BATCH])
    return found


class _Search:
    """One query as SQL: the table that leads, and conditions on each of its rows."""

    def __init__(self, connection: Connection, query: Query) -> None:
        self._connection = connection
        # The rank of FTS5 counts words in all sessions.
        self._is_ranked = not query.is_confined
        self.logs = ""
        """The numbers of the logs that are searched, as SQL has them; "" if these are not some alone."""
        self._where: list[str] = []
        self._values: list[Any] = []
        # 1. The table for each term; what the table cannot tell is read in the message.
        words: list[str] = []
        grams: list[str] = []
        for term in query.wanted:
            if not term.is_inside:
                words.append(_words_match(term))
            elif "" not in (each := [self._grams_match(one.text) for one in term.all]):
                grams.append(f"({' OR '.join(each)})")
            if term.is_inside or any(one.is_exact for one in term.all):
                self._add("holds(message.body, ?)", described(term))
        read = [term for term in query.unwanted if term.is_inside or term.is_exact]
        for term in read:
            self._add("NOT holds(message.body, ?)", described(term))
        unwanted = " OR ".join(_words_match(term) for term in query.unwanted if term not in read)
        self._lead = "words" if words else "grams" if grams else "message"
        # 2. The filters, before what the tables are asked for.
        self._filter(query)
        if words:
            wanted = (" OR " if query.is_any else " AND ").join(words)
            self._add("words MATCH ?", f"({wanted}) NOT ({unwanted})" if unwanted else wanted)
        elif unwanted:
            self._add("message.id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)", unwanted)
        if grams:
            inside = "message.id IN (SELECT rowid FROM grams WHERE grams MATCH ?)"
            self._add("grams MATCH ?" if self._lead == "grams" else inside, " AND ".join(grams))
        tables, order = "message", "message.ts"
        if self._lead != "message":
            # The order of the tables is ours to say: SQLite cannot know how few rows a match leaves.
            tables, order = f"{self._lead} CROSS JOIN message ON message.id = {self._lead}.rowid", f"{self._lead}.rowid"
        self._from = f"FROM {tables} WHERE {' AND '.join(self._where)} ORDER BY {order} DESC"

    def run(self, limit: int) -> list[int]:
        """The messages that match, best first."""
        # What is not ranked comes by time, so that the first are the ones.
        is_ranked = self._is_ranked and self._lead == "words"
        pool = max(limit, POOL) if is_ranked else limit
        rank = "words.rank" if is_ranked and self.count(pool + 1) <= pool else "0"
        matching = f"SELECT message.id AS id, {rank} AS score, message.ts AS ts {self._from} LIMIT {pool}"
        best = f"SELECT id FROM ({matching}) ORDER BY score, ts DESC, id DESC LIMIT {limit}"  # noqa: S608
        return [message for (message,) in self._connection.execute(best, self._values)]

    def scores(self) -> dict[int, float]:
        """The messages that match whole words, with their score, as many as are ranked; best first."""
        if self._lead != "words":
            return {}
        tables = self._from.partition(" ORDER BY ")[0]
        best = f"SELECT message.id, -words.rank {tables} ORDER BY words.rank LIMIT {POOL}"
        return dict(self._connection.execute(best, self._values).fetchall())

    def counts(self) -> list[tuple[int, int, int]]:
        """How many messages match in each part of a log: the log's number, the part's, and how many."""
        tables = self._from.partition(" ORDER BY ")[0]
        grouped = f"SELECT message.log, message.n / {PART} AS part, count(*) {tables} GROUP BY message.log, part"
        return self._connection.execute(grouped, self._values).fetchall()

    def among(self, messages: Iterable[int]) -> list[int]:
        """Those of some messages that match."""
        tables, _, condition = self._from.partition(" WHERE ")
        some = f"SELECT message.id {tables} WHERE message.id IN ({', '.join(map(str, messages))}) AND {condition}"
        return [message for (message,) in self._connection.execute(some, self._values)]

    def count(self, most: int) -> int:
        """How many messages match, no more than are to be counted."""
        count = f"SELECT count(*) FROM (SELECT 1 {self._from} LIMIT {most})"  # noqa: S608 - our own names
        return int(self._connection.execute(count, self._values).fetchone()[0])

    def _grams_match(self, text: str) -> str:
        """The trigrams of a text, or all that begin with a shorter one; "" if these are too many or too common."""
        if found := trigrams(text):
            return f"({' AND '.join(map(_quoted, found))})"
        begin = folded(text)
        total = 0
        grams = "SELECT term, doc FROM terms WHERE term >= ? AND term < ?"
        for gram, count in self._connection.execute(grams, (begin, begin + _LAST)):
            total += count
            if len(found) == _MAX_TRIGRAMS or total > POOL:
                return ""
            found.append(gram)
        # What is nowhere must be asked for, too, so that nothing is found.
        return f"({' OR '.join(map(_quoted, found or [_NOWHERE]))})"

    def _filter(self, query: Query) -> None:
        self._where.append("message.shared >= 0")
        if query.roles:
            self._add(f"message.role COLLATE NOCASE IN ({', '.join('?' * len(query.roles))})", *query.roles)
        if query.tools:
            is_of_one = " OR ".join(["instr(message.tool, ?)"] * len(query.tools))
            self._add(f"({is_of_one})", *(f"\n{tool}\n" for tool in query.tools))
        # The numbers of the logs that are searched; "" for all of them.
        logs = ""
        if query.keys or query.beginnings or query.is_confined:
            self.logs = logs = self._only_in(query)
        elif not query.internal:
            rows = self._connection.execute("SELECT id FROM log WHERE key >= ? AND key < ?", (INTERNAL, _END))
            if hidden := ", ".join(str(log) for (log,) in rows):
                self._where.append(f"message.log NOT IN ({hidden})")
                logs = f"SELECT id FROM log WHERE id NOT IN ({hidden})"  # noqa: S608 - our own numbers
        # What a fork shares with a session that is searched too is found where it was written.
        if self._connection.execute("SELECT 1 FROM message WHERE shared > 0 LIMIT 1").fetchone() is not None:
            among = f" AND log.id IN ({logs})" if logs else ""
            there = f"SELECT origin.id FROM origin JOIN log ON log.uid = origin.uid WHERE kind = 'session'{among}"  # noqa: S608
            among = f" AND other.log IN ({logs})" if logs else ""
            # Where the writer is gone, of several forks the first.
            first = (
                "NOT EXISTS (SELECT 1 FROM message AS other WHERE other.shared > 0 AND other.shared = message.shared "  # noqa: S608
                f"AND other.n = message.n AND other.log < message.log{among})"
            )
            self._where.append(f"(message.shared = 0 OR (message.shared NOT IN ({there}) AND {first}))")
        if query.skip is not None:
            # Archived generations stay: their numbers start again, and they are not what the numbers count.
            active = "SELECT id FROM log WHERE key = ? AND NOT archived"
            self._add(f"NOT (message.n >= ? AND message.log IN ({active}))", *query.skip[::-1])
        if query.since:
            self._add("message.ts >= ?", pack_time(query.since))
        if query.until:
            self._add("message.ts <= ?", pack_time(query.until))

    def _only_in(self, query: Query) -> str:
        """Take messages of some sessions alone; gives the numbers of their logs."""
        exact, beginning = "SELECT id, key FROM log WHERE key = ?", "SELECT id, key FROM log WHERE key >= ? AND key < ?"
        keys, begins = query.keys, query.beginnings
        if not keys and not begins:
            keys, begins = ((query.only,), ()) if query.only else ((), (query.prefix,))
        rows = [row for key in keys for row in self._connection.execute(exact, (key,))]
        for begin in begins:
            rows += self._connection.execute(beginning, (begin, begin + _LAST))
        logs = ", ".join(dict.fromkeys(str(log) for log, key in rows if query.takes(key))) or "0"
        self._where.append(f"message.log IN ({logs})")
        if self._lead != "message":
            span = f"SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM message WHERE log IN ({logs})"  # noqa: S608
            first, last = self._connection.execute(span).fetchone()
            self._add(f"{self._lead}.rowid BETWEEN ? AND ?", first, last)
        return logs

    def _add(self, condition: str, *values: Any) -> None:
        self._where.append(condition)
        self._values += values


def _words_match(term: Term) -> str:
    """A term, and what will do as well, in every spelling, as FTS5 takes it."""
    spelled = dict.fromkeys(spelling for one in term.all for spelling in spellings(one))
    return f"({' OR '.join(map(_quoted, spelled))})"


def _quoted(text: str) -> str:
    """A text as FTS5 takes it for nothing but text."""
    return '"' + text.replace('"', '""') + '"'
