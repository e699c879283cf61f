"""The values that callers give and get: messages, and what is reported about sessions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr

from nacre import client_shapes as shapes
from nacre.checks import show
from nacre.errors import InvalidMessage

ERASED = "redacted"
"""In `extra` of a message whose content was erased: true."""
ERASED_TEXT = "[erased]"
"""What readers are shown in its place."""
_OPENAI_ID = re.compile(r".{1,40}", re.DOTALL)
_OPENAI_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_ANTHROPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's call of a tool; `arguments` is kept as it came, JSON text or a mapping.

    >>> nacre.ToolCall(id="c1", name="ls", arguments={"path": "."}).to_mapping()
    {'id': 'c1', 'type': 'function', 'function': {'name': 'ls', 'arguments': {'path': '.'}}}
    """

    id: str = ""
    name: str = ""
    arguments: Any = ""
    extra: dict[str, Any] = {}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ToolCall:
        """Read a call in OpenAI's shape (`function` inside) or in ours.

        >>> nacre.ToolCall.from_mapping({"id": "c1", "function": {"name": "ls", "arguments": "{}"}}).name
        'ls'
        """
        rest = dict(check_mapping(mapping, "a tool call"))
        if rest.get("type", "function") != "function":
            return cls(id=rest.pop("id", ""), extra=rest)
        function = rest.pop("function", None)
        if function is None:
            known = {field: rest.pop(field) for field in ("id", "name", "arguments") if field in rest}
        else:
            inner = dict(check_mapping(function, "a tool call's function"))
            known = {field: inner.pop(field) for field in ("name", "arguments") if field in inner}
            if "id" in rest:
                known["id"] = rest.pop("id")
            if inner:
                rest["function"] = inner
        rest.pop("type", None)
        return cls(**known, extra=rest)

    def to_mapping(self) -> dict[str, Any]:
        """Give the call in OpenAI's shape; one that is not of a function gets none.

        >>> nacre.ToolCall(id="c1", name="ls").to_mapping()["function"]
        {'name': 'ls', 'arguments': ''}
        """
        extra = dict(self.extra)
        if "type" in extra:
            return {"id": self.id, **extra}
        function = {"name": self.name, "arguments": self.arguments, **extra.pop("function", {})}
        return {"id": self.id, "type": "function", "function": function, **extra}

    def to_openai(self) -> dict[str, Any]:
        """Give the call as OpenAI's chat clients take it, its arguments as JSON text."""
        id = shapes.fitting_id(self.id, _OPENAI_ID)
        own = self.extra.get("custom") if self.extra.get("type") == "custom" else None
        if isinstance(own, dict) and isinstance(own.get("name"), str) and isinstance(own.get("input"), str):
            return {"id": id, "type": "custom", "custom": {"name": own["name"], "input": own["input"]}}
        name, arguments = self._as_function()
        return {"id": id, "type": "function", "function": {"name": name, "arguments": shapes.arguments_text(arguments)}}

    def to_anthropic(self) -> dict[str, Any]:
        """Give the call as a block of Anthropic's client, its arguments as an object."""
        name, arguments = self._as_function()
        id = shapes.fitting_id(self.id, _ANTHROPIC_ID)
        return {"type": "tool_use", "id": id, "name": name, "input": shapes.arguments_object(arguments)}

    def _as_function(self) -> tuple[str, Any]:
        """Name and arguments; of a call of something else than a function its type and its fields."""
        if "type" not in self.extra:
            return shapes.fitting_name(self.name), self.arguments
        rest = {field: value for field, value in self.extra.items() if field != "type"}
        return shapes.fitting_name(str(self.extra["type"])), rest


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation, in the one shape that is stored.

    Some frameworks keep items that are not messages among them, such as a `function_call` of OpenAI's Responses. Such
    an item has the role "" and all its fields, its `type` too, in `extra`. No model is shown it.

    >>> message = nacre.Message(role="assistant", content="Mother-of-pearl.", model="some-model")
    >>> sessions.add_full_message("cli:1", message)
    4
    """

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

    @property
    def kind(self) -> str:
        """The role, or the type of an item that has none."""
        return self.role or str(self.extra.get("type", ""))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Message:
        """Read a mapping in OpenAI's chat shape, or an item with a `type`; fields it does not know go to `extra`.

        >>> nacre.Message.from_mapping({"role": "user", "content": "hello", "mood": "good"}).extra
        {'mood': 'good'}
        """
        rest = dict(check_mapping(mapping, "a message"))
        if "role" not in rest:
            if not is_type(rest.get("type")):
                raise InvalidMessage("a message needs a role, or a type if it is another kind of item")
            return cls(role="", extra=rest)
        known: dict[str, Any] = {field: rest.pop(field) for field in cls._PLAIN if field in rest}
        calls = rest.pop("tool_calls", None) or ()
        known["tool_calls"] = tuple(ToolCall.from_mapping(call) for call in check_list(calls, "tool_calls"))
        known["media"] = tuple(check_list(rest.pop("media", None) or (), "media"))
        known["created"] = check_created(rest.pop("created", None))
        return cls(**known, extra=rest)

    def to_mapping(self) -> dict[str, Any]:
        """Give the message in OpenAI's chat shape, without the fields it does not have; an item as it was given.

        >>> nacre.Message(role="user", content="hello").to_mapping()
        {'role': 'user', 'content': 'hello'}
        """
        if not self.role:
            return dict(self.extra)
        given = {field: getattr(self, field) for field in self._PLAIN}
        found = {field: value for field, value in given.items() if value is not None or field == "content"}
        if self.tool_calls:
            found["tool_calls"] = [call.to_mapping() for call in self.tool_calls]
        if self.media:
            found["media"] = list(self.media)
        if self.created is not None:
            found["created"] = self.created.isoformat()
        return {**found, **self.extra}

    def to_openai(self) -> dict[str, Any]:
        """Give the message as OpenAI's chat clients take it, without fields of other makers and without reasoning.

        A role that OpenAI does not have becomes a user's words with the role in brackets. Raises InvalidMessage for an
        item without a role.
        """
        role = self._role_for("OpenAI", ("system", "developer", "user", "assistant", "tool"))
        content = shapes.openai_content(self._shown_content(), has_images=role == "user")
        if role == "tool":
            return {"role": role, "tool_call_id": shapes.fitting_id(self.tool_call_id, _OPENAI_ID), "content": content}
        if role != self.role:
            content = shapes.put_before(content, f"[{self.role}]")
        found: dict[str, Any] = {"role": role, "content": content}
        if self.name is not None and _OPENAI_NAME.fullmatch(self.name):
            found["name"] = self.name
        if role == "assistant" and isinstance(refusal := self.extra.get("refusal"), str):
            found["refusal"] = refusal
        if role == "assistant" and self.tool_calls:
            found["tool_calls"] = [call.to_openai() for call in self.tool_calls]
            found["content"] = content or None
        return found

    def to_anthropic(self) -> dict[str, Any]:
        """Give the message as Anthropic's client takes it: a turn of the user or the assistant.

        A result is a user's. Any other role becomes a user's words with the role in brackets; `nacre.to_anthropic`
        takes a whole history, with its system messages and several results in one turn. Raises InvalidMessage for an
        item without a role.
        """
        role = self._role_for("Anthropic", ("user", "assistant", "tool"))
        blocks = shapes.anthropic_content(self._shown_content(), has_thoughts=role == "assistant")
        if role == "tool":
            result = {"type": "tool_result", "tool_use_id": shapes.fitting_id(self.tool_call_id, _ANTHROPIC_ID)}
            failed = {"is_error": True} if self.extra.get("failed") is True else {}
            return {"role": "user", "content": [result | ({"content": blocks} if blocks else {}) | failed]}
        if role == "assistant":
            if blocks and blocks[-1]["type"] == "text":
                # White space at the end of what the assistant says is refused.
                blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}
            blocks += [call.to_anthropic() for call in self.tool_calls]
        elif role != self.role:
            blocks = shapes.put_before(blocks, f"[{self.role}]")
        return {"role": role, "content": blocks or [{"type": "text", "text": shapes.EMPTY}]}

    def _shown_content(self) -> str | list[Any] | None:
        is_hole = is_erased(self) and not self.content and not self.tool_calls
        return ERASED_TEXT if is_hole else self.content

    def _role_for(self, whom: str, known: Sequence[str]) -> str:
        if not self.role:
            raise InvalidMessage(f"an item of the type {self.kind!r} is no message that {whom} takes; leave it out")
        return self.role if self.role in known else "user"


def is_erased(message: Message) -> bool:
    """Tell whether the content of a message was erased."""
    return message.extra.get(ERASED) is True


class Stored(Struct, frozen=True, kw_only=True):
    """A message as the log holds it; numbers start again with each generation of a key.

    `restored_from` is the number that it had before it was in quarantine.

    >>> stored = sessions.transcript("cli:1")[0]
    >>> stored.n, stored.message.content
    (2, 'What is nacre?')
    """

    generation: str
    n: int
    ts: datetime
    message: Message
    restored_from: int | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One record of any kind, with its fields as `data`.

    >>> entry = list(sessions.records("cli:1", "msg"))[0]
    >>> entry.n, entry.kind, entry.data["content"]
    (2, 'msg', 'What is nacre?')
    """

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
    """A message that a search found; `generation` is the archived one that it is in, "" if it is the active one.

    >>> hit = sessions.search("pearl")[0]
    >>> hit.place, hit.role, hit.snippet
    ('cli:1@3', 'assistant', 'Mother-of-**pearl**.')
    """

    key: str
    n: int
    ts: datetime
    role: str
    snippet: str
    generation: str = ""

    @property
    def place(self) -> str:
        """Where it is, such as `cli:1@42`; of an archived generation `cli:1@GENERATION/42`, as numbers start again."""
        return place_of(self.key, self.generation, self.n)


