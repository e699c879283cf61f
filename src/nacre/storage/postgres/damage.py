"""Damage: rows that are not what was written. They are found by their checksums, set aside, and reported until settled.

The database has checksums of its own pages, if they were asked for when it was made. A line's own checksum also finds
what a program, a restore or a person did to a row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

import msgspec

from nacre.codec import is_time, timestamp
from nacre.errors import SessionNotFound
from nacre.messages import (
    SHARED,
    Finding,
    QuarantineEntry,
    Receipt,
    Report,
    Settlement,
    describe_quarantine,
)
from nacre.records import Record, Restore, Transaction
from nacre.storage import blobs
from nacre.storage.format import unseal
from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.erasing import append_mark
from nacre.storage.postgres.moving import check_not_sealed, lock
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED
from nacre.storage.postgres.view import Head, PostgresView, sid_of
from nacre.storage.postgres.writer import ABOUT, growing, time_columns
from nacre.storage.quarantine import IN_PLACE, MISSING, ROTTEN, Aside, entry_of
from nacre.storage.transaction import Batch, PendingCommit

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


# ---- finding


def verify(database: Database, key: str | None) -> Report:
    """Read every line of a session, or of all, and report what is wrong; changes nothing."""
    found: list[Finding] = []
    if key is not None:
        aside = asides(database, key)
        heads = database.heads(key) if aside else database.known_heads(key)
        found += (finding for head in heads for finding in _findings(database, database.view(key, head), aside))
    else:
        for status in (ACTIVE, ARCHIVED):
            for name, head in database.each(status):
                found += _findings(database, database.view(name, head), asides(database, name))
    for entry in entries(database, key):
        if not entry.settled:
            detail = describe_quarantine([entry])
            detail = f"{detail}: {entry.reason}" if entry.bytes else detail
            found.append(Finding(key=entry.key, kind="quarantine", where=entry.ref, detail=detail))
    return Report(findings=tuple(found))


def _findings(database: Database, view: PostgresView, aside: Sequence[Row]) -> Iterator[Finding]:
    """Everything that is wrong with one generation."""
    key, head = view.key, view.head
    known = {n for row in aside if row.aside.uid == head.uid for n in range(row.n, row.upto + 1)}
    before: Record | None = None
    for record, _ in view.all_lines():
        # 1. With what it refers to.
        for name in blobs.names(record) if record.blobs is not None else ():
            if view.payload(name) is None:
                yield _finding(view, "blob", record.n, f"a large payload of record {record.n} is lost: {name}")
        if not is_time(record.ts):
            yield _finding(view, "time", record.n, f"the time of record {record.n} is none: {record.ts!r:.60}")
        # 2. Following from the state before it. One that refers to another which is not there is taken at its word.
        if before is not None and record.n == before.n + 1 and _is_a_change(record):
            refers_to = record.upto or record.to
            is_unknown = refers_to is not None and refers_to > 0 and view.find(refers_to) is None
            if not is_unknown and database.rules.replay(record, before.st, view) != (record.p, record.st):
                detail = f"record {record.n} does not follow from the one before it"
                yield _finding(view, "state", record.n, detail)
        before = record
    # 3. Rows that are not what was written, or not there.
    for n, line in view.damaged.items():
        if n not in known:
            yield _finding(view, "damage", n, _what_is_wrong(n, line))
    for first, last in _runs(set(_missing(view)) - known):
        names = f"records {first} to {last} are" if last > first else f"record {first} is"
        yield _finding(view, "missing", first, f"{names} missing")
    # 4. The row of the session says what its last record does.
    header = view.find(head.first)
    if header is not None and (header.t, header.uid, header.sid) != ("open", head.uid, key):
        yield Finding(key=key, kind="header", where=f"record {head.first}", detail="it is not the session's header")
    if before is not None and before.n == head.n and before.st != head.state:
        detail = "the state in the session's row is not that of its last record"
        yield Finding(key=key, kind="state", where="sessions", detail=detail)


def _is_a_change(record: Record) -> bool:
    """Tell whether a record changes the state in a way that can be followed; a header of a fork begins again."""
    return record.t not in ("mark", "ids", "open") and not record.pop


def _missing(view: PostgresView) -> Iterable[int]:
    """The numbers that have no row, also in a session that is known to have lost some."""
    if not view.head.holes:
        return view.missing
    there = {record.n for record in view.all()} | set(view.damaged)
    return (n for n in range(1, view.n + 1) if n not in there)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Numbers as ranges, each with its first and last one."""
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [n for _, n in group]
        yield found[0], found[-1]


