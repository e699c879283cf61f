"""Archiving, forking, deleting, and the trash: what becomes of whole generations, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from nacre.codec import parse_time, sortable, timestamp
from nacre.errors import Conflict, SessionNotFound
from nacre.keys import is_internal
from nacre.messages import TrashedSession, Version
from nacre.records import Transaction, View
from nacre.storage import blobs
from nacre.storage.format import unseal
from nacre.storage.paths import new_uid, stem
from nacre.storage.postgres.connections import Rows, Run
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.leases import PostgresLease
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED, SHARED, TRASHED
from nacre.storage.postgres.view import Head, Level, head_of, sid_of
from nacre.storage.postgres.writer import array_of
from nacre.storage.seal import sealed
from nacre.storage.session_files import Root, start_fork
from nacre.storage.transaction import check_expect

_encode = msgspec.json.Encoder().encode


def move(database: Database, key: str, *, archive: bool, expect: int | Version | None) -> None:
    """Archive the active generation, or make the newest archived one active again."""

    def work(run: Run) -> None:
        check_not_sealed(database, run)
        heads = lock(database, run, key)
        active = next((head for head in heads if head.status == ACTIVE), None)
        archived = [head for head in heads if head.status == ARCHIVED]
        moved = active if archive else next(reversed(archived), None)
        if moved is None:
            raise SessionNotFound(f"there is no {'active' if archive else 'archived'} session {key!r}")
        if active is not None and not archive:
            raise Conflict(f"session {key!r} is active; archive or delete it before unarchiving the other one")
        check_expect(expect, database.view(key, moved, run))
        run(database.statements.set_status, sid_of(key), moved.uid, ARCHIVED if archive else ACTIVE)

    database.connections.in_transaction(work)


def fork(database: Database, key: str, new_key: str, transaction: Transaction) -> None:
    """Begin a session that shares the records of another up to one of them; nothing is copied."""

    def work(run: Run) -> None:
        check_not_sealed(database, run)
        # The generations that it will share records of, first: what is erased there just now is given to their forks,
        # and the new one must be among these, or come after it.
        for row in run(database.statements.head, sid_of(key)).rows:
            for level in sorted(head_of(row).base):
                run(database.statements.lock_status, level.sid, level.uid)
        # In the order of their rows, so that two forks never wait for each other in a circle.
        found = {name: lock(database, run, name) for name in sorted({key, new_key}, key=sid_of)}
        source = next((head for head in found[key] if head.status == ACTIVE), None)
        if source is None:
            raise SessionNotFound(f"there is no active session {key!r} to fork")
        if any(head.status == ACTIVE for head in found[new_key]):
            raise Conflict(f"session {new_key!r} exists already; fork under another key")
        view = database.view(key, source, run)
        check_expect(transaction.expect, view)
        # 1. Where it leaves the other.
        at = source.n if transaction.reach is None else transaction.reach
        record = view.find(at)
        if record is None or (record.tx is not None and at != record.tx[0] + record.tx[1] - 1):
            raise Conflict(f"session {key!r} has no record {at} to fork at, or it is inside a group")
        levels = [level for level in source.base if level.upto < at]
        last = next((level for level in source.base if level.upto >= at), Level(sid_of(key), source.uid, at))
        levels.append(last._replace(upto=at))
        # 2. Its first record, which says where it came from.
        now = database.system.now()
        uid = new_uid(database.system, after=[head.uid for head in found[new_key]])
        root = Root(key, source.uid, at, record.st, (), source.holes)
        new = start_fork(root, key=new_key, uid=uid, ts=timestamp(now))
        line, state = new.header.raw.decode(), new.state
        created, minute = new.header.created, int(now // 60)
        folded, cwd, pinned, tags = database.labels(_meta(view, state.mp), new_key)
        values = [sid_of(new_key), uid, new_key, new.n, _encode(state).decode(), state.hd, state.mp, state.live]
        values += [_encode(levels).decode(), "t" if source.holes else "f", created, minute, len(line) + 1]
        values += ["t" if is_internal(new_key) else "f", folded, cwd, "t" if pinned else "f", array_of(tags)]
        values += [sortable(parse_time(created)), (len(line) + 1).bit_length(), state.live.bit_length()]
        run(database.statements.create_fork, *values)
        run(database.statements.add_record, sid_of(new_key), uid, new.n, database.token, None, line)
        # 3. What it shares is kept for it from now on, and so are its own versions of what was erased in the other.
        for level in levels:
            run(database.statements.link, level.sid, level.uid, sid_of(new_key), uid, level.upto)
        if source.patched:
            values = [sid_of(key), source.uid, sid_of(new_key), uid, min(at, source.shared)]
            run(database.statements.copy_patches, *values)
            run(database.statements.copy_patch_blobs, *values)

    database.connections.in_transaction(work)


def _meta(view: View, mp: int) -> dict[str, object]:
    record = view.find(mp) if mp else None
    return (record.meta or {}) if record is not None else {}


def delete(database: Database, key: str, *, expect: int | Version | None, held: PostgresLease | None) -> None:
    """Erase every generation of a session, those in the trash too; what forks share of it stays, without its key."""

    def work(run: Run) -> None:
        if held is not None:
            run(database.statements.held, *held.guard)
        check_not_sealed(database, run)
        heads = lock(database, run, key, trashed=True)
        newest = next((head for head in reversed(heads) if head.status != TRASHED), None)
        check_expect(expect, database.view(key, newest, run) if newest is not None else None)
        for head in heads:
            erase(database, run, sid_of(key), head)
        run(database.statements.erase_quarantine, sid_of(key))

    database.connections.in_transaction(work)


def erase(database: Database, run: Run, sid: str, head: Head) -> None:
    """Erase a generation, and what it alone shared of others that were erased before."""
    run(database.statements.hide, sid, head.uid)
    if head.patched:
        # Its own versions of what it shared: those that were forked from it have theirs.
        run(database.statements.erase_patches, sid, head.uid, head.shared)
    _trim(database, run, sid, head.uid)
    erase_holes(database, run, Level(sid, head.uid, head.n))
    run(database.statements.erase_quarantine_of, sid, head.uid)
    for level in head.base:
        run(database.statements.unlink, level.sid, level.uid, sid, head.uid)
        # Only one that nobody reads under its own key.
        if is_hidden(database, run, level.sid, level.uid):
            _trim(database, run, level.sid, level.uid)
            erase_holes(database, run, level)


def is_hidden(database: Database, run: Run, sid: str, uid: str) -> bool:
    """Tell whether a generation was erased but for what forks share; its row is locked, so that it stays so.

    Locked first, whatever it is: one that is being erased just now is waited for.
    """
    rows = run(database.statements.lock_status, sid, uid).rows
    return bool(rows) and int(rows[0][0] or b"0") == SHARED


def erase_holes(database: Database, run: Run, level: Level) -> None:
    """Erase from a generation that is no longer anybody's what was erased in every fork that shares it."""
    if not is_hidden(database, run, level.sid, level.uid):
        return
    # 1. The forks' own versions of what they share, and up to which number they share it.
    theirs: list[tuple[int, dict[int, bytes]]] = []
    for sid, uid, last in run(database.statements.forks, level.sid, level.uid).rows:
        upto = int(last or b"0")
        rows = run(database.statements.forth, (sid or b"").decode(), (uid or b"").decode(), 0, upto, upto).rows
        theirs.append((upto, {int(n or b"0"): line or b"" for n, line in rows}))
    # 2. What nobody reads here any more becomes the hole that they have.
    for n in sorted({n for _, own in theirs for n in own}):
        owns = [own.get(n, b"") for upto, own in theirs if n <= upto]
        hole = next(filter(_is_hole, owns), None)
        rows = run(database.statements.forth, level.sid, level.uid, n - 1, n, 1).rows
        record = unseal(rows[0][1] or b"") if rows else None
        if hole is None or not all(owns) or record is None or record.gone is not None:
            continue
        run(database.statements.set_line, level.sid, level.uid, n, hole.decode())
        names = blobs.names(record) if record.blobs is not None else ()
        _erase_unnamed(database, run, level.sid, level.uid, set(names))


