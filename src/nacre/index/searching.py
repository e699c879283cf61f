"""Running a query on the two full-text tables: which messages match, in which order, and what to show of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from sqlite3 import Connection
from typing import Any

from nacre.entries import Hit
from nacre.errors import StoreError
from nacre.index.database import in_memory, is_away
from nacre.index.matching import described, trigrams
from nacre.index.query import Query, Term
from nacre.index.snippet import snippet
from nacre.index.text import folded
from nacre.index.tolerance import rarity, spellings, tolerant
from nacre.keys import INTERNAL

# Of more matches than these only the newest are taken, by time: a word that is everywhere ranks nothing.
_POOL = 4096
_MOST_TRIGRAMS = 500
_NOWHERE = "\ue000\ue001\ue002"
_MOST_SHOWN = 256 * 1024
# More than any index holds, and no more than SQLite takes for a number.
_MOST_FOUND = 1 << 32
_LAST = "\U0010ffff"
# What comes behind the ":" of an internal key is ";".
_END = f"{INTERNAL[:-1]};"
_SHOW = f"""
SELECT key, n, ts, message.role, substr(body, 1, {_MOST_SHOWN}) FROM message JOIN log ON log.id = message.log
WHERE message.id = ?
"""  # noqa: S608 - our own names


def hits(connection: Connection, query: Query, *, limit: int) -> list[Hit]:
    """The messages that a query finds, best first.

    Looked for inside words too if whole words find none, and one typo away if that finds nothing either. Where there
    are as many words as a question has, or the query is to be filled up, what has the rarest of them follows what has
    all. With a prefix, the newest come first and typos are not looked for. Raises StoreError if SQLite takes no such
    query, whatever there is to search.
    """
    if limit <= 0 or query._replace(internal=False, skip=None, fill=False, prefix="") == Query():
        return []
    limit = min(limit, _MOST_FOUND)
    try:
        return _found(connection, query, limit)
    except sqlite3.Error as error:
        if is_away(error) or not _is_refused(query, limit):
            raise
        raise StoreError(f"SQLite {sqlite3.sqlite_version} does not take this query: {error}") from error


def _is_refused(query: Query, limit: int) -> bool:
    """Tell whether a query fails even where nothing is damaged, since there is nothing."""
    with closing(in_memory()) as nothing:
        try:
            _found(nothing, query, limit)
        except sqlite3.Error:
            return True
    return False


def _found(connection: Connection, query: Query, limit: int) -> list[Hit]:
    content = query.content
    found: dict[int, Query] = {}
    # Which words there are, and how rare, is counted in all sessions: with a prefix, what that decides would tell
    # something of those that are not to be searched.
    is_counting = not query.prefix
    attempts = [content, content.loosened, *([tolerant(connection, content)] if is_counting else [])]
    for attempt in attempts:
        found = found or dict.fromkeys(_Search(connection, attempt).run(limit), attempt)
    if len(found) < limit and query.words and is_counting:
        eased = _eased(connection, query)
        for message in _Search(connection, eased).run(limit) if eased.wanted else ():
            found.setdefault(message, eased)
    shown = {by: _rarest_first(connection, by) for by in dict.fromkeys(found.values())}
    return [_hit(connection, message, shown[by]) for message, by in islice(found.items(), limit)]


def _hit(connection: Connection, message: int, terms: Sequence[Term]) -> Hit:
    key, n, ts, role, body = connection.execute(_SHOW, (message,)).fetchone()
    return Hit(key=key, n=n, ts=datetime.fromisoformat(ts), role=role, snippet=snippet(body, terms))


def _rarest_first(connection: Connection, query: Query) -> list[Term]:
    """What to show of a message: around the rarest of the terms; what is looked for inside words is as good as rare.

    With a prefix they stay as they are: how rare they are is counted in all sessions.
    """
    if len(query.wanted) == 1 or query.prefix:
        return list(query.wanted)
    return sorted(query.wanted, key=lambda term: 0 if term.is_inside else rarity(connection, term))


def _eased(connection: Connection, query: Query) -> Query:
    """The query for any of its words, the rarest first, as many as do not match more than can be ranked."""
    count = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {_POOL + 1})"  # noqa: S608 - our own names
    counted = [
        (connection.execute(count, (_words_match(term),)).fetchone()[0], term._replace(is_exact=False))
        for term in tolerant(connection, query._replace(wanted=query.words)).wanted
    ]
    wanted: list[Term] = []
    total = 0
    for matches, term in sorted(counted, key=lambda found: (found[0], -len(found[1].text))):
        total += matches
        if matches and total <= _POOL:
            wanted.append(term)
    return query._replace(wanted=tuple(wanted), is_any=True)


class _Search:
    """One query as SQL: the table that leads, and conditions on each of its rows."""

    def __init__(self, connection: Connection, query: Query) -> None:
        self._connection = connection
        self._joint = " OR " if query.is_any else " AND "
        # The rank of FTS5 counts words in all sessions.
        self._is_ranked = not query.prefix
        self._where: list[str] = []
        self._values: list[Any] = []
        self._words: list[str] = []
        self._grams: list[str] = []
        self._unwanted: list[str] = []
        for term in query.wanted:
            self._want(term)
        for term in query.unwanted:
            self._refuse(term)
        self._lead = "words" if self._words else "grams" if self._grams else "message"
        self._filter(query)
        self._match()

    def run(self, limit: int) -> list[int]:
        """The messages that match, best first."""
        # What is not ranked comes by time, so that the first are the ones.
        is_ranked = self._is_ranked and self._lead == "words"
        pool = max(limit, _POOL) if is_ranked else limit
        rank = "words.rank" if is_ranked and self._is_within(pool) else "0"
        matching = f"SELECT message.id AS id, {rank} AS score, message.ts AS ts {self._from} LIMIT {pool}"
        best = f"SELECT id FROM ({matching}) ORDER BY score, ts DESC, id DESC LIMIT {limit}"  # noqa: S608
        return [message for (message,) in self._connection.execute(best, self._values)]

    def _is_within(self, pool: int) -> bool:
        """Tell whether all that matches may be ranked."""
        count = f"SELECT count(*) FROM (SELECT 1 {self._from} LIMIT {pool + 1})"  # noqa: S608 - our own names
        return bool(self._connection.execute(count, self._values).fetchone()[0] <= pool)

    @property
    def _from(self) -> str:
        if self._lead == "message":
            tables, order = "message", "message.ts"
        else:
            # The order of the tables is ours to say: SQLite cannot know how few rows a match leaves.
            tables, order = f"{self._lead} CROSS JOIN message ON message.id = {self._lead}.rowid", f"{self._lead}.rowid"
        return f"FROM {tables} WHERE {' AND '.join(self._where) or '1'} ORDER BY {order} DESC"

    # ---- terms

    def _want(self, term: Term) -> None:
        """Find the table for a term; what the table cannot tell is read in the message."""
        if not term.is_inside:
            self._words.append(_words_match(term))
        else:
            grams = [self._grams_match(one.text) for one in term.all]
            if "" not in grams:
                self._grams.append(f"({' OR '.join(grams)})")
        if term.is_inside or any(one.is_exact for one in term.all):
            self._add("holds(message.body, ?)", described(term))

    def _refuse(self, term: Term) -> None:
        if term.is_inside or term.is_exact:
            self._add("NOT holds(message.body, ?)", described(term))
        else:
            self._unwanted.append(_words_match(term))

    def _grams_match(self, text: str) -> str:
        """The trigrams of a text, or all that begin with a shorter one; "" if these are too many or too common."""
        if found := trigrams(text):
            return f"({' AND '.join(map(_quoted, found))})"
        begin = folded(text)
        total = 0
        rows = self._connection.execute(
            "SELECT term, doc FROM terms WHERE term >= ? AND term < ?", (begin, begin + _LAST)
        )
        for gram, count in rows:
            total += count
            if len(found) == _MOST_TRIGRAMS or total > _POOL:
                return ""
            found.append(gram)
        # What is nowhere must be asked for, too, so that nothing is found.
        return f"({' OR '.join(map(_quoted, found or [_NOWHERE]))})"

    def _match(self) -> None:
        unwanted = " OR ".join(self._unwanted)
        if self._words:
            wanted = self._joint.join(self._words)
            self._add("words MATCH ?", f"({wanted}) NOT ({unwanted})" if unwanted else wanted)
        elif unwanted:
            self._add("message.id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)", unwanted)
        if self._grams:
            match = " AND ".join(self._grams)
            inside = "message.id IN (SELECT rowid FROM grams WHERE grams MATCH ?)"
            self._add("grams MATCH ?" if self._lead == "grams" else inside, match)

    # ---- filters

    def _filter(self, query: Query) -> None:
        if query.roles:
            self._add(f"message.role COLLATE NOCASE IN ({', '.join('?' * len(query.roles))})", *query.roles)
        if query.tools:
            is_of_one = " OR ".join(["instr(message.tool, ?)"] * len(query.tools))
            self._add(f"({is_of_one})", *(f"\n{tool}\n" for tool in query.tools))
        is_narrow = query.keys or query.beginnings or query.prefix
        self._once(self._only_in(query) if is_narrow else self._not_internal(query))
        if query.skip is not None:
            self._add("NOT (message.n >= ? AND message.log IN (SELECT id FROM log WHERE key = ?))", *query.skip[::-1])
        if query.since:
            self._add("message.ts >= ?", query.since)
        if query.until:
            self._add("message.ts <= ?", query.until)

    def _once(self, logs: str) -> None:
        """Leave out what a fork shares with a session that is searched too: it is found where it was written."""
        if self._connection.execute("SELECT 1 FROM message WHERE shared > 0 LIMIT 1").fetchone() is None:
            return
        among = f" AND log.id IN ({logs})" if logs else ""
        there = f"SELECT origin.id FROM origin JOIN log ON log.uid = origin.uid WHERE kind = 'session'{among}"  # noqa: S608
        among = f" AND other.log IN ({logs})" if logs else ""
        # Where the writer is gone, of several forks the first.
        first = (
            "NOT EXISTS (SELECT 1 FROM message AS other WHERE other.shared > 0 AND other.shared = message.shared "  # noqa: S608
            f"AND other.n = message.n AND other.log < message.log{among})"
        )
        self._where.append(f"(message.shared = 0 OR (message.shared NOT IN ({there}) AND {first}))")

    def _not_internal(self, query: Query) -> str:
        """Leave out what internal sessions hold; gives the numbers of the other logs, "" for all of them."""
        if query.internal:
            return ""
        rows = self._connection.execute("SELECT id FROM log WHERE key >= ? AND key < ?", (INTERNAL, _END))
        hidden = ", ".join(str(log) for (log,) in rows)
        if not hidden:
            return ""
        self._where.append(f"message.log NOT IN ({hidden})")
        return f"SELECT id FROM log WHERE id NOT IN ({hidden})"  # noqa: S608 - our own numbers

    def _only_in(self, query: Query) -> str:
        """Take messages of some sessions alone; gives the numbers of their logs."""
        exact, beginning = "SELECT id, key FROM log WHERE key = ?", "SELECT id, key FROM log WHERE key >= ? AND key < ?"
        rows = [row for key in query.keys for row in self._connection.execute(exact, (key,))]
        begins = query.beginnings if query.keys or query.beginnings else (query.prefix,)
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
