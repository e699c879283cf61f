"""Strands Agents: `NacreSessionRepository` for its `RepositorySessionManager`; the extra is `strands`.

`NacreStorage` is for its `Storage`, where its `SnapshotSessionManager` keeps agents.

The first agent of a session has its messages in nacre's session of the same id, each further agent in one with the key
`session/agent`. A message of Strands is stored as one that anybody can read, and each tool result as one of its own;
`extra["strands"]` has what they cannot say. The state of agents and of graphs and swarms is in records `x.strands`.
"""

from __future__ import annotations

import base64
import binascii
import builtins
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from nacre.checks import check_key, is_unicode, show
from nacre.codec import encode_data
from nacre.errors import (
    Conflict,
    InvalidArgument,
    InvalidKey,
    InvalidMessage,
    NacreError,
    SessionNotFound,
    missing_extra,
)
from nacre.history import session_state
from nacre.integrations.access import AnySessions, awaited, blocking, change, check_sessions, finish
from nacre.integrations.conversation import is_exact, is_own, mend_erased, read_conversation
from nacre.messages import ERASED, ERASED_TEXT, Message, Snapshot, ToolCall, Version, is_erased
from nacre.records import AppendRecord, Pop, SetMeta, View
from nacre.sessions import AnyOperation, Sessions

try:
    from strands.session.session_repository import SessionRepository
    from strands.storage.storage import Storage
    from strands.types.exceptions import SessionException, StorageError
    from strands.types.session import (
        Session,
        SessionAgent,
        SessionMessage,
        SessionType,
        decode_bytes_values,
        encode_bytes_values,
    )
except ModuleNotFoundError as error:
    raise missing_extra("strands", error) from error

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

T = TypeVar("T")
Fields = dict[str, Any]
NAME = "strands"
RECORD = f"x.{NAME}"
_NEAR = 16
_RECORD_ID = re.compile(rf"{NAME}:([0-9a-f]{{32}}:)?(?P<id>-?\d+):(?P<time>.+)", re.DOTALL)
"""Those of the first versions have no generation: nacre knows an id in the next one, too."""


class InvalidId(InvalidKey, ValueError):
    """An id that Strands' own repositories refuse, too."""


class InvalidStorageKey(InvalidKey, StorageError):
    """A key that Strands' own storages refuse, too."""


class _AnyName(str):
    """The name of any conversation manager: a conversation of others can be continued with each of them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, str)

    __hash__ = str.__hash__


class _Log(NamedTuple):
    """The log of an agent: its key, where it stands, and whether it is known to be the agent's."""

    key: str
    version: Version
    live: int
    created: str
    is_owned: bool
    meta: Fields


