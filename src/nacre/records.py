"""What a session remembers: frozen values, and their canonical form in JSON."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from nacre.checks import is_unicode, show
from nacre.errors import InvalidMessage
from nacre.keys import is_internal as is_internal  # noqa: PLC0414 - this is where others look for it

FORMAT = 1
DEEPEST = 100
LONGEST_LINE = 16 * 1024 * 1024
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
_MINUTE = timedelta(minutes=1)
_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**64 - 1


# ---- what callers give and get


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's wish to run a tool; `arguments` is kept as it came, JSON text or a mapping."""

    id: str = ""
    name: str = ""
    arguments: Any = ""
    extra: dict[str, Any] = {}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ToolCall:
        """Read a call in OpenAI's shape (`function` inside) or in ours."""
        rest = dict(_mapping(mapping, "a tool call"))
        if rest.get("type", "function") != "function":
            return cls(id=rest.pop("id", ""), extra=rest)
        function = rest.pop("function", None)
        if function is None:
            known = {field: rest.pop(field) for field in ("id", "name", "arguments") if field in rest}
        else:
            inner = dict(_mapping(function, "a tool call's function"))
            known = {field: inner.pop(field) for field in ("name", "arguments") if field in inner}
            if "id" in rest:
                known["id"] = rest.pop("id")
            if inner:
                rest["function"] = inner
        rest.pop("type", None)
        return cls(**known, extra=rest)

    def to_mapping(self) -> dict[str, Any]:
        """Give the call in OpenAI's shape; one that is not of a function gets none."""
        extra = dict(self.extra)
        if "type" in extra:
            return {"id": self.id, **extra}
        function = {"name": self.name, "arguments": self.arguments, **extra.pop("function", {})}
        return {"id": self.id, "type": "function", "function": function, **extra}


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation, in the one shape that is stored."""

    role: str
    content: str | list[Any] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    media: tuple[Any, ...] = ()
    model: str | None = None
    created: datetime | None = None
    extra: dict[str, Any] = {}

    _PLAIN: ClassVar = ("role", "content", "tool_call_id", "name", "reasoning", "model")

    def __post_init__(self) -> None:
        """Take lists where tuples are kept, so that equal messages are equal."""
        if isinstance(self.tool_calls, list):
            force_setattr(self, "tool_calls", tuple(self.tool_calls))
        if isinstance(self.media, list):
            force_setattr(self, "media", tuple(self.media))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Message:
        """Read a mapping in OpenAI's chat shape; fields it does not know go to `extra`."""
        rest = dict(_mapping(mapping, "a message"))
        if "role" not in rest:
            raise InvalidMessage("a message needs a role")
        known: dict[str, Any] = {field: rest.pop(field) for field in cls._PLAIN if field in rest}
        calls = rest.pop("tool_calls", None) or ()
        known["tool_calls"] = tuple(ToolCall.from_mapping(call) for call in _list(calls, "tool_calls"))
        known["media"] = tuple(_list(rest.pop("media", None) or (), "media"))
        known["created"] = _time(rest.pop("created", None))
        return cls(**known, extra=rest)

    def to_mapping(self) -> dict[str, Any]:
        """Give the message in OpenAI's chat shape, without the fields it does not have."""
        given = {field: getattr(self, field) for field in self._PLAIN}
        found = {field: value for field, value in given.items() if value is not None or field == "content"}
        if self.tool_calls:
            found["tool_calls"] = [call.to_mapping() for call in self.tool_calls]
        if self.media:
            found["media"] = list(self.media)
        if self.created is not None:
            found["created"] = self.created.isoformat()
        return {**found, **self.extra}


class Stored(Struct, frozen=True, kw_only=True):
    """A message as the log holds it; numbers start anew with each generation of a key.

    `restored_from` is the number that it had before it was in quarantine.
    """

    generation: str
    n: int
    ts: datetime
    message: Message
    restored_from: int | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One record of any kind, with its fields as `data`."""

    generation: str
    n: int
    ts: datetime
    kind: str
    data: Any
    restored_from: int | None = None


def place_of(key: str, generation: str, n: int) -> str:
    """A message's place as it is shown to people and models; the active generation is "" and not named."""
    return f"{key}@{generation}/{n}" if generation else f"{key}@{n}"


