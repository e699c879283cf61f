"""What earlier agents left in a file: one session, read from its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre import records
from nacre.client_shapes import describe_bytes
from nacre.codec import encode_message, plain_json
from nacre.errors import InvalidKey, InvalidMessage
from nacre.history.message_text import text_of
from nacre.messages import Message, ToolCall
from nacre.records import AppendMessage, ImportedRecord
from nacre.storage.format import escaped
from nacre.storage.paths import stem

_MILLISECONDS = 1e11
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS = "content_parts"
_SPELLINGS = {"reasoning_content": "reasoning", "model_name": "model", "created_at": "created"}


def from_earlier(mapping: Mapping[str, Any]) -> Message:
    """Read a message of an earlier agent.

    What this shape does not know, or holds in another type, stays in `extra` under its old name. Raises
    InvalidMessage if it has no role.
    """
    rest = {name: value for name, value in mapping.items() if name not in _NAMES or value not in _NOTHING}
    role = rest.pop("role", None)
    if not isinstance(role, str) or not role:
        raise InvalidMessage(f"a message's role must be a word, not {role!r:.100}")
    if isinstance(rest.get(_PARTS), list):
        # An export of ours, that the earlier agent has not rewritten.
        rest["content"] = rest.pop(_PARTS)
    known: dict[str, Any] = {}
    for name, field, read in _FIELDS:
        value = read(rest[name]) if name in rest and field not in known else None
        if value is not None:
            known[field] = value
            del rest[name]
    media = (*known.pop("media", ()), *known.pop("attachments", ()))
    return Message(role=role, **known, media=media, extra=rest)


def to_earlier(message: Message) -> dict[str, Any]:
    """Spell a message as earlier agents read it."""
    found = replace(message, media=()).to_mapping()
    for theirs, ours in _SPELLINGS.items():
        if ours in found and not {ours, theirs} & message.extra.keys():
            found[theirs] = found.pop(ours)
    # References as text under one name and those that are objects under the other, if that keeps their order.
    texts = [item for item in message.media if isinstance(item, str)]
    objects = [item for item in message.media if not isinstance(item, str)]
    if list(message.media) != texts + objects:
        texts, objects = list(message.media), []
    return found | {name: media for name, media in (("media", texts), ("attachments", objects)) if media}


def to_picoclaw(message: Message) -> dict[str, Any]:
    """Spell a message with the types that picoclaw demands: it passes over every message in which one is another.

    Parts of a content and fields that it does not know are kept under names that it ignores, and are lost when it
    rewrites its file.
    """
    found = to_earlier(message)
    if not isinstance(message.content, str):
        found["content"] = text_of(message)
        if message.content is not None:
            found[_PARTS] = message.content
    for call in found.get("tool_calls", ()):
        function = call.get("function")
        if isinstance(function, dict) and not isinstance(function.get("arguments"), str):
            function["arguments"] = json.dumps(describe_bytes(function.get("arguments")), ensure_ascii=False)
    return {name: value for name, value in found.items() if name not in _THEIRS or _THEIRS[name](value)}


def is_same(ours: Message, theirs: Message) -> bool:
    """Tell whether a message of ours, with its time, is one of an earlier agent, which may not have had a time.

    Where both have the same time, what picoclaw loses when it rewrites a message makes no difference.
    """
    if theirs.created is not None and theirs.created != ours.created:
        return False
    if replace(ours, created=None) == replace(theirs, created=None):
        return True
    return theirs.created is not None and _core(ours) == _core(theirs)


def _core(message: Message) -> dict[str, Any]:
    """What picoclaw keeps of a message."""
    found = to_picoclaw(message)
    calls = [(call.get("id"), call.get("function")) for call in found.get("tool_calls", ())]
    return {name: found.get(name) for name in _THEIRS if name != "tool_calls"} | {"tool_calls": calls}


def moment(value: Any) -> datetime | None:
    """Read a time: RFC 3339 text, or seconds or milliseconds since 1970; without a zone it is taken as UTC."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / (1000 if value > _MILLISECONDS else 1), UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    found = found if found.utcoffset() is not None else found.replace(tzinfo=UTC)
    # Earlier agents wrote the year 1 where they knew no time.
    return found if found > _EPOCH else None


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _items(value: Any) -> tuple[Any, ...] | None:
    return tuple(value) if isinstance(value, list) else None