def _what_is_wrong(n: int, line: bytes) -> str:
    record = unseal(line)
    return f"record {n} is not a whole record" if record is None else f"the row of record {n} has record {record.n}"


def _finding(view: PostgresView, kind: str, n: int, detail: str) -> Finding:
    where = f"record {n}"
    if n <= view.head.shared:
        where = f"{SHARED}, {where}"
    return Finding(key=view.key, kind=kind, where=where, detail=detail)


# ---- setting aside


class Row(NamedTuple):
    """An entry, and which numbers it is about."""

    aside: Aside
    n: int
    upto: int


def asides(database: Database, key: str | None, run: Run | None = None) -> list[Row]:
    """Everything that was set aside of a session, or of all, settled too; read through a transaction or by itself."""
    if key is None:
        rows = database.connections.read(database.statements.all_quarantined)
    elif run is None:
        rows = database.connections.read(database.statements.quarantined, sid_of(key))
    else:
        rows = run(database.statements.quarantined, sid_of(key)).rows
    found = []
    for row in rows:
        of, e, uid, kind, detail, ts, data, settled, n, upto = [(value or b"").decode() for value in row]
        raw = bytes.fromhex(data)
        aside = Aside(int(e), uid.replace("-", ""), of, kind, detail, ts, (raw,) if raw else (), settled)
        found.append(Row(aside, int(n), int(upto)))
    return found


def entries(database: Database, key: str | None) -> list[QuarantineEntry]:
    """What was set aside, by session and number."""
    found = [entry_of(row.aside, row.aside.key) for row in asides(database, key)]
    return sorted(found, key=lambda entry: (entry.key, entry.n))


def repair(database: Database, key: str) -> Receipt:
    """Move rows that are not what was written to the quarantine, and note which are missing."""

    def work(run: Run) -> tuple[int, int, bool]:
        check_not_sealed(database, run)
        kept = aside = 0
        heads = lock(database, run, key)
        # With the lock: another process may have set the same aside.
        noted = [(row.aside.uid, row.n, row.upto) for row in asides(database, key, run)]
        for head in heads:
            view = database.view(key, head, run)
            there = [record.n for record in view.all()]
            kept += len(there)
            known = {n for uid, first, last in noted if uid == head.uid for n in range(first, last + 1)}
            damaged = {n: line for n, line in view.damaged.items() if n not in known}
            missing = list(_runs(set(_missing(view)) - known))
            for n, line in damaged.items():
                kind = IN_PLACE if n <= head.shared else ROTTEN
                _set_aside(database, run, view, (n, n), kind=kind, detail=_what_is_wrong(n, line), data=line)
                if n > head.shared:
                    run(database.statements.erase_record, sid_of(key), head.uid, n)
            for first, last in missing:
                names = f"records {first} to {last} are" if last > first else f"record {first} is"
                _set_aside(database, run, view, (first, last), kind=MISSING, detail=f"{names} missing", data=b"")
            if damaged or missing:
                run(database.statements.set_holes, sid_of(key), head.uid)
                append_mark(database, run, view, kept=sum(n >= head.first for n in there))
                aside += len(damaged) + len(missing)
        return kept, aside, bool(noted)

    kept, aside, was_noted = database.connections.in_transaction(work)
    if not kept and not was_noted:
        database.known_heads(key)
    if aside:
        logger.warning(
            "session %r: %d damaged or missing parts were set aside; `nacre sessions verify` shows where", key, aside
        )
    where = f"{database.location} (quarantine)" if aside else None
    return Receipt(key=key, kept=kept, set_aside=aside, quarantine=where)