class NacreSessionRepository(SessionRepository):
    """The sessions of Strands, in nacre's sessions of any store; what is written is durable when the call returns.

    Messages of several processes under the same number are all kept, in the order in which they came. A message that
    a guardrail redacts is erased from the store.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions)

    # ---- sessions

    def create_session(self, session: Session, **kwargs: Any) -> Session:  # noqa: ARG002 - the interface has them
        """Begin a session; SessionException if there is one."""
        key = _check_id(session.session_id, "session_id")
        plain = blocking(self._sessions)
        fields = {name: value for name, value in session.to_dict().items() if name != "session_id"}
        fields["session_type"] = SessionType(session.session_type).value

        def begin() -> None:
            if _look(plain, key) is not None:
                raise SessionException(f"Session {key} already exists")
            plain.submit(key, [SetMeta({NAME: {"session": fields}})], expect=Version()).result()

        change(plain, key, begin)
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:  # noqa: ARG002 - the interface has them
        """The session; also one that others have begun."""
        key = _check_id(session_id, "session_id")
        log = _look(blocking(self._sessions), key)
        if log is None:
            return None
        fields = log.meta.get("session")
        if not isinstance(fields, dict):
            fields = {"session_type": SessionType.AGENT.value, "created_at": log.created, "updated_at": log.created}
        return Session.from_dict({**fields, "session_id": key})

    def delete_session(self, session_id: str, **kwargs: Any) -> None:  # noqa: ARG002 - as the file repository has them
        """Erase a session and all its agents for good; SessionException if there is none."""
        key = _check_id(session_id, "session_id")
        plain = blocking(self._sessions)
        if not plain.exists(key):
            raise SessionException(f"Session {key} does not exist")
        for archived in (False, True):
            for info in list(plain.list(prefix=f"{key}/", archived=archived)):
                if NAME in info.meta and info.key.count("/") == 1:
                    plain.delete(info.key)
        plain.delete(key)

    # ---- agents

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Store the state of a new agent."""
        record = _state_record(session_agent)
        self._at(session_id, session_agent.agent_id, lambda spot: _append(spot, [record]))

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:  # noqa: ARG002 - the same
        """The state of an agent; a new one for an agent that continues a conversation of others."""
        return self._at(session_id, agent_id, _read_agent)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Replace the state of an agent; SessionException if there is none."""

        def replace_state(spot: _Spot) -> None:
            before = _read_agent(spot)
            if before is None:
                raise SessionException(f"Agent {session_agent.agent_id} in session {session_id} does not exist")
            session_agent.created_at = before.created_at
            _append(spot, [_state_record(session_agent)])

        self._at(session_id, session_agent.agent_id, replace_state)

    # ---- messages

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Append a message; a retry stores nothing."""
        _check_message_id(session_message.message_id)
        messages = to_messages(session_message)
        id = f"{session_message.message_id}:{session_message.created_at}"
        self._at(session_id, agent_id, lambda spot: _append(spot, messages, id=id if is_unicode(id) else None))

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:  # noqa: ARG002 - the same
        """A message by its number."""
        _check_message_id(message_id)
        found = self._messages(session_id, agent_id) or ()
        return next((one for one in found if one.message_id == message_id), None)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Replace a message; what was redacted is erased for good. SessionException if there is no such message."""
        _check_message_id(session_message.message_id)
        missing = SessionException(f"Message {session_message.message_id} does not exist")
        redacted = session_message.redact_message

        def find(spot: _Spot) -> tuple[_Log, _Found, bool]:
            found = None if spot.log is None else _find(spot.plain, spot.log, session_message)
            if spot.log is None or found is None:
                raise missing
            if redacted is not None:
                return spot.log, found, session_message.message == redacted
            # Strands redacts a message that it has stored twice, and gives it the same words in the other place.
            everything = _read(_snapshot(spot.plain, spot.log), spot.log.created)
            return spot.log, found, any(one.message.redact_message == session_message.message for one in everything)

        log, found, is_redaction = self._at(session_id, agent_id, find)
        session_message.created_at = found.message.created_at
        if is_redaction:
            # First of all: if the process is killed on the way, a hole is left, and not the words.
            try:
                for number in _copies(blocking(self._sessions), log, found):
                    blocking(self._sessions).redact(log.key, number, generation=log.version.generation)
            except (Conflict, SessionNotFound) as error:
                # The words went with their session.
                raise missing from error
        # Under the number that it was stored with: the agent that did so still has it under that one.
        kept = copy.copy(session_message)
        kept.message_id = found.stored_id if found.stored_id >= 0 else session_message.message_id

        def put(spot: _Spot) -> None:
            # The numbers are those of one generation.
            if spot.log is None or spot.log.version.generation != log.version.generation:
                raise missing
            near = _snapshot(spot.plain, spot.log, last=_NEAR)
            now = near if found.numbers[0] in near.numbers else _snapshot(spot.plain, spot.log)
            if found.numbers[0] not in now.numbers:
                raise missing
            if not is_redaction and any(
                is_erased(one) for n, one in zip(now.numbers, now.messages, strict=True) if n in found.numbers
            ):
                # What was erased stays so, though the agent still has it.
                if redacted is None:
                    return
                kept.message = redacted
            at = now.numbers.index(found.numbers[0])
            rest = [one for n, one in zip(now.numbers[at:], now.messages[at:], strict=True) if n not in found.numbers]
            operations: list[AnyOperation] = [*[Pop()] * (len(now.numbers) - at), *to_messages(kept), *rest]
            if not spot.plain.update(spot.log.key, operations, expect=now.version):
                raise missing

        self._at(session_id, agent_id, put)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,  # noqa: ARG002 - the same
    ) -> list[SessionMessage]:
        """The messages of an agent, oldest first; SessionException if there is no such agent."""
        found = self._messages(session_id, agent_id)
        if found is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        return found[offset:] if limit is None else found[offset : offset + limit]

    # ---- graphs and swarms

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Store the state of a graph or a swarm."""
        key, id = _check_id(session_id, "session_id"), _check_id(multi_agent.id, "the id of a multi agent")
        data = {"multi_agent": id, "state": _faithful(multi_agent.serialize_state())}
        plain = blocking(self._sessions)
        change(plain, key, lambda: plain.append(key, RECORD, data))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> Fields | None:  # noqa: ARG002 - the same
        """The state of a graph or a swarm."""
        key, id = _check_id(session_id, "session_id"), _check_id(multi_agent_id, "the id of a multi agent")
        plain = blocking(self._sessions)
        return change(plain, key, lambda: _read_multi_agent(plain, _look(plain, key), id))

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:  # noqa: ARG002 - the same
        """Replace the state of a graph or a swarm; SessionException if there is none."""
        key, id = _check_id(session_id, "session_id"), _check_id(multi_agent.id, "the id of a multi agent")
        plain = blocking(self._sessions)

        def replace_state() -> None:
            log = _look(plain, key)
            if log is None or _read_multi_agent(plain, log, id) is None:
                raise SessionException(f"MultiAgent state {id} in session {key} does not exist")
            data = {"multi_agent": id, "state": _faithful(multi_agent.serialize_state())}
            plain.append(key, RECORD, data, expect=log.version)

        change(plain, key, replace_state)

    # ---- logs

    def _at(self, session_id: str, agent_id: str, work: Callable[[_Spot], T]) -> T:
        place = _Place(_check_id(session_id, "session_id"), _check_id(agent_id, "agent_id"))
        return _at(blocking(self._sessions), place, work)

    def _messages(self, session_id: str, agent_id: str) -> list[SessionMessage] | None:
        def read(spot: _Spot) -> list[SessionMessage] | None:
            log = spot.log
            if log is None or not (log.is_owned or log.live):
                return None
            return [one.message for one in _read(_snapshot(spot.plain, log), log.created)]

        return self._at(session_id, agent_id, read)


# ---- where things are


class _Place(NamedTuple):
    """Where things are: those of an agent of a session, or the value of a storage key in a log of its own."""

    key: str
    agent: str = ""
    name: str = ""


class _Spot(NamedTuple):
    """A place as it is at one moment."""

    plain: Sessions
    place: _Place
    log: _Log | None

    @property
    def key(self) -> str:
        """The session to write to."""
        if self.log is not None:
            return self.log.key
        key, agent = self.place.key, self.place.agent
        is_further = agent and "/" not in key and _look(self.plain, key) is not None
        return f"{key}/{agent}" if is_further else key


def _at(plain: Sessions, place: _Place, work: Callable[[_Spot], T]) -> T:
    """Call `work` with what is at a place, and once more for each Conflict."""
    if not place.agent or "/" in place.key:
        return change(plain, place.key, lambda: work(_Spot(plain, place, _look(plain, place.key))))

    def act() -> T:
        return work(_Spot(plain, place, _log(plain, place.key, place.agent)))

    return change(plain, place.key, act, f"{place.key}/{place.agent}")


def _check_id(id: object, name: str) -> str:
    try:
        text = check_key(id)
    except InvalidKey as error:
        raise InvalidId(f"{name}: {error}") from error
    if "/" in text:
        raise InvalidId(f"{name} must not contain a slash: {text!r}")
    return text


def _check_message_id(id: object) -> None:
    if not isinstance(id, int):
        raise InvalidId(f"message_id must be an integer, not {show(id)}")


