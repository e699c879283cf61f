"""Archiving, forking, deleting, and the trash: what becomes of whole generations, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nacre.codec import parse_time, sortable, timestamp
from nacre.errors import Conflict, SessionNotFound
from nacre.keys import is_internal
from nacre.messages import TrashedSession, Version
from nacre.records import Transaction, View
from nacre.storage.paths import new_uid, stem
from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED, TRASHED
from nacre.storage.postgres.view import Head, Level, head_of, sid_of
from nacre.storage.postgres.writer import array_of, sealed
from nacre.storage.session_files import Root, start_fork
from nacre.storage.transaction import check_expect

if TYPE_CHECKING:
    from nacre.storage.postgres.store import PostgresStore

_encode = msgspec.json.Encoder().encode


def move(store: PostgresStore, key: str, *, archive: bool, expect: int | Version | None) -> None:
    """Archive the active generation, or make the newest archived one active again."""

    def work(run: Run) -> None:
        check_not_sealed(store, run)
        heads = lock(store, run, key)
        active = next((head for head in heads if head.status == ACTIVE), None)
        archived = [head for head in heads if head.status == ARCHIVED]
        moved = active if archive else next(reversed(archived), None)
        if moved is None:
            raise SessionNotFound(f"there is no {'active' if archive else 'archived'} session {key!r}")
        if active is not None and not archive:
            raise Conflict(f"session {key!r} is active; archive or delete it before unarchiving the other one")
        check_expect(expect, store.view(key, moved, run))
        run(store.statements.set_status, sid_of(key), moved.uid, ARCHIVED if archive else ACTIVE)

    store.connections.in_transaction(work)


def fork(store: PostgresStore, key: str, new_key: str, transaction: Transaction) -> None:
    """Begin a session that shares the records of another up to one of them; nothing is copied."""

    def work(run: Run) -> None:
        check_not_sealed(store, run)
        # In the order of their rows, so that two forks never wait for each other in a circle.
        found = {name: lock(store, run, name) for name in sorted({key, new_key}, key=sid_of)}
        source = next((head for head in found[key] if head.status == ACTIVE), None)
        if source is None:
            raise SessionNotFound(f"there is no active session {key!r} to fork")
        if any(head.status == ACTIVE for head in found[new_key]):
            raise Conflict(f"session {new_key!r} exists already; fork under another key")
        view = store.view(key, source, run)
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
        now = store.parts.system.now()
        uid = new_uid(store.parts.system, after=[head.uid for head in found[new_key]])
        root = Root(key, source.uid, at, record.st, (), source.holes)
        new = start_fork(root, key=new_key, uid=uid, ts=timestamp(now))
        line, state = new.header.raw.decode(), new.state
        created, minute = new.header.created, int(now // 60)
        folded, cwd, pinned, tags = store.parts.labels(_meta(view, state.mp), new_key)
        values = [sid_of(new_key), uid, new_key, new.n, _encode(state).decode(), state.hd, state.mp, state.live]
        values += [_encode(levels).decode(), "t" if source.holes else "f", created, minute, len(line) + 1]
        values += ["t" if is_internal(new_key) else "f", folded, cwd, "t" if pinned else "f", array_of(tags)]
        values.append(sortable(parse_time(created)))
        run(store.statements.create_fork, *values)
        run(store.statements.add_record, sid_of(new_key), uid, new.n, store.parts.token, None, line)
        # 3. What it shares is kept for it from now on, and so are its own versions of what was erased in the other.
        for level in levels:
            run(store.statements.link, level.sid, level.uid, sid_of(new_key), uid, level.upto)
        if source.patched:
            run(store.statements.copy_patches, sid_of(key), source.uid, sid_of(new_key), uid, min(at, source.shared))

    store.connections.in_transaction(work)


def _meta(view: View, mp: int) -> dict[str, object]:
    record = view.find(mp) if mp else None
    return (record.meta or {}) if record is not None else {}


def delete(store: PostgresStore, key: str, *, expect: int | Version | None) -> None:
    """Erase every generation of a session, those in the trash too; what forks share of it stays, without its key."""

    def work(run: Run) -> None:
        check_not_sealed(store, run)
        heads = lock(store, run, key, trashed=True)
        newest = next((head for head in reversed(heads) if head.status != TRASHED), None)
        check_expect(expect, store.view(key, newest, run) if newest is not None else None)
        for head in heads:
            erase(store, run, sid_of(key), head)
        run(store.statements.erase_quarantine, sid_of(key))

    store.connections.in_transaction(work)


def erase(store: PostgresStore, run: Run, sid: str, head: Head) -> None:
    """Erase a generation, and what it alone shared of others that were erased before."""
    run(store.statements.hide, sid, head.uid)
    _trim(store, run, sid, head.uid)
    for level in head.base:
        run(store.statements.unlink, level.sid, level.uid, sid, head.uid)
        # Only one that nobody reads under its own key.
        if run(store.statements.is_hidden, level.sid, level.uid).rows:
            _trim(store, run, level.sid, level.uid)


def _trim(store: PostgresStore, run: Run, sid: str, uid: str) -> None:
    """Erase what no fork shares of a generation that is no longer anybody's."""
    rows = run(store.statements.shared_upto, sid, uid).rows
    upto = int(rows[0][0] or b"0") if rows else 0
    for statement in (store.statements.erase_records, store.statements.erase_blobs):
        run(statement, sid, uid, upto)
    run(store.statements.erase_texts, sid, uid)
    run(store.statements.erase_redactions, sid, uid)
    if not upto:
        run(store.statements.erase_session, sid, uid)