def _calls(value: Any) -> tuple[ToolCall, ...] | None:
    """Tool calls, if every one of them is one."""
    try:
        calls = tuple(map(ToolCall.from_mapping, value)) if isinstance(value, list) else None
    except InvalidMessage:
        return None
    return calls if all(isinstance(call.id, str) and isinstance(call.name, str) for call in calls or ()) else None


_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("content", "content", lambda value: value if isinstance(value, str | list) else None),
    ("tool_calls", "tool_calls", _calls),
    ("tool_call_id", "tool_call_id", _text),
    ("name", "name", _text),
    ("reasoning", "reasoning", _text),
    ("reasoning_content", "reasoning", _text),
    ("model", "model", _text),
    ("model_name", "model", _text),
    ("created", "created", moment),
    ("created_at", "created", moment),
    ("media", "media", _items),
    ("attachments", "attachments", _items),
)

_THEIRS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("role", "content", "model_name", "created_at", "reasoning_content", "tool_call_id"), _is_text),
    "media": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "attachments": lambda value: _are_objects(value) and all(_is_text(text) for one in value for text in one.values()),
    "system_parts": _are_objects,
    "tool_calls": _are_objects,
}
"""The fields of a message that picoclaw has, each with what its value must be."""

_NAMES = frozenset(name for name, _, _ in _FIELDS)
_NOTHING = (None, "0001-01-01T00:00:00Z")


NOTE = "x.migrated"
_CHANGED = "x.changed"
"""A record that only says when an earlier agent changed the session last."""
_MAX_MESSAGE = records.MAX_LINE_BYTES - 4096
_MAX_TRIES = 64
_MESSAGE_START = b'{"role"'
_message = msgspec.json.Decoder(Message).decode


class Unreadable(Exception):
    """A file that looks like an earlier session and cannot be read as one."""


class Bad(NamedTuple):
    """Bytes that are no message, where they stood, and what is wrong with them."""

    start: int
    raw: bytes
    reason: str


class Base(Struct, frozen=True, kw_only=True):
    """What a document goes on from: the last `kept` live messages of a log, as it was after its record `h`."""

    uid: str
    h: int
    kept: int


