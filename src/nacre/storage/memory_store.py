"""Sessions in RAM, for tests and for channels that must not remember; gone when the process ends."""

from __future__ import annotations

import hashlib  # noqa: F401 - for names and payloads; loaded here for the reason given in nacre.storage.file_store
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar
from weakref import WeakSet

from msgspec.structs import replace

from nacre.codec import parse_time, timestamp
from nacre.errors import Conflict, LeaseLost, SessionBusy, SessionNotFound, StoreError
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
from nacre.records import FORMAT, Losses, Record, Rules, State, TakeOver, Transaction, View
from nacre.storage import blobs
from nacre.storage.format import seal, unseal
from nacre.storage.group_commit import Nested, Pending, resolve
from nacre.storage.holes import has_content, hole, plan
from nacre.storage.paths import new_uid, stem
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
from nacre.storage.quarantine import Aside
from nacre.storage.recovery import Header
from nacre.storage.seal import sealed
from nacre.storage.session_files import Root, start_fork
from nacre.storage.system import System
from nacre.storage.transaction import Batch, Ids, PendingCommit, Seen, check_expect, print_of, units
from nacre.storage.transfer import Changed, Held, HeldAs, Keep, Unreadable, lines_of

if TYPE_CHECKING:
    from nacre.storage.watch import MemoryWatch, Watch

T = TypeVar("T")