# ---- the trash


class Trashed(NamedTuple):
    """A generation in the trash."""

    key: str
    head: Head
    was: int
    removed: str


def trashed(store: PostgresStore, id: str, run: Run | None = None) -> list[Trashed]:
    """The generations that were removed together, oldest first; raises SessionNotFound if there are none."""
    values = (store.statements.in_trash, id)
    rows = store.connections.read(*values) if run is None else run(*values).rows
    found = [_trashed(row) for row in rows] if id else []
    if not found:
        raise SessionNotFound(f"there is no session {id!r} in the trash")
    return found


def _trashed(row: list[bytes | None]) -> Trashed:
    key, was, removed, *head = row
    return Trashed((key or b"").decode(), head_of(head), int(was or b"0"), (removed or b"").decode())


def move_to_trash(store: PostgresStore, key: str, uid: str | None) -> None:
    """Move all generations of a session to the trash, or one archived generation."""
    removed = timestamp(store.parts.system.now())
    id = f"{stem(key)}.{new_uid(store.parts.system)}"

    def work(run: Run) -> None:
        check_not_sealed(store, run)
        heads = lock(store, run, key)
        moved = [head for head in heads if uid is None or (head.uid == uid and head.status == ARCHIVED)]
        if not moved:
            raise SessionNotFound(f"there is no session {key!r} to move to the trash")
        for head in moved:
            run(store.statements.put_in_trash, sid_of(key), head.uid, id, removed)

    store.connections.in_transaction(work)


def list_trash(store: PostgresStore, title_of: Callable[[View], str]) -> list[TrashedSession]:
    """What is in the trash, the last removed first."""
    found: dict[str, list[Trashed]] = {}
    for id, *row in store.connections.read(store.statements.trash):
        found.setdefault((id or b"").decode(), []).append(_trashed(row))
    sessions = [
        TrashedSession(
            id=id,
            key=of[-1].key,
            title=title_of(store.view(of[-1].key, of[-1].head)),
            removed=parse_time(of[-1].removed),
            generations=tuple(one.head.uid for one in of),
            bytes=sum(one.head.bytes for one in of),
        )
        for id, of in found.items()
    ]
    return sorted(sessions, key=lambda one: (one.removed, one.id), reverse=True)


def restore_from_trash(store: PostgresStore, id: str) -> None:
    """Bring the generations of a session back to where they were."""

    def work(run: Run) -> None:
        check_not_sealed(store, run)
        found = trashed(store, id, run)
        key = found[0].key
        is_taken = any(head.status == ACTIVE for head in lock(store, run, key, trashed=True))
        if is_taken and any(one.was == ACTIVE for one in found):
            raise Conflict(f"there is now an active session {key!r}\narchive or remove that one first")
        run(store.statements.take_from_trash, sid_of(key), id)

    store.connections.in_transaction(work)


def erase_from_trash(store: PostgresStore, id: str) -> bool:
    """Erase a session in the trash; False if another one of its key is left there."""

    def work(run: Run) -> bool:
        check_not_sealed(store, run)
        found = trashed(store, id, run)
        key = found[0].key
        heads = lock(store, run, key, trashed=True)
        for one in found:
            erase(store, run, sid_of(key), one.head)
        erased = {one.head.uid for one in found}
        return all(head.status != TRASHED or head.uid in erased for head in heads)

    return store.connections.in_transaction(work)


# ---- shared


def lock(store: PostgresStore, run: Run, key: str, *, trashed: bool = False) -> list[Head]:
    """Lock the generations of a session until the end of the transaction; oldest first."""
    rows = run(store.statements.lock_all, sid_of(key), TRASHED if trashed else ARCHIVED).rows
    return [head_of(row) for row in rows]


def check_not_sealed(store: PostgresStore, run: Run) -> None:
    """Raise Refused if the sessions were moved elsewhere; until the end of the transaction nobody seals the store."""
    rows = run(store.statements.lock_store).rows
    if rows and rows[0][0] is not None:
        raise sealed(rows[0][0].decode())