def _look(plain: Sessions, key: str) -> _Log | None:
    """Where the active session of a key stands, None if there is none."""

    def get(view: View) -> _Log | None:
        if view.is_archived:
            return None
        meta = session_state.meta(view, view.state).get(NAME)
        own = meta if isinstance(meta, dict) else {}
        version = Version(view.n, view.uid)
        return _Log(key, version, session_state.count(view), view.created, is_owned="agent" in own, meta=own)

    return plain.read(key, get)


def _log(plain: Sessions, key: str, agent: str) -> _Log | None:
    """The log of an agent: that of the session if it is its first agent, or if it has none yet."""
    log = _look(plain, key)
    if log is not None and log.is_owned and log.meta["agent"] == agent:
        return log
    further = _look(plain, f"{key}/{agent}")
    if log is not None and log.is_owned:
        return further
    # The first agent may have been deleted, and this one may not.
    return further if further is not None and further.meta.get("agent") == agent else log


def _check_there(plain: Sessions, log: _Log) -> None:
    """Raise Conflict if a log is gone, after something was not found in it."""
    now = _look(plain, log.key)
    if now is None or now.version.generation != log.version.generation:
        raise Conflict(f"session {log.key!r} was archived or deleted meanwhile")


def _snapshot(plain: Sessions, log: _Log, *, last: int | None = None) -> Snapshot:
    """What is in a log, with erased messages as our own; Conflict if it is gone: numbers are of one generation."""
    now = plain.snapshot(log.key, last=last)
    if now.archived or now.generation != log.version.generation:
        raise Conflict(f"session {log.key!r} was archived or deleted meanwhile")
    holes = [n for n, one in zip(now.numbers, now.messages, strict=True) if is_erased(one) and not is_own(one, NAME)]
    if not holes:
        return now

    def names(view: View) -> dict[int, str]:
        records = [record for n in holes if (record := view.find(n)) is not None]
        return {record.n: record.id for record in records if record.id is not None}

    found = plain.read(log.key, names, generation=now.generation) or {}
    messages = []
    for n, message in zip(now.numbers, now.messages, strict=True):
        stored = _RECORD_ID.fullmatch(found.get(n, ""))
        if stored is None:
            messages.append(message)
        else:
            mark = {"id": int(stored["id"]), "created_at": stored["time"]}
            messages.append(_mend(message, mark))
    return replace(now, messages=list(mend_erased(messages, NAME, _mend)))


def _last_value(plain: Sessions, log: _Log, is_wanted: Callable[[Fields], bool]) -> tuple[int, Fields] | None:
    """The newest record that is wanted, with its number."""
    last = 1
    while True:
        found = list(plain.records(log.key, RECORD, before=log.version.n + 1, last=last))
        for entry in reversed(found):
            if entry.generation == log.version.generation and isinstance(entry.data, dict) and is_wanted(entry.data):
                return entry.n, entry.data
        if len(found) < last:
            _check_there(plain, log)
            return None
        last *= 4


def _append(spot: _Spot, entries: list[Message] | list[AppendRecord], *, id: str | None = None) -> None:
    """Append to the log of an agent, which becomes its own by that; once for each id of its generation."""
    plain, log = spot.plain, spot.log
    if log is None or not log.is_owned:
        claim = SetMeta({NAME: {**(log.meta if log is not None else {}), "agent": spot.place.agent}})
        together = entries if id is None else []
        plain.submit(spot.key, [claim, *together], expect=Version() if log is None else log.version).result()
        if together:
            return
        # A retry is known by the id of the message alone.
        log = _look(plain, spot.key)
        if log is None or log.meta.get("agent") != spot.place.agent:
            raise Conflict(f"session {spot.key!r} was archived or deleted meanwhile")
    name = None if id is None else f"{NAME}:{log.version.generation}:{id}"
    try:
        # Erasing a message leaves the id of its record.
        plain.submit(log.key, entries, id=name, expect=log.version).result()
    except Conflict:
        if id is None:
            raise
        # Another message may have its number and time: both are kept. Any other conflict is one again.
        plain.submit(log.key, entries, expect=log.version).result()


def _read_agent(spot: _Spot) -> SessionAgent | None:
    log, agent_id = spot.log, spot.place.agent
    if log is None or not (log.is_owned or log.live):
        return None
    found = _last_value(spot.plain, log, lambda data: "agent" in data) if log.is_owned else None
    if found is not None:
        return SessionAgent.from_dict({**_given(found[1]["agent"]), "agent_id": agent_id})
    state = {"__name__": _AnyName("nacre"), "removed_message_count": 0}
    return SessionAgent(agent_id, {}, state, created_at=log.created, updated_at=log.created)


def _state_record(session_agent: SessionAgent) -> AppendRecord:
    return AppendRecord(RECORD, {"agent": _faithful(session_agent.to_dict())})


def _read_multi_agent(plain: Sessions, log: _Log | None, id: str) -> Fields | None:
    found = None if log is None else _last_value(plain, log, lambda data: data.get("multi_agent") == id)
    return None if found is None else _given(found[1]["state"])


def _faithful(value: Fields) -> Fields:
    """A value as a record holds it; as JSON text if that would change it. What is no JSON is a TypeError."""
    text = json.dumps(value)
    try:
        encode_data(value)
    except InvalidMessage:
        return {"json": text}
    return value if is_unicode(json.dumps(value, ensure_ascii=False)) and "json" not in value else {"json": text}


def _given(value: Fields) -> Fields:
    return cast("Fields", json.loads(value["json"])) if "json" in value else value


# ---- messages of Strands as nacre's