class Hit(Struct, frozen=True, kw_only=True):
    """A message that a search found; `generation` is the archived one that it is in, "" if it is the active one."""

    key: str
    n: int
    ts: datetime
    role: str
    snippet: str
    generation: str = ""

    @property
    def place(self) -> str:
        """Where it is, such as `cli:1@42`; of an archived generation `cli:1@GENERATION/42`, as numbers start anew."""
        return place_of(self.key, self.generation, self.n)


class SessionInfo(Struct, frozen=True, kw_only=True, gc=False):
    """What a listing says of a session.

    It was `updated` when something was last said or done in it; tags, pins, titles and repairs do not count.
    `tags`, `pinned` and `cwd`, the folder of a chat, are from its meta. `role`, `model` and `last`, the first words,
    are those of the last live message, and `state` tells by it how the session stands: "idle", "unanswered",
    "interrupted" in the middle of a turn, or "damaged" if it cannot be read.
    """

    key: str
    title: str
    messages: int
    created: datetime
    updated: datetime
    bytes: int
    archived: bool
    generation: str = ""
    meta: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    pinned: bool = False
    cwd: str = ""
    role: str = ""
    model: str = ""
    last: str = ""
    state: str = "idle"


class Page(Struct, frozen=True, kw_only=True):
    """A part of a list of sessions: `total` match, and `cursor` leads to those behind, None if there are none."""

    items: list[SessionInfo]
    total: int
    cursor: str | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """A session at one moment: its last live messages, and what is known without reading the others.

    `n` is the number of its last record, `live` the count of live messages, `expect` the number of
    the last history-changing record, as `add_messages` takes it; `numbers` are those of `messages`.
    """

    n: int = 0
    live: int = 0
    expect: int = 0
    summary: str = ""
    meta: dict[str, Any] = {}
    messages: list[Message] = []
    numbers: list[int] = []


SHARED = "shared history"
"""How findings begin that are not in a fork's own files."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that `verify` found wrong."""

    key: str
    kind: str
    where: str
    detail: str

    @property
    def is_shared(self) -> bool:
        """Whether it is in what a fork shares, which is never changed."""
        return self.where.startswith(SHARED)


class Report(Struct, frozen=True, kw_only=True):
    """What `verify` found; `ok` when nothing is wrong."""

    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings


class Receipt(Struct, frozen=True, kw_only=True):
    """What `repair` did: records kept, pieces set aside, and the file they are in."""

    key: str
    kept: int
    set_aside: int
    quarantine: str | None


class QuarantineRecord(Struct, frozen=True, kw_only=True):
    """A whole record in quarantine; `text` is what it says, for people."""

    n: int
    ts: datetime
    kind: str
    text: str


class QuarantineEntry(Struct, frozen=True, kw_only=True):
    """Something of a session that was set aside because it was damaged, and that nobody has settled yet.

    `KEY#n` names it. `records` are whole and can be restored; `text` is the beginning of its bytes as they are.
    `settled` is "restored", "discarded" or, for the end of a write that was never acknowledged, "torn".
    """

    key: str
    n: int
    generation: str
    ts: datetime
    kind: str
    reason: str
    bytes: int
    records: tuple[QuarantineRecord, ...] = ()
    text: str = ""
    settled: str = ""

    @property
    def ref(self) -> str:
        return f"{self.key}#{self.n}"


class Settlement(Struct, frozen=True, kw_only=True):
    """What `restore` or `discard` did: the entries that it settled, and the numbers of the records it appended."""

    key: str
    entries: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


class TrashedSession(Struct, frozen=True, kw_only=True):
    """A session in the trash, with all generations that were removed together; `id` names it there."""

    id: str
    key: str
    title: str
    removed: datetime
    generations: tuple[str, ...]
    bytes: int


class GenerationInfo(Struct, frozen=True, kw_only=True):
    """One generation of a session, as its log is now.

    `updated` is the time of its last record, `changed` when its file was last written, renamed or linked.
    """

    key: str
    generation: str
    pinned: bool
    updated: datetime
    changed: datetime
    bytes: int


class DiskUsage(Struct, frozen=True, kw_only=True):
    """Bytes of each folder of a store, and of the files of each session that was asked for."""

    folders: dict[str, int]
    sessions: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.folders.values())


class Leftover(Struct, frozen=True, kw_only=True):
    """A file that no session needs, and why."""

    path: str
    bytes: int
    reason: str