class _Life:
    """One generation of a session: its lines, whole and without gaps, so that record n is line n.

    `earlier` is the generation before it, if that is archived.
    """

    has_holes = False
    losses = Losses()
    is_archived = False
    is_newest = True

    def __init__(self, key: str, system: System, earlier: _Life | None) -> None:
        self.key = key
        self._system = system
        self._earlier = earlier
        self._lines: list[bytes] = []
        self.staged: Sequence[Record] = ()
        self.header = Header()
        self.n = 0
        self.state = State()
        self.updated = ""
        self.moved_at = 0.0
        """When it was last archived, or brought back."""
        self.size = 0
        self._ids = Ids()
        # Every id, for those who keep them, up to a record.
        self._kept: dict[str, Seen] = {}
        self._kept_upto = 0
        self._payloads: blobs.Payloads = {}

    @property
    def uid(self) -> str:
        return self.header.uid

    @property
    def created(self) -> str:
        return self.header.created

    @property
    def highest(self) -> int:
        return self.n

    def find(self, n: int) -> Record | None:
        return next(self.back(n), None) if 0 < n <= self.n + len(self.staged) else None

    def back(self, n: int) -> Iterator[Record]:
        yield from (record for record in reversed(self.staged) if record.n <= n)
        for line in reversed(self._lines[: min(n, self.n)]):
            yield _record(line)

    def moved(self, n: int) -> Iterator[Record]:  # noqa: ARG002 - nothing is ever moved out of memory
        return iter(())

    def all(self) -> Iterator[Record]:
        return map(_record, self._lines[: self.n])

    def after(self, n: int, limit: int) -> list[Record]:
        return [_record(line) for line in self._lines[n : min(n + limit, self.n)]]

    def all_lines(self) -> Iterator[tuple[Record, bytes]]:
        return ((_record(line), line + b"\n") for line in self._lines[: self.n])

    def whole(self, record: Record) -> Record:
        return blobs.whole(record, self.payload)

    def payload(self, name: str) -> str | None:
        return self._payloads[name].decode() if name in self._payloads else None

    @property
    def payload_size(self) -> int:
        return sum(map(len, self._payloads.values()))

    def follow(self, earlier: _Life | None) -> None:
        """Come after another generation than before, which may be none."""
        self._earlier = earlier
        self.forget_ids()

    def fork(self, key: str, at: int, earlier: _Life | None) -> _Life:
        """A copy up to a record, with a header after that, as a log has it."""
        record = self.find(at)
        if record is None or (record.tx is not None and at != record.tx[0] + record.tx[1] - 1):
            raise Conflict(f"session {self.key!r} has no record {at} to fork at, or it is inside a group")
        copy = _Life(key, self._system, earlier)
        root = Root(self.key, self.uid, at, record.st, ())
        new = start_fork(root, key=key, uid=copy.next_uid(), ts=timestamp(self._system.now()))
        copy._lines = [*self._lines[:at], new.header.raw]
        copy._payloads = dict(self._payloads)
        copy.header, copy.n, copy.state, copy.updated = new.header, new.n, new.state, new.header.created
        copy.size = sum(map(len, copy._lines))
        return copy

    def window(self) -> dict[str, Seen]:
        earlier = self._earlier
        return self._ids.window(self, earlier.window if earlier is not None else dict)

    def kept(self, id: str, state: State, rules: Rules) -> Seen | None:
        if self._ids.are_kept(self, state, rules):
            for _, last, parts in units(_record(line) for line in self._lines[self._kept_upto : self.n]):
                if parts[0].id is not None:
                    self._kept[parts[0].id] = (last, print_of(parts, self))
            self._kept_upto = self.n
            if id in self._kept:
                return self._kept[id]
        earlier = self._earlier
        return earlier.kept(id, earlier.state, rules) if earlier is not None else None

    def forget_ids(self) -> None:
        self._ids = Ids()

    def earlier_fence(self) -> int:
        return self._earlier.state.fence if self._earlier is not None else 0

    def next_uid(self) -> str:
        return new_uid(self._system, after=[self._earlier.uid] if self._earlier is not None else [])

    def redact(self, n: int, find_copies: FindCopies) -> Redaction:
        """Erase the content of a record; raises Conflict if there is none."""
        record = self.find(n)
        if record is None or not has_content(record):
            raise Conflict(f"session {self.key!r} has no message {n} whose content can be erased")
        found = plan(self, record, find_copies)
        holes = [hole(line, found.erased) for line in self._lines[: self.n]]
        self._lines[: self.n] = [new or line for new, line in zip(holes, self._lines, strict=False)]
        for name in found.payloads:
            self._payloads.pop(name, None)
        # Fingerprints of what these records were are forgotten, too. A mark shows others that the session has changed.
        self.forget_ids()
        self._kept, self._kept_upto = {}, 0
        ts = timestamp(self._system.now())
        # A log of a fork has only its own records.
        mark = Record(v=FORMAT, n=self.n + 1, t="mark", ts=ts, kept=self.n - self.header.n + 1, st=self.state)
        self._lines[self.n :] = [seal(mark)[:-1]]
        self.n, self.updated, self.size = mark.n, ts, sum(map(len, self._lines))
        return Redaction(
            key=self.key,
            generation=self.uid,
            n=n,
            erased=tuple(at for at, new in enumerate(holes, 1) if new is not None and at in found.erased.numbers),
            payloads=len(found.payloads),
            kept=found.kept,
            summaries=found.summaries,
        )

    def receive(self, view: View) -> None:
        """Become what a generation is in another store."""
        found = list(lines_of(view))
        if [record.n for record, _ in found] != list(range(1, view.n + 1)):
            raise StoreError(f"session {self.key!r} has lost records and cannot be kept in memory")
        names = {name for record, _ in found if record.blobs is not None for name in blobs.names(record)}
        texts = {name: view.payload(name) for name in names}
        header = next(record for record, _ in reversed(found) if record.t == "open")
        self._payloads = {name: text.encode() for name, text in texts.items() if text is not None}
        self._lines = [line[:-1] for _, line in found]
        raw = self._lines[header.n - 1]
        self.header = Header(uid=view.uid, sid=self.key, n=header.n, created=header.ts, raw=raw)
        self.n, self.state, self.updated = view.n, view.state, found[-1][0].ts
        self.size = sum(map(len, self._lines))
        self._kept, self._kept_upto = {}, 0
        self.forget_ids()

    def take(self, batch: Batch) -> None:
        """Store a batch; if it is interrupted before the number is set, nothing was stored."""
        size = self.size + sum(map(len, batch.lines))
        self._payloads |= batch.payloads
        before, updated = self.n, batch.records[-1].ts
        # From the number on: an interrupted write may have left lines after it.
        self._lines[self.n :] = [line[:-1] for line in batch.lines]
        self.header, self.n, self.state, self.updated, self.size = batch.header, batch.n, batch.state, updated, size
        # After it: ids that are not taken in here are read from the lines when they are needed.
        self._ids.add(batch.ids, after=before, upto=batch.n)