def to_messages(given: SessionMessage) -> list[Message]:
    """The messages that one of Strands is stored as."""
    times = {"created_at": given.created_at, "updated_at": given.updated_at}
    # Messages in snapshots have no times.
    head: Fields = {"id": given.message_id, **{name: time for name, time in times.items() if time}}
    mark = dict(head)
    shown = given.to_message()
    if given.redact_message is not None:
        mark["redacted"] = True
        if given.message != given.redact_message:
            mark["original"] = given.message
    try:
        messages = _split(cast("Fields", shown), mark)
        if _join(messages) == shown and all(map(is_exact, messages)):
            return messages
    except (AttributeError, KeyError, TypeError, ValueError, InvalidMessage, RecursionError):
        pass
    # What no log holds as it is, such as NaN and half of a surrogate pair, is kept as a text.
    return [_text_message(cast("Fields", shown), {**head, "json": json.dumps(given.to_dict())})]


def _text_message(shown: Fields, mark: Fields) -> Message:
    """The texts of a message that is whole only in its mark."""
    content = shown.get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [one["text"] for one in blocks if isinstance(one, dict) and isinstance(one.get("text"), str)]
    clean = "\n".join(texts).encode(errors="replace").decode()
    return Message(role="assistant" if shown.get("role") == "assistant" else "user", content=clean, extra={NAME: mark})


def _split(message: Fields, mark: Fields) -> list[Message]:
    """Tool results as messages of their own, and then everything else in one; `layout` has the order if it matters."""
    more = {name: value for name, value in message.items() if name not in ("role", "content")}
    head = {**mark, **({"more": more} if more else {})}
    found: list[Message] = []
    parts: list[Fields] = []
    calls: list[ToolCall] = []
    reasoning: str | None = None
    layout: list[Any] = []
    for block in message["content"]:
        [(kind, value)] = block.items()
        if kind == "toolUse":
            rest = dict(value)
            calls.append(ToolCall(id=rest.pop("toolUseId"), name=rest.pop("name"), arguments=rest.pop("input")))
            layout.append(["call", rest] if rest else "call")
        elif kind == "toolResult" and message["role"] == "user":
            found.append(_result(value))
            layout.append("result")
        elif kind == "reasoningContent" and reasoning is None and type(_thought(value)) is str:
            rest = dict(value["reasoningText"])
            reasoning = rest.pop("text")
            layout.append(["reasoning", rest] if rest else "reasoning")
        else:
            parts.append(_part(kind, value))
            layout.append("part")
    if parts or calls or reasoning is not None or not found:
        is_text = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        content: Any = parts[0]["text"] if is_text else parts or None
        own = Message(
            role=message["role"], content=content, tool_calls=tuple(calls), reasoning=reasoning, extra={NAME: {}}
        )
        found.append(own)
    if layout != _layout(found):
        head["layout"] = layout
    first = replace(found[0], extra={**found[0].extra, NAME: {**found[0].extra[NAME], **head}})
    return [first, *found[1:]]


def _thought(value: Fields) -> Any:
    return value["reasoningText"].get("text") if value.keys() == {"reasoningText"} else None


def _layout(messages: list[Message]) -> list[Any]:
    """The order that blocks have unless it is said."""
    found: list[Any] = []
    for message in messages:
        if message.role == "tool":
            found.append("result")
            continue
        found += ["reasoning"] if message.reasoning is not None else []
        found += ["part"] * len(_parts(message))
        found += ["call"] * len(message.tool_calls)
    return found


def _result(value: Fields) -> Message:
    rest = dict(value)
    id, content = rest.pop("toolUseId"), rest.pop("content")
    own: Fields = {"result": rest} if rest != {"status": "success"} else {}
    shown: Any = [_part(*one) for block in content for one in block.items()]
    if len(content) == 1 and content[0].keys() == {"text"}:
        shown = content[0]["text"]
    elif len(content) == 1 and content[0].keys() == {"json"}:
        own["is_json"] = True
        shown = json.dumps(content[0]["json"], ensure_ascii=False)
    failed = {"failed": True} if value.get("status") == "error" else {}
    return Message(role="tool", tool_call_id=id, content=shown, extra={NAME: own, **failed})


def _part(kind: str, value: Any) -> Fields:
    """A block as a part that anyone can show."""
    if kind == "text":
        return {"type": "text", "text": value}
    if kind == "image" and value.keys() == {"format", "source"} and value["source"].keys() == {"bytes"}:
        data = base64.b64encode(value["source"]["bytes"]).decode()
        return {"type": "image_url", "image_url": {"url": f"data:image/{value['format']};base64,{data}"}}
    if kind == "guardContent" and value.keys() == {"text"}:
        rest = dict(value["text"])
        return {"type": "text", "text": rest.pop("text"), kind: rest}
    if kind == "citationsContent" and len(value.get("content", ())) == 1 and value["content"][0].keys() == {"text"}:
        rest = {name: one for name, one in value.items() if name != "content"}
        return {"type": "text", "text": value["content"][0]["text"], kind: rest}
    return {"type": kind, kind: value}


# ---- nacre's messages as those of Strands


def _join(messages: list[Message]) -> Fields:
    """The message of Strands that messages were made of; also if the first of them is gone."""
    mark = messages[0].extra[NAME]
    results = iter([_tool_result(one) for one in messages if one.role == "tool"])
    other = next((one for one in messages if one.role != "tool"), None)
    parts = iter(_parts(other)) if other is not None else iter(())
    calls = iter(other.tool_calls) if other is not None else iter(())
    blocks: list[Fields] = []
    for entry in mark.get("layout") or _layout(messages):
        kind, rest = (entry, {}) if isinstance(entry, str) else entry
        if kind == "result" and (result := next(results, None)) is not None:
            blocks.append(result)
        elif kind == "part" and (part := next(parts, None)) is not None:
            blocks.append(_block(part))
        elif kind == "call" and (call := next(calls, None)) is not None:
            blocks.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments, **rest}})
        elif kind == "reasoning" and other is not None:
            blocks.append({"reasoningContent": {"reasoningText": {"text": other.reasoning, **rest}}})
    role = "assistant" if other is not None and other.role == "assistant" else "user"
    return {"role": role, "content": blocks, **mark.get("more", {})}


def _parts(message: Message) -> list[Fields]:
    content = message.content
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or []


