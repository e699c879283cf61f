"""The record on disk, the state after it, and the operations that make one; read through `Records` and `View`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from nacre.messages import Message, Version

FORMAT = 1


MAX_LINE_BYTES = 16 * 1024 * 1024


class State(Struct, frozen=True, array_like=True):
    """Where a session stands after a record; the next record is computed from it alone.

    `hd` is the last live message, `i` its ordinal on its branch, `live` how many ordinals back are
    live, `sp` the summary in force, `mp` the newest meta, `h` the last history-changing record, `br`
    the last record that went back to another branch, `fence` the last one by which the turn was taken over.

    >>> state = sessions.read("cli:1", lambda view: view.state)
    >>> state.hd, state.i, state.live
    (3, 2, 2)
    """

    hd: int = 0
    i: int = 0
    live: int = 0
    sp: int = 0
    mp: int = 0
    h: int = 0
    br: int = 0
    fence: int = 0


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a log, as docs/format.md describes it; the order of the fields is the order on disk.

    >>> record = sessions.read("cli:1", lambda view: view.find(2))
    >>> record.n, record.t, record.m.content
    (2, 'msg', 'What is nacre?')
    """

    v: int
    n: int
    b: int | None = None
    tx: tuple[int, int] | None = None
    r: int | None = None
    t: str
    ts: str
    id: str | None = None
    sid: str | None = None
    uid: str | None = None
    p: int | None = None
    m: Message | None = None
    lossy: bool = False
    bin: bool = False
    blobs: list[str] | None = None
    text: str | None = None
    upto: int | None = None
    keep: int | None = None
    to: int | None = None
    pop: int | None = None
    sum: bool = False
    meta: dict[str, Any] | None = None
    set: list[str] | None = None
    ids: dict[str, tuple[int, str]] | None = None
    data: Any = None
    cold: int | None = None
    high: int | None = None
    kept: int | None = None
    moved: int | None = None
    holes: int | None = None
    who: str | None = None
    base: dict[str, Any] | None = None
    src: dict[str, Any] | None = None
    gone: str | None = None
    restored_from: tuple[str, int, str] | None = None
    st: State
    br: int | None = None
    fence: int | None = None

    @property
    def batch(self) -> int:
        """Number of the first record of the commit batch."""
        return self.n if self.b is None else self.b


class Envelope(Struct, frozen=True, kw_only=True):
    """The fields that every record has, for kinds whose other fields we do not know."""

    v: int
    n: int
    b: int | None = None
    tx: tuple[int, int] | None = None
    r: int | None = None
    t: str
    ts: str
    id: str | None = None
    st: State
    br: int | None = None
    fence: int | None = None


class Losses(Struct, frozen=True):
    """What a read has met and could not find: records and large payloads; `is_more` if there may be more records.

    >>> sessions.read("cli:1", lambda view: (len(list(view.all())), view.losses))
    (3, Losses(records=0, payloads=0, is_more=False))
    """

    records: int = 0
    payloads: int = 0
    is_more: bool = False

    def __bool__(self) -> bool:
        return bool(self.records or self.payloads or self.is_more)

    def __add__(self, other: Losses) -> Losses:
        is_more = self.is_more or other.is_more
        return Losses(self.records + other.records, self.payloads + other.payloads, is_more)

    @property
    def text(self) -> str:
        """Say it in a sentence; "" if nothing was lost."""
        records = _count_of(self.records, "record")
        if self.is_more:
            records = f"at least {records}" if records else "some records"
        found = [text for text in (records, _count_of(self.payloads, "large payload")) if text]
        return f"{' and '.join(found)} cannot be read" if found else ""


def _count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}" if number else ""


class Records(Protocol):
    """The records of one generation of a session, by number."""

    @property
    def uid(self) -> str:
        """Which generation it is."""

    @property
    def n(self) -> int:
        """Number of the last record."""

    @property
    def state(self) -> State:
        """Where the session stands after it."""

    @property
    def has_holes(self) -> bool:
        """Whether acknowledged records were lost, so that the state may count messages that are gone."""

    def find(self, n: int) -> Record | None:
        """Record `n`, wherever it is kept; None if it is not there."""

    def back(self, n: int) -> Iterator[Record]:
        """The records in the log from `n` down; what compaction moved out is left out."""

    def all(self) -> Iterator[Record]:
        """Every record by number, moved-out ones too."""

    def whole(self, record: Record) -> Record:
        """A record of these that says where its large payloads are, with them in it."""


class View(Records, Protocol):
    """One generation of a session at one moment.

    >>> def count(view: nacre.View) -> int:
    ...     return sum(1 for record in view.all() if record.t == "msg")
    >>> sessions.read("cli:1", count)
    2
    """

    @property
    def key(self) -> str:
        """The session's key, also where it was asked for by another name."""

    @property
    def created(self) -> str:
        """When it began, as records have it; "" if that is lost."""

    @property
    def is_archived(self) -> bool:
        """Whether it can only be read."""

    @property
    def is_newest(self) -> bool:
        """Whether the session has no later generation."""

    @property
    def losses(self) -> Losses:
        """What the reads so far have not found."""

    @property
    def highest(self) -> int:
        """The greatest number of a record; one that was moved out is greater than `n` if the log lost its end."""

    def moved(self, n: int) -> Iterator[Record]:
        """Some of the records that compaction moved out, from `n` down: next to each other in the file, cheap to read.

        There may be others between them and after them; only `all` is sure to have every record.
        """

    def after(self, n: int, limit: int) -> list[Record]:
        """The next records by number after `n`, moved-out ones too; none only if there are no more.

        At least `limit` if there are so many, and more where fewer would cost as much.
        """

    def all_lines(self) -> Iterator[tuple[Record, bytes]]:
        """Every record by number, moved-out ones too, with its line as it was written."""

    def payload(self, name: str) -> str | None:
        """A large payload that a record names; None if it is lost."""