class SessionInfo(Struct, frozen=True, kw_only=True, gc=False):
    """What a listing says of a session.

    It was `updated` when something was last said or done in it; tags, pins, titles and repairs do not count.
    `tags`, `pinned` and `cwd`, the folder of a chat, are from its meta. `role`, `model` and `last`, the first words,
    are those of the last live message, and `state` tells by it how the session stands: "idle", "unanswered",
    "interrupted" in the middle of a turn, or "damaged" if it cannot be read.

    >>> info = next(sessions.list())
    >>> info.key, info.messages, info.last, info.state
    ('cli:1', 2, 'Mother-of-pearl.', 'idle')
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
    """A part of a list of sessions: `total` match, and `cursor` leads to those after them, None if there are none.

    >>> page = sessions.page(limit=1)
    >>> len(page.items), page.total, page.cursor
    (1, 1, None)
    """

    items: list[SessionInfo]
    total: int
    cursor: str | None = None


class Version(Struct, frozen=True):
    """Where a session was when it was read: after record `n` of a generation.

    A write that gets it as `expect` raises Conflict if anything at all was stored since, notes and meta too. The
    version of a key without a session is `Version()`: a write that expects it begins the session, or is refused.

    >>> seen = sessions.snapshot("cli:1").version
    >>> sessions.set_meta("cli:1", title="Shells")
    >>> try:
    ...     sessions.archive("cli:1", expect=seen)
    ... except nacre.Conflict:
    ...     print("changed since it was looked at")
    changed since it was looked at
    """

    n: int = 0
    generation: str = ""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A session at one moment: its last live messages, and what is known without reading the others.

    `n` is the number of its last record, `live` the count of live messages, `numbers` those of `messages`. `expect` is
    the number of the record that last changed the history. Every write takes it as `expect`, or `version`, and is
    refused if the history, or anything, has changed since. If it is `archived`, a write begins a new generation.

    >>> now = sessions.snapshot("cli:1")
    >>> now.n, now.live, now.expect, now.numbers
    (3, 2, 3, [2, 3])
    """

    n: int = 0
    generation: str = ""
    live: int = 0
    expect: int = 0
    summary: str = ""
    meta: dict[str, Any] = {}
    messages: list[Message] = []
    numbers: list[int] = []
    archived: bool = False

    @property
    def version(self) -> Version:
        """What a write takes as `expect` to be refused if anything was stored since.

        >>> now = sessions.snapshot("cli:1")
        >>> sessions.append("cli:1", "x.rating", {"stars": 5}, expect=now.version)
        4
        """
        return Version(self.n, self.generation)