def _tool_result(message: Message) -> Fields:
    mark = message.extra[NAME]
    if mark.get("is_json"):
        content = [{"json": json.loads(cast("str", message.content))}]
    else:
        content = list(map(_block, _parts(message)))
    rest = mark.get("result", {"status": "success"})
    # In the order in which Strands has the fields: a snapshot is restored byte by byte.
    return {"toolResult": {"toolUseId": message.tool_call_id, **rest, "content": content}}


def _block(part: Fields) -> Fields:
    kind = part["type"]
    if kind == "text":
        if "guardContent" in part:
            return {"guardContent": {"text": {"text": part["text"], **part["guardContent"]}}}
        if "citationsContent" in part:
            return {"citationsContent": {"content": [{"text": part["text"]}], **part["citationsContent"]}}
        return {"text": part["text"]}
    if kind == "image_url":
        return _image(part["image_url"]["url"]) or {"text": f"[image {part['image_url']['url'][:200]}]"}
    return {kind: part[kind]}


def _image(url: str) -> Fields | None:
    head, _, data = url.partition(";base64,")
    if not head.startswith("data:image/"):
        return None
    try:
        return {"image": {"format": head.removeprefix("data:image/"), "source": {"bytes": base64.b64decode(data)}}}
    except binascii.Error:
        return None


class _Found(NamedTuple):
    """A message of Strands, the numbers of those that it was made of, none if others wrote it, and its first number."""

    message: SessionMessage
    numbers: list[int]
    stored_id: int


def _read(now: Snapshot, created: str) -> Iterator[_Found]:
    """The messages of Strands; each number is greater than the one before it: those of several may be the same."""
    numbers = {id(message): n for n, message in zip(now.numbers, now.messages, strict=True)}
    last = -1
    for group in _groups(now.messages):
        if isinstance(group, dict):
            one = SessionMessage(cast("Any", group), last + 1, created_at=created, updated_at=created)
            places: list[int] = []
        else:
            one = _session_message(group, created)
            places = [numbers[id(message)] for message in group]
        stored_id = one.message_id
        last = one.message_id = max(stored_id, last + 1)
        yield _Found(one, places, stored_id)


def _groups(messages: list[Message]) -> Iterator[list[Message] | Fields]:
    """Our own messages in those groups that were one message, and those of others as messages of Strands."""
    group: list[Message] = []
    results: Fields | None = None
    items: Iterator[Message | Fields] = read_conversation(messages, NAME, own=_same, foreign=_from_chat)
    for item in items:
        is_head = not isinstance(item, Message) or "id" in item.extra[NAME] or _is_whole(group)
        if group and is_head:
            yield group
            group = []
        is_result = isinstance(item, dict) and all("toolResult" in block for block in item["content"])
        if results is not None and is_result:
            # All results of a reply are one message.
            results["content"] += cast("Fields", item)["content"]
            continue
        if results is not None:
            yield results
            results = None
        if isinstance(item, Message):
            group.append(item)
        elif is_result:
            results = item
        else:
            yield item
    if group:
        yield group
    if results is not None:
        yield results


def _is_whole(group: list[Message]) -> bool:
    """Tell whether nothing can follow in a group: the user's words stand at its end."""
    return bool(group) and group[-1].role != "tool"


def _same(message: Message) -> Message | Fields:
    return message


def _mend(message: Message, mark: Fields | None = None) -> Message:
    """A message whose content was erased as one of ours that says so; all others as they are."""
    if not is_erased(message) or is_own(message, NAME) or not message.role:
        return message
    calls = tuple(replace(call, arguments={}) for call in message.tool_calls)
    if mark is None:
        tracking_id = _tracking_id_of(message)
        # Without it, words of the user after results are taken for those of the same message.
        is_head = tracking_id is not None or message.role not in ("tool", "user")
        mark = {"id": -1} if is_head else {}
        mark |= {"more": {"tracking_id": tracking_id}} if tracking_id is not None else {}
    return replace(message, content=ERASED_TEXT, tool_calls=calls, extra={**message.extra, NAME: mark})


def _tracking_id_of(message: Message) -> str | None:
    """The `tracking_id` of a message of a snapshot, which is left when its content is erased."""
    origin = message.extra.get("origin")
    id = origin.get("id") if isinstance(origin, dict) else None
    return id.removeprefix(_VALUES) if isinstance(id, str) and id.startswith(_VALUES) else None


def _session_message(group: list[Message], created: str) -> SessionMessage:
    mark = group[0].extra[NAME]
    if "json" in mark:
        return SessionMessage.from_dict(json.loads(mark["json"]))
    shown = cast("Any", decode_bytes_values(json.loads(mark["exact"])) if "exact" in mark else _join(group))
    times = {"created_at": mark.get("created_at", created), "updated_at": mark.get("updated_at", created)}
    if not mark.get("redacted"):
        return SessionMessage(shown, mark.get("id", -1), **times)
    return SessionMessage(mark.get("original", shown), mark["id"], redact_message=shown, **times)


def _find(plain: Sessions, log: _Log, wanted: SessionMessage) -> _Found | None:
    """One of our messages by its number: the one that it was stored with, or the one that it has now."""
    id, time = wanted.message_id, wanted.created_at
    # 1. Nearly always one of the last. The first of them may be a part of one.
    near = list(_read(_snapshot(plain, log, last=_NEAR), log.created))[1:]
    timed = [one for one in near if one.numbers and one.message.created_at == time]
    if len(timed) == 1 and timed[0].stored_id == id:
        return timed[0]
    # 2. Several agents may have stored messages with the same number: the time tells them apart.
    found = [one for one in _read(_snapshot(plain, log), log.created) if one.numbers]
    same = [one for one in found if id in (one.stored_id, one.message.message_id)]
    same.sort(key=lambda one: (one.message.created_at != time, one.message.message_id != id))
    if not same or same[0].message.created_at == time:
        return same[0] if same else None
    # 3. With another time, it is asked for by the number that it has now; unless what is meant has left the history.
    at = next((one for one in same if one.message.message_id == id), None)

    def was_stored(view: View) -> bool:
        ids = (_RECORD_ID.fullmatch(record.id) for record in view.all() if record.id is not None)
        return any(one is not None and (int(one["id"]), one["time"]) == (id, time) for one in ids)

    is_other = at is not None and at.stored_id >= 0
    if is_other and plain.read(log.key, was_stored, generation=log.version.generation):
        return None
    return at