def _record(line: bytes) -> Record:
    """A record as a log would give it back: nothing of it is shared with who wrote or reads it."""
    record = unseal(line)
    assert record is not None  # noqa: S101 - written by us, in RAM
    return record


class _Lease:
    """The turn of a session, for one holder in this process."""

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store = store
        self.key = key
        self.number: int | None = None

    def __repr__(self) -> str:
        return f"Lease({self.key!r}, number={self.number})"

    def take(self) -> None:
        self._store.lend(self)

    def take_over(self) -> None:
        self.close()
        self._store.lend(self, by_force=True)

    def holder(self) -> int:
        return os.getpid() if self._store.is_lent(self.key) else 0

    def check(self) -> None:
        self._store.check_lent(self)

    def close(self) -> None:
        self._store.take_back(self)


class _Trashed(NamedTuple):
    """A session in the trash: the generation that was active, if one was, and archived ones."""

    key: str
    removed: float
    active: _Life | None
    archived: Sequence[_Life]

    @property
    def lives(self) -> list[_Life]:
        return [*self.archived, *((self.active,) if self.active is not None else ())]


class _Journal:
    """The last line of a task, and who has it open."""

    def __init__(self) -> None:
        self._last = b""
        self._is_open = False

    def __enter__(self) -> Self:
        if self._is_open:
            raise SessionBusy("this process is writing that journal already")
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False

    def last(self) -> bytes:
        return self._last

    def add(self, line: bytes) -> None:
        self._last = line


class _Document:
    """What was written last under a name."""

    def __init__(self, documents: dict[str, bytes], name: str, held: Lease | None) -> None:
        self._documents, self._name, self._held = documents, name, held

    def read(self) -> bytes:
        return self._documents.get(self._name, b"")

    def write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.check()
        self._documents[self._name] = bytes(data)

    def set_aside(self) -> str:
        if self._held is not None:
            self._held.check()
        aside = f"{self._name}.unreadable"
        self._documents[aside] = self._documents.pop(self._name, b"")
        return aside


