"""Pages of the list of sessions in a database: what is not shown is not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product

from nacre.codec import is_time, parse_time
from nacre.history import session_state
from nacre.history.list_page import LARGEST, Place, Wanted, cut, page_of
from nacre.history.overview import overview, when_updated
from nacre.messages import Page, SessionInfo
from nacre.records import Record
from nacre.storage.format import unseal
from nacre.storage.postgres.connections import NotAllowed, Request, Result, Run, Statement, Value
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED
from nacre.storage.postgres.statements import HEAD
from nacre.storage.postgres.view import PostgresView, head_of
from nacre.storage.postgres.writer import array_of

FOLDED_END = "\x1f"
"""What is between key and title in the text that a list is narrowed by; nobody types it."""
NO_JIT = Statement(b"no_jit", b"SELECT set_config('jit', 'off', true)")
"""Run before a query in the same transaction: compiling it takes longer than all that it does."""
MAX_TAG = 500
_VALUES = {"updated": "updated", "created": "began", "bytes": "bytes", "messages": "live"}
# What an index has of each value: what changes rarely, or is short enough for it.
_BUCKETS = {
    "updated": "minute",
    "created": "began",
    "bytes": "bytes_class",
    "messages": "live_class",
    "key": "left(key, 256)",
}
_LAST_MINUTE = (1 << 31) - 1
_LAST_CHARACTER = "\U0010ffff"
# Changes of how many there are become one row when there are so many of them.
_MANY_COUNTS, _MAX_SUMMED = 1000, 200_000
_NOBODY = "0" * 32


def page(database: Database, wanted: Wanted) -> Page:
    """The part of the list that is wanted."""
    if "\0" in wanted.prefix:
        return Page(items=[], total=0)
    statuses = {"active": (ACTIVE,), "archived": (ARCHIVED,), "all": (ACTIVE, ARCHIVED)}[wanted.which]
    parts = list(product(statuses, (False, True) if wanted.internal else (False,)))
    selects = [_Select(database.connections.address.schema, wanted, *part) for part in parts]
    requests: list[Request] = [select.rows() for select in selects]
    is_narrowed = selects[0].is_narrowed
    requests += [select.count() for select in selects] if is_narrowed else [(database.statements.counts, ())]
    _, *rows = database.connections.read_together([(NO_JIT, ()), *requests])
    found = [_info(database, row) for part in rows[: len(parts)] for row in part]
    if is_narrowed:
        total = sum(int(counted[0][0] or b"0") for counted in rows[len(parts) :])
    else:
        counts = {(int(row[0] or b"0"), row[1] == b"t"): int(row[2] or b"0") for row in rows[-1]}
        total = sum(counts.get(part, 0) for part in parts)
        if sum(int(row[3] or b"0") for row in rows[-1]) > _MANY_COUNTS:
            # One who may only read leaves that to others.
            with suppress(NotAllowed):
                database.connections.in_transaction(lambda run: _sum_counts(database, run))
    # Each part is in order, and has one row more than is wanted; together they are to be in order, too.
    return cut(page_of(found, wanted._replace(limit=None)).items, wanted, total=total)


def _sum_counts(database: Database, run: Run) -> Result:
    return run(database.statements.sum_counts, _MAX_SUMMED, _NOBODY)


class _Select:
    """One query: the sessions of one status, either people's or nacre's own."""

    def __init__(self, schema: str, wanted: Wanted, status: int, internal: bool) -> None:  # noqa: FBT001 - as a row has it
        self._schema = schema
        self._wanted = wanted
        self._values: list[Value] = []
        self._where: list[str] = []
        self._add("status = {}::smallint AND internal = {}::boolean", status, "t" if internal else "f")
        always = len(self._where)
        if prefix := wanted.prefix:
            self._add("starts_with(key, {})", prefix)
            self._add_range("left(key, 256)", prefix[:256])
        if wanted.text:
            self._add("folded LIKE {}", f"%{escaped(storable(wanted.text))}%")
        if wanted.folder is not None:
            folder = storable(wanted.folder.rstrip("/"))
            self._add("cwd <> '' AND (cwd = {} OR starts_with(cwd, {}))", folder, f"{folder}/")
            self._add_range("left(cwd, 256)", folder[:256])
        if wanted.pinned:
            self._add("pinned")
        if wanted.tags:
            self._add(
                "tags <> '{{}}' AND tags @> {}::text[]", array_of([storable(tag)[:MAX_TAG] for tag in wanted.tags])
            )
        self.is_narrowed = len(self._where) > always

    def rows(self) -> tuple[Statement, list[Value]]:
        """What gives the rows after the last page, one more than are wanted, with the lines that a list shows."""
        where, values = list(self._where), list(self._values)
        order, is_up = self._wanted.order, self._wanted.reverse != (self._wanted.order == "key")
        bucket, after = _BUCKETS[order], self._wanted.after
        if after is not None:
            is_less, is_more = (">", "<") if self._wanted.reverse else ("<", ">")
            values += [storable(after.key), after.generation]
            # Where they are equal it goes by key and generation, from the first one on.
            tie = f"(key, replace(uid::text, '-', '') COLLATE \"C\") {is_more} (${len(values) - 1}, ${len(values)})"
            if order == "key":
                where.append(tie)
            else:
                values.append(storable(after.value) if isinstance(after.value, str) else after.value)
                name, given = _VALUES[order], f"${len(values)}{'::bigint' if isinstance(after.value, int) else ''}"
                where.append(f"({name} {is_less} {given} OR ({name} = {given} AND {tie}))")
            if (begin := _bucket_of(after)) is not None:
                values.append(begin)
                kind = "::integer" if isinstance(begin, int) else ""
                where.append(f"{bucket} {'>=' if is_up else '<='} ${len(values)}{kind}")
        way, tie_way = ("ASC" if is_up else "DESC"), ("DESC" if self._wanted.reverse else "ASC")
        by = [bucket, *([_VALUES[order]] if order in _VALUES else [])]
        sorting = ", ".join([f"{one} {way}" for one in dict.fromkeys(by)] + [f"key {tie_way}, uid {tie_way}"])
        limit = "ALL" if self._wanted.limit is None else str(min(self._wanted.limit + 1, LARGEST))
        text = f"""
            SELECT key, head.line, meta.line, {", ".join(f"s.{name}" for name in HEAD.split(", "))}
            FROM (SELECT sid, key, hd, mp, {HEAD} FROM {self._schema}.sessions WHERE {" AND ".join(where)}
                ORDER BY {sorting} LIMIT {limit}) AS s
            LEFT JOIN {self._schema}.records AS head ON (head.sid, head.uid, head.n) = (s.sid, s.uid, s.hd)
            LEFT JOIN {self._schema}.records AS meta ON (meta.sid, meta.uid, meta.n) = (s.sid, s.uid, s.mp)"""  # noqa: S608 - our own names
        return Statement(b"", text.encode()), values

    def count(self) -> tuple[Statement, list[Value]]:
        """What counts them, on all pages."""
        text = f"SELECT count(*) FROM {self._schema}.sessions WHERE {' AND '.join(self._where)}"  # noqa: S608 - the same
        return Statement(b"", text.encode()), self._values

    def _add(self, condition: str, *values: Value) -> None:
        first = len(self._values) + 1
        self._where.append(condition.format(*(f"${first + at}" for at in range(len(values)))))
        self._values += values

    def _add_range(self, name: str, begin: str) -> None:
        """Let an index find what begins like this: all from here to the first text after those."""
        self._add(f"{name} >= {{}}", begin)
        if end := end_of(begin):
            self._add(f"{name} < {{}}", end)


def _bucket_of(place: Place) -> str | int | None:
    """What an index has of the value of a place in a list; None if that is not known."""
    if place.order == "key":
        return storable(place.key)[:256]
    if isinstance(place.value, int):
        return max(place.value, 0).bit_length()
    if place.order == "updated":
        # A time that was made up may be later than any that the column can have.
        return min(int(parse_time(place.value).timestamp() // 60), _LAST_MINUTE) if is_time(place.value) else None
    return storable(place.value)


class _Shown:
    """A session as far as a list shows it: the lines that came with its row, and the rest if more is needed.

    A fork may share these lines with another session, and damage may have taken them.
    """

    def __init__(self, view: PostgresView, *lines: bytes | None) -> None:
        self._view = view
        self._known: dict[int, Record] = {}
        for line in lines:
            record = unseal(line) if line is not None else None
            if record is not None:
                self._known[record.n] = record
        self.uid, self.n, self.state, self.has_holes = view.uid, view.n, view.state, view.has_holes
        self.all, self.whole = view.all, view.whole

    def find(self, n: int) -> Record | None:
        return self._known.get(n) or self._view.find(n)

    def back(self, n: int) -> Iterator[Record]:
        if n in self._known:
            yield self._known[n]
            n -= 1
        yield from self._view.back(n)


def _info(database: Database, row: Sequence[bytes | None]) -> SessionInfo:
    key, head = (row[0] or b"").decode(), head_of(row[3:])
    view = _Shown(database.view(key, head), row[1], row[2])
    # What was lost shows only in what is left.
    updated = when_updated(view, head.updated) if head.holes else head.updated
    return SessionInfo(
        key=key,
        messages=session_state.count(view),
        created=parse_time(head.created or head.updated),
        updated=parse_time(updated),
        bytes=head.bytes,
        archived=head.status == ARCHIVED,
        generation=head.uid,
        **overview(view)._asdict(),
    )


def end_of(begin: str) -> str:
    """The first text after all that begin like this; empty if there is none."""
    if begin := begin.rstrip(_LAST_CHARACTER):
        # Surrogates are no characters.
        code = ord(begin[-1]) + 1
        begin = begin[:-1] + chr(0xE000 if code == 0xD800 else code)  # noqa: PLR2004
    return begin


def storable(text: str) -> str:
    """A text without NUL, which a column of a database cannot have."""
    return text.replace("\0", "")


def escaped(text: str) -> str:
    """A text as a pattern of LIKE that means nothing but itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