def _copies(plain: Sessions, log: _Log, found: _Found) -> set[int]:
    """Where a message was stored: once more for each message before it that was replaced."""
    numbers = set(found.numbers)
    is_same = False
    for one in plain.transcript(log.key):
        if one.generation == log.version.generation and is_own(one.message, NAME):
            mark = one.message.extra[NAME]
            if "id" in mark:
                is_same = (mark["id"], mark.get("created_at")) == (found.stored_id, found.message.created_at)
            if is_same:
                numbers.add(one.n)
    return numbers


def _from_chat(message: Mapping[str, Any]) -> list[Message | Fields]:
    """A message of OpenAI's chat as one of Strands; other roles are the user's."""
    said = Message.from_mapping(message).to_anthropic()
    blocks: list[Fields] = []
    for block in said["content"]:
        if block["type"] == "tool_use":
            blocks.append({"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}})
        elif block["type"] == "tool_result":
            shown = [_foreign_block(one) for one in block.get("content", ())] or [{"text": ""}]
            status = "error" if block.get("is_error") else "success"
            blocks.append({"toolResult": {"toolUseId": block["tool_use_id"], "content": shown, "status": status}})
        else:
            blocks.append(_foreign_block(block))
    return [{"role": said["role"], "content": blocks}]


def _foreign_block(block: Fields) -> Fields:
    source = block.get("source", {})
    if block["type"] == "image" and source.get("type") == "base64":
        found = _image(f"data:{source['media_type']};base64,{source['data']}")
        if found is not None:
            return found
    return {"text": block["text"] if block["type"] == "text" else f"[{block['type']} {source.get('url', '')}]"}


# ---- snapshots and other values


class _Spans(NamedTuple):
    """A stored snapshot: the number of its record, and from which to below which numbers its messages are.

    `is_changed` if messages of earlier ones may have left the history.
    """

    number: int
    spans: list[list[int]]
    messages: int
    is_changed: bool

    def has(self, number: int) -> bool:
        return any(start <= number < end for start, end in self.spans)


class _Group(NamedTuple):
    """A message of a stored snapshot, as JSON; the numbers of those that it was stored as, and of the erased ones."""

    text: str
    tracking_id: str | None
    numbers: list[int]
    erased: list[int]


_SNAPSHOT = re.compile(r"(?P<space>.+/)?(?P<session>[^/]+)/scopes/agent/(?P<agent>[^/]+)/snapshots/(?P<name>.+)")
_SPACE = "session/"
_VALUES = f"{NAME}:"


class NacreStorage(Storage):
    """The `Storage` of Strands in nacre's sessions of any store; what is written is durable when the call returns.

    The snapshots of an agent are a conversation in the session of the same id, as `NacreSessionRepository` has it: of
    each only the messages that are new are stored. Any other value is in a session `strands:` and its key.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions)

    async def write(self, key: str, data: bytes) -> None:
        """Store a value, in place of the one before."""
        place = _place(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"data must be bytes, not {show(data)}")
        await self._call(f"write {key!r}", lambda plain: _write(plain, place, bytes(data)))

    async def read(self, key: str) -> bytes | None:
        """The value of a key, None if there is none."""
        place = _place(key)
        return await self._call(f"read {key!r}", lambda plain: _at(plain, place, _read_value))

    async def delete(self, key: str) -> None:
        """Delete a value; no error if there is none. With its last snapshot a conversation is erased for good."""
        place = _place(key)
        await self._call(f"delete {key!r}", lambda plain: _at(plain, place, _delete))

    async def list(self, query: str = "") -> builtins.list[str]:
        """The keys that begin with a prefix, sorted."""
        prefix = _clean(query, "a prefix").lstrip("/")
        return await self._call(f"list {query!r}", lambda plain: _list(plain, prefix))

    async def _call(self, what: str, act: Callable[[Sessions], T]) -> T:
        try:
            return await finish(awaited(self._sessions), act)
        except NacreError as error:
            raise StorageError(f"Failed to {what}: {error}") from error


def _clean(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise InvalidStorageKey(f"{name} of a storage must be a text, not {show(text)}")
    if not is_unicode(text) or "\\" in text or ".." in text.split("/"):
        raise InvalidStorageKey(f"{name} of a storage must have no backslash, no '..' and no half characters: {text!r}")
    return re.sub("/+", "/", text)


def _place(key: object) -> _Place:
    text = _clean(key, "a key").strip("/")
    if not text:
        raise InvalidStorageKey("a key of a storage must not be empty")
    found = _SNAPSHOT.fullmatch(text)
    try:
        if found is None:
            return _Place(check_key(f"{_VALUES}{text}"))
        space, session, agent, name = found.group("space", "session", "agent", "name")
        if space != _SPACE:
            session = text.removesuffix(f"/{name}")
        if session.startswith(_VALUES):
            # Another value may have the session of this name.
            return _Place(check_key(f"{_VALUES}{text}"))
        return _Place(check_key(session), check_key(agent), name)
    except InvalidKey as error:
        raise InvalidStorageKey(f"a key of a storage: {error}") from error


def _write(plain: Sessions, place: _Place, data: bytes) -> None:
    """Store a value: a snapshot as the messages that are new and a record of the rest, anything else as a record."""
    snapshot = _parse(data) if place.agent else None
    redacted: set[str] = set()

    def write(spot: _Spot) -> None:
        log = spot.log
        if snapshot is None:
            operations: builtins.list[AnyOperation] = [AppendRecord(RECORD, {"value": place.name, **_opaque(data)})]
        else:
            operations = _delta(spot, snapshot, redacted)
        mark = dict(log.meta) if log is not None else {}
        if mark.get("values") is not True:
            if place.agent:
                mark["agent"] = place.agent
            operations = [SetMeta({NAME: {**mark, "values": True}}), *operations]
        plain.submit(spot.key, operations, expect=Version() if log is None else log.version).result()

    # Where another has written meanwhile, or something was erased, what is new is found again.
    _at(plain, place, write)


def _parse(data: bytes) -> Fields | None:
    """A snapshot with messages, None if it would not be restored byte by byte."""
    try:
        value = json.loads(data)
        messages = value["data"]["messages"]
        is_whole = isinstance(messages, list) and _dump(value).encode() == data
        if is_whole and all(isinstance(one, dict) for one in messages):
            return cast("Fields", value)
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    return None


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _opaque(data: bytes) -> Fields:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _delta(spot: _Spot, snapshot: Fields, redacted: set[str]) -> builtins.list[AnyOperation]:
    """What makes the history and the record of a snapshot out of the newest one that is stored.

    Messages that it erases itself, since the snapshot has other words for them, are added to those that are redacted.
    """
    plain, log, name = spot.plain, spot.log, spot.place.name
    base = _newest_spans(plain, log) if log is not None else None
    old = _groups_of(plain, log, base) if log is not None and base is not None else []
    # What was erased stays so, though the agent still has it.
    given = _as_erased(snapshot["data"]["messages"], old, redacted)
    texts = list(map(_dump, given))
    # 1. The messages that both have: a window drops the first ones, everything else changes the last ones.
    skip = 0
    if texts and old and old[0].text != texts[0]:
        whole = [one.text for one in old]
        skip = next((n for n in range(1, len(old)) if whole[n:] == texts[: len(old) - n]), 0)
    old = old[skip:]
    same = next((n for n, (a, b) in enumerate(zip(old, texts, strict=False)) if a.text != b), min(len(old), len(texts)))
    # 2. A message that was replaced, as a guardrail does it, is erased before its replacement is stored.
    if log is not None and base is not None and same < len(old):
        replaced = {one["tracking_id"] for one in given[same:] if isinstance(one.get("tracking_id"), str)}
        kept = set(texts)
        gone = [one for one in old[same:] if one.tracking_id in replaced and one.text not in kept]
        redacted |= {one.tracking_id for one in gone if one.tracking_id is not None}
        if gone and _erase(plain, log, name, [n for one in gone for n in one.numbers if n not in one.erased]):
            raise Conflict("a message was erased")
    # 3. What is dropped at the end leaves the history; it cannot if others have changed it: then all is new.
    pops: builtins.list[AnyOperation] = []
    if log is not None and base is not None and same < len(old):
        live = _snapshot(plain, log).numbers
        first = old[same].numbers[0]
        pops = [Pop()] * sum(number >= first for number in live)
        if not all(number in live for one in old[:same] for number in one.numbers):
            same = 0
    # Unless the conversation has only grown, it may have messages again that were erased after they had left it.
    is_changed = base is None or base.is_changed or same < len(old)
    before = _stored_groups(plain, spot.key) if is_changed else []
    erased = {one.text for one in (*old, *before) if one.erased}
    made: builtins.list[Message] = []
    for message in _as_erased(given[same:], before, redacted):
        parts = _snapshot_message(message)
        made += map(_as_hole, parts) if _dump(message) in erased else parts
    # 4. Spans: 0 stands for the number of the record itself, and what is negative is counted from it.
    spans: builtins.list[builtins.list[int]] = []
    if same and base is not None and log is not None:
        start, end = old[0].numbers[0], old[same - 1].numbers[-1] + 1
        spans = [[max(start, a), min(end, e)] for a, e in base.spans if a < end and e > start]
        is_next = same == len(old) and base.number == log.version.n and base.spans[-1][1] == base.number
        if is_next:
            spans[-1][1] = 0
        elif made:
            spans.append([-len(made), 0])
    elif made:
        spans.append([-len(made), 0])
    count = sum(len(one.numbers) for one in old[:same]) + len(made)
    rest = {**snapshot, "data": {**snapshot["data"], "messages": None}}
    record = {"value": name, "spans": spans, "count": count, "snapshot": _faithful(rest)}
    if base is not None and is_changed:
        record["changed"] = True
    return [*pops, *made, AppendRecord(RECORD, record)]


def _as_erased(
    given: builtins.list[Fields], stored: builtins.list[_Group], redacted: set[str]
) -> builtins.list[Fields]:
    """Messages of a snapshot, those of which something was erased as they are stored."""
    newest = {one.tracking_id: one for one in stored if one.tracking_id is not None}
    erased = {id: one.text for id, one in newest.items() if one.erased and id not in redacted}
    if not erased:
        return given
    found = []
    for one in given:
        id = one.get("tracking_id")
        found.append(json.loads(erased[id]) if isinstance(id, str) and id in erased else one)
    return found


def _as_hole(message: Message) -> Message:
    """A message that is stored again, marked if it is one of which the content was erased."""
    is_hole = message.content == ERASED_TEXT
    return replace(message, extra={**message.extra, ERASED: True}) if is_hole else message


def _stored_groups(plain: Sessions, key: str) -> builtins.list[_Group]:
    """The messages of all snapshots of a session, also of its archived generations."""
    found: builtins.list[tuple[int, Message]] = []
    for one in plain.transcript(key):
        # The parts of a message were stored together. The other erased ones may be those of others.
        is_part = is_erased(one.message) and bool(found) and found[-1][0] == one.n - 1
        if is_own(one.message, NAME) or _tracking_id_of(one.message) is not None or (is_part and one.message.role):
            found.append((one.n, one.message))
    return _join_groups(found)


def _snapshot_message(message: Fields) -> builtins.list[Message]:
    whole = _dump(message)
    # It would not be restored byte by byte if its fields are in an order of their own, or what it has is no base64.
    made = [_text_message(message, {"id": -1, "exact": whole})]
    try:
        split = to_messages(SessionMessage(decode_bytes_values(message), -1, created_at="", updated_at=""))
        if _dump(_whole(split)) == whole:
            made = split
    except (AttributeError, TypeError, ValueError, RecursionError):
        pass
    id = message.get("tracking_id")
    if isinstance(id, str) and is_unicode(id):
        # Erasing the message leaves this.
        made[0] = replace(made[0], extra={**made[0].extra, "origin": {"id": f"{_VALUES}{id}"}})
    return made


def _whole(group: builtins.list[Message]) -> Fields:
    """The message of a snapshot that messages were made of."""
    mark = group[0].extra[NAME]
    if "exact" in mark:
        return cast("Fields", json.loads(mark["exact"]))
    return cast("Fields", encode_bytes_values(_session_message(group, "").to_message()))


def _values(plain: Sessions, log: _Log) -> dict[str, tuple[int, Fields]]:
    """The records of the values that are in a log, each with its number."""
    found: dict[str, tuple[int, Fields]] = {}
    for entry in plain.records(log.key, RECORD, before=log.version.n + 1):
        if isinstance(entry.data, dict) and "value" in entry.data:
            found[entry.data["value"]] = entry.n, entry.data
        elif isinstance(entry.data, dict) and "deleted" in entry.data:
            found.pop(entry.data["deleted"], None)
    # Records are read in parts, and may have been those of another generation.
    _check_there(plain, log)
    return found


def _newest_spans(plain: Sessions, log: _Log) -> _Spans | None:
    found = _last_value(plain, log, lambda data: "spans" in data)
    return None if found is None else _spans(*found)


def _spans(number: int, data: Fields) -> _Spans:
    absolute = [[a if a > 0 else number + a, e if e > 0 else number] for a, e in data["spans"]]
    return _Spans(number, absolute, data["count"], data.get("changed") is True)


def _groups_of(plain: Sessions, log: _Log, wanted: _Spans) -> builtins.list[_Group]:
    """The messages of a snapshot: from the end of the history, or from the transcript if they are no longer there."""
    now = _snapshot(plain, log, last=max(wanted.messages, 1))
    found = [(n, one) for n, one in zip(now.numbers, now.messages, strict=True) if wanted.has(n)]
    if len(found) != wanted.messages:
        stored = (one for one in plain.transcript(log.key) if one.generation == log.version.generation)
        found = [(one.n, one.message) for one in stored if wanted.has(one.n) and one.message.role]
        _check_there(plain, log)
    return _join_groups(found)


def _join_groups(found: builtins.list[tuple[int, Message]]) -> builtins.list[_Group]:
    groups: builtins.list[tuple[builtins.list[Message], builtins.list[int]]] = []
    for number, message in found:
        one = _mend(message)
        if not groups or "id" in one.extra[NAME] or _is_whole(groups[-1][0]):
            groups.append(([], []))
        groups[-1][0].append(one)
        groups[-1][1].append(number)
    made: builtins.list[_Group] = []
    for messages, numbers in groups:
        whole = _whole(messages)
        erased = [n for n, message in zip(numbers, messages, strict=True) if is_erased(message)]
        made.append(_Group(_dump(whole), whole.get("tracking_id"), numbers, erased))
    return made


def _erase(plain: Sessions, log: _Log, name: str, numbers: builtins.list[int]) -> bool:
    """Erase messages that no other snapshot has; tells whether there were any."""
    others = [_spans(*it) for one, it in _values(plain, log).items() if one != name and "spans" in it[1]]
    gone = [number for number in numbers if not any(one.has(number) for one in others)]
    try:
        for number in gone:
            plain.redact(log.key, number, generation=log.version.generation)
    except SessionNotFound as error:
        raise Conflict(f"session {log.key!r} was deleted meanwhile") from error
    return bool(gone)


def _read_value(spot: _Spot) -> bytes | None:
    plain, log, name = spot.plain, spot.log, spot.place.name
    if log is None:
        return None
    found = _last_value(plain, log, lambda data: name in (data.get("value"), data.get("deleted")))
    if found is None or "deleted" in found[1]:
        return None
    number, data = found
    if "text" in data:
        return str(data["text"]).encode()
    if "base64" in data:
        return base64.b64decode(data["base64"])
    snapshot = dict(_given(data["snapshot"]))
    texts = [one.text for one in _groups_of(plain, log, _spans(number, data))]
    snapshot["data"] = {**snapshot["data"], "messages": list(map(json.loads, texts))}
    return _dump(snapshot).encode()


def _delete(spot: _Spot) -> None:
    plain, log, name = spot.plain, spot.log, spot.place.name
    values = _values(plain, log) if log is not None else {}
    if log is None or name not in values:
        return
    # What `NacreSessionRepository` has in the same session stays.
    if len(values) == 1 and "session" not in log.meta:
        plain.delete(log.key, expect=log.version)
    else:
        plain.submit(log.key, [AppendRecord(RECORD, {"deleted": name})], expect=log.version).result()


def _names(spot: _Spot) -> builtins.list[str]:
    return builtins.list(_values(spot.plain, spot.log)) if spot.log is not None else []


def _list(plain: Sessions, prefix: str) -> builtins.list[str]:
    found: builtins.list[str] = []
    for info in builtins.list(plain.list()):
        mark = info.meta.get(NAME)
        if not isinstance(mark, dict) or mark.get("values") is not True:
            continue
        if info.key.startswith(_VALUES) and "agent" not in mark:
            found.append(info.key.removeprefix(_VALUES))
            continue
        root = f"{info.key}/"
        if "/scopes/agent/" not in info.key:
            root = f"{_SPACE}{info.key.split('/')[0]}/scopes/agent/{mark['agent']}/snapshots/"
        if root.startswith(prefix) or prefix.startswith(root):
            found += [f"{root}{name}" for name in _at(plain, _Place(info.key), _names)]
    return sorted(key for key in found if key.startswith(prefix))