def describe_quarantine(entries: Iterable[QuarantineEntry]) -> str:
    """Say how much of one session is in quarantine; "" if nothing is."""
    found = tuple(entries)
    records, size = sum(len(entry.records) for entry in found), sum(entry.bytes for entry in found)
    if not found:
        return ""
    if records:
        return (
            f"{records:,} record{'s' * (records != 1)} of this session {'are' if records != 1 else 'is'} in quarantine"
        )
    if size:
        return f"{size:,} byte{'s' * (size != 1)} of this session {'are' if size != 1 else 'is'} in quarantine"
    return f"records of this session are lost: {found[0].reason}"


# ---- what a log holds


class State(Struct, frozen=True, array_like=True):
    """Where a session stands after a record; the next record is computed from it alone.

    `hd` is the last live message, `i` its ordinal on its branch, `live` how many ordinals back are
    live, `sp` the summary in force, `mp` the newest meta, `h` the last history-changing record, `br`
    the last record that went back to another branch.
    """

    hd: int = 0
    i: int = 0
    live: int = 0
    sp: int = 0
    mp: int = 0
    h: int = 0
    br: int = 0


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a log; the order of the fields is the order on disk."""

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
    blobs: list[str] | None = None
    text: str | None = None
    upto: int | None = None
    keep: int | None = None
    to: int | None = None
    pop: int | None = None
    sum: bool = False
    meta: dict[str, Any] | None = None
    ids: dict[str, tuple[int, str]] | None = None
    data: Any = None
    cold: int | None = None
    high: int | None = None
    kept: int | None = None
    moved: int | None = None
    holes: int | None = None
    base: dict[str, Any] | None = None
    src: dict[str, Any] | None = None
    restored_from: tuple[str, int, str] | None = None
    st: State
    br: int | None = None

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


class Load(Struct, frozen=True):
    """What the writers of a store have at hand: logs that are open, batches written, logs whose flush failed."""

    open: int
    batches: int
    unsound: int


class Losses(Struct, frozen=True):
    """What a read has met and could not find: records and large payloads; `is_more` if there may be more records."""

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
        records = _counted(self.records, "record")
        if self.is_more:
            records = f"at least {records}" if records else "some records"
        found = [text for text in (records, _counted(self.payloads, "large payload")) if text]
        return f"{' and '.join(found)} cannot be read" if found else ""


def _counted(number: int, noun: str) -> str:
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
        """The records at hand from `n` down; what compaction moved out is left out."""

    def all(self) -> Iterator[Record]:
        """Every record by number, moved-out ones too."""

    def whole(self, record: Record) -> Record:
        """A record of these that says where its large payloads are, with them in it."""


class View(Records, Protocol):
    """One generation of a session at one moment."""

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
        at = bisect_right(self._records, n, key=_number)
        return (self._records[place] for place in range(at - 1, -1, -1))

    def all(self) -> Iterator[Record]:
        return iter(self._records)

    def whole(self, record: Record) -> Record:
        return record


def _number(record: Record) -> int:
    return record.n


# ---- what callers wish to append; numbers, links and state come under the lock


class AppendMessage(Struct, frozen=True):
    """Append a message, already in its canonical bytes."""

    raw: msgspec.Raw
    lossy: bool = False


class Summarise(Struct, frozen=True):
    """Put a summary in force, and drop what it covers."""

    text: str
    upto: int | None = None


class Truncate(Struct, frozen=True):
    """Keep only the last messages live."""

    keep: int


class Rewind(Struct, frozen=True):
    """Go back to the state after a record; 0 is before all."""

    to: int
    keeps_summary: bool = False


class Pop(Struct, frozen=True):
    """Take the last live message off."""


class SetMeta(Struct, frozen=True):
    """Merge fields into the session's meta."""

    fields: dict[str, Any]


class AppendRecord(Struct, frozen=True):
    """Append a record that history does not read: usage, a started tool, an integration's own."""

    kind: str
    data: Any


class Delete(Struct, frozen=True):
    """Close the session for good; what follows is erasing."""


class Restore(Struct, frozen=True):
    """Append a record from quarantine with its own time; only a message changes the history.

    `source` is where it was: generation, number and checksum.
    """

    record: Record
    source: tuple[str, int, str]