SHARED = "shared history"

"""How findings begin that are not in a fork's own files."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that `verify` found wrong.

    >>> for finding in sessions.verify().findings:
    ...     print(finding.key, finding.kind, finding.where, finding.detail)
    """

    key: str
    kind: str
    where: str
    detail: str

    @property
    def is_shared(self) -> bool:
        """Whether it is in what a fork shares, which is never changed."""
        return self.where.startswith(SHARED)


class Report(Struct, frozen=True, kw_only=True):
    """What `verify` found; `ok` when nothing is wrong.

    >>> sessions.verify("cli:1")
    Report(findings=())
    """

    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class Receipt(Struct, frozen=True, kw_only=True):
    """What `repair` did: records kept, pieces set aside, and the file they are in.

    >>> sessions.repair("cli:1")
    Receipt(key='cli:1', kept=3, set_aside=0, quarantine=None)
    """

    key: str
    kept: int
    set_aside: int
    quarantine: str | None


class QuarantineRecord(Struct, frozen=True, kw_only=True):
    """A whole record in quarantine; `text` is what it says, for people.

    >>> for entry in sessions.quarantine("cli:1"):
    ...     for record in entry.records:
    ...         print(record.n, record.kind, record.text)
    """

    n: int
    ts: datetime
    kind: str
    text: str


