"""Erasing the content of one record: from its row, its payloads, the quarantine and the words that are searched."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nacre.codec import timestamp
from nacre.errors import Conflict, SessionNotFound
from nacre.messages import Redaction
from nacre.records import FORMAT, Record
from nacre.storage import blobs
from nacre.storage.format import seal, unseal
from nacre.storage.holes import Trace, has_content, hole, plan
from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.moving import check_not_sealed, erase_holes, lock
from nacre.storage.postgres.schema import TRASHED
from nacre.storage.postgres.view import Head, PostgresView, head_of, plain_uid, sid_of
from nacre.storage.protocol import BegunRedaction, FindCopies

_encode = msgspec.json.Encoder().encode


def redact(  # noqa: PLR0913 - as a backend has it
    database: Database, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool
) -> Redaction:
    """Erase the content of a record and of those that repeat it, in one transaction; forks keep theirs."""

    def work(run: Run) -> Redaction:
        check_not_sealed(database, run)
        head = _choose(lock(database, run, key, trashed=True), key, uid)
        view = database.view(key, head, run)
        record = view.find(n)
        if record is None or not has_content(record):
            raise Conflict(f"session {key!r} has no message {n} whose content can be erased")
        found = plan(view, record, find_copies)
        # 1. What each line becomes; those of other sessions that share it stay as they are.
        lines = {one.n: line[:-1] for one, line in view.all_lines()}
        holes = {at: new for at, line in lines.items() if (new := hole(line, found.erased)) is not None}
        erased = tuple(at for at in holes if at in found.erased.numbers)
        forks = sorted(_sharers(database, run, key, head, record))
        for at, new in holes.items():
            _keep_for_forks(database, run, view, at, lines[at])
            _set_line(database, run, view, at, new)
        for name in found.payloads:
            run(database.statements.erase_blob, sid_of(key), head.uid, name)
        for level in head.base:
            erase_holes(database, run, level)
        for at in erased:
            run(database.statements.erase_text, sid_of(key), head.uid, at)
        if (meta := unseal(holes.get(head.state.mp, b""))) is not None:
            # A title that repeats it is found by a list, too.
            run(database.statements.set_folded, sid_of(key), head.uid, database.labels(meta.meta or {}, key)[0])
        # 2. What was set aside of them.
        trace, blanked = Trace(found.erased, [lines[at] for at in erased]), 0
        for e, data in run(database.statements.quarantined_data, sid_of(key), head.uid).rows:
            was = bytes.fromhex((data or b"").decode())
            if (new := trace.blank(was)) != was:
                blanked += 1
                run(database.statements.set_quarantined, sid_of(key), int(e or b"0"), new)
        # 3. A mark shows others that the session has changed.
        append_mark(database, run, view, kept=sum(at >= head.first for at in lines))
        if has_copies:
            run(database.statements.begin_redaction, sid_of(key), head.uid, n, key)
        return Redaction(
            key=key,
            generation=head.uid,
            n=n,
            erased=erased,
            payloads=len(found.payloads),
            kept=found.kept,
            quarantined=blanked,
            summaries=found.summaries,
            forks=tuple(forks),
        )

    return database.connections.in_transaction(work)


def end(database: Database, redaction: Redaction) -> None:
    """Note that no copy of what was erased is left."""
    values = (sid_of(redaction.key), redaction.generation, redaction.n)
    if database.connections.read(database.statements.is_redacting, *values):
        database.connections.in_transaction(lambda run: run(database.statements.end_redaction, *values))


def begun(database: Database) -> list[BegunRedaction]:
    """Redactions whose copies elsewhere are still to be erased."""
    rows = database.connections.read(database.statements.redactions)
    return [
        BegunRedaction(
            Redaction(key=(key or b"").decode(), generation=plain_uid(uid), n=int(n or b"0")),
            has_copies=True,
            is_stored=True,
        )
        for key, uid, n in rows
    ]


def _choose(heads: list[Head], key: str, uid: str) -> Head:
    """The generation that is meant: the newest, or the one that is named; one in the trash if it is nowhere else."""
    named = [head for head in heads if uid in ("", head.uid)]
    found = [head for head in named if head.status != TRASHED] or named
    if not found:
        raise SessionNotFound(f"there is no session {key!r}" + f" with the generation {uid}" * bool(uid))
    return found[-1]


def _set_line(database: Database, run: Run, view: PostgresView, n: int, line: bytes) -> None:
    """Let a record be another line; in a fork, one of its own in the place of a shared one."""
    sid, uid = sid_of(view.key), view.uid
    if not run(database.statements.set_line, sid, uid, n, line.decode()).changed:
        run(database.statements.add_record, sid, uid, n, database.token, None, line.decode())
        run(database.statements.set_patched, sid, uid)


def _keep_for_forks(database: Database, run: Run, view: PostgresView, n: int, line: bytes) -> None:
    """Give every fork that shares a record of this generation one of its own, and the payloads that it names."""
    sid, uid = sid_of(view.key), view.uid
    if n <= view.head.shared:
        return
    for fork_sid, fork_uid in run(database.statements.forks_at, sid, uid, n).rows:
        theirs = ((fork_sid or b"").decode(), (fork_uid or b"").decode())
        if not run(database.statements.add_patch, *theirs, n, database.token, line.decode()).changed:
            # It has erased it for itself.
            continue
        run(database.statements.set_patched, *theirs)
        record = view.find(n)
        for name in blobs.names(record) if record is not None and record.blobs is not None else ():
            run(database.statements.copy_blob, sid, uid, name, *theirs, n)


def _sharers(database: Database, run: Run, key: str, head: Head, record: Record) -> set[str]:
    """The keys of other sessions that have the same record: forks of this one, and those it was forked from."""
    owner = next((level for level in head.base if record.n <= level.upto), None)
    sid, uid = (owner.sid, owner.uid) if owner is not None else (sid_of(key), head.uid)
    places = [(sid.encode(), uid.encode()), *run(database.statements.forks_at, sid, uid, record.n).rows]
    found: set[str] = set()
    for their_sid, their_uid in places:
        rows = run(database.statements.named, (their_sid or b"").decode(), (their_uid or b"").decode()).rows
        for their_key, *row in rows:
            name, other = (their_key or b"").decode(), head_of(row)
            # One without a key was deleted, and has only what its forks share.
            is_other = name and other.uid != head.uid
            if is_other and database.view(name, other, run).find(record.n) == record:
                found.add(name)
    return found


def replace(database: Database, run: Run, view: PostgresView, lines: Mapping[int, tuple[bytes, bytes]]) -> None:
    """Let records be other lines, by number: what they are, and what they become; forks keep theirs."""
    for n, (old, new) in lines.items():
        _keep_for_forks(database, run, view, n, old)
        _set_line(database, run, view, n, new)


def append_mark(database: Database, run: Run, view: PostgresView, *, kept: int) -> None:
    """Append a record that shows that the session has changed, and how many records of its own it has then."""
    n, sid = view.n + 1, sid_of(view.key)
    ts = timestamp(database.system.now())
    line = seal(Record(v=FORMAT, n=n, t="mark", ts=ts, kept=kept, st=view.state))
    run(database.statements.add_record, sid, view.uid, n, database.token, None, line[:-1].decode())
    run(database.statements.set_number, sid, view.uid, n, _encode(view.state).decode(), len(line))
