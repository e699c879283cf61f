"""Sessions in PostgreSQL: the store of `nacre.open("postgresql://…")`."""

from __future__ import annotations

import logging
import os
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from threading import RLock
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from nacre.errors import Conflict, DurabilityUnknown, FormatTooNew, StoreError
from nacre.messages import (
    DiskUsage,
    GenerationInfo,
    Leftover,
    Load,
    QuarantineEntry,
    Receipt,
    Redaction,
    Report,
    Settlement,
    TrashedSession,
    Version,
)
from nacre.records import Rules, Transaction, View
from nacre.storage import blobs
from nacre.storage.group_commit import Committer, Nested, Owner, Pending
from nacre.storage.postgres import damage, erasing, moving, tidying
from nacre.storage.postgres.address import Address
from nacre.storage.postgres.connections import Connections
from nacre.storage.postgres.database import Database, Labels
from nacre.storage.postgres.documents import PostgresDocument
from nacre.storage.postgres.leases import Leases, PostgresLease
from nacre.storage.postgres.notices import Notices
from nacre.storage.postgres.pipeline import Pipeline
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED, VERSION
from nacre.storage.postgres.statements import Statements
from nacre.storage.postgres.view import Head, PostgresView, head_of, plain_uid, sid_of
from nacre.storage.postgres.writer import SessionWriter
from nacre.storage.protocol import (
    MAX_LATER_BYTES,
    BegunRedaction,
    Document,
    FindCopies,
    Generation,
    Journal,
    Later,
    Lease,
    Listed,
    Status,
)
from nacre.storage.system import System
from nacre.storage.transaction import PendingCommit
from nacre.storage.watch import Watch
from nacre.storage.writer_pool import Pool

if TYPE_CHECKING:
    from nacre.storage.postgres.transfer import PostgresTransfer

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_SECONDS = 30.0


class _SessionQueue:
    """The writer of one session, and the queue of transactions before it."""

    __slots__ = ("__weakref__", "queue", "writer")

    def __init__(self, store: PostgresStore, key: str) -> None:
        self.writer = SessionWriter(store.database, key)
        self.queue = Committer(partial(store.commit, self.writer), store.threads.run)