class MemoryStore:
    """Every session of one process, in RAM."""

    location = ":memory:"
    is_durable = False
    is_shared = False
    load: Load | None = None

    def __init__(self, *, rules: Rules, system: System | None = None) -> None:
        self._rules = rules
        self._system = system or System()
        self._lock = RLock()
        self._watches: WeakSet[MemoryWatch] = WeakSet()
        self._was_watched = False
        self._active: dict[str, _Life] = {}
        self._archived: dict[str, list[_Life]] = {}
        self._trash: dict[str, _Trashed] = {}
        self._journals: dict[str, _Journal] = {}
        self._documents: dict[str, bytes] = {}
        # Of a lease that was taken over, too: by key and fence.
        self._turns: set[tuple[str, int]] = set()
        self._closed = False
        self._is_writing = False
        self._sealed_to = ""

    def run(self, key: str, transaction: Transaction) -> int:
        stem(key)
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            self._check_seal()
            if self._is_writing:
                # The lock is this thread's: a signal handler, or a finalizer, in the middle of a write.
                raise Nested("nothing was done: this thread is in the middle of another write")
            try:
                self._is_writing = True
                life = self._active.get(key) or _Life(key, self._system, self._newest_archived(key))
                try:
                    batch = Batch(life, rules=self._rules, now=self._system.now())
                    number = batch.add(transaction)
                finally:
                    # What was not stored must not be seen.
                    life.staged = ()
                if batch.lines:
                    life.take(batch)
                    self._begin(key, life)
                return number
            finally:
                self._is_writing = False
                # Most stores are never watched, and to go through a weak set costs a tenth of a write.
                if self._was_watched:
                    self._tell(key)

    def _check_seal(self) -> None:
        if self._sealed_to:
            raise sealed(self._sealed_to, self.location)

    def _tell(self, key: str) -> None:
        """Tell those who watch that a session has changed; only with the lock."""
        for watch in self._watches:
            watch.tell(key)

    def _begin(self, key: str, life: _Life) -> None:
        for earlier in self._archived.get(key, ()):
            earlier.is_newest = False
        self._active[key] = life

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        pending, commit = pending or Pending(), PendingCommit(transaction)
        try:
            commit.number = self.run(key, transaction)
        except Nested:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it with the result
            commit.error = error
        resolve([(commit, pending)], None)
        return pending

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        stem(key)
        with self._lock:
            lives = self._lives(key)
            return get(lives[-1]) if lives else None

    def is_at(self, key: str, version: Version) -> bool:
        with self._lock:
            life = self._active.get(key)
            return life is not None and Version(life.n, life.uid) == version

    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        stem(key)
        with self._lock:
            life = self._active.get(key)
            if life is None:
                return Later(uid, after)
            start = after if uid in ("", life.uid) else 0
            upto = max(start, min(start + limit, life.n))
            records = blobs.whole_up_to(MAX_LATER_BYTES, islice(life.all(), start, upto), life)
            upto = records[-1].n if records else upto
            return Later(life.uid, upto, records, upto >= life.n)

    def watch(self) -> Watch:
        from nacre.storage.watch import MemoryWatch  # noqa: PLC0415 - brings ctypes along, which few need

        watch = MemoryWatch()
        with self._lock:
            self._watches.add(watch)
            self._was_watched = True
        return watch

    def hold(self, key: str) -> Lease:
        stem(key)
        return _Lease(self, key)

    def lend(self, lease: _Lease, *, by_force: bool = False) -> None:
        """Let a lease have its turn; raises SessionBusy if another has it, unless that is to lose it."""
        with self._lock:
            if by_force:
                self.run(lease.key, Transaction((TakeOver(f"process {os.getpid()}"),)))
            if self.is_lent(lease.key):
                raise SessionBusy(f"session {lease.key!r} is in use by this process ({os.getpid()})")
            lease.number = self._fence(lease.key)
            self._turns.add((lease.key, lease.number))

    def is_lent(self, key: str) -> bool:
        """Tell whether somebody has the turn of a session."""
        with self._lock:
            return (key, self._fence(key)) in self._turns

    def check_lent(self, lease: _Lease) -> None:
        """Raise LeaseLost if a lease is not taken, or was taken over."""
        with self._lock:
            if lease.number is None or lease.number != self._fence(lease.key):
                raise LeaseLost(f"the turn of session {lease.key!r} was taken over; nothing was stored")

    def _fence(self, key: str) -> int:
        lives = self._lives(key)
        return lives[-1].state.fence if lives else 0

    def take_back(self, lease: _Lease) -> None:
        with self._lock:
            if lease.number is not None:
                self._turns.discard((lease.key, lease.number))
                lease.number = None

    def close(self) -> None:
        self._closed = True

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        stem(key)
        with self._lock:
            return [get(Generation(life.header.uid, life)) for life in self._lives(key)]

    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        stem(key)
        with self._lock:
            life = next((life for life in self._lives(key) if life.uid == uid), None)
            return get(life) if life is not None else None

    def status(self, key: str) -> Status:
        stem(key)
        return "active" if key in self._active else "archived" if self._archived.get(key) else ""

    def each(self, *, archived: bool) -> Iterator[Listed]:
        lives = self._archived if archived else {key: [life] for key, life in self._active.items()}
        for key in sorted(lives):
            for life in lives[key]:
                yield Listed(key, life, life.header.created, life.updated, life.size, archived)

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        stem(key)
        with self._lock:
            self._check_seal()
            active, archived = self._active.get(key), self._archived.setdefault(key, [])
            if not (active if archive else archived):
                raise SessionNotFound(f"there is no {'active' if archive else 'archived'} session {key!r}")
            if active is not None and not archive:
                raise Conflict(f"session {key!r} is active; archive or delete it before unarchiving the other one")
            check_expect(expect, active or archived[-1])
            if active is not None:
                archived.append(self._active.pop(key))
            else:
                active = self._active[key] = archived.pop()
            active.is_archived, active.moved_at = archive, self._system.now()
            self._tell(key)

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        stem(key)
        stem(new_key)
        with self._lock:
            self._check_seal()
            life = self._active.get(key)
            if life is None:
                raise SessionNotFound(f"there is no active session {key!r} to fork")
            if new_key in self._active:
                raise Conflict(f"session {new_key!r} exists already; fork under another key")
            check_expect(transaction.expect, life)
            at = life.n if transaction.reach is None else transaction.reach
            self._begin(new_key, life.fork(new_key, at, self._newest_archived(new_key)))
            self._tell(new_key)

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:
        stem(key)
        with self._lock:
            self._check_seal()
            if held is not None:
                held.check()
            check_expect(expect, next(reversed(self._lives(key)), None))
            self._active.pop(key, None)
            self._archived.pop(key, None)
            self._trash = {id: one for id, one in self._trash.items() if one.key != key}
            self._tell(key)

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:  # noqa: ARG002 - RAM has no cold file
        stem(key)
        return False

    def redact(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:  # noqa: ARG002 - nothing outlives the process
        stem(key)
        with self._lock:
            self._check_seal()
            trashed = [life for one in self._trash.values() if one.key == key for life in one.lives]
            lives = [life for life in self._lives(key) if uid in ("", life.uid)]
            # One in the trash only if it is nowhere else.
            lives = lives or [life for life in trashed if uid in ("", life.uid)]
            if not lives:
                raise SessionNotFound(f"there is no session {key!r}" + f" with the generation {uid}" * bool(uid))
            life, record = lives[-1], lives[-1].find(n)
            for one in (*self._lives(key), *trashed):
                # A generation knows the ids of the one before it, with fingerprints.
                one.forget_ids()
            everybody = chain(
                self._active.values(), *self._archived.values(), *(one.lives for one in self._trash.values())
            )
            forks = {one.key for one in everybody if one is not life and record is not None and one.find(n) == record}
            redaction = life.redact(n, find_copies)
            self._tell(key)
            return replace(redaction, forks=tuple(sorted(forks)))

    def end_redaction(self, redaction: Redaction, *, are_copies_left: bool = False) -> None:
        """Do nothing: what was begun came to its end."""

    def begun_redactions(self) -> list[BegunRedaction]:
        return []

    def resume_redaction(self, redaction: Redaction) -> None:
        """Do nothing, for the same reason."""

    def verify(self, key: str | None) -> Report:
        if key is not None:
            self._known(key)
        return Report()

    def repair(self, key: str) -> Receipt:
        kept = sum(life.n for life in self._known(key))
        return Receipt(key=key, kept=kept, set_aside=0, quarantine=None)

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        if key is not None:
            stem(key)
        return []

    def restore(self, key: str, n: int | None) -> Settlement:
        stem(key)
        if n is not None:
            raise SessionNotFound(f"session {key!r} has no quarantine entry {n}")
        return Settlement(key=key)

    discard = restore

    # ---- housekeeping

    def generation(self, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
        with self._lock:
            is_active = self.status(key) == "active"
            lives = self._archived.get(key, []) if uid else [self._active[key]] if is_active else []
            life = next((life for life in lives if uid in ("", life.uid)), None)
            if life is None:
                return None
            updated = parse_time(life.updated)
            return GenerationInfo(
                key=key,
                generation=life.uid,
                pinned=is_pinned(life),
                updated=updated,
                changed=max(updated, datetime.fromtimestamp(life.moved_at, UTC)),
                bytes=life.size,
            )

    def disk_usage(self, keys: Sequence[str]) -> DiskUsage:
        """The same for RAM: bytes of records, and of the payloads that they name."""
        sizes = {key: 0 for key in keys if stem(key)}
        with self._lock:
            active, archived = ([*self.each(archived=which)] for which in (False, True))
            for found in (*active, *archived):
                if found.key in sizes:
                    sizes[found.key] += found.size
            trashed = [life for one in self._trash.values() for life in one.lives]
            lives = chain(self._active.values(), *self._archived.values(), trashed)
            folders = {
                "sessions": sum(found.size for found in active),
                "archive": sum(found.size for found in archived),
                "blobs": sum(life.payload_size for life in lives),
                "trash": sum(life.size for life in trashed),
            }
        return DiskUsage(folders=folders, sessions=sizes)

    def log_size(self, key: str) -> int:
        with self._lock:
            return self._active[key].size if self.status(key) == "active" else 0

    def kept_size(self, key: str, keep: Callable[[View], set[int]]) -> int:
        with self._lock:
            if self.status(key) != "active":
                return 0
            view = self._active[key]
            kept = keep(view)
            return sum(len(line) for record, line in view.all_lines() if record.n in kept)

    def key_of_file(self, path: str) -> str | None:  # noqa: ARG002 - RAM has no files
        return None

    def has_other_logs(self, keys: Sequence[str]) -> bool:
        with self._lock:
            found = chain(self.each(archived=False), self.each(archived=True))
            return any(one.key not in keys for one in found)

    def remove_leftovers(self, *, dry_run: bool) -> list[Leftover]:  # noqa: ARG002 - the same
        return []

    def journal(self, name: str) -> Journal:
        with self._lock:
            return self._journals.setdefault(name, _Journal())

    def document(self, name: str, *, held: Lease | None = None) -> Document:
        return _Document(self._documents, name, held)

    def move_to_trash(self, key: str, uid: str | None) -> None:
        stem(key)
        with self._lock:
            self._check_seal()
            there = self._archived.get(key, [])
            active = self._active.get(key) if uid is None else None
            archived = [life for life in there if uid in (None, life.uid)]
            if active is None and not archived:
                raise SessionNotFound(f"there is no session {key!r} to move to the trash")
            removed = self._system.now()
            stamp = int(removed * 1_000_000)
            while (id := f"{stem(key)}.{stamp}") in self._trash:
                stamp += 1
            self._trash[id] = _Trashed(key, removed, active, archived)
            if active is not None:
                del self._active[key]
            self._archived[key] = [life for life in there if life not in archived]
            self._relink(key)

    def list_trash(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        with self._lock:
            found = [
                TrashedSession(
                    id=id,
                    key=one.key,
                    title=title_of(one.lives[-1]),
                    removed=datetime.fromtimestamp(one.removed, UTC),
                    generations=tuple(life.uid for life in one.lives),
                    bytes=sum(life.size for life in one.lives),
                )
                for id, one in self._trash.items()
            ]
        return sorted(found, key=lambda one: one.removed, reverse=True)

    def key_in_trash(self, id: str) -> str:
        return self._trashed(id).key

    def restore_from_trash(self, id: str) -> None:
        with self._lock:
            self._check_seal()
            found = self._trashed(id)
            key = found.key
            if found.active is not None and key in self._active:
                raise Conflict(f"there is now an active session {key!r}\narchive or remove that one first")
            del self._trash[id]
            if found.active is not None:
                self._active[key] = found.active
            archived = [*self._archived.get(key, []), *found.archived]
            self._archived[key] = sorted(archived, key=lambda life: life.uid)
            for life in found.lives:
                life.moved_at = self._system.now()
            self._relink(key)

    def erase_from_trash(self, id: str) -> bool:
        with self._lock:
            self._check_seal()
            key = self._trashed(id).key
            del self._trash[id]
            return all(one.key != key for one in self._trash.values())

    def transfer(self) -> MemoryTransfer:
        """The store's part of moving sessions to another one."""
        return MemoryTransfer(self)

    def _trashed(self, id: str) -> _Trashed:
        found = self._trash.get(id)
        if found is None:
            raise SessionNotFound(f"there is no session {id!r} in the trash")
        return found

    def _relink(self, key: str) -> None:
        """Let each generation of a session follow the one that is before it now, and tell those who watch."""
        earlier = None
        lives = self._lives(key)
        for life in lives:
            life.follow(earlier)
            life.is_newest = life is lives[-1]
            earlier = life
        self._tell(key)

    def _newest_archived(self, key: str) -> _Life | None:
        return next(reversed(self._archived.get(key, [])), None)

    def _lives(self, key: str) -> list[_Life]:
        active = self._active.get(key)
        return self._archived.get(key, []) + ([active] if active is not None else [])

    def _known(self, key: str) -> list[_Life]:
        stem(key)
        lives = self._lives(key)
        if not lives:
            raise SessionNotFound(f"there is no session {key!r}")
        return lives


class MemoryTransfer:
    """The generations of a store in RAM, as they are moved."""

    # ruff: noqa: SLF001 - of this module's own store

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.location = store.location

    def each(self, status: HeldAs) -> Iterator[Held | Unreadable]:
        with self._store._lock:
            found = [held for held, _ in self._all() if held.status == status]
        return iter(found)

    def find(self, key: str, uid: str) -> Held | None:
        with self._store._lock:
            return next((held for held, _ in self._all() if (held.key, held.uid) == (key, uid)), None)

    def _all(self) -> Iterator[tuple[Held, _Life]]:
        store = self._store
        for key, life in store._active.items():
            yield Held(key, life.uid, "active"), life
        for key, lives in store._archived.items():
            yield from ((Held(key, life.uid, "archived"), life) for life in lives)
        for id, one in store._trash.items():
            for life in one.lives:
                yield Held(one.key, life.uid, "trash", id, timestamp(one.removed), life is not one.active), life

    def read(self, held: Held, get: Callable[[View], T]) -> T | None:
        with self._store._lock:
            life = next((life for there, life in self._all() if there == held), None)
            return get(life) if life is not None else None

    def write(self, held: Held, view: View, *, after: int, erased: Collection[int], keep: Keep) -> None:  # noqa: ARG002 - it is received whole
        store, key = self._store, held.key
        with store._lock:
            store._check_seal()
            life = next((life for there, life in self._all() if (there.key, there.uid) == (key, held.uid)), None)
            active = store._active.get(key)
            if held.status == "active" and active not in (None, life):
                raise Conflict(f"{self.location} has another active session {key!r}; archive or remove one of them")
            if after != (life.n if life is not None else 0):
                raise Changed(f"session {key!r} is being written in {self.location}; run it again")
            new = life or _Life(key, store._system, None)
            new.receive(view)
            self._take_out(new)
            new.is_archived = held.status != "active"
            if held.status == "trash":
                one = store._trash.get(held.trash) or _Trashed(key, parse_time(held.removed).timestamp(), None, ())
                archived = [*one.archived, new] if held.was_archived else one.archived
                store._trash[held.trash] = one._replace(
                    active=one.active if held.was_archived else new, archived=sorted(archived, key=lambda of: of.uid)
                )
            elif held.status == "archived":
                there = [*store._archived.get(key, []), new]
                store._archived[key] = sorted(there, key=lambda of: of.uid)
            else:
                store._active[key] = new
            store._relink(key)

    def _take_out(self, life: _Life) -> None:
        """Take a generation from where it is."""
        store, key = self._store, life.key
        if store._active.get(key) is life:
            del store._active[key]
        store._archived[key] = [one for one in store._archived.get(key, []) if one is not life]
        for id, one in list(store._trash.items()):
            left = one._replace(
                active=None if one.active is life else one.active,
                archived=[other for other in one.archived if other is not life],
            )
            if left.lives:
                store._trash[id] = left
            else:
                del store._trash[id]

    def asides(self, held: Held) -> list[Aside]:  # noqa: ARG002 - nothing is damaged in RAM
        return []

    def add_asides(self, held: Held, asides: Collection[Aside]) -> None:
        """Do nothing: what went wrong elsewhere is to be settled there."""

    def orphans(self) -> list[Held]:
        return []

    def documents(self) -> dict[str, bytes]:
        return dict(self._store._documents)

    def write_document(self, name: str, data: bytes) -> None:
        self._store._documents[name] = data

    def sealed_to(self) -> str:
        return self._store._sealed_to

    def seal(self, to: str) -> None:
        with self._store._lock:
            self._store._sealed_to = to

    def unseal(self) -> bool:
        with self._store._lock:
            was_sealed, self._store._sealed_to = bool(self._store._sealed_to), ""
            return was_sealed
