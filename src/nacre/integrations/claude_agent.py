"""Sessions of the Claude Agent SDK in nacre: `ClaudeAgentOptions(session_store=NacreSessionStore(sessions))`.

An entry of a transcript that is a message of the user or the assistant becomes messages that anyone can read: its text,
its tool calls, and each tool result as a message of its own. Everything else that the entry says is in
`extra["claude_agent"]` of the first of them. Other entries, such as titles and snapshots of files, are records of the
kind `x.claude_agent`.

The key of a session is `project/session`, that of a subagent `project/session/subpath`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec.structs import replace

from nacre.checks import check_key, check_text, is_unicode, show
from nacre.codec import data_of, encode_data, message_of
from nacre.errors import Conflict, InvalidArgument, InvalidMessage, missing_extra
from nacre.history import session_state
from nacre.integrations.access import AnySessions, awaited, change, check_sessions, finish, read_active
from nacre.integrations.conversation import is_exact, with_results
from nacre.messages import Message, Snapshot, ToolCall, check_created, is_erased
from nacre.records import AppendRecord, SetMeta, View
from nacre.sessions import AnyEntry, AnyOperation, Sessions

try:
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
    )
except ModuleNotFoundError as error:
    raise missing_extra("claude-agent", error) from error

T = TypeVar("T")
Fields = dict[str, Any]
Step = tuple[str | None, Sequence[AnyOperation]]
"""What is stored as one transaction, and its id."""
NAME = "claude_agent"
_EPOCH = datetime.fromtimestamp(0, UTC)
RECORD = f"x.{NAME}"
_PLACE = f"{NAME}.place"
"""In `extra` of a message that is read: its generation and number."""
_MAX_ID = 256

Locks = WeakValueDictionary[tuple[int, str], asyncio.Lock]
_shared: WeakKeyDictionary[AnySessions, Locks] = WeakKeyDictionary()
"""What lets the changes of each session come one after the other, in each event loop."""


class NacreSessionStore(SessionStore):
    """The transcripts of the Claude Agent SDK, in nacre's sessions of any store.

    `append` returns when the entries are durable. An entry whose `uuid` is stored already is not stored again, however
    long ago that was and whatever it says now. Entries of one session are stored in the order of the calls.
    A transcript that was archived is not there: what is appended begins another one, which may have the same entries.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions)
        self._locks = _shared.setdefault(self._sessions, WeakValueDictionary())

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store entries of a transcript; those whose `uuid` is known are left out."""
        name = _key(key)
        given = _check_list(entries)
        if not given:
            return
        await self._change(key, lambda sessions: _append(sessions, key, name, given))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """The entries of a transcript, equal to what was appended; None if there are none."""
        name = _key(key)
        entries = await self._call(lambda sessions: _load(sessions, name))
        return cast("list[SessionStoreEntry]", entries) if entries else None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, and when each was last appended to."""

        def listed(sessions: Sessions) -> list[SessionStoreListEntry]:
            found = _of_project(sessions, project_key)
            return [{"session_id": session_id, "mtime": mtime} for session_id, mtime, _, _ in found]

        return await self._call(listed)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK's own listings show of the sessions of a project."""
        return await self._call(lambda sessions: _summaries(sessions, project_key))

    async def delete(self, key: SessionKey) -> None:
        """Erase a transcript for good, also what was archived of it; that of a session with those of its subagents."""
        name = _key(key)

        def erase(sessions: Sessions) -> None:
            if key.get("subpath") is None:
                # First: what is left if the process is killed can be found by the session, and deleted again.
                for info in sessions.page(which="all", prefix=f"{name}/", limit=None).items:
                    sessions.delete(info.key)
            sessions.delete(name)

        await self._change(key, erase)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session: the transcripts of its subagents."""
        prefix = f"{_key({'project_key': key['project_key'], 'session_id': key['session_id']})}/"

        def subpaths(sessions: Sessions) -> list[str]:
            return [info.key.removeprefix(prefix) for info in sessions.list(prefix=prefix, order="key")]

        return await self._call(subpaths)

    async def _call(self, work: Callable[[Sessions], T]) -> T:
        return await awaited(self._sessions).call(work)

    async def _change(self, key: SessionKey, work: Callable[[Sessions], None]) -> None:
        """Change a session or its subagents, after the changes that were asked for before, even if they were cancelled.

        A thread cannot be cancelled: the next change waits for it, although the caller of this one may be gone.
        """
        session = _key({"project_key": key["project_key"], "session_id": key["session_id"]})
        place = (id(asyncio.get_running_loop()), session)
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        await lock.acquire()
        # The loop itself does not end before it: a later one has other locks.
        changing = asyncio.ensure_future(finish(awaited(self._sessions), work))

        def release(done: asyncio.Future[None]) -> None:
            lock.release()
            # Nobody waits for it after a cancellation, and then its error is nobody's.
            if not done.cancelled():
                done.exception()

        changing.add_done_callback(release)
        await asyncio.shield(changing)


# ---- keys


def _key(key: SessionKey) -> str:
    """The key of nacre's session: the parts with `/` between them, which is escaped in the first two."""
    if not isinstance(key, Mapping):
        raise InvalidArgument(f"a key must be a mapping with project_key and session_id, not {show(key)}")
    parts = [_escape(_part(key, "project_key")), _escape(_part(key, "session_id"))]
    if key.get("subpath") is not None:
        parts.append(_part(key, "subpath"))
    return check_key("/".join(parts))