def _set_aside(  # noqa: PLR0913 - what there is to say of a row
    database: Database,
    run: Run,
    view: PostgresView,
    numbers: tuple[int, int],
    *,
    kind: str,
    detail: str,
    data: bytes,
) -> None:
    ts = timestamp(database.system.now())
    run(database.statements.set_aside, sid_of(view.key), view.uid, view.key, *numbers, kind, detail, ts, data)


# ---- settling


def restore(database: Database, key: str, n: int | None) -> Settlement:
    """Append the whole records of entries that are not settled to their generation, and settle the entries."""
    known = _chosen(database, key, n)
    if not any(True for row in known for _ in row.aside.records()):
        return Settlement(key=key)
    left = [row.aside for row in known if not row.aside.settled]

    def work(run: Run) -> Settlement:
        check_not_sealed(database, run)
        heads = {head.uid: head for head in lock(database, run, key)}
        newest = next(reversed(heads.values()), None)
        numbers: list[int] = []
        for uid in sorted({aside.uid for aside in left}):
            head = heads.get(uid) or newest
            if head is None:
                raise SessionNotFound(f"there is no session {key!r} to restore into; add a message to it first")
            done, heads[head.uid] = _append(database, run, key, head, [aside for aside in left if aside.uid == uid])
            numbers += done
        for aside in left:
            run(database.statements.settle, sid_of(key), aside.n, "restored")
        return Settlement(key=key, entries=tuple(aside.n for aside in left), numbers=tuple(numbers))

    return database.connections.in_transaction(work)


def _append(database: Database, run: Run, key: str, head: Head, asides: Sequence[Aside]) -> tuple[list[int], Head]:
    """Append the records of entries to a generation, active or archived, unless it has them."""
    view = growing(database, key, head._replace(status=ACTIVE), lambda *args: run(*args).rows)
    found: dict[tuple[int, str], Restore] = {}
    for aside in asides:
        for record, line in aside.records():
            name = (record.n, f"{crc32(line):08x}")
            whole = record if record.blobs is None else view.whole(record)
            found.setdefault(name, Restore(whole, (aside.uid, *name)))
    for record, line in view.all_lines():
        found.pop((record.n, f"{crc32(line[:-1]):08x}"), None)
        if record.restored_from is not None:
            found.pop(record.restored_from[1:], None)
    if not found:
        return [], head
    batch = Batch(view, rules=database.rules, now=database.system.now())
    commit = PendingCommit(Transaction(operations=list(found.values())))
    batch.take(commit)
    if commit.error is not None:
        raise commit.error
    sid = sid_of(key)
    for record, line in zip(batch.records, batch.lines, strict=True):
        run(database.statements.add_record, sid, head.uid, record.n, database.token, None, line[:-1].decode())
    for hash_, data in batch.payloads.items():
        run(database.statements.keep_blob, sid, head.uid, batch.records[0].n, hash_, data, database.token)
    state, size = batch.state, sum(map(len, batch.lines))
    said = next((record.ts for record in reversed(batch.records) if record.t not in ABOUT), None)
    times = time_columns(said) if said is not None else (None, None)
    values = (batch.n, _encode(state).decode(), state.hd, state.mp, state.live, size)
    run(database.statements.set_head, sid, head.uid, *values, *times)
    after = head._replace(n=batch.n, state=state)
    return [record.n for record in batch.records], after


def discard(database: Database, key: str, n: int | None) -> Settlement:
    """Settle entries without their records; their bytes stay."""
    left = [row.aside for row in _chosen(database, key, n) if not row.aside.settled]

    def work(run: Run) -> None:
        check_not_sealed(database, run)
        for aside in left:
            run(database.statements.settle, sid_of(key), aside.n, "discarded")

    if left:
        database.connections.in_transaction(work)
    return Settlement(key=key, entries=tuple(aside.n for aside in left))


def _chosen(database: Database, key: str, n: int | None) -> list[Row]:
    found = [row for row in asides(database, key) if n in (None, row.aside.n)]
    if n is not None and not found:
        raise SessionNotFound(f"session {key!r} has no quarantine entry {n}")
    return found