class MemoryView:
    """Records that are all in memory."""

    uid = ""
    has_holes = False

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = list(records)
        self.n = self._records[-1].n if self._records else 0
        self.state = self._records[-1].st if self._records else State()

    def add(self, record: Record) -> None:
        """Let another record follow."""
        self._records.append(record)
        self.n, self.state = record.n, record.st

    def find(self, n: int) -> Record | None:
        record = next(self.back(n), None)
        return record if record is not None and record.n == n else None

    def back(self, n: int) -> Iterator[Record]:
        at = bisect_right(self._records, n, key=attrgetter("n"))
        return (self._records[place] for place in range(at - 1, -1, -1))

    def all(self) -> Iterator[Record]:
        return iter(self._records)

    def whole(self, record: Record) -> Record:
        return record


class AppendMessage(Struct, frozen=True):
    """Append a message, already in its canonical bytes."""

    raw: msgspec.Raw
    lossy: bool = False
    bin: bool = False


class Summarise(Struct, frozen=True):
    """Put a summary in force, and drop what it covers.

    >>> sessions.update("cli:1", [nacre.Summarise("They talked about nacre.", upto=3)])
    4
    >>> sessions.get_history("cli:1")
    []
    """

    text: str
    upto: int | None = None


class Truncate(Struct, frozen=True):
    """Keep only the last messages live.

    >>> sessions.update("cli:1", [nacre.Truncate(1)])
    4
    """

    keep: int


class Rewind(Struct, frozen=True):
    """Go back to the state after a record; 0 is before all.

    >>> sessions.update("cli:1", [nacre.Rewind(2), nacre.Message(role="assistant", content="The inside of shells.")])
    5
    """

    to: int
    keeps_summary: bool = False


class Pop(Struct, frozen=True):
    """Take the last live message off.

    >>> sessions.update("cli:1", [nacre.Pop()])
    4
    """


class SetMeta(Struct, frozen=True):
    """Merge fields into the session's meta; with `names_fields` its record says which, so that a retry is known.

    >>> sessions.submit("cli:2", [nacre.Message(role="user", content="hello"), nacre.SetMeta({"title": "Hi"})]).result()
    3
    """

    fields: dict[str, Any]
    names_fields: bool = False


class AppendRecord(Struct, frozen=True):
    """Append a record that history does not read: usage, a started tool, an integration's own.

    `bin` is for the store: whether there are bytes in `data`, which are marked then.

    >>> reply = nacre.Message(role="assistant", content="hello")
    >>> sessions.submit("cli:1", [reply, nacre.AppendRecord("use", {"prompt": 12, "completion": 3})]).result()
    5
    """

    kind: str
    data: Any
    bin: bool = False


class TakeOver(Struct, frozen=True):
    """Say that the turn has another holder, so that what the one before it still appends is refused."""

    who: str


class Delete(Struct, frozen=True):
    """Close the session for good; what follows is erasing."""


class Restore(Struct, frozen=True):
    """Append a record from quarantine with its own time; only a message changes the history.

    `source` is where it was: generation, number and checksum.
    """

    record: Record
    source: tuple[str, int, str]


CallerOperation = AppendMessage | Summarise | Truncate | Rewind | Pop | SetMeta | AppendRecord
"""What a caller may store, under an id too."""

Operation = CallerOperation | TakeOver | Delete | Restore


class ImportedRecord(Struct, frozen=True):
    """An operation of a session that is brought in whole, with the time it was made elsewhere."""

    operation: AppendMessage | Summarise | Truncate | SetMeta | AppendRecord
    ts: str


class RecordStamp(Struct, frozen=True):
    """What the log alone knows of the record to come."""

    n: int
    ts: str
    b: int | None = None
    tx: tuple[int, int] | None = None
    r: int | None = None
    id: str | None = None


Apply = Callable[[Operation, RecordStamp, State, Records], Record | None]
"""(operation, stamp, state, records) -> the record to write; None when there is nothing to change; may refuse."""

Replay = Callable[[Record, State, Records], tuple[int | None, State]]
"""(record, state, records) -> the link and state a written record has when it follows another state."""


KeepsIds = Callable[[Records, State], bool]
"""(records, state) -> whether the ids of the session count without limit."""


class Rules(Struct, frozen=True):
    """What records mean; a log calls them where only it holds the lock, and knows no more of it."""

    apply: Apply
    replay: Replay
    keeps_ids: KeepsIds = lambda *_: False


class Transaction(Struct, frozen=True):
    """Operations that are stored together or not at all, and the conditions for them.

    With a number as `expect` the history must not have changed since that record, with a Version nothing at all.
    `print` tells its content from another's under the same `id`. A transaction that goes back to record
    `reach` says by `needs` which records must be in the log for that. One of a turn has the `fence` of its lease.
    `held` is a lease of any session that must not be lost, for a store that several machines share.
    """

    operations: Sequence[Operation]
    expect: int | Version | None = None
    id: str | None = None
    print: str = ""
    creates: bool = True
    reach: int | None = None
    needs: Callable[[Records], set[int]] | None = None
    fence: int | None = None
    held: object = None
