"""What a backend must be able to do: take and give records, and maintain them; and a part of one as a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, TypeVar

from msgspec.structs import replace

from nacre.errors import InvalidArgument, InvalidKey, SessionNotFound, StoreError
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
from nacre.records import Record, Transaction, View

if TYPE_CHECKING:
    from nacre.storage.group_commit import Pending
    from nacre.storage.transfer import Transferable
    from nacre.storage.watch import Watch

T = TypeVar("T")

FindCopies = Callable[[View, Record], Sequence[int]]
"""(session, record) -> the numbers of other records of the session that repeat what the record says."""

Status = Literal["active", "archived", "emptied", ""]
"""What a key has: an active session, only archived ones, a log that has lost everything, or nothing."""


class Generation(NamedTuple):
    """One life of a session: from its creation to its archiving."""

    uid: str
    view: View


class Listed(NamedTuple):
    """A session as a listing meets it."""

    key: str
    view: View
    created: str
    updated: str
    size: int
    archived: bool


MAX_LATER_BYTES = 8 * 1024 * 1024
"""How long the records that `later` gives may be together, as far as they have large payloads."""


class Later(NamedTuple):
    """Some records of the active generation of a session, and up to which number they were read.

    Not `is_last` if there are more already.
    """

    uid: str
    upto: int
    records: Sequence[Record] = ()
    is_last: bool = True


class BegunRedaction(NamedTuple):
    """A redaction that was cut short: `redaction` names the record.

    `has_copies` says that somebody besides the store has copies, which must be erased too; `is_stored` that they are
    all that is left.
    """

    redaction: Redaction
    has_copies: bool = False
    is_stored: bool = False


class AnyLease(Protocol):
    """What a write with a lease needs of it: a `Lease` has that, and an `AsyncLease`.

    >>> turn = sessions.hold("cli:1")
    >>> turn.take()
    >>> turn.key, turn.number
    ('cli:1', 0)
    >>> turn.close()
    """

    @property
    def key(self) -> str:
        """Whose turn it is."""

    @property
    def number(self) -> int | None:
        """The fencing number: 0 as long as the turn was never taken over, then greater with each time.

        None while the lease is not taken.
        """


class Lease(AnyLease, Protocol):
    """The turn of a session, which one holder at a time has; what is appended with it is refused once it is lost.

    >>> mine, other = sessions.hold("cli:1"), sessions.hold("cli:1")
    >>> mine.take()
    >>> try:
    ...     other.take()
    ... except nacre.SessionBusy:
    ...     print("somebody else is answering")
    somebody else is answering
    >>> mine.close()
    """

    def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another holder."""

    def take_over(self) -> None:
        """Take it although another may have it, from whom every append with its lease is refused from now on.

        That is one durable record; it begins a session where there is none. Raises SessionBusy if yet another holder
        was faster.
        """

    def holder(self) -> int:
        """The process that has it: 0 if there is none, or it cannot be known; -1 if it is unknown which.

        Nothing is taken, and nothing is made.
        """

    def check(self) -> None:
        """Raise LeaseLost if it is not taken, or was lost.

        Where a lease can expire, the store is asked only if it may have; one that was taken over by force is noticed
        by the next write, or somewhat later here.
        """

    def close(self) -> None:
        """Let others take it."""


class Document(Protocol):
    """A small document that is kept with the sessions: read whole, and replaced whole or not at all.

    >>> sessions.document("feed").write(b"read up to 7")
    >>> sessions.document("feed").read()
    b'read up to 7'
    """

    def read(self) -> bytes:
        """What was written last; nothing if nothing was. Raises StoreError."""

    def write(self, data: bytes) -> None:
        """Replace it, durably; raises StoreError, and then it is what it was, or DurabilityUnknown."""

    def set_aside(self) -> str:
        """Keep what it says under another name, which is returned, and begin again without anything."""