def _part(key: Mapping[str, Any], name: str) -> str:
    if not (text := check_text(key.get(name), name)):
        raise InvalidArgument(f"{name} must not be empty")
    return text


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


def _unescape(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")


# ---- writing


def _check_list(entries: object) -> list[Any]:
    if not isinstance(entries, list | tuple):
        raise InvalidArgument(f"entries must be a list, not {show(entries)}")
    return list(entries)


def _check_entry(entry: object) -> Fields:
    if not isinstance(entry, dict):
        raise InvalidMessage(f"an entry of a transcript must be a dict, not {show(entry)}")
    return entry


def _append(sessions: Sessions, key: SessionKey, name: str, entries: list[Fields]) -> None:
    """Store each entry as a transaction under its uuid, and with them what the SDK's listings show.

    All of them are queued before the first is waited for, so they share a flush.
    """
    entries = _without_loaded(sessions, name, [_check_entry(entry) for entry in entries])
    if not entries:
        return
    generations = sessions.read_generations(name, lambda view: (view.uid, view.is_archived))
    before = next((uid for uid, is_archived in reversed(generations) if is_archived), "")
    steps: list[Step] = [(_entry_id(entry, before), _operations(entry)) for entry in entries]
    now = read_active(sessions, name, last=0)
    count = sum(len(operations) for _, operations in steps)
    fields: Fields = {} if now.meta.get("keep_ids") is True else {"keep_ids": True}
    if key.get("subpath") is None:
        fields |= _summary_fields(key, now, entries, count)
    if fields:
        steps.append((None, [SetMeta(fields)]))
    if not sessions.is_at(name, now.version):
        # If somebody else has deleted the session, the next write is refused: let it be none of the entries.
        change(sessions, name, lambda: sessions.update(name, []))
    # It may be deleted now, too.
    refused = _submit(sessions, name, _submit(sessions, name, steps))
    if any(id is None for id, _ in refused):
        raise Conflict(f"session {name!r} was changed by others all the time; not all entries were stored")
    # Any other that is refused twice has a uuid that is known, with another content: the first one stays.


def _without_loaded(sessions: Sessions, name: str, entries: list[Fields]) -> list[Fields]:
    """Leave out what `load` has made of messages of others in the session: they are stored."""
    # The CLI names its entries by uuids of version 4.
    if not any(str(entry.get("uuid"))[14:15] == "5" for entry in entries):
        return entries
    made = _Foreign(name)
    list(_entries(sessions.read(name, _messages) or [], made))
    return [entry for entry in entries if str(entry.get("uuid")) not in made.uuids]


def _submit(sessions: Sessions, name: str, steps: list[Step]) -> list[Step]:
    """Store some steps; returns those that are refused by a Conflict."""
    pending = [sessions.submit(name, operations, id=id) for id, operations in steps]
    refused = []
    for step, one in zip(steps, pending, strict=True):
        try:
            one.result()
        except Conflict:
            refused.append(step)
    return refused


def _entry_id(entry: Fields, before: str) -> str | None:
    """What an entry is stored under, once; nacre would know its uuid after the generation `before`, too."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    id = f"{before}:{uuid}" if before else uuid
    return id if len(id) <= _MAX_ID and is_unicode(id) else str(uuid5(NAMESPACE_OID, json.dumps(id)))


def _summary_fields(key: SessionKey, now: Snapshot, entries: list[Fields], count: int) -> Fields:
    """The meta with the SDK's summary after some entries; nothing if the one that is there is not up to date.

    `n` is the number that the record of this meta will have if nobody else writes and no entry is known. In any other
    case it has another one, and the summary is made again when it is asked for.
    """
    known = _summary(now.meta)
    if now.n and (known is None or known["n"] != now.n):
        return {}
    previous: SessionSummaryEntry | None = None
    if known is not None:
        previous = {"session_id": key["session_id"], "mtime": 0, "data": known["data"]}
    folded = fold_session_summary(previous, key, cast("list[SessionStoreEntry]", entries))["data"]
    return _meta(folded, known["data"] if known is not None else {}, n=max(now.n, 1) + count + 1)


def _meta(data: Fields, before: Fields, *, n: int) -> Fields:
    """The meta of a summary, with the labels that nacre's own lists show where they have changed."""
    fields: Fields = {NAME: {"n": n, "data": data}}
    title = data.get("custom_title") or data.get("ai_title")
    if isinstance(title, str) and title != (before.get("custom_title") or before.get("ai_title")):
        fields["title"] = title
    if isinstance(data.get("cwd"), str) and data["cwd"] != before.get("cwd"):
        fields["cwd"] = data["cwd"]
    return fields


def _summary(meta: Mapping[str, Any]) -> Fields | None:
    found = meta.get(NAME)
    is_one = isinstance(found, dict) and isinstance(found.get("n"), int) and isinstance(found.get("data"), dict)
    return found if is_one else None


# ---- reading


def _load(sessions: Sessions, name: str) -> list[Fields]:
    made = _Foreign(name)
    entries = list(_entries(sessions.read(name, _messages) or [], made))
    # It names the end of the conversation: where others went on, the CLI must look for the end itself.
    end = max((at for at, entry in enumerate(entries) if entry.get("uuid") in made.uuids), default=-1)
    return [entry for at, entry in enumerate(entries) if at > end or entry.get("type") != "last-prompt"]


def _messages(view: View) -> list[Message]:
    """The live messages of a session and the records of other entries, in their order; none if it is archived.

    Each message has its place. What others have put under our name is left out.
    """
    if view.is_archived:
        return []
    live = {record.n for record in session_state.newest(view)}
    found = []
    for record in view.all():
        if record.n in live:
            message = message_of(record, view)
            is_own = _is_own(message)
            extra = {name: value for name, value in message.extra.items() if is_own or name != NAME}
            found.append(replace(message, extra={**extra, _PLACE: f"{view.uid}/{record.n}"}))
        elif record.t == RECORD and record.gone is None:
            data = data_of(record if record.blobs is None else view.whole(record))
            entry = Message(role="", extra={"type": RECORD, NAME: data})
            found += [entry] if _is_own(entry) else []
    return found


def _is_own(message: Message) -> bool:
    """Whether a message, or a record as one, was an entry, or a part of one."""
    mark = message.extra.get(NAME)
    if not isinstance(mark, dict):
        return False
    entry = mark.get("entry")
    if isinstance(entry, dict):
        return isinstance(entry.get("message"), dict) and (message.role != "assistant" or "blocks" in mark)
    return isinstance(mark.get("whole"), dict) or isinstance(mark.get("json"), str) or isinstance(mark.get("part"), int)


def _entries(messages: Iterable[Message], made: _Foreign) -> Iterator[Fields]:
    """The entries that messages were made from; those of others, and what was erased, become entries of the same shape.

    A part without its beginning, which somebody has truncated, says nothing that can be resumed. If that was erased,
    it is still the result of a call.
    """
    group: list[Message] = []
    is_after_erased = False
    for message, is_own in with_results(messages, NAME):
        made.note_time(message)
        is_part = is_own and "part" in message.extra[NAME]
        if group and not is_part:
            yield made.follow(_entry(group))
            group = []
        if not is_own or (is_part and is_after_erased):
            is_after_erased = is_own or is_erased(message)
            yield made.entry(message, stands_for_ours=is_after_erased)
        elif group or not is_part:
            group.append(message)
            is_after_erased = False
    if group:
        yield made.follow(_entry(group))


def _of_project(sessions: Sessions, project_key: str) -> Iterator[tuple[str, int, str, Fields]]:
    """Of each session of a project its id, when it was last appended to, its key and its meta."""
    prefix = f"{_escape(_part({'project_key': project_key}, 'project_key'))}/"
    for info in sessions.list(prefix=prefix):
        session_id = info.key.removeprefix(prefix)
        if "/" not in session_id:
            yield _unescape(session_id), int(info.updated.timestamp() * 1000), info.key, info.meta


def _summaries(sessions: Sessions, project_key: str) -> list[SessionSummaryEntry]:
    found: list[SessionSummaryEntry] = []
    for session_id, mtime, name, meta in _of_project(sessions, project_key):
        known = _summary(meta)
        if known is None or known["n"] != sessions.read(name, lambda view: view.n):
            data = _refold(sessions, {"project_key": project_key, "session_id": session_id}, name)
        else:
            data = known["data"]
        found.append({"session_id": session_id, "mtime": mtime, "data": data})
    return found


def _refold(sessions: Sessions, key: SessionKey, name: str) -> Fields:
    """Make the summary of a session again from its entries, and keep it.

    That is needed if a process was killed on the way, if several have written at once, if an entry was sent twice, or
    if somebody else has changed the session.
    """
    now = sessions.snapshot(name, last=0)
    known = _summary(now.meta)
    data = fold_session_summary(None, key, cast("list[SessionStoreEntry]", _load(sessions, name)))["data"]
    fields = _meta(data, known["data"] if known is not None else {}, n=now.n + 1)
    with suppress(Conflict):
        # Somebody has written meanwhile: the next who asks makes it again.
        sessions.set_meta(name, fields, expect=now.version)
    return data


# ---- an entry as messages


def _operations(entry: Fields) -> Sequence[AnyEntry]:
    """What is stored of an entry: messages if it is one, and a record otherwise.

    Whatever would not be read again as it is, such as half of a surrogate pair, is kept as JSON text.
    """
    is_faithful = _is_faithful(entry)
    messages = _as_messages(entry) if is_faithful else None
    if messages is not None and _entry(messages) == entry and all(map(is_exact, messages)):
        return messages
    data = {"whole": entry} if is_faithful else {"json": json.dumps(entry)}
    role, text = entry.get("type"), _text(entry)
    if text and role in ("user", "assistant"):
        return [Message(role=str(role), content=text, extra={NAME: data})]
    return [AppendRecord(RECORD, data)]


def _is_faithful(entry: Fields) -> bool:
    try:
        encode_data(entry)
    except InvalidMessage:
        return False
    return is_unicode(json.dumps(entry, ensure_ascii=False))


def _text(entry: Fields) -> str:
    """The text of an entry that cannot be stored as it is, for people."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [{"text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
    return "\n".join(
        block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)
    )


def _as_messages(entry: Fields) -> list[Message] | None:
    """The messages of an entry, None if it is none of a user or an assistant."""
    message = entry.get("message")
    if not isinstance(message, dict) or message.get("role") != entry.get("type") or "content" not in message:
        return None
    rest = {name: value for name, value in entry.items() if name != "message"}
    rest["message"] = {name: value for name, value in message.items() if name not in ("role", "content")}
    created = _time(rest.get("timestamp"))
    content = message["content"]
    blocks = content if isinstance(content, list) and all(isinstance(one, dict) for one in content) else None
    if entry["type"] == "assistant" and blocks is not None:
        return [_assistant(rest, blocks, created)]
    if entry["type"] != "user" or not (isinstance(content, str) or blocks is not None):
        return None
    del rest["type"]
    if blocks is None:
        return [Message(role="user", content=content, created=created, extra={NAME: {"entry": rest}})]
    return _user(rest, blocks, created)


def _assistant(rest: Fields, blocks: list[Fields], created: datetime | None) -> Message:
    """A reply: texts, thoughts and calls go where all readers look, and `blocks` keeps their order and the rest."""
    texts = [block for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    thoughts = [block for block in blocks if block.get("type") == "thinking" and isinstance(block.get("thinking"), str)]
    calls, layout = [], []
    for block in blocks:
        left = dict(block)
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
            calls.append(ToolCall(id=left.pop("id"), name=left.pop("name"), arguments=left.pop("input", None)))
        elif any(block is one for one in texts):
            del left["text"]
        elif len(thoughts) == 1 and block is thoughts[0]:
            del left["thinking"]
        layout.append(left)
    inner = rest["message"]
    model = inner.pop("model", None) if isinstance(inner.get("model"), str) else None
    content: Any = None
    if texts:
        content = texts[0]["text"] if len(texts) == 1 else [{"type": "text", "text": one["text"]} for one in texts]
    del rest["type"]
    return Message(
        role="assistant",
        content=content,
        tool_calls=tuple(calls),
        reasoning=thoughts[0]["thinking"] if len(thoughts) == 1 else None,
        model=model,
        created=created,
        extra={NAME: {"entry": rest, "blocks": layout}},
    )


def _user(rest: Fields, blocks: list[Fields], created: datetime | None) -> list[Message]:
    """Each tool result as a message of its own, and what stands between them as messages of the user.

    The first has the rest of the entry, each of the others is a `part`.
    """
    found: list[Message] = []

    def add(role: str, content: Any, own: Fields, *, id: str | None = None, is_failed: bool = False) -> None:
        mark = {"entry": rest, **own} if not found else {"part": len(found), **own}
        extra = {NAME: mark, **({"failed": True} if is_failed else {})}
        found.append(Message(role=role, content=content, tool_call_id=id, created=created, extra=extra))

    said: list[Fields] = []
    for block in [*blocks, None]:
        is_result = (
            block is not None and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
        )
        if block is not None and not is_result:
            said.append(block)
            continue
        if said or (block is None and not found):
            # A single text is stored as one; `text` says that it was a block.
            is_text = len(said) == 1 and said[0].keys() == {"type", "text"} and said[0]["type"] == "text"
            add("user", said[0]["text"] if is_text else said, {"text": True} if is_text else {})
            said = []
        if block is not None:
            left = {name: value for name, value in block.items() if name not in ("type", "tool_use_id", "content")}
            mark = {"result": left} if "content" in block else {"result": left, "empty": True}
            failed = block.get("is_error") is True
            add("tool", block.get("content"), mark, id=block["tool_use_id"], is_failed=failed)
    return found


def _time(text: object) -> datetime | None:
    """The time of an entry, for those who list or show it; the entry keeps its text."""
    if not isinstance(text, str):
        return None
    try:
        return check_created(text)
    except InvalidMessage:
        return None


# ---- messages as an entry


def _entry(messages: Sequence[Message]) -> Fields:
    """The entry that messages were made from."""
    first = messages[0]
    mark = first.extra[NAME]
    if "json" in mark:
        return cast("Fields", json.loads(mark["json"]))
    if "whole" in mark:
        return cast("Fields", mark["whole"])
    entry = {"type": "assistant" if first.role == "assistant" else "user", **mark["entry"]}
    inner: Fields = {"role": entry["type"], **entry["message"]}
    if first.role == "assistant":
        inner["content"] = _blocks(first)
        if first.model is not None:
            inner["model"] = first.model
    elif len(messages) == 1 and isinstance(first.content, str) and "text" not in mark and "result" not in mark:
        inner["content"] = first.content
    else:
        inner["content"] = [block for message in messages for block in _said(message)]
    return {**entry, "message": inner}


def _blocks(message: Message) -> list[Fields]:
    """The blocks of a reply, with its texts, its thoughts and its calls in them."""
    content = message.content
    texts = iter([content] if isinstance(content, str) else [part["text"] for part in content or []])
    calls = iter(message.tool_calls)
    blocks = []
    for left in message.extra[NAME]["blocks"]:
        block = dict(left)
        if left.get("type") == "text" and "text" not in left:
            block["text"] = next(texts, "")
        elif left.get("type") == "thinking" and "thinking" not in left:
            block["thinking"] = message.reasoning
        elif left.get("type") == "tool_use" and "id" not in left and (call := next(calls, None)) is not None:
            block |= {"id": call.id, "name": call.name, "input": call.arguments}
        blocks.append(block)
    return blocks


def _said(message: Message) -> list[Fields]:
    mark = message.extra[NAME]
    if "result" in mark:
        content = {} if "empty" in mark else {"content": message.content}
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, **content, **mark["result"]}]
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}]
    return message.content or []


class _Foreign:
    """Messages of other frameworks as entries of a transcript, each linked to the one before it.

    They are named by their places, so that an entry that was linked to one of them still is when others are erased,
    truncated or added. What stands for a result that is missing is named by the place before it.
    """

    def __init__(self, name: str) -> None:
        self._session_id = _unescape(name.split("/")[1]) if "/" in name else name
        self._last: str | None = None
        self._made: str | None = None
        self._results: dict[str, str] = {}
        self._own: set[str] = set()
        self._time = _EPOCH
        self._place, self._missing = "", 0
        self.uuids: set[str] = set()

    def note_time(self, message: Message) -> None:
        """Let what is made next have the time of a message at least."""
        self._time = max(self._time, message.created or _EPOCH)

    def follow(self, entry: Fields) -> Fields:
        """Pass an entry on; what comes after it is linked to it, and it to what is in the place of its parent."""
        if isinstance(entry.get("uuid"), str):
            self._own.add(entry["uuid"])
            if entry.get("type") in ("user", "assistant"):
                self._last = entry["uuid"]
        before = entry.get("parentUuid")
        if self._made is None or not isinstance(before, str):
            return entry
        # If it is gone, it was erased; or others wrote it, and it has another name in a fork, or stood for a result.
        parent = before if before in self._own or before in self.uuids else self._made
        while parent in self._results:
            parent = self._results[parent]
        return entry if parent == before else {**entry, "parentUuid": parent}

    def entry(self, message: Message, *, stands_for_ours: bool) -> Fields:
        """A message as an entry; it may stand for one of ours that was erased, in whole or in part."""
        said = Message.from_mapping(message.to_openai()).to_anthropic()
        self._missing += 1
        if _PLACE in message.extra:
            self._place, self._missing = message.extra[_PLACE], 0
        uuid = str(uuid5(NAMESPACE_OID, f"{self._place}+{self._missing}"))
        # The CLI orders by time, and leaves out what has none.
        self._time += timedelta(milliseconds=1)
        time = self._time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        linked = {"uuid": uuid, "parentUuid": self._last, "isSidechain": False, "sessionId": self._session_id}
        self.uuids.add(uuid)
        if stands_for_ours and message.role == "tool" and self._last is not None:
            # What follows the call, or another of its results, must follow this one too.
            self._results[self._last] = uuid
        self._last = self._made = uuid
        return {"type": said["role"], **linked, "timestamp": time, "message": said}
