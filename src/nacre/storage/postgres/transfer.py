"""Moving sessions from and to PostgreSQL: each generation is written in one transaction.

A fork becomes a session whose records are all its own: `first` is the number of its header, and it has no base.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from nacre.codec import parse_time, sortable, timestamp
from nacre.errors import Conflict
from nacre.keys import is_internal
from nacre.records import Record, View
from nacre.storage import blobs
from nacre.storage.format import fields, sealed_fields
from nacre.storage.postgres import damage, erasing
from nacre.storage.postgres.connections import Result, Run, Statement, Value
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.documents import PostgresDocument
from nacre.storage.postgres.moving import check_not_sealed, erase_holes, is_hidden, lock
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED, TRASHED
from nacre.storage.postgres.view import Head, PostgresView, head_of, plain_uid, sid_of
from nacre.storage.postgres.writer import ABOUT, array_of, id_column
from nacre.storage.quarantine import MISSING, Aside
from nacre.storage.transfer import Changed, Held, HeldAs, Keep, Unreadable, lines_of

T = TypeVar("T")
Alone = Callable[[str, Callable[[], None]], None]
"""Does something to a session between two batches of this process."""
Mend = Callable[[str, Head, Callable[[PostgresView], None]], object]
"""Reads a generation, and sets aside what is damaged in it."""

_MAX_RECORDS, _MAX_BYTES, _MAX_ROWS = 1000, 4 * 1024 * 1024, 10_000
_STATUS: dict[HeldAs, int] = {"active": ACTIVE, "archived": ARCHIVED, "trash": TRASHED}
_HELD_AS: dict[int, HeldAs] = {status: name for name, status in _STATUS.items()}
_PHYSICAL = ("cold", "high", "kept", "moved")
_encode = msgspec.json.Encoder().encode


class PostgresTransfer:
    """The generations of a store in PostgreSQL, as they are moved."""

    def __init__(self, database: Database, *, alone: Alone, mend: Mend) -> None:
        self._database, self._alone, self._mend = database, alone, mend

    @property
    def location(self) -> str:
        return self._database.location

    # ---- what there is

    def each(self, status: HeldAs) -> Iterator[Held | Unreadable]:
        database = self._database
        if status != "trash":
            yield from (Held(key, head.uid, status) for key, head in database.each(_STATUS[status]))
            return
        for trash, key, was, removed, *row in database.connections.read(database.statements.trash):
            yield _held((key or b"").decode(), [trash, removed, was, *row])[0]

    def find(self, key: str, uid: str) -> Held | None:
        found = self._find(key, uid)
        return found[0] if found is not None else None

    def _find(self, key: str, uid: str) -> tuple[Held, Head] | None:
        rows = self._database.connections.read(self._database.statements.find_held, sid_of(key), uid)
        return _held(key, rows[0]) if rows else None

    def read(self, held: Held, get: Callable[[View], T]) -> T | None:
        def read_all(view: PostgresView) -> None:
            deque(view.all_lines(), 0)

        found = self._find(held.key, held.uid)
        if found is not None and found[1].status != TRASHED:
            self._mend(held.key, found[1], read_all)
            found = self._find(held.key, held.uid)
        if found is None or found[0].status != held.status:
            return None
        view = self._database.view(held.key, found[1])
        return get(view)

    # ---- quarantine

    def asides(self, held: Held) -> list[Aside]:
        return [row.aside for row in damage.asides(self._database, held.key) if row.aside.uid == held.uid]

    def add_asides(self, held: Held, asides: Collection[Aside]) -> None:
        rows = [damage.Row(aside, 0, 0) for aside in asides]
        self._database.connections.in_transaction(lambda run: self._add_asides(run, held, rows))

    def _note_gaps(self, run: Run, held: Held, gaps: Collection[tuple[int, int]]) -> None:
        """Note which records the other store did not have either, so that they are not reported as missing here."""
        ts, rows = timestamp(self._database.system.now()), []
        for first, last in gaps:
            detail = f"records {first} to {last} were not in the store that it was copied from"
            aside = Aside(0, held.uid, held.key, MISSING, detail, ts, (), "discarded")
            rows.append(damage.Row(aside, first, last))
        if rows:
            self._add_asides(run, held, rows)

    def _add_asides(self, run: Run, held: Held, rows: Iterable[damage.Row]) -> None:
        known = damage.asides(self._database, held.key, run)
        there = {row.aside.same: row.aside for row in known if row.aside.uid == held.uid}
        taken = {row.aside.n for row in known}
        sid, statements = sid_of(held.key), self._database.statements
        for aside, first, last in rows:
            old = there.get(aside.same)
            if old is None:
                n = aside.n if aside.n and aside.n not in taken else max(taken, default=0) + 1
                taken.add(n)
                about = (aside.kind, aside.detail, aside.ts, b"\n".join(aside.regions), aside.settled)
                run(statements.receive_aside, sid, n, held.uid, held.key, first, last, *about)
            elif aside.settled:
                run(statements.settle, sid, old.n, aside.settled)

    def orphans(self) -> list[Held]:
        found = {(row.aside.key, row.aside.uid) for row in damage.asides(self._database, None)}
        return [Held(key, uid, "archived") for key, uid in sorted(found) if self._find(key, uid) is None]

    # ---- documents

    def documents(self) -> dict[str, bytes]:
        rows = self._database.connections.read(self._database.statements.documents)
        return {(name or b"").decode(): bytes.fromhex((data or b"").decode()) for name, data in rows}

    def write_document(self, name: str, data: bytes) -> None:
        PostgresDocument(self._database, name, None).write(data)

    # ---- the seal

    def sealed_to(self) -> str:
        rows = self._database.connections.read(self._database.statements.store)
        return (rows[0][1] or b"").decode() if rows else ""

    def seal(self, to: str) -> None:
        # A transaction that begins or moves a generation shares the lock of this row, and is waited for; the next one
        # finds the place. One that appends is stopped by the row of its session, some thousands of them at a time: one
        # statement for all of a large store would take minutes.
        self._change(self._database.statements.seal_store, to)
        self._set_sealed("t")

    def unseal(self) -> bool:
        self._set_sealed("f")
        return self._change(self._database.statements.unseal_store).changed > 0

    def _set_sealed(self, value: Literal["t", "f"]) -> None:
        """Let the rows of all sessions say whether they are sealed; nobody begins a session meanwhile."""
        at = ("0" * 32, "0" * 32)
        while rows := self._change(self._database.statements.set_sealed, *at, _MAX_ROWS, value).rows:
            at = max((plain_uid(sid), plain_uid(uid)) for sid, uid in rows)

    def _change(self, statement: Statement, *values: Value) -> Result:
        return self._database.connections.in_transaction(lambda run: run(statement, *values), is_durable=True)

    # ---- writing

    def write(self, held: Held, view: View, *, after: int, erased: Collection[int], keep: Keep) -> None:  # noqa: ARG002 - every row is as near
        def work(run: Run) -> None:
            check_not_sealed(self._database, run)
            head = self._lock(run, held, after)
            arrival = _Arrival(self._database, run, held)
            if head is not None and erased:
                self._erase(run, held, head, view, erased)
            for record, line in lines_of(view):
                arrival.add(record, line, is_new=record.n > after)
                for name in blobs.names(record) if record.blobs is not None and record.n > after else ():
                    arrival.keep_payload(view, record.n, name)
            arrival.send()
            self._set_row(run, held, view, head, arrival, is_erased=bool(erased))
            if len(lock(self._database, run, held.key)) > 1:
                # The ids of each count for the others.
                run(self._database.statements.set_forked, sid_of(held.key))
            self._note_gaps(run, held, arrival.gaps)

        self._alone(held.key, lambda: self._database.connections.in_transaction(work, is_durable=True))

    def _lock(self, run: Run, held: Held, after: int) -> Head | None:
        """Lock a generation as it was compared; raises Conflict if its place is taken."""
        database, sid = self._database, sid_of(held.key)
        heads = {head.uid: head for head in lock(database, run, held.key, trashed=True)}
        if is_hidden(database, run, sid, held.uid):
            raise Conflict(f"session {held.key!r} was deleted in {self.location}, where forks still share its records")
        others = [head for uid, head in heads.items() if uid != held.uid and head.status == ACTIVE]
        if held.status == "active" and others:
            raise Conflict(f"{self.location} has another active session {held.key!r}; archive or remove one of them")
        head = heads.get(held.uid)
        if after != (head.n if head is not None else 0):
            raise Changed(f"session {held.key!r} is being written in {self.location}; run it again")
        return head

    def _erase(self, run: Run, held: Held, head: Head, view: View, erased: Collection[int]) -> None:
        """Let records be holes that have lost their content in the other store; forks of them here keep theirs."""
        database, sid, needed = self._database, sid_of(held.key), set[str]()
        mine = database.view(held.key, head, run)
        old = {record.n: line[:-1] for record, line in mine.all_lines() if record.n in erased}
        new = {record.n: line[:-1] for record, line in lines_of(view) if record.n in erased}
        erasing.replace(database, run, mine, {n: (old[n], new[n]) for n in erased})
        for n in erased:
            run(database.statements.erase_text, sid, held.uid, n)
        for level in head.base:
            erase_holes(database, run, level)
        for record, _ in lines_of(view):
            needed.update(blobs.names(record) if record.blobs is not None else ())
        for (name,) in run(database.statements.blob_names, sid, held.uid).rows:
            if (text := (name or b"").decode()) not in needed:
                run(database.statements.erase_blob, sid, held.uid, text)

    def _set_row(  # noqa: PLR0913 - what a row is made of
        self, run: Run, held: Held, view: View, head: Head | None, arrival: _Arrival, *, is_erased: bool
    ) -> None:
        database, sid, state = self._database, sid_of(held.key), view.state
        found = view.find(state.mp) if state.mp else None
        folded, cwd, pinned, tags = database.labels((found.meta or {}) if found is not None else {}, held.key)
        labels: list[Value] = [folded, cwd, "t" if pinned else "f", array_of(tags)]
        was = ARCHIVED if held.was_archived else ACTIVE
        place: list[Value] = [_STATUS[held.status], was, held.trash, held.removed]
        last = parse_time(arrival.said) if arrival.said else None
        updated = sortable(last) if last is not None else None
        minute = int(last.timestamp() // 60) if last is not None else None
        holes = "t" if view.has_holes or arrival.gaps else "f"
        ends: list[Value] = [view.n, _encode(state).decode(), state.hd, state.mp]
        if head is not None:
            values = [*place, *ends, state.live, holes, updated, minute, arrival.size, *labels]
            run(database.statements.receive_more, sid, held.uid, *values, "t" if is_erased else "f")
            return
        header = arrival.header
        created = header.ts if header is not None else view.created
        began = sortable(parse_time(created))
        heads = lock(database, run, held.key, trashed=True)
        forked = "t" if heads else "f"
        values = [sid, held.uid, held.key, *place, header.n if header is not None else 1, created, began, *ends]
        values += ["t" if is_internal(held.key) else "f", state.live, forked, holes, updated or began]
        values += [minute if minute is not None else int(parse_time(created).timestamp() // 60), arrival.size, *labels]
        run(database.statements.receive, *values)


def _held(key: str, row: Sequence[bytes | None]) -> tuple[Held, Head]:
    trash, removed, was, *rest = row
    head = head_of(rest)
    if head.status != TRASHED:
        return Held(key, head.uid, _HELD_AS[head.status]), head
    about = ((trash or b"").decode(), (removed or b"").decode(), int(was or b"0") == ARCHIVED)
    return Held(key, head.uid, "trash", *about), head


class _Arrival:
    """Records on their way into the table, in parts of about a thousand."""

    def __init__(self, database: Database, run: Run, held: Held) -> None:
        self._database, self._run, self._held = database, run, held
        self._sid = sid_of(held.key)
        self._waiting: list[tuple[Record, str]] = []
        self._bytes = 0
        self._last = 0
        self.header: Record | None = None
        self.gaps: list[tuple[int, int]] = []
        self.size = 0
        self.said = ""

    def add(self, record: Record, line: bytes, *, is_new: bool) -> None:
        if record.n > self._last + 1:
            self.gaps.append((self._last + 1, record.n - 1))
        self._last = record.n
        if record.t == "open" and record.uid == self._held.uid:
            self.header = record
        if not is_new:
            return
        if record.t not in ABOUT:
            self.said = record.ts
        if record.t == "open":
            line = _plain_header(record, line)
        self._waiting.append((record, line[:-1].decode()))
        self._bytes += len(line)
        self.size += len(line)
        if len(self._waiting) >= _MAX_RECORDS or self._bytes >= _MAX_BYTES:
            self.send()

    def keep_payload(self, view: View, n: int, name: str) -> None:
        if (text := view.payload(name)) is not None:
            self.send()
            data, statements = text.encode(), self._database.statements
            self.size += len(data)
            self._run(statements.keep_blob, self._sid, self._held.uid, n, name, data, self._database.token)

    def send(self) -> None:
        if not self._waiting:
            return
        statements, sid, uid = self._database.statements, self._sid, self._held.uid
        # An id that was used twice in a generation is that of the newest record.
        ids = {id_column(record.id): record.n for record, _ in self._waiting if record.id is not None}
        if ids:
            self._run(statements.free_ids, sid, uid, array_of(list(ids)))
        numbers = array_of([str(record.n) for record, _ in self._waiting])
        columns = [(id_column(record.id), record.n) for record, _ in self._waiting]
        kept = array_of([id if id is not None and ids.get(id) == n else None for id, n in columns])
        lines = array_of([line for _, line in self._waiting])
        self._run(statements.receive_records, sid, uid, self._database.token, numbers, kept, lines)
        self._waiting, self._bytes = [], 0


def _plain_header(record: Record, line: bytes) -> bytes:
    """A header without what it says of files."""
    found = {name: value for name, value in fields(line[:-1]).items() if name not in _PHYSICAL}
    if record.base is not None:
        found["base"] = {**{name: value for name, value in record.base.items() if name != "moved"}, "levels": []}
    return sealed_fields(found, st=record.st)
