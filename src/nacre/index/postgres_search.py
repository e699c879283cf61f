"""Running a query on what PostgreSQL has of each message: its words as written, their stems, and its plain text.

A word is looked for among the stems, a phrase in quotes and the beginning of a word among the words as written, and a
part of a word in the plain text, which `pg_trgm` makes quick where it is installed. For scripts without spaces and for
signs, the characters among the words tell which texts may have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from nacre.codec import parse_time, sortable
from nacre.errors import InvalidKey
from nacre.index.postgres_intake import stems_in, words_in
from nacre.index.postgres_list import NO_JIT, end_of, escaped, storable
from nacre.index.query import Query, Term, spellings
from nacre.index.ranking import (
    MAX_FOUND,
    MAX_ROLE,
    MAX_SHOWN,
    PART,
    POOL,
    Part,
    by_words,
    is_empty,
    terms_to_show,
    weight,
)
from nacre.index.search_text import folded
from nacre.index.snippet import snippet
from nacre.messages import Hit
from nacre.storage.postgres.connections import Statement, Value
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.view import plain_uid, sid_of
from nacre.storage.postgres.writer import array_of

# Of a table with more rows the statistics are true enough, and counting takes too long.
_MAX_COUNTED = 20_000
_NOTHING = "false"
_BETWEEN = r"[\W_]+"


class _Place(NamedTuple):
    """Where a message is; the later one is the greater."""

    ts: str
    sid: str
    uid: str
    n: int


class _Message(NamedTuple):
    """What is shown of a message; the generation is "" for one of an active session."""

    key: str
    role: str
    body: str
    generation: str


class _Table(NamedTuple):
    """A query for full text: as phrases with places, and for long texts, which have none, as words alone."""

    near: str
    all: str


def hits(database: Database, query: Query, *, limit: int) -> list[Hit]:
    """The messages that a query finds, best first; `ranking` says which ones these are."""
    if limit <= 0 or is_empty(query):
        return []
    limit = min(limit, MAX_FOUND)
    corpus = _Corpus(database)
    found = dict(islice(by_words(corpus, query, limit).items(), limit))
    # What to show of a message: around the rarest of the terms.
    terms = {by: terms_to_show(corpus, by) for by in dict.fromkeys(found.values())}
    shown = corpus.show(found)
    # One that was erased meanwhile has nothing to show.
    return [_hit(place, shown[place], terms[by]) for place, by in found.items() if place in shown]


def _hit(place: _Place, message: _Message, terms: Sequence[Term]) -> Hit:
    return Hit(
        key=message.key,
        n=place.n,
        ts=parse_time(place.ts),
        role=message.role[:MAX_ROLE],
        snippet=snippet(message.body, terms),
        generation=message.generation,
    )


class _Corpus:
    """The messages of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.connections.address.schema
        self._total: int | None = None
        self._counts: dict[Term, int] = {}

    def read(self, text: str, *values: Value) -> Sequence[list[bytes | None]]:
        """The rows of a query that is made for one search; it is not prepared, as the next one is another."""
        made = Statement(b"", text.replace("{s}", self._schema).encode())
        return self._database.connections.read_together([(NO_JIT, ()), (made, values)])[1]

    def search(self, query: Query) -> _Search:
        return _Search(self, query)

    def vocabulary(self, query: Query) -> _Words:
        return _Words(self, query)

    def count(self, term: Term, most: int) -> int:
        if term not in self._counts:
            table = _stems_match([term], " | ")
            values = _Values()
            where = _match("stems", table, values) if table is not None else _NOTHING
            count = f"SELECT count(*) FROM (SELECT 1 FROM {{s}}.texts AS t WHERE {where} LIMIT {most}) AS found"  # noqa: S608 - our own names
            self._counts[term] = int(self.read(count, *values)[0][0] or b"0")
        return self._counts[term]

    def total(self) -> int:
        if self._total is None:
            count = f"SELECT count(*) FROM (SELECT 1 FROM {{s}}.texts LIMIT {_MAX_COUNTED}) AS found"  # noqa: S608 - the same
            known = "SELECT reltuples::bigint FROM pg_class WHERE oid = '{s}.texts'::regclass"
            self._total = max(int(self.read(text)[0][0] or b"0") for text in (count, known))
        return self._total

    def parts(self, messages: Iterable[_Place]) -> dict[_Place, Part]:
        return {place: (place.uid, place.n // PART) for place in messages}

    def show(self, places: Iterable[_Place]) -> dict[_Place, _Message]:
        """The messages at some places, as far as they are still there."""
        wanted = {(place.sid, place.uid, place.n): place for place in places}
        columns = [array_of([str(name[at]) for name in wanted]) for at in range(3)]
        rows = self.read(
            f"""SELECT t.sid, t.uid, t.n, s.key, t.role, left(t.body, {MAX_SHOWN}), s.status
            FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS wanted (sid, uid, n)
            JOIN {{s}}.texts AS t ON (t.sid, t.uid, t.n) = (wanted.sid, wanted.uid, wanted.n)
            JOIN {{s}}.sessions AS s ON (s.sid, s.uid) = (wanted.sid, wanted.uid)
            WHERE s.status <= 1""",  # noqa: S608 - the same
            *columns,
        )
        found = {}
        for sid, uid, n, *rest in rows:
            key, role, body, status = ((value or b"").decode() for value in rest)
            place = wanted[plain_uid(sid), plain_uid(uid), int(n or b"0")]
            found[place] = _Message(key, role, body, place.uid if int(status) else "")
        return found


class _Words:
    """Which words there are in the messages that a query searches; of one that is confined, in these alone."""

    def __init__(self, corpus: _Corpus, query: Query) -> None:
        self._corpus = corpus
        self._query = query._replace(unwanted=())

    def count(self, words: Iterable[str]) -> dict[str, int]:
        stemmed = {word: stems_in(word) for word in words}
        names = {one for found in stemmed.values() for one in found}
        rows = self._corpus.read(
            f"""SELECT word, (SELECT count(*) FROM (
                SELECT 1 FROM {{s}}.texts WHERE stems @@ quote_literal(word)::tsquery LIMIT {POOL}) AS found)
            FROM unnest($1::text[]) AS words (word)""",  # noqa: S608 - our own names
            array_of(sorted(names)),
        )
        counted = {(word or b"").decode(): int(count or b"0") for word, count in rows}
        counts = {word: min((counted[one] for one in found), default=0) for word, found in stemmed.items()}
        if not self._query.is_confined:
            return counts
        return {
            word: self._corpus.search(self._query._replace(wanted=(Term(word),))).count(POOL) if count else 0
            for word, count in counts.items()
        }

    def has(self, word: str) -> bool:
        """Tell whether a word, or one that begins with it, is in any message just as it is written."""
        return self._corpus.search(self._query._replace(wanted=(Term(word, is_prefix=True),))).count(1) > 0


class _Values(list[Value]):
    """The values of a query; each is named by its place."""

    def add(self, value: Value) -> str:
        self.append(value)
        return f"${len(self)}"


class _Search:
    """One query as SQL: conditions on each message and on its session."""

    def __init__(self, corpus: _Corpus, query: Query) -> None:
        self._corpus = corpus
        self._query = query
        self._values = _Values()
        self._where = ["NOT t.repeated"]
        # 1. Whole words, as one query for the index of stems; then all others, each by itself.
        plain = [term for term in query.wanted if query.is_any or _is_plain(term)]
        self._stems = _stems_match(plain, " | " if query.is_any else " & ")
        if plain:
            self._where.append(_match("stems", self._stems, self._values) if self._stems is not None else _NOTHING)
        self._where += [self._term(term) for term in query.wanted if term not in plain]
        self._where += [f"NOT {self._term(term)}" for term in query.unwanted]
        # 2. The sessions. That of a message is looked up when all else is right, which no join can be made to do; those
        #    of a query that is confined to some are looked up first.
        if query.is_confined or query.keys or query.beginnings:
            some = f"SELECT s.sid FROM {{s}}.sessions AS s WHERE {self._takes('s')}"  # noqa: S608 - our own names
            self._where.append(f"t.sid = ANY(ARRAY({some}))")
        its_own = "FROM {s}.sessions AS s WHERE (s.sid, s.uid) = (t.sid, t.uid)"
        self._where.append(f"(SELECT {self._takes('s')} {its_own})")
        # 3. The filters.
        if query.roles:
            roles = self._values.add(array_of([_lowered(storable(role)) for role in query.roles]))
            self._where.append(f"lower(t.role) = ANY({roles}::text[])")
        if query.tools:
            self._where.append(f"t.tools && {self._values.add(array_of(list(query.tools)))}::text[]")
        if query.since:
            self._where.append(f"t.ts >= {self._values.add(sortable(parse_time(query.since)))}")
        if query.until:
            self._where.append(f"t.ts <= {self._values.add(sortable(parse_time(query.until)))}")
        if query.skip is not None:
            # Archived generations stay: their numbers start again, and they are not what the numbers count.
            key, n = query.skip
            skipped, number = self._values.add(_sids([key])), self._values.add(n)
            is_active = f"(SELECT s.status = 0 {its_own})"
            self._where.append(f"NOT (t.n >= {number}::bigint AND t.sid = ANY({skipped}::uuid[]) AND {is_active})")
        # 4. What a fork shares with a session that is searched too is found where it was written; where the writer is
        #    gone, in the first of several forks.
        other = "FROM {s}.texts AS w JOIN {s}.sessions AS o ON (o.sid, o.uid) = (w.sid, w.uid)"
        takes = self._takes("o")
        written = f"SELECT 1 {other} WHERE (w.sid, w.uid, w.n) = (t.from_sid, t.from_uid, t.n) AND {takes}"
        shared = f"SELECT 1 {other} WHERE (w.from_sid, w.from_uid, w.n) = (t.from_sid, t.from_uid, t.n) AND {takes}"
        first = f"NOT EXISTS ({shared} AND (w.sid, w.uid) < (t.sid, t.uid))"
        self._where.append(f"(t.from_uid IS NULL OR (NOT EXISTS ({written}) AND {first}))")
        self._from = f"FROM {{s}}.texts AS t WHERE {' AND '.join(self._where)}"

    def run(self, limit: int) -> list[_Place]:
        """The messages that match, best first; what is not ranked comes by time."""
        if self._stems is None or self._query.is_confined:
            return self._read(f"SELECT t.ts, t.sid, t.uid, t.n {self._from} ORDER BY t.ts DESC, t.n DESC LIMIT {limit}")
        values = _Values(self._values)
        rank = f"ts_rank(t.stems, {values.add(self._stems.near)}::tsquery, 1)"
        pool = max(limit, POOL)
        newest = f"SELECT t.ts, t.sid, t.uid, t.n, {rank} AS rank {self._from} ORDER BY t.ts DESC LIMIT {pool + 1}"
        # Of more than can be ranked, the newest are the ones.
        score = f"CASE WHEN count(*) OVER () > {pool} THEN 0 ELSE rank END"
        best = f"SELECT ts, sid, uid, n, {score} AS score FROM ({newest}) AS newest"  # noqa: S608 - the same
        return self._read(f"SELECT * FROM ({best}) AS best ORDER BY score DESC, ts DESC, n DESC LIMIT {limit}", values)  # noqa: S608

    def scores(self) -> dict[_Place, float]:
        """The messages that match whole words, with their score: each word counts by how rare it is."""
        if self._stems is None:
            return {}
        values, total = _Values(self._values), self._corpus.total()
        worth = {term: weight(total, self._corpus.count(term, POOL + 1)) for term in self._query.wanted}
        tables = {term: table for term in worth if (table := _stems_match([term], " | ")) is not None}
        ranks = [
            f"{worth[term]!r} * ts_rank(t.stems, {values.add(table.near)}::tsquery, 1)"
            for term, table in tables.items()
        ]
        best = f"SELECT t.ts, t.sid, t.uid, t.n, {' + '.join(ranks)} AS score {self._from}"
        rows = self._corpus.read(f"{best} ORDER BY score DESC LIMIT {POOL}", *values)
        return {_place(row): float(row[4] or b"0") for row in rows}

    def counts(self) -> list[tuple[str, int, int]]:
        """How many messages match in each part of a session: its generation, the number of the part, and how many."""
        grouped = f"SELECT t.uid, t.n / {PART}, count(*) {self._from} GROUP BY 1, 2"
        rows = self._corpus.read(grouped, *self._values)
        return [(plain_uid(uid), int(part or b"0"), int(count or b"0")) for uid, part, count in rows]

    def count(self, most: int) -> int:
        """How many messages match, no more than are to be counted."""
        count = f"SELECT count(*) FROM (SELECT 1 {self._from} LIMIT {most}) AS found"  # noqa: S608 - our own names
        return int(self._corpus.read(count, *self._values)[0][0] or b"0")

    def _read(self, text: str, values: Iterable[Value] | None = None) -> list[_Place]:
        return [_place(row) for row in self._corpus.read(text, *(self._values if values is None else values))]

    def _term(self, term: Term) -> str:
        """A condition for a term or what will do as well."""
        found = []
        for one in term.all:
            if one.is_prefix:
                word = words_in(one.text)[0]
                found.append(f"t.words @@ {self._values.add(f'{_lexeme(word)}:*')}::tsquery")
            elif one.is_exact and not one.is_substring:
                found.append(self._exact(one.text))
            elif term.is_inside:
                found.append(self._inside(one.text))
            else:
                table = _stems_match([one], " | ")
                found.append(_match("stems", table, self._values) if table is not None else _NOTHING)
        return f"({' OR '.join(found)})"

    def _exact(self, text: str) -> str:
        """Words one after the other, as they are written."""
        words = [word for word in words_in(text) if word[0].isalnum()]
        table = _Table(_phrase(words, " <-> "), _phrase(words, " & "))
        if len(words) == 1:
            return _match("words", table, self._values)
        # A long text has no places: it is read.
        pattern = rf"(^|[\W_])({_BETWEEN.join(map(re.escape, words))})([\W_]|$)"
        near, all_ = self._values.add(table.near), self._values.add(table.all)
        is_read = f"t.is_long AND t.words @@ {all_}::tsquery AND t.plain ~ {self._values.add(pattern)}"
        return f"(t.words @@ {near}::tsquery OR ({is_read}))"

    def _inside(self, text: str) -> str:
        """A part of a text; the characters that are words by themselves tell where it can be."""
        plain = folded(storable(text))
        condition = f"t.plain LIKE {self._values.add(f'%{escaped(plain)}%')}"
        single = [word for word in words_in(plain) if len(word) == 1 and not word.isascii()]
        if not single:
            return condition
        return f"(t.words @@ {self._values.add(_phrase(single, ' & '))}::tsquery AND {condition})"

    def _takes(self, name: str) -> str:
        """A condition for a session that is searched; as `Query.takes` has it."""
        query, values = self._query, self._values
        found = [f"{name}.status IN (0, 1)"]
        if query.prefix:
            found.append(self._begins(name, query.prefix))
        if query.only:
            found.append(f"{name}.sid = ANY({values.add(_sids([query.only]))}::uuid[])")
        named = f"{name}.sid = ANY({values.add(_sids(query.keys))}::uuid[])" if query.keys else _NOTHING
        if query.keys or query.beginnings:
            begins = [self._begins(name, begin) for begin in query.beginnings]
            found.append(f"({' OR '.join([named, *begins])})")
        if not query.internal:
            found.append(f"(NOT {name}.internal OR {named})")
        return " AND ".join(found)

    def _begins(self, name: str, begin: str) -> str:
        """A condition for keys that begin with a text, as the index `sessions_key` can find them."""
        begin = storable(begin)
        first, add = begin[:256], self._values.add
        found = [f"starts_with({name}.key, {add(begin)})", f"left({name}.key, 256) >= {add(first)}"]
        if end := end_of(first):
            found.append(f"left({name}.key, 256) < {add(end)}")
        return f"({name}.internal IN (false, true) AND {' AND '.join(found)})"


def _place(row: list[bytes | None]) -> _Place:
    return _Place((row[0] or b"").decode(), plain_uid(row[1]), plain_uid(row[2]), int(row[3] or b"0"))


def _is_plain(term: Term) -> bool:
    """Tell whether a term, and what will do as well, is looked for as whole words in any form."""
    return not term.is_inside and not any(one.is_exact for one in term.all)


def _stems_match(terms: Iterable[Term], operator: str) -> _Table | None:
    """Terms in every spelling; None if one that is needed, or all of which one is enough, have no words."""
    near, all_ = [], []
    for term in terms:
        spelled = dict.fromkeys(tuple(stems_in(spelling)) for one in term.all for spelling in spellings(one))
        if words := [one for one in spelled if one]:
            near.append(f"({' | '.join(_phrase(one, ' <-> ') for one in words)})")
            all_.append(f"({' | '.join(_phrase(one, ' & ') for one in words)})")
        elif operator == " & ":
            return None
    return _Table(operator.join(near), operator.join(all_)) if near else None


def _match(column: str, table: _Table, values: _Values) -> str:
    """A condition for words; in a long text, which has no places for them, the words of a phrase may be anywhere."""
    near = f"t.{column} @@ {values.add(table.near)}::tsquery"
    if table.near == table.all:
        return near
    return f"({near} OR (t.is_long AND t.{column} @@ {values.add(table.all)}::tsquery))"


def _phrase(words: Iterable[str], operator: str) -> str:
    return f"({operator.join(map(_lexeme, words))})"


def _lexeme(word: str) -> str:
    """A word as PostgreSQL takes it for nothing but a word; none has a quote in it."""
    return f"'{word}'"


def _sids(keys: Iterable[str]) -> str:
    """What the rows of sessions have in common; of what can be no key there are none."""
    found = []
    for key in keys:
        try:
            found.append(sid_of(key))
        except InvalidKey:
            continue
    return array_of(found)


def _lowered(text: str) -> str:
    """A text with the letters of ASCII in lower case, as a column in the order of bytes has it."""
    return "".join(char.lower() if char.isascii() else char for char in text)