Operation = AppendMessage | Summarise | Truncate | Rewind | Pop | SetMeta | AppendRecord | Delete | Restore


class ImportedRecord(Struct, frozen=True):
    """A wish of a session that is brought in whole, with the time it was made elsewhere."""

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
"""(wish, stamp, state, past) -> the record to write; None when there is nothing to change; may refuse."""


Replay = Callable[[Record, State, Records], tuple[int | None, State]]
"""(record, state, past) -> the link and state a written record has when it follows another state."""


class Rules(Struct, frozen=True):
    """What records mean; a log calls them where only it holds the lock, and knows no more of it."""

    apply: Apply
    replay: Replay


class Transaction(Struct, frozen=True):
    """Wishes that are stored together or not at all, and the conditions for them.

    `print` tells its content from another's under the same `id`. A transaction that goes back to record
    `reach` says by `needs` which records must be at hand for that.
    """

    operations: Sequence[Operation]
    expect: int | None = None
    id: str | None = None
    print: str = ""
    creates: bool = True
    reach: int | None = None
    needs: Callable[[Records], set[int]] | None = None


# ---- the codec


_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode
_PLAIN = {"role", "content"}


def encode_text(role: str, content: str) -> AppendMessage:
    """Encode a message that has only a role and a text, which most have."""
    if type(role) is str and type(content) is str and role:
        try:
            return AppendMessage(msgspec.Raw(_encode({"role": role, "content": content})))
        except UnicodeEncodeError:
            pass
    return encode_message(Message(role=role, content=content))