class Legacy(Struct, frozen=True, kw_only=True):
    """A session as an earlier agent left it.

    The first `dropped` of its messages are no longer live. `sha256` is the digest of its file, `meta_sha256` that of
    the file next to it, and `changed` is when the file was changed, for sessions that have no time.
    """

    key: str
    said: tuple[AppendMessage, ...] = ()
    dropped: int = 0
    summary: str = ""
    created: datetime | None = None
    updated: datetime | None = None
    changed: datetime | None = None
    meta: dict[str, Any] = {}
    bad: tuple[Bad, ...] = ()
    base: Base | None = None
    is_archived: bool = False
    sha256: str = ""
    meta_sha256: str = ""

    @property
    def messages(self) -> list[Message]:
        return [_message(said.raw) for said in self.said]

    @property
    def is_empty(self) -> bool:
        return not (self.said or self.summary or self.meta)

    def src(self, file: str) -> dict[str, Any]:
        """What the header of the migrated session says of the file it came from."""
        meta = {"meta": self.meta_sha256} if self.meta_sha256 else {}
        return {"file": file, "sha256": self.sha256, "n": len(self.said), **meta}

    def records(self, now: str) -> list[ImportedRecord]:
        """The session as records with their old times; where there is no time it is `now`."""
        times, end = self.times(now), self.ended(now)
        found = [ImportedRecord(said, ts) for said, ts in zip(self.said, times, strict=True)]
        if self.dropped:
            found.append(ImportedRecord(records.Truncate(len(self.said) - self.dropped), end))
        if self.summary:
            found.append(ImportedRecord(records.Summarise(self.summary), end))
        is_later = bool(found) and end > found[-1].ts
        if self.meta:
            found.append(ImportedRecord(records.SetMeta(self.meta), end))
        # Labels are no update; this is one.
        return [*found, ImportedRecord(records.AppendRecord(_CHANGED, None), end)] if is_later else found

    def times(self, now: str) -> list[str]:
        """When each message was written: as it says, else when the one before it was."""
        last = spell_time(self.created) or self.began(now)
        found: list[str] = []
        messages = self.messages
        for message in messages:
            last = spell_time(message.created) or last
            found.append(last)
        if messages and messages[-1].created is None:
            found[-1] = max(spell_time(self.updated), last)
        return found

    def began(self, now: str) -> str:
        """When the session began: as it says, or its first message if that is older."""
        times = [*self._message_times, spell_time(self.created)]
        return min(filter(None, times), default=spell_time(self.updated) or spell_time(self.changed) or now)

    def ended(self, now: str) -> str:
        """When the session was last changed: as it says, or its last message if that is younger."""
        return max((*self._message_times, spell_time(self.updated), self.began(now)))

    @property
    def _message_times(self) -> list[str]:
        return [spell_time(message.created) for message in self.messages if message.created is not None]


def read_document(data: bytes, name: str, *, changed: datetime | None = None) -> Legacy | None:
    """Read a JSON document of one session; None if it is something else. Raises Unreadable if it is no JSON."""
    document = parse_json(data)
    if document is _BAD:
        raise Unreadable("it is not JSON")
    if not isinstance(document, dict) or not isinstance(document.get("messages", 0), list | None):
        return None
    if not isinstance(document.get("key"), str) and not {"created", "updated"} <= document.keys():
        return None
    said: list[AppendMessage] = []
    bad: list[Bad] = []
    for place, element in enumerate(document["messages"] or []):
        try:
            said.append(_encode_message(element))
        except InvalidMessage as error:
            reason = f"element {place} of messages is not a message: {error}"
            bad.append(Bad(place, json.dumps(element).encode(), reason))
    base: Base | None = None
    with suppress(msgspec.ValidationError):
        base = msgspec.convert(document.get("base"), Base)
    rest = {field: value for field, value in document.items() if field not in _DOCUMENT}
    return Legacy(
        key=key_from(document.get("key"), name),
        said=tuple(said),
        summary=_summary(document),
        created=moment(document.get("created")),
        updated=moment(document.get("updated")),
        changed=changed,
        meta=meta_from({**mapping_of(document.get(META)), **({"legacy": rest} if rest else {})}),
        bad=tuple(bad),
        base=base,
        sha256=sha256(data).hexdigest(),
    )


def read_lines(data: bytes, name: str, *, meta: bytes | None, changed: datetime | None) -> Legacy | None:
    """Read a file of one message per line, with the file of its metadata; None if it is something else.

    `changed` is when the file was changed, for sessions that have no time. Raises Unreadable if the metadata says that
    it is a session, and there is no message in it.
    """
    about = mapping_of(parse_json(meta) if meta is not None else None)
    lines = [_parse_line(line, start) for start, line in lines_of(data)]
    # The first line that is JSON must be a message; a torn one before it does not count.
    firsts = ((said, parse_json(bad.raw) if bad is not None else None) for said, bad in lines)
    first = next((one for one in firsts if one[0] is not None or isinstance(one[1], dict)), None)
    if first is None and meta is not None and data.strip():
        raise Unreadable("no line of it is a message")
    is_session = meta is not None if first is None else first[0] is not None or _is_message(first[1])
    if not is_session:
        return None
    given = about.get("skip")
    skip = given if isinstance(given, int) else 0
    rest = {field: value for field, value in about.items() if field not in _META and value not in (None, [], {})}
    return Legacy(
        key=key_from(about.get("key"), name),
        said=tuple(said for said, _ in lines if said is not None),
        dropped=sum(said is not None for said, _ in lines[: max(skip, 0)]),
        summary=_summary(about),
        created=moment(about.get("created_at")),
        updated=moment(about.get("updated_at")),
        changed=changed,
        meta=meta_from(rest),
        bad=tuple(bad for _, bad in lines if bad is not None),
        sha256=sha256(data).hexdigest(),
        meta_sha256=sha256(meta).hexdigest() if meta is not None else "",
    )