class Journal(Protocol):
    """Lines that say what a long task has done; each is durable when it was added.

    >>> with sessions.journal("backfill") as journal:
    ...     journal.add(b"cli:1 is done")
    >>> with sessions.journal("backfill") as journal:
    ...     journal.last()
    b'cli:1 is done'
    """

    def __enter__(self) -> Self:
        """Open it; raises SessionBusy if another holder has it, StoreError if it cannot be written."""

    def __exit__(self, *_: object) -> None: ...

    def last(self) -> bytes:
        """The last line, whole or torn; nothing if there is none."""

    def add(self, line: bytes) -> None:
        """Append a line, durably."""


class Store(Protocol):
    """Where sessions are kept."""

    @property
    def location(self) -> str:
        """Where the store is, for people."""

    @property
    def is_durable(self) -> bool:
        """Whether sessions outlive the process."""

    @property
    def is_shared(self) -> bool:
        """Whether processes on several machines may use it at once; then a call may wait for the network."""

    @property
    def load(self) -> Load | None:
        """How much there is to write, and whether it can be; None where nothing is flushed."""

    def run(self, key: str, transaction: Transaction) -> int:
        """Store a transaction; returns the last record's number once it is durable."""

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        """Store a transaction without waiting; its outcome is that of `pending`, or of a new future."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """Read the active session of a key, else its newest archived one; None if there is none.

        `get` may be called again if what it read turned out to be damaged and was mended.
        """

    def is_at(self, key: str, version: Version) -> bool:
        """Tell, without reading, whether nothing was stored in an active session since; False if that is not known."""

    def hold(self, key: str) -> Lease:
        """The lease of a session's turn, not taken yet."""

    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        """The durable records of the active generation after number `after`, or all if it is another than `uid`.

        About `limit` at a time, or more where fewer would cost as much, and of those with large payloads at most
        MAX_LATER_BYTES, or as much as was read to find them, but one at least; none if there is no active generation.
        """

    def watch(self) -> Watch:
        """Tells which sessions have changed since it was made."""

    def close(self) -> None:
        """Release everything; twice is harmless."""