def _is_hole(line: bytes) -> bool:
    record = unseal(line)
    return record is not None and record.gone is not None


def _erase_unnamed(database: Database, run: Run, sid: str, uid: str, names: set[str]) -> None:
    """Erase those large payloads of a generation that no record of it has."""
    for name in sorted(names):
        if not run(database.statements.is_named, sid, uid, name).rows:
            run(database.statements.erase_blob, sid, uid, name)


def _trim(database: Database, run: Run, sid: str, uid: str) -> None:
    """Erase what no fork shares of a generation that is no longer anybody's."""
    rows = run(database.statements.shared_upto, sid, uid).rows
    upto = int(rows[0][0] or b"0") if rows else 0
    for statement in (database.statements.erase_records, database.statements.erase_blobs):
        run(statement, sid, uid, upto)
    lost = run(database.statements.lost_blobs, sid, uid).rows
    _erase_unnamed(database, run, sid, uid, {(name or b"").decode() for (name,) in lost})
    run(database.statements.erase_texts, sid, uid)
    run(database.statements.erase_redactions, sid, uid)
    if not upto:
        run(database.statements.erase_session, sid, uid)


# ---- the trash


class Trashed(NamedTuple):
    """A generation in the trash."""

    key: str
    head: Head
    was: int
    removed: str