class PostgresStore:
    """Sessions in a database; any number of processes on any number of machines may use it at once.

    `labels` says what a list is narrowed by. The turn of a holder that does not renew it is over after
    `lease_seconds`. At most `size` connections are used, and about `max_known` sessions are remembered.
    """

    is_durable = True
    is_shared = True

    def __init__(  # noqa: PLR0913 - what an operator or a test may set
        self,
        address: Address,
        *,
        rules: Rules,
        labels: Labels,
        relaxed: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        size: int = 16,
        patience: float = 20.0,
        timeout: float = 30.0,
        max_known: int = 10_000,
    ) -> None:
        self._max_known = max_known
        self.connections = Connections(address, relaxed=relaxed, size=size, patience=patience, timeout=timeout)
        self.statements = Statements(address.schema)
        try:
            self.connections.connect()
            self._check_version()
        except BaseException:
            self.connections.close()
            raise
        token = secrets.randbits(62)
        self.database = Database(self.connections, self.statements, rules, System(), token, labels)
        self.leases = Leases(self.connections, self.statements, append=self.run, seconds=lease_seconds)
        self.notices = Notices(self.connections, self.statements)
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        self.pipeline = Pipeline(self.connections)
        self._lock = RLock()
        self._owner = Owner(self._lock)
        self.threads = Pool(self._lock, self._owner)
        self._queues: dict[str, _SessionQueue] = {}
        # Those too that are no longer kept, for as long as anyone uses them: there is one to a session.
        self._all: WeakValueDictionary[str, _SessionQueue] = WeakValueDictionary()
        self._closed = False
        self._batches = 0

    def _check_version(self) -> None:
        """Raise StoreError, with what to do, if the tables are not there or of another version."""
        address = self.connections.address
        rows = self.connections.read(self.statements.store)
        version = int(rows[0][0] or b"0") if rows else 0
        if version > VERSION:
            raise FormatTooNew(
                f"{address.shown} has tables of version {version}, this nacre knows {VERSION}: update nacre"
            )
        if version < VERSION:
            raise StoreError(
                f"{address.shown} has tables of version {version}: run `nacre store upgrade {address.shown}`"
            )

    @property
    def location(self) -> str:
        return self.connections.address.shown

    @property
    def load(self) -> Load:
        return self.connections.load(self._batches)

    # ---- everyday

    def run(self, key: str, transaction: Transaction) -> int:
        return self._of(key).queue.run(transaction)

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        return self._of(key).queue.submit(transaction, pending)

    def commit(self, writer: SessionWriter, commits: Sequence[PendingCommit]) -> None:
        """Store transactions of one session as one batch, or as several if not all of them rely on the same lease."""
        groups = [(commits[0].transaction.held, commits)]
        if len(commits) > 1:
            groups = [(held, list(group)) for held, group in groupby(commits, lambda commit: commit.transaction.held)]
        for held, group in groups:
            self._batches += 1
            try:
                writer.commit(group, self.pipeline.send, held.guard if isinstance(held, PostgresLease) else None)
            except StoreError as error:
                if len(groups) == 1:
                    raise
                for commit in group:
                    commit.error = error
        self.notices.tell(writer.sid)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        while True:
            head = self.database.head(key)
            if head is None:
                return None
            found = self._look(key, head, get)
            if found is not None:
                return found[0]
            # It was deleted meanwhile: what there is now counts.

    def is_at(self, key: str, version: Version) -> bool:
        # Somebody else may have written to it, which only the database knows.
        rows = self.connections.read(self.statements.version, sid_of(key))
        return bool(rows) and Version(int(rows[0][1] or b"0"), plain_uid(rows[0][0])) == version

    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        head = self.database.head(key)
        if head is None or head.status != ACTIVE:
            return Later(uid, after)
        view = self.database.view(key, head)
        start = after if uid in ("", head.uid) else 0
        upto = max(start, min(start + limit, head.n))
        found = [record for record in view.after(start, limit) if record.n <= upto]
        records = blobs.whole_up_to(MAX_LATER_BYTES, found, view)
        upto = upto if len(records) == len(found) else records[-1].n
        return Later(head.uid, upto, records, upto >= head.n)

    def watch(self) -> Watch:
        return self.notices.watch()

    def hold(self, key: str) -> Lease:
        return PostgresLease(self.leases, key)

    def document(self, name: str, *, held: Lease | None = None) -> Document:
        return PostgresDocument(self.database, name, _own(held))

    def close(self) -> None:
        """Write what waits, give back every turn, and close the connections; twice is harmless."""
        with self._owner, self._lock:
            sessions = list(dict.fromkeys([*self._queues.values(), *self._all.values()]))
            for session in sessions:
                session.queue.refuse_nested()
            was_closed, self._closed, self._queues = self._closed, True, {}
        if was_closed:
            return
        self.threads.finish()
        for session in sessions:
            # Those that were under way are over then.
            session.queue.alone(lambda: None)
        self.leases.close()
        self.notices.close()
        try:
            if self.connections.relaxed and self._batches:
                self.connections.in_transaction(lambda run: run(self.statements.touch_store), is_durable=True)
        finally:
            self.pipeline.close()
            self.connections.close()

    # ---- sessions as a whole

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        while True:
            heads = self.database.heads(key)
            found = []
            for head in heads:
                is_newest = head is heads[-1]
                found.append(self._look(key, head, lambda view: get(Generation(view.uid, view)), is_newest=is_newest))
            values = [one[0] for one in found if one is not None]
            if len(values) == len(heads):
                return values

    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        heads = self.database.heads(key)
        for head in heads:
            if head.uid == uid:
                found = self._look(key, head, get, is_newest=head is heads[-1])
                return found[0] if found is not None else None
        return None

    def status(self, key: str) -> Status:
        head = self.database.head(key)
        return "" if head is None else "active" if head.status == ACTIVE else "archived"

    def each(self, *, archived: bool) -> Iterator[Listed]:
        for key, head in self.database.each(ARCHIVED if archived else ACTIVE):
            view = self.database.view(key, head)
            yield Listed(key, view, head.created, head.updated, head.bytes, archived)

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        self._alone(key, partial(moving.move, self.database, key, archive=archive, expect=expect))

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        sid_of(key)
        self._alone(new_key, partial(moving.fork, self.database, key, new_key, transaction))

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:
        def work() -> None:
            moving.delete(self.database, key, expect=expect, held=_own(held))
            self._of(key).queue.refuse_waiting(Conflict(f"session {key!r} was deleted; nothing was stored"))

        self._alone(key, work)

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:  # noqa: ARG002 - rows that are not live cost nothing to pass over
        sid = sid_of(key)
        if self.connections.relaxed:
            self.connections.in_transaction(lambda run: run(self.statements.touch, sid), is_durable=True)
        return False

    def redact(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:
        work = partial(erasing.redact, self.database, key, n, uid=uid, find_copies=find_copies, has_copies=has_copies)
        return self._alone(key, work)

    def end_redaction(self, redaction: Redaction, *, are_copies_left: bool = False) -> None:
        if not are_copies_left:
            erasing.end(self.database, redaction)

    def begun_redactions(self) -> list[BegunRedaction]:
        return erasing.begun(self.database)

    def resume_redaction(self, redaction: Redaction) -> None:
        """Do nothing: what is in the store is erased in one transaction."""

    def verify(self, key: str | None) -> Report:
        return damage.verify(self.database, key)

    def repair(self, key: str) -> Receipt:
        return self._alone(key, partial(damage.repair, self.database, key))

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        return damage.entries(self.database, key)

    def restore(self, key: str, n: int | None) -> Settlement:
        return self._alone(key, partial(damage.restore, self.database, key, n))

    def discard(self, key: str, n: int | None) -> Settlement:
        return damage.discard(self.database, key, n)

    # ---- housekeeping

    def generation(self, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
        return tidying.generation(self.database, key, uid, is_pinned=is_pinned)

    def disk_usage(self, keys: Sequence[str]) -> DiskUsage:
        return tidying.disk_usage(self.database, keys)

    def log_size(self, key: str) -> int:
        head = self.database.head(key)
        return head.bytes if head is not None and head.status == ACTIVE else 0

    def kept_size(self, key: str, keep: Callable[[View], set[int]]) -> int:
        def measure(view: View) -> int:
            kept = keep(view)
            return sum(len(line) for record, line in view.all_lines() if record.n in kept)

        return (self.read(key, measure) or 0) if self.status(key) == "active" else 0

    def key_of_file(self, path: str) -> str | None:  # noqa: ARG002 - there are no files
        return None

    def has_other_logs(self, keys: Sequence[str]) -> bool:
        known = set(keys)
        return any(one.key not in known for archived in (False, True) for one in self.each(archived=archived))

    def remove_leftovers(self, *, dry_run: bool) -> list[Leftover]:  # noqa: ARG002 - a transaction leaves nothing
        return []

    def journal(self, name: str) -> Journal:
        return tidying.PostgresJournal(self.database, name, self.hold(f"nacre:journal:{name}"))

    def move_to_trash(self, key: str, uid: str | None) -> None:
        self._alone(key, partial(moving.move_to_trash, self.database, key, uid))

    def list_trash(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        return moving.list_trash(self.database, title_of)

    def key_in_trash(self, id: str) -> str:
        return moving.trashed(self.database, id)[0][0]

    def restore_from_trash(self, id: str) -> None:
        self._alone(self.key_in_trash(id), partial(moving.restore_from_trash, self.database, id))

    def erase_from_trash(self, id: str) -> bool:
        return self._alone(self.key_in_trash(id), partial(moving.erase_from_trash, self.database, id))

    def transfer(self) -> PostgresTransfer:
        """The store's part of moving sessions to another one."""
        from nacre.storage.postgres.transfer import PostgresTransfer  # noqa: PLC0415 - once in the life of a store

        return PostgresTransfer(self.database, alone=self._alone, mend=self._look)

    # ---- what the parts of the store use

    def _look(
        self, key: str, head: Head, get: Callable[[PostgresView], T], *, is_newest: bool = True
    ) -> tuple[T] | None:
        """The result of a function of one generation; None if that was deleted meanwhile.

        Damage that it meets is put into quarantine, and then it is read again.
        """
        view = self.database.view(key, head)
        view.is_newest = is_newest
        value = get(view)
        if not (view.damaged or view.missing):
            return (value,)
        rows = self.connections.read(self.statements.generation, sid_of(key), head.uid)
        if not rows:
            return None
        try:
            self.repair(key)
        except StoreError:
            logger.warning("a damaged session could not be repaired", extra={"session": key}, exc_info=True)
            return (value,)
        rows = self.connections.read(self.statements.generation, sid_of(key), head.uid)
        if not rows:
            return None
        view = self.database.view(key, head_of(rows[0]))
        view.is_newest = is_newest
        return (get(view),)

    def _of(self, key: str) -> _SessionQueue:
        """The queue of a session; raises Refused to a signal handler whose own thread holds the lock."""
        found = self._queues.get(key)
        if found is not None:
            return found
        if self._owner.near and self._owner.is_me():
            raise Nested("nothing was done: this thread is in the middle of another write")
        sid_of(key)
        with self._owner, self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            if len(self._queues) >= self._max_known:
                self._queues = {}
            found = self._all.get(key) or _SessionQueue(self, key)
            self._queues[key] = self._all[key] = found
            return found

    def _alone(self, key: str, work: Callable[[], T]) -> T:
        """Do something other than appending to a session, between two batches of this process; then tell of it."""
        session = self._of(key)

        def work_and_forget() -> T:
            session.writer.forget()
            try:
                return work()
            finally:
                session.writer.forget()

        try:
            return session.queue.alone(work_and_forget)
        except DurabilityUnknown as error:
            raise DurabilityUnknown(f"session {key!r}: {error}") from error
        finally:
            self.notices.tell(session.writer.sid)

    def begin_in_child(self) -> None:
        """After a fork: connections and threads are the parent's."""
        self.connections.begin_in_child()
        self.leases.begin_in_child()
        self.notices.begin_in_child()
        self.threads.drop()
        self._begin()


def _own(lease: Lease | None) -> PostgresLease | None:
    return lease if isinstance(lease, PostgresLease) else None


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.begin_in_child()


os.register_at_fork(after_in_child=_after_fork)