def is_other(beginning: bytes) -> bool:
    """Tell by the first line of a file, if it is whole and JSON, that the file is neither of messages nor nanobot's."""
    line, end, _ = beginning.lstrip().partition(b"\n")
    value = parse_json(line) if end else None
    return isinstance(value, dict) and not _is_message(value) and value.get("_type") != "metadata"


def spell_time(time: datetime | None) -> str:
    """A time as every record spells it; "" for none."""
    return f"{time.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z" if time is not None else ""


def describe(meta: bytes, name: str) -> tuple[str, str]:
    """The key in metadata, and its digest."""
    return key_from(mapping_of(parse_json(meta)).get("key"), name), sha256(meta).hexdigest()


META = "nacre_meta"
"""The field of a document that has the session's meta, if nacre wrote it."""
_DOCUMENT = frozenset(("key", "messages", "summary", "created", "updated", "base", META))
_META = frozenset(("key", "summary", "skip", "count", "created_at", "updated_at"))
_CONTENT = frozenset(("content", "tool_calls"))
_BAD = object()


def parse_json(data: bytes) -> Any:
    """The JSON value of some bytes, lone surrogates and all."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return _BAD


def mapping_of(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one if it is something else."""
    return value if isinstance(value, dict) else {}


def lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every line that is not empty, and where it starts."""
    start = 0
    for line in data.split(b"\n"):
        if line.strip():
            yield start, line
        start += len(line) + 1


def take_message(value: Any, raw: bytes, start: int, *, said: list[AppendMessage], bad: list[Bad]) -> None:
    """Add the message that a value is, else what is wrong with it."""
    try:
        said.append(_encode_message(value))
    except InvalidMessage as error:
        bad.append(Bad(start, raw, str(error)))


def _parse_line(line: bytes, start: int) -> tuple[AppendMessage | None, Bad | None]:
    """A line's message; after a torn one that was never ended, the message that was glued to it."""
    at, reason = 0, ""
    for _ in range(1 + _MAX_TRIES):
        try:
            return _encode_message(parse_json(line[at:])), Bad(start, line[:at], "a torn line") if at else None
        except InvalidMessage as error:
            reason = reason or str(error)
            at = line.find(_MESSAGE_START, at + 1)
        if at < 0:
            break
    return None, Bad(start, line, reason)


def _encode_message(value: Any) -> AppendMessage:
    """A message in its canonical bytes; raises InvalidMessage for anything else."""
    if not _is_message(value):
        raise InvalidMessage("not a message")
    said = encode_message(from_earlier(value))
    if len(escaped(bytes(said.raw))) > _MAX_MESSAGE:
        raise InvalidMessage(f"the maximum size of a message is {_MAX_MESSAGE} bytes")
    return said


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and not value.keys().isdisjoint(_CONTENT)


def key_from(given: Any, name: str) -> str:
    """The key that a file has, else its name."""
    key = given if isinstance(given, str) else ""
    try:
        stem(key)
    except InvalidKey:
        return name.encode("utf-8", "replace").decode()
    return key


def _summary(document: dict[str, Any]) -> str:
    summary = document.get("summary")
    return str(plain_json(summary, "summary")) if isinstance(summary, str) else ""


def meta_from(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields for the session's meta; what cannot be stored stays in the original alone."""
    try:
        return dict(plain_json(fields, "meta"))
    except InvalidMessage:
        return {}