class QuarantineEntry(Struct, frozen=True, kw_only=True):
    """Something of a session that was set aside because it was damaged, and that nobody has settled yet.

    `KEY#n` names it. `records` are whole and can be restored; `text` is the beginning of its bytes as they are.
    `settled` is "restored", "discarded" or, for the end of a write that was never acknowledged, "torn".

    >>> for entry in sessions.quarantine():
    ...     print(entry.ref, entry.reason, entry.bytes)
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
        """The name of the entry, such as `cli:1#2`."""
        return f"{self.key}#{self.n}"


class Settlement(Struct, frozen=True, kw_only=True):
    """What `restore` or `discard` did: the entries that it settled, and the numbers of the records it appended.

    >>> sessions.discard("cli:1").entries
    ()
    """

    key: str
    entries: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


class Redaction(Struct, frozen=True, kw_only=True):
    """What `redact` did: where the content of a record was, and who may still have its words.

    `erased` are the numbers of the records whose content is gone: the one that was named, and those that repeated it,
    which are titles, and copies of files for an undo. `payloads` counts its large payloads that were removed, `kept`
    those that stay because another message of the session has them. `quarantined` counts lines of the quarantine that
    lost bytes.

    Nothing was erased in what the last three name: `summaries` are the numbers of summaries that cover it, `forks` the
    keys of sessions that share it, `originals` the files of an earlier agent that the session came from.

    >>> sessions.fork("cli:1", "cli:2")
    >>> redaction = sessions.redact("cli:1", 2)
    >>> redaction.erased, redaction.forks
    ((2,), ('cli:2',))
    >>> sessions.redact("cli:2", 2).forks
    ()
    """

    key: str
    generation: str
    n: int
    erased: tuple[int, ...] = ()
    payloads: int = 0
    kept: int = 0
    quarantined: int = 0
    summaries: tuple[int, ...] = ()
    forks: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()


class TrashedSession(Struct, frozen=True, kw_only=True):
    """A session in the trash, with all generations that were removed together; `id` names it there.

    >>> sessions.move_to_trash("cli:1")
    >>> trashed = sessions.list_trash()[0]
    >>> trashed.key, len(trashed.generations)
    ('cli:1', 1)
    """

    id: str
    key: str
    title: str
    removed: datetime
    generations: tuple[str, ...]
    bytes: int


class GenerationInfo(Struct, frozen=True, kw_only=True):
    """One generation of a session, as its log is now.

    `updated` is the time of its last record, `changed` when its file was last written, renamed or linked.

    >>> info = sessions.generation("cli:1")
    >>> info.key, info.pinned, info.bytes > 0
    ('cli:1', False, True)
    """

    key: str
    generation: str
    pinned: bool
    updated: datetime
    changed: datetime
    bytes: int


class DiskUsage(Struct, frozen=True, kw_only=True):
    """Bytes of each folder of a store, and of the files of each session that was asked for.

    >>> usage = sessions.disk_usage(["cli:1"])
    >>> usage.total == sum(usage.folders.values())
    True
    """

    folders: dict[str, int]
    sessions: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all folders together."""
        return sum(self.folders.values())


class Leftover(Struct, frozen=True, kw_only=True):
    """A file that no session needs, and why.

    >>> for leftover in sessions.remove_leftovers(dry_run=True):
    ...     print(leftover.path, leftover.bytes, leftover.reason)
    """

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


class Load(Struct, frozen=True, repr_omit_defaults=True):
    """The load of the writers of a store: logs that are open, batches written, logs whose flush failed.

    Of a store in a database also its connections, how many of them are idle, callers that wait for one now and had to
    wait since the start and for how long, attempts to connect that failed, and round trips and how long these took.

    >>> sessions.load()
    Load(open=1, batches=2, unsound=0)
    """

    open: int
    batches: int
    unsound: int
    connections: int = 0
    idle: int = 0
    waiting: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    failed_connects: int = 0
    round_trips: int = 0
    round_trip_seconds: float = 0.0


def is_type(value: Any) -> bool:
    """Tell whether a value can be the type of an item without a role."""
    return isinstance(value, str) and bool(value)


def check_mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidMessage(f"{what} must be a mapping, not {type(value).__name__}")
    return value


def check_list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidMessage(f"{what} must be a list, not {type(value).__name__}")
    return value


def check_created(value: Any) -> datetime | None:
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