class Upkeep(Protocol):
    """What is done with whole sessions."""

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        """Read every life of a session, oldest first."""

    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        """Read one life of a session, active or archived; None if it is not there."""

    def status(self, key: str) -> Status:
        """What a key has, without reading its log."""

    def each(self, *, archived: bool) -> Iterator[Listed]:
        """The active or the archived sessions; a view is good until the next one is asked for."""

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        """Archive the active session, or bring the newest archived one back, if it is as expected."""

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        """Begin a session that shares another's past, up to the record that the transaction reaches back to.

        The other must be as the transaction expects it.
        """

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:
        """Erase every trace of a session, if its newest generation is as expected, and the lease `held` is not lost."""

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
        """Move out what is not live, if it is worth it."""

    def redact(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:
        """Erase the content of a record, and of those that repeat it; of the newest generation if none is named.

        It is not over before `end_redaction`; with `has_copies` only after copies elsewhere were erased.
        """

    def end_redaction(self, redaction: Redaction, *, are_copies_left: bool = False) -> None:
        """Say that nothing of an erased content is left anywhere, or only copies that others than the store have."""

    def begun_redactions(self) -> list[BegunRedaction]:
        """Redactions that were cut short, by a process that was killed or by an error."""

    def resume_redaction(self, redaction: Redaction) -> None:
        """Erase what a redaction that was cut short has left in the store; it is not over before `end_redaction`."""

    def verify(self, key: str | None) -> Report:
        """Read everything, of one session or of all, and report what is wrong."""

    def repair(self, key: str) -> Receipt:
        """Set aside what is damaged in a session."""

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        """What is set aside, of one session or of all, settled entries too."""

    def restore(self, key: str, n: int | None) -> Settlement:
        """Append the whole records of a session's unsettled entries, or of one, as one group, and settle them."""

    def discard(self, key: str, n: int | None) -> Settlement:
        """Settle a session's entries, or one of them, without their records."""


class Housekeeping(Protocol):
    """What people need who tidy up: how much room there is taken, what is not needed, and the trash.

    A session in the trash is named by an id, which `list_trash` gives. What is there is found by nothing else here,
    but its records can be erased by `redact`.
    """

    def generation(self, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
        """The active generation of a session, or an archived one by its uid, as it is now; None if it is not there."""

    def disk_usage(self, keys: Sequence[str]) -> DiskUsage:
        """How much room each part of the store takes, and each of some sessions."""

    def log_size(self, key: str) -> int:
        """Bytes of the log of an active session; 0 if there is none."""

    def kept_size(self, key: str, keep: Callable[[View], set[int]]) -> int:
        """Bytes of the records that `compact` would keep in the log of an active session; 0 if there is none."""

    def key_of_file(self, path: str) -> str | None:
        """The key of the session that a file of the store is of; None if it does not tell, or there are no files."""

    def has_other_logs(self, keys: Sequence[str]) -> bool:
        """Tell whether there are logs of other sessions than these, also if they cannot be listed."""

    def remove_leftovers(self, *, dry_run: bool) -> list[Leftover]:
        """Remove what killed writers left and no session needs; with `dry_run` it stays. Returns it."""

    def journal(self, name: str) -> Journal:
        """The journal of a name, not opened yet."""

    def document(self, name: str, *, held: Lease | None = None) -> Document:
        """The document of a name; with `held` it is changed only while that lease is not lost, else it is LeaseLost."""

    def transfer(self) -> Transferable:
        """The store's part of moving all sessions to another store."""

    def move_to_trash(self, key: str, uid: str | None) -> None:
        """Move every generation of a session to the trash, or one archived generation, durably."""

    def list_trash(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        """The sessions in the trash, the last removed first."""

    def key_in_trash(self, id: str) -> str:
        """The key of a session in the trash; raises SessionNotFound if it is not there."""

    def restore_from_trash(self, id: str) -> None:
        """Bring a session back to where it was; raises Conflict if its key has an active session by now."""

    def erase_from_trash(self, id: str) -> bool:
        """Erase a session in the trash for good; False if the trash has another one of the same key, which stays."""


class Backend(Store, Upkeep, Housekeeping, Protocol):
    """A whole store."""


class Prefixed:
    """The sessions of a store whose keys begin with a prefix: reads find nothing elsewhere, writes are refused."""

    def __init__(self, whole: Backend, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix

    @property
    def location(self) -> str:
        return self._whole.location

    @property
    def is_durable(self) -> bool:
        return self._whole.is_durable

    @property
    def is_shared(self) -> bool:
        return self._whole.is_shared

    @property
    def load(self) -> Load | None:
        return self._whole.load

    def run(self, key: str, transaction: Transaction) -> int:
        return self._whole.run(self._own(key), transaction)

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        return self._whole.submit(self._own(key), transaction, pending)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        return self._whole.read(key, get) if self._is_own(key) else None

    def is_at(self, key: str, version: Version) -> bool:
        return self._is_own(key) and self._whole.is_at(key, version)

    def hold(self, key: str) -> Lease:
        return self._whole.hold(self._own(key))

    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        return self._whole.later(self._own(key), after, uid, limit)

    def watch(self) -> Watch:
        return self._whole.watch()

    def close(self) -> None:
        """Do nothing: the store is its owner's to close."""

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        return self._whole.generations(key, get) if self._is_own(key) else []

    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        return self._whole.read_generation(key, uid, get) if self._is_own(key) else None

    def status(self, key: str) -> Status:
        return self._whole.status(key) if self._is_own(key) else ""

    def each(self, *, archived: bool) -> Iterator[Listed]:
        return (found for found in self._whole.each(archived=archived) if self._is_own(found.key))

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        self._whole.move(self._own(key), archive=archive, expect=expect)

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        self._whole.fork(self._own(key), self._own(new_key), transaction)

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:
        self._whole.delete(self._own(key), expect=expect, held=held)

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
        return self._whole.compact(self._own(key), keep)

    def redact(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:
        found = self._whole.redact(self._own(key), n, uid=uid, find_copies=find_copies, has_copies=has_copies)
        # Sessions of others that share it are not to be known, nor where files of the owner are.
        return replace(found, forks=tuple(filter(self._is_own, found.forks)), originals=())

    def end_redaction(self, redaction: Redaction, *, are_copies_left: bool = False) -> None:
        self._whole.end_redaction(redaction, are_copies_left=are_copies_left)

    def begun_redactions(self) -> list[BegunRedaction]:
        return [begun for begun in self._whole.begun_redactions() if self._is_own(begun.redaction.key)]

    def resume_redaction(self, redaction: Redaction) -> None:
        self._own(redaction.key)
        self._whole.resume_redaction(redaction)

    def verify(self, key: str | None) -> Report:
        if key is None:
            raise InvalidArgument("name one of your sessions; only the owner can check all of them")
        return self._whole.verify(self._own(key))

    def repair(self, key: str) -> Receipt:
        return self._whole.repair(self._own(key))

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        return [entry for entry in self._whole.quarantine(key) if self._is_own(entry.key)]

    def restore(self, key: str, n: int | None) -> Settlement:
        return self._whole.restore(self._own(key), n)

    def discard(self, key: str, n: int | None) -> Settlement:
        return self._whole.discard(self._own(key), n)

    def generation(self, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
        return self._whole.generation(key, uid, is_pinned=is_pinned) if self._is_own(key) else None

    def disk_usage(self, keys: Sequence[str]) -> DiskUsage:
        found = self._whole.disk_usage(list(filter(self._is_own, keys)))
        # How much room the sessions of others take is not to be known.
        return DiskUsage(
            folders=dict.fromkeys(found.folders, 0), sessions=dict.fromkeys(keys, 0) | dict(found.sessions)
        )

    def log_size(self, key: str) -> int:
        return self._whole.log_size(key) if self._is_own(key) else 0

    def kept_size(self, key: str, keep: Callable[[View], set[int]]) -> int:
        return self._whole.kept_size(key, keep) if self._is_own(key) else 0

    def key_of_file(self, path: str) -> str | None:
        key = self._whole.key_of_file(path)
        return key if key is not None and self._is_own(key) else None

    def has_other_logs(self, keys: Sequence[str]) -> bool:  # noqa: ARG002 - it has the store's shape
        """Say no: whose they are cannot be known of all of them."""
        return False

    def remove_leftovers(self, *, dry_run: bool) -> list[Leftover]:  # noqa: ARG002 - the same
        """Do nothing: the owner of the store tidies up."""
        return []

    def journal(self, name: str) -> Journal:
        raise StoreError(f"journal {name!r} cannot be opened; only the owner of the store has journals")

    def document(self, name: str, *, held: Lease | None = None) -> Document:  # noqa: ARG002 - it has the shape of a store
        raise StoreError(f"document {name!r} cannot be opened; only the owner of the store has documents")

    def transfer(self) -> Transferable:
        raise StoreError("sessions cannot be moved to another store; only the owner of the store can move them")

    def move_to_trash(self, key: str, uid: str | None) -> None:
        self._whole.move_to_trash(self._own(key), uid)

    def list_trash(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        return [found for found in self._whole.list_trash(title_of) if self._is_own(found.key)]

    def key_in_trash(self, id: str) -> str:
        key = self._whole.key_in_trash(id)
        if not self._is_own(key):
            raise SessionNotFound(f"there is no session {id!r} in the trash")
        return key

    def restore_from_trash(self, id: str) -> None:
        self.key_in_trash(id)
        self._whole.restore_from_trash(id)

    def erase_from_trash(self, id: str) -> bool:
        self.key_in_trash(id)
        return self._whole.erase_from_trash(id)

    def _is_own(self, key: str) -> bool:
        return key.startswith(self._prefix)

    def _own(self, key: str) -> str:
        """The key if it has the prefix; raises InvalidKey in the same words for any other, there or not."""
        if not self._is_own(key):
            raise InvalidKey(f"{key!r:.200} is not a key of your sessions: these begin with {self._prefix!r}")
        return key