def trashed(database: Database, id: str, run: Run | None = None) -> list[Trashed]:
    """The generations that were removed together, oldest first; raises SessionNotFound if there are none."""
    values = (database.statements.in_trash, id)
    rows: Rows = ()
    # An id is some printable characters; others might be such as no text of PostgreSQL can have.
    if id and id.isprintable():
        rows = database.connections.read(*values) if run is None else run(*values).rows
    if not (found := [_trashed(row) for row in rows]):
        raise SessionNotFound(f"there is no session {id!r} in the trash")
    return found


def _trashed(row: list[bytes | None]) -> Trashed:
    key, was, removed, *head = row
    return Trashed((key or b"").decode(), head_of(head), int(was or b"0"), (removed or b"").decode())


def move_to_trash(database: Database, key: str, uid: str | None) -> None:
    """Move all generations of a session to the trash, or one archived generation."""
    removed = timestamp(database.system.now())
    id = f"{stem(key)}.{new_uid(database.system)}"

    def work(run: Run) -> None:
        check_not_sealed(database, run)
        heads = lock(database, run, key)
        moved = [head for head in heads if uid is None or (head.uid == uid and head.status == ARCHIVED)]
        if not moved:
            raise SessionNotFound(f"there is no session {key!r} to move to the trash")
        for head in moved:
            run(database.statements.put_in_trash, sid_of(key), head.uid, id, removed)

    database.connections.in_transaction(work)


def list_trash(database: Database, title_of: Callable[[View], str]) -> list[TrashedSession]:
    """What is in the trash, the last removed first."""
    found: dict[str, list[Trashed]] = {}
    for id, *row in database.connections.read(database.statements.trash):
        found.setdefault((id or b"").decode(), []).append(_trashed(row))
    sessions = [
        TrashedSession(
            id=id,
            key=of[-1].key,
            title=title_of(database.view(of[-1].key, of[-1].head)),
            removed=parse_time(of[-1].removed),
            generations=tuple(one.head.uid for one in of),
            bytes=sum(one.head.bytes for one in of),
        )
        for id, of in found.items()
    ]
    return sorted(sessions, key=lambda one: (one.removed, one.id), reverse=True)


def restore_from_trash(database: Database, id: str) -> None:
    """Bring the generations of a session back to where they were."""

    def work(run: Run) -> None:
        check_not_sealed(database, run)
        key = trashed(database, id, run)[0].key
        is_taken = any(head.status == ACTIVE for head in lock(database, run, key, trashed=True))
        # Again, now that nobody else can move it.
        found = trashed(database, id, run)
        if is_taken and any(one.was == ACTIVE for one in found):
            raise Conflict(f"there is now an active session {key!r}\narchive or remove that one first")
        run(database.statements.take_from_trash, sid_of(key), id)
        run(database.statements.set_forked, sid_of(key))

    database.connections.in_transaction(work)


def erase_from_trash(database: Database, id: str) -> bool:
    """Erase a session in the trash; False if another one of its key is left there."""

    def work(run: Run) -> bool:
        check_not_sealed(database, run)
        key = trashed(database, id, run)[0].key
        heads = lock(database, run, key, trashed=True)
        # Again: it may have been restored while the lock was waited for.
        found = trashed(database, id, run)
        for one in found:
            erase(database, run, sid_of(key), one.head)
        erased = {one.head.uid for one in found}
        return all(head.status != TRASHED or head.uid in erased for head in heads)

    return database.connections.in_transaction(work)


# ---- shared


def lock(database: Database, run: Run, key: str, *, trashed: bool = False) -> list[Head]:
    """Lock the generations of a session until the end of the transaction; as `Database.heads` has them."""
    rows = run(database.statements.lock_all, sid_of(key), TRASHED if trashed else ARCHIVED).rows
    return [head_of(row) for row in rows]


def check_not_sealed(database: Database, run: Run) -> None:
    """Raise Refused if the sessions were moved elsewhere; until the end of the transaction nobody seals the store."""
    rows = run(database.statements.lock_store).rows
    if rows and rows[0][0] is not None:
        raise sealed(rows[0][0].decode(), database.location)