def encode_message(message: Message | Mapping[str, Any]) -> AppendMessage:
    """Check a message and encode it; raises InvalidMessage for what JSON cannot hold faithfully."""
    if type(message) is dict and message.keys() == _PLAIN:
        return encode_text(message["role"], message["content"])
    value = message if isinstance(message, Message) else Message.from_mapping(message)
    _check_message(value)
    if value.created is not None and (value.created.utcoffset() or _MINUTE) % _MINUTE:
        # RFC 3339 has no zones of broken minutes.
        value = replace(value, created=value.created.astimezone(UTC))
    try:
        return _encode_message(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        # A value that only says that it is a text or a number, a time that no text stands for.
        raise InvalidMessage(f"a message cannot be stored: {error}") from error


def _encode_message(value: Message) -> AppendMessage:
    lossy = False
    try:
        raw = _encode(value)
    except (TypeError, UnicodeEncodeError):
        # Rare, so it may cost more: subclasses of text and numbers, or lone surrogates.
        value = _mapped(value, _exact)
        try:
            raw = _encode(value)
        except UnicodeEncodeError:
            raw, lossy = _encode(_mapped(value, _without_surrogates)), True
    if not (
        type(value.content) is str and value.created is None and not (value.tool_calls or value.media or value.extra)
    ):
        # What no reader could decode must not be written. Texts alone always can be.
        _decode_message(raw)
    return AppendMessage(raw=msgspec.Raw(raw), lossy=lossy)


def plain(value: Any, what: str) -> Any:
    """Check a JSON value that is not a message and give it in plain types, without lone surrogates."""
    if type(value) is dict and all(_is_plain(name) and _is_plain(item) for name, item in value.items()):
        return dict(value)
    _check_json(value, what, DEEPEST)
    return _mapped(value, lambda leaf: _without_surrogates(_exact(leaf)))


def message_of(record: Record, view: Records) -> Message:
    """Return the whole message of a record, with the time it was stored where its writer gave none."""
    message = record.m if record.blobs is None else view.whole(record).m
    if message is None:
        raise InvalidMessage(f"record {record.n} is a {record.t!r}, not a message")
    if message.created is None:
        force_setattr(message, "created", time_of(record))
    return message


def time_of(record: Record) -> datetime:
    return parse_time(record.ts)


def parse_time(text: str) -> datetime:
    """Read the time of a record, in UTC; 1970 for one that is none, which `verify` reports and reading survives."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # Some times of the years 1 and 9999 are in no year of a calendar in UTC.
        return EPOCH


def is_time(text: str) -> bool:
    """Tell whether a record's time is one, with its zone."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.tzinfo is not None and moment.astimezone(UTC) is not None
    except (ValueError, OverflowError):
        return False


def timestamp(seconds: float) -> str:
    """Return a wall clock reading as every record spells it, in UTC and milliseconds.

    A clock that is beyond what a calendar holds, the years 1 to 9999, is taken for the nearest time in it.
    """
    millis = min(max(_FIRST_MILLI, math.floor(seconds * 1000)), _LAST_MILLI)
    whole, rest = divmod(millis, 1000)
    return f"{_to_the_second(whole)}.{rest:03d}Z"


@lru_cache(maxsize=2)
def _to_the_second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def _check_message(message: Message) -> None:
    if not isinstance(message.role, str) or not message.role:
        raise InvalidMessage(f"a message's role must be a word, not {show(message.role)}")
    for field in ("tool_call_id", "name", "reasoning", "model"):
        value = getattr(message, field)
        if value is not None and not isinstance(value, str):
            raise InvalidMessage(f"a message's {field} must be text, not {type(value).__name__}")
    if not isinstance(message.content, str | list | None):
        raise InvalidMessage(
            f"a message's content must be text, a list of parts or None, not {type(message.content).__name__}"
        )
    if isinstance(message.content, list):
        _check_json(message.content, "content", DEEPEST)
    if message.tool_calls:
        _check_calls(message.tool_calls)
    if message.media:
        _check_json(list(_list(message.media, "media")), "media", DEEPEST)
    if message.created is not None:
        _time(message.created)
    if message.extra:
        _check_json(_mapping(message.extra, "extra"), "extra", DEEPEST)


def _check_calls(calls: Sequence[ToolCall]) -> None:
    for call in _list(calls, "tool_calls"):
        if not isinstance(call, ToolCall):
            raise InvalidMessage(f"tool_calls must contain ToolCall values, not {type(call).__name__}")
        if not isinstance(call.id, str) or not isinstance(call.name, str):
            raise InvalidMessage(f"a tool call's id and name must be text, not {show(call.id)} and {show(call.name)}")
        _check_json(call.arguments, "arguments", DEEPEST)
        _check_json(_mapping(call.extra, "extra"), "extra", DEEPEST)


def _check_json(value: Any, what: str, depth: int) -> None:
    """Refuse what JSON would change in silence: NaN, huge integers, bytes, keys that are not text."""
    if depth == 0:
        raise InvalidMessage(f"{what} is nested more than {DEEPEST} levels deep")
    match value:
        case str() | bool() | None:
            pass
        case int() | float():
            _check_number(value, what)
        case list() | tuple():
            for item in value:
                _check_json(item, what, depth - 1)
        case dict():
            for key, item in value.items():
                _check_name(key, what)
                _check_json(item, what, depth - 1)
        case _:
            raise InvalidMessage(f"{what} has a {type(value).__name__}, which JSON cannot represent")


def _check_number(value: float, what: str) -> None:
    if isinstance(value, int) and not _SMALLEST_INT <= value <= _LARGEST_INT:
        raise InvalidMessage(f"{what} has an integer of more than 64 bits: {show(value)}")
    if not math.isfinite(value):
        raise InvalidMessage(f"{what} has {value}, which JSON cannot represent")


def _check_name(key: Any, what: str) -> None:
    if not isinstance(key, str):
        raise InvalidMessage(f"{what} has a key that is not text: {show(key)}")


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a change to every text and number in a JSON value or a message."""
    if isinstance(value, Struct):
        return type(value)(**{field: _mapped(item, change) for field, item in asdict(value).items()})
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    return change(value)


def _exact(value: Any) -> Any:
    """A subclass's text or number as the plain one, which is all that JSON can hold."""
    if type(value) in (str, bool, int, float):
        return value
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _without_surrogates(value: Any) -> Any:
    """Join surrogate pairs and put U+FFFD for lone ones, which no JSON reader agrees on."""
    if not isinstance(value, str) or is_unicode(value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_plain(value: Any) -> bool:
    return type(value) is str and is_unicode(value)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidMessage(f"{what} must be a mapping, not {type(value).__name__}")
    return value


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidMessage(f"{what} must be a list, not {type(value).__name__}")
    return value


def _time(value: Any) -> datetime | None:
    """Take an aware datetime or its ISO text; a time without a zone means nothing elsewhere."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidMessage(f"created is not a time: {show(value)}") from error
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidMessage(f"created must be an aware datetime or its ISO text, not {show(value)}")
    return moment
