"""Conversations of Pydantic AI in nacre: `NacreConversationStore` has its `load`, `save`, `branch` and `fork`.

The key of a session is the conversation's id, and the live history of the session is the conversation's history. A
response is one message of the assistant with its tool calls; of a request every part is a message: prompts, and each
tool result. What such a message cannot say is in `extra["pydantic_ai"]`. The conversation's record is in the meta.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby, islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace as replace_fields

from nacre.checks import check_key, is_unicode
from nacre.codec import encode_data, message_of
from nacre.errors import InvalidArgument, InvalidMessage, missing_extra
from nacre.history import session_state
from nacre.history.pairing import attach_results, distinct
from nacre.integrations.access import AnySessions, awaited, change, check_sessions
from nacre.integrations.conversation import find_crossing, is_exact, is_own, lacks_call, order_read, show_alone
from nacre.messages import Message, SessionInfo, ToolCall, Version
from nacre.records import Record, Rewind, SetMeta, State, View
from nacre.sessions import AnyOperation, Sessions

try:
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserContent,
        UserPromptPart,
    )
except ModuleNotFoundError as error:
    raise missing_extra("pydantic-ai", error) from error

T = TypeVar("T")
Fields = dict[str, Any]
NAME = "pydantic_ai"
_RECORD = TypeAdapter(ConversationRecord)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_PLACES = 4096
_PLACE = f"{NAME}.n"


class NacreConversationStore(ConversationStore):
    """Pydantic AI's conversations, in nacre's sessions of any store.

    A save stores the new messages and the record in one step, if the conversation still has the revision that it was
    loaded with, whichever process changed it. `delete` erases the messages for good; a fork has its own copy of those
    that it shares. Messages that other frameworks wrote in a session are loaded like all others, and change the
    revision. `list_conversations` has the conversations that were saved here.

    What an application calls are the methods of Pydantic AI's own `ConversationStore`, all awaited; those below are
    what they are made of:

    - `load(conversation_id, *, limit=None, scope=None)`: the `Conversation`, None if there is none.
    - `save(conversation, *, scope=None)`: store what is new of a conversation or of the result of a run.
    - `branch(conversation_id, *, at=None, from_entry=None, expected_revision, scope=None)`: go back to an earlier
      point, or to a branch that was left.
    - `fork(conversation_id, *, at=None, from_entry=None, new_conversation_id=None, scope=None, source_scope=None)`:
      begin another conversation with the history of this one.
    - `delete(conversation_id, *, scope=None)`: erase a conversation for good.
    - `list_conversations(*, scope=None, limit=None)`: the records of conversations, the last saved first.
    - `load_entries(conversation_id, *, limit=None, scope=None)`: the messages with their ids.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions)
        # In which sessions entries were seen last: an entry is asked for by its id alone.
        self._places: dict[str, str] = {}

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, None if there is none."""
        key = check_key(conversation_id)
        found = (await self._call(lambda sessions: _look(sessions, key))).record
        self._remember(found)
        return found

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records of the conversations that were saved here, the last saved first."""

        def read(sessions: Sessions) -> list[ConversationRecord]:
            records = [record for info in sessions.list() if (record := _record_in(info.meta, info.key)) is not None]
            wanted = [record for record in records if scope is None or record.scope == scope]
            wanted.sort(key=lambda record: record.updated_at, reverse=True)
            looks = (_look(sessions, record.conversation_id).record for record in wanted[:limit])
            return [record for record in looks if record is not None]

        found = await self._call(read)
        for record in found:
            self._remember(record)
        return found

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with the new entries in one step; raises ConversationConflict if the revision is another."""
        check_key(record.conversation_id)
        if new_entries and record.head_id != new_entries[-1].id:
            raise InvalidArgument("the head of a record must be the last of its new entries")
        await self._call(lambda sessions: self._write(sessions, record, new_entries, expected_revision))
        self._remember(record)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation for good; raises ConversationConflict if the revision is another."""
        key = check_key(conversation_id)

        def erase(sessions: Sessions) -> None:
            now = _look(sessions, key)
            if now.record is None or now.record.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            sessions.delete(key, expect=now.version)

        await self._call(lambda sessions: change(sessions, key, lambda: erase(sessions)))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry with this id; raises KeyError if there is none."""
        return (await self.read_history(entry_id, limit=1))[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last few of them; raises KeyError if there is no such entry."""
        if head_id is None or limit == 0:
            return []
        return await self._call(lambda sessions: self._read_history(sessions, head_id, limit))

    async def read_messages(self, conversation_id: str, *, limit: int | None = None) -> list[ModelMessage]:
        """The live history of any session as Pydantic AI's messages, also if others wrote it; [] if there is none."""
        entries = await self.load_entries(conversation_id, limit=limit)
        return [entry.message for entry in entries or []]

    async def _call(self, work: Callable[[Sessions], T]) -> T:
        return await awaited(self._sessions).call(work)

    def _remember(self, record: ConversationRecord | None) -> None:
        if record is None:
            return
        if len(self._places) > _MAX_PLACES:
            self._places = {}
        for tip in (record.head_id, record.forked_at, *record.branches):
            if tip is not None:
                self._places[tip] = record.conversation_id

    def _read_history(self, sessions: Sessions, head_id: str, limit: int | None) -> list[ConversationEntry]:
        for key in self._candidates(sessions, head_id):
            found = sessions.read(key, lambda view: _history(view, head_id, limit))
            if found is not None:
                return found
        raise KeyError(head_id)

    def _candidates(self, sessions: Sessions, entry_id: str) -> Iterator[str]:
        """The sessions that may have an entry: the one where it was last seen, then all others."""
        known = self._places.get(entry_id)
        if known is not None:
            yield known
        infos = [info for info in sessions.list() if info.key != known]
        yield from (info.key for info in sorted(infos, key=lambda info: not _is_near(info, entry_id)))

    def _write(
        self,
        sessions: Sessions,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected_revision: str | None,
    ) -> None:
        key = record.conversation_id
        said = _said_again(new_entries)
        parent_id = new_entries[0].parent_id if new_entries else record.head_id

        def write() -> None:
            # 1. Is it as the caller has seen it?
            now = _look(sessions, key)
            if (now.record.revision if now.record is not None else None) != expected_revision:
                raise ConversationConflict(key)
            # 2. Go to the entry that the new ones follow, which may be in another conversation.
            steps: list[AnyOperation] | None = []
            if parent_id != (now.record.head_id if now.record is not None else None):
                steps = [Rewind(0)] if parent_id is None else self._steps_to(sessions, record, parent_id)
            if steps is None:
                raise ConversationConflict(key)
            about = SetMeta({NAME: {**_record_data(record), "tips": _tip_places(record.branches, now)}})
            # 3. All in one step, if nobody else has written since.
            sessions.submit(key, [*steps, *said, about], expect=now.version).result()

        change(sessions, key, write)

    def _steps_to(self, sessions: Sessions, record: ConversationRecord, entry_id: str) -> list[AnyOperation] | None:
        """What makes the history up to an entry the live one; None if no session has it."""
        key = record.conversation_id
        steps = sessions.read(key, lambda view: None if view.is_archived else _steps_back(view, entry_id))
        if steps is not None:
            return steps
        # Others may have changed another fork with the same entries.
        source = [record.forked_from] if record.forked_from is not None else []
        for other in (*source, *self._candidates(sessions, entry_id)):
            found = sessions.read(other, lambda view: _history(view, entry_id, None))
            if found is not None:
                return [Rewind(0), *_said_again(found)]
        return None


# ---- what a session has


class _Look(NamedTuple):
    """A session at one moment, and its record as it is now."""

    version: Version = Version()
    record: ConversationRecord | None = None
    tips: Mapping[str, Sequence[Any]] = MappingProxyType({})


def _look(sessions: Sessions, key: str) -> _Look:
    def look(view: View) -> _Look:
        if view.is_archived:
            return _Look()
        version, changed = Version(view.n, view.uid), view.state.h
        meta = session_state.meta(view, view.state)
        record = _record_in(meta, key)
        tips = meta[NAME].get("tips", {}) if record is not None else {}
        last = next(iter(_tail(view, view.state, 1)), None)
        head_id = last.id if last is not None else None
        is_erased = any(newest.gone is not None for newest in islice(session_state.chain(view, view.state), 1))
        is_saved = record is not None and record.head_id == head_id and not is_erased
        # Somebody else has changed the history, or erased its end: then the revision is another, too.
        if is_saved and _changed_at_save(view) == changed:
            return _Look(version, record, tips)
        if record is not None:
            record = replace(record, head_id=head_id, revision=f"{record.revision}+{changed}")
        elif last is not None:
            updated = last.message.timestamp or _EPOCH
            revision = f"{view.uid}+{changed}"
            record = ConversationRecord(conversation_id=key, head_id=head_id, revision=revision, updated_at=updated)
        return _Look(version, record, tips)

    return sessions.read(key, look) or _Look()


def _changed_at_save(view: View) -> int | None:
    """The last record that had changed the history when the conversation was last saved; None if that is lost."""
    saved = view.find(view.state.mp)
    while saved is not None:
        earlier = next(view.back(saved.n - 1), None)
        before = view.find(earlier.st.mp) if earlier is not None and earlier.st.mp else None
        if before is None or (before.meta or {}).get(NAME) != (saved.meta or {}).get(NAME):
            return saved.st.h
        # Nothing but somebody else's label was set: the save is further back.
        saved = before
    return None


def _record_data(record: ConversationRecord) -> Fields:
    """The record as it is kept in the meta; as JSON text if it would not be read again as it is."""
    data: Fields = _RECORD.dump_python(record, mode="json")
    text = json.dumps(data)
    try:
        if is_unicode(json.dumps(data, ensure_ascii=False)) and encode_data(data)[0] == data:
            return data
    except InvalidMessage:
        pass
    return {"conversation_id": record.conversation_id, "json": text}


def _record_in(meta: Mapping[str, Any], key: str) -> ConversationRecord | None:
    """The record in the meta of a session; that of another one, which it was forked from, is not its own."""
    data = meta.get(NAME)
    if not isinstance(data, dict) or data.get("conversation_id") != key:
        return None
    return _RECORD.validate_python(json.loads(data["json"]) if "json" in data else data)


def _is_near(info: SessionInfo, entry_id: str) -> bool:
    data = info.meta.get(NAME)
    tips = [data.get("head_id"), *data.get("branches", [])] if isinstance(data, dict) else []
    return entry_id in tips or entry_id.startswith(f"{info.generation}/")


def _tips(view: View) -> dict[str, Record]:
    """The last record before each branch was left, as far as it was left in this generation."""
    data = session_state.meta(view, view.state).get(NAME)
    places = data.get("tips", {}) if isinstance(data, dict) else {}
    found = {tip: view.find(place[1]) for tip, place in places.items() if place[0] == view.uid}
    return {tip: record for tip, record in found.items() if record is not None}


def _tip_places(branches: Iterable[str], now: _Look) -> dict[str, Sequence[Any]]:
    """Where the branches of a record end that is stored now: the one that it leaves ends here."""
    places = dict(now.tips)
    if now.record is not None and now.record.head_id is not None:
        places[now.record.head_id] = (now.version.generation, now.version.n)
    return {tip: places[tip] for tip in branches if tip in places}


def _history(view: View, entry_id: str, limit: int | None) -> list[ConversationEntry] | None:
    """The entries up to one, or the last few of them; None if the entry is not there.

    An entry that is live has the entries before it that are live. Any other has those of the last branch with it that
    was left, or else those that were live when it was stored.
    """
    last = _tail(view, view.state, limit or 1)
    if last and last[-1].id == entry_id:
        return last if limit is not None else _tail(view, view.state, None)
    found = _find(view, entry_id)
    numbers = {record.n for record in found}
    tips = {tip: record.st for tip, record in _tips(view).items()}
    left = [tips[entry_id]] if entry_id in tips else reversed(tips.values())
    for state in (view.state, *left, *(record.st for record in reversed(found))):
        if numbers.isdisjoint(record.n for record in session_state.chain(view, state)):
            continue
        entries = _tail(view, state, None)
        at = next((at for at, entry in enumerate(entries, 1) if entry.id == entry_id), None)
        if at is not None:
            return entries[:at] if limit is None else entries[max(at - limit, 0) : at]
    # The end of a branch was erased: what stands for it has another id.
    return _tail(view, tips[entry_id], limit) if entry_id in tips else None


def _find(view: View, entry_id: str) -> list[Record]:
    """The last message of an entry, and those of its copies, in the order in which they were stored."""
    uid, _, number = entry_id.partition("/")
    number = number.removesuffix("+")
    n = int(number) if uid == view.uid and number.isdecimal() and number.isascii() else None
    return [
        record
        for record in view.all()
        if record.t == "msg" and (record.n == n or (record.m is not None and _own_id(record.m) == entry_id))
    ]


def _steps_back(view: View, entry_id: str) -> list[AnyOperation] | None:
    """Go back to an entry of the same session.

    A session can go back only to the end of a step. What comes after it is said again.
    """
    wanted = _history(view, entry_id, None)
    if wanted is None:
        return None
    for end in (_tips(view).get(entry_id), *(_last_end(view, record.st) for record in reversed(_find(view, entry_id)))):
        kept = _tail(view, end.st, None) if end is not None else []
        if end is not None and wanted[: len(kept)] == kept:
            return [Rewind(end.n), *_said_again(wanted[len(kept) :])]
    return [Rewind(0), *_said_again(wanted)]


def _last_end(view: View, state: State) -> Record | None:
    """The end of the last step of a history that ended with a live message."""
    for record in session_state.chain(view, state):
        first, count = record.tx or (record.n, 1)
        end = view.find(first + count - 1)
        if end is not None and end.st.hd == record.n:
            return end
    return None


def _said_again(entries: Iterable[ConversationEntry]) -> list[Message]:
    """Copies of entries; what others wrote is ours in them, under the ids that it was loaded with."""
    return [message for entry in entries for message in _messages(entry)]


# ---- messages as entries


def _tail(view: View, state: State, limit: int | None) -> list[ConversationEntry]:
    """The entries of a state, or the last few of them, oldest first; the cost is that of those that are read."""
    if limit is None:
        return _entries(view.uid, _newest(view, state, None)[0])
    # One more than is asked for: an entry of others is linked to the one before it.
    wanted = limit + 1
    while True:
        found, is_all = _newest(view, state, wanted)
        entries = _entries(view.uid, found)
        # Several messages of others may become one entry, and a result needs its call, which may be further back.
        if is_all or (len(entries) > limit and not lacks_call(message for _, message in found)):
            return entries[-limit:]
        wanted *= 2


Found = tuple[int, Message]
"""A message and its number."""


def _newest(view: View, state: State, wanted: int | None) -> tuple[list[Found], bool]:
    """The messages of the last few entries, oldest first, and whether those are all."""
    found: list[Found] = []
    count, last = 0, None
    for record in session_state.chain(view, state):
        message = message_of(record, view)
        id = _own_id(message)
        if id is None or id != last:
            count += 1
        if wanted is not None and count > wanted:
            return found[::-1], False
        found.append((record.n, message))
        last = id
    return found[::-1], True


def _own_id(message: Message) -> str | None:
    return str(message.extra[NAME]["entry"]) if is_own(message, NAME) and "entry" in message.extra[NAME] else None


def _runs(found: Iterable[Found]) -> Iterator[tuple[str | None, list[Found]]]:
    """The messages of each entry with its id, and between them those of others with None.

    Parts of an entry whose beginning somebody has truncated or erased are like messages of others.
    """
    current: str | None = None
    run: list[Found] = []
    for n, message in found:
        id = _own_id(message)
        begins = id is not None and not {"message", "json"}.isdisjoint(message.extra[NAME])
        if begins or id != current:
            id = id if begins else None
            if run and (begins or id != current):
                yield current, run
                run = []
            current = id
        run.append((n, message))
    if run:
        yield current, run


def _entries(uid: str, found: Iterable[Found]) -> list[ConversationEntry]:
    """The entries of messages: each as it was stored, those of others as Pydantic AI has them."""
    ids: list[str] = []
    dumps: list[Any] = []
    stored = list(found)
    messages = [message for _, message in stored]
    found = [stored[at] for at in order_read(messages, [is_own(message, NAME) for message in messages])]
    runs = list(_runs(found))
    whose = [entry_id is not None for entry_id, run in runs for _ in run]
    crossing = {} if all(whose) else find_crossing([message for _, message in found], whose)
    names = {found[at][0]: name for at, name in crossing.items()}
    for entry_id, run in runs:
        if entry_id is not None:
            messages = [message for _, message in run]
            is_whole = len(run) == messages[0].extra[NAME].get("count", len(run))
            # An id is that of one content: what others have left of an entry has another.
            ids.append(entry_id if is_whole else f"{uid}/{run[-1][0]}")
            dumps.append(_dump(messages))
            continue
        made = _foreign(run, names)
        ids += [f"{uid}/{place}" for place, _ in made]
        dumps += ModelMessagesTypeAdapter.dump_python([message for _, message in made], mode="json")
    restored = ModelMessagesTypeAdapter.validate_python(dumps)
    parents = [None, *ids][: len(ids)]
    return [
        ConversationEntry(id=entry_id, parent_id=parent_id, message=message)
        for entry_id, parent_id, message in zip(ids, parents, restored, strict=True)
    ]


def _foreign(run: Iterable[Found], crossing: Mapping[int, str]) -> list[tuple[str, ModelMessage]]:
    """Messages of others with their places; every call has a result, and the results of a reply are one request.

    The place is the number of the message, of results that of the last of them. Where no result was stored it is the
    number of the calls with a `+`. `crossing` has the numbers of those whose call, or whose result, is ours.
    """
    made: list[tuple[str, ModelMessage]] = []
    results: list[ToolReturnPart] = []
    called, at = "", _EPOCH
    shown: list[Message] = []
    for number, group in groupby(run, key=lambda one: one[0] if one[0] in crossing else None):
        placed = [replace_fields(message, extra={**message.extra, _PLACE: n}) for n, message in group]
        if number is None:
            shown += _distinct(attach_results(placed).messages)
        else:
            shown += show_alone(placed[0], crossing[number])
    for message in shown:
        said, n = message.to_openai(), message.extra.get(_PLACE)
        at = message.created or at
        if said["role"] == "tool":
            text = "\n".join(_texts(said["content"]))
            results.append(ToolReturnPart(message.name or "", text, said["tool_call_id"], timestamp=at))
            before = made.pop()[0] if len(results) > 1 else f"{called}+"
            place = before if n is None else str(n) if before.endswith("+") else str(max(n, int(before)))
            made.append((place, ModelRequest(parts=list(results), timestamp=at)))
            continue
        results = []
        called = str(n)
        if said["role"] == "assistant":
            calls = [(call["id"], call["function"]) for call in said.get("tool_calls", [])]
            texts = [TextPart(text) for text in _texts(said["content"])]
            asked = [ToolCallPart(one["name"], one["arguments"], tool_call_id=id) for id, one in calls]
            made.append((called, ModelResponse(parts=[*texts, *asked], model_name=message.model, timestamp=at)))
        else:
            prompt = UserPromptPart(_prompt(said["content"]), timestamp=at)
            made.append((called, ModelRequest(parts=[prompt], timestamp=at)))
    return made


def _distinct(messages: Iterable[Message]) -> Iterator[Message]:
    """Make the ids of calls distinct in each reply, and not among all, so that they do not depend on what is read."""
    group: list[Message] = []
    for message in messages:
        if message.role != "tool":
            yield from distinct(group)
            group = []
        group.append(message)
    yield from distinct(group)


def _texts(content: Any) -> list[str]:
    parts = [{"text": content}] if isinstance(content, str) else content or []
    return [part["text"] for part in parts if part.get("text")]


def _prompt(content: Any) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    found: list[UserContent] = []
    for part in content or []:
        url = part.get("image_url", {}).get("url")
        if url is None:
            found.append(part.get("text", ""))
        else:
            found.append(BinaryContent.from_data_uri(url) if url.startswith("data:") else ImageUrl(url))
    return found


# ---- an entry as messages


def _messages(entry: ConversationEntry) -> list[Message]:
    """An entry as messages, which are read again as what Pydantic AI's own JSON says of it."""
    dump: Fields = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
    rest = {name: value for name, value in dump.items() if name != "parts"}
    head: Fields = {"entry": entry.id, "message": rest}
    if dump["kind"] == "response":
        messages = [_response(head, dump["parts"])]
    else:
        if len(dump["parts"]) > 1:
            head["count"] = len(dump["parts"])
        messages = [
            _part(head if number == 0 else {"entry": entry.id}, part) for number, part in enumerate(dump["parts"])
        ]
    if messages and _dump(messages) == dump and all(map(is_exact, messages)):
        return messages
    # Nothing that anyone could read, or not as it is.
    whole = {"entry": entry.id, "json": json.dumps(dump)}
    return [Message(role="", extra={"type": dump["kind"], NAME: whole})]


def _response(head: Fields, parts: list[Fields]) -> Message:
    """A response: its texts, thoughts and calls where all readers look; `parts` keeps their order and the rest."""
    texts = [part for part in parts if part["part_kind"] == "text"]
    thoughts = [part for part in parts if part["part_kind"] == "thinking" and part["content"]]
    calls, layout = [], []
    for part in parts:
        left = dict(part)
        if part["part_kind"] == "tool-call":
            id, name = left.pop("tool_call_id"), left.pop("tool_name")
            calls.append(ToolCall(id=id, name=name, arguments=left.pop("args")))
        elif part["part_kind"] == "text" or (len(thoughts) == 1 and part is thoughts[0]):
            del left["content"]
        layout.append(left)
    model = head["message"].get("model_name")
    if model is not None:
        head = {**head, "message": {name: value for name, value in head["message"].items() if name != "model_name"}}
    content: Any = None
    if texts:
        content = texts[0]["content"]
        if len(texts) > 1:
            content = [{"type": "text", "text": text["content"]} for text in texts]
    return Message(
        role="assistant",
        content=content,
        tool_calls=tuple(calls),
        reasoning=thoughts[0]["content"] if len(thoughts) == 1 else None,
        model=model,
        extra={NAME: {**head, "parts": layout}},
    )


def _part(mark: Fields, part: Fields) -> Message:
    """One part of a request: a prompt, or the result of a tool; anything else is an item that models are not shown."""
    left, kind = dict(part), part["part_kind"]
    if kind == "system-prompt":
        return Message(role="system", content=left.pop("content"), extra={NAME: {**mark, "part": left}})
    if kind == "user-prompt" and isinstance(part["content"], list):
        shown, items = _shown(left.pop("content"))
        return Message(role="user", content=shown, extra={NAME: {**mark, "part": left, "items": items}})
    if kind == "user-prompt":
        return Message(role="user", content=left.pop("content"), extra={NAME: {**mark, "part": left}})
    if kind not in ("tool-return", "retry-feedback"):
        return Message(role="", extra={"type": kind, NAME: {**mark, "part": left}})
    content = left.pop("content")
    if not isinstance(content, str):
        content, mark = json.dumps(content, ensure_ascii=False), {**mark, "is_json": True}
    if kind == "retry-feedback":
        # No person said it.
        return Message(role="system", content=content, extra={NAME: {**mark, "part": left}})
    id, name = left.pop("tool_call_id"), left.pop("tool_name")
    has_failed = part.get("outcome") in ("failed", "denied", "interrupted", "retried")
    extra = {NAME: {**mark, "part": left}, **({"failed": True} if has_failed else {})}
    return Message(role="tool", content=content, tool_call_id=id, name=name, extra=extra)


_KINDS = {"audio-url": "audio", "document-url": "document", "video-url": "video"}


def _shown(content: list[Any]) -> tuple[list[Fields], list[Any]]:
    """The items of a prompt in the shape of OpenAI's chat, and what that leaves out: 0 for a text, None for nothing."""
    shown: list[Fields] = []
    items: list[Any] = []
    for item in content:
        left = dict(item) if isinstance(item, dict) else None
        if left is None:
            shown.append({"type": "text", "text": item})
            items.append(0)
        elif left.get("kind") == "image-url":
            shown.append({"type": "image_url", "image_url": {"url": left.pop("url")}})
            items.append(left)
        elif left.get("kind") == "binary" and str(left.get("media_type")).startswith("image/"):
            # Base64 for addresses is what Pydantic AI writes, and that for data is what everyone else reads.
            data = left.pop("data").replace("-", "+").replace("_", "/")
            shown.append({"type": "image_url", "image_url": {"url": f"data:{left['media_type']};base64,{data}"}})
            items.append(left)
        else:
            shown.append({"type": _KINDS.get(str(left.get("kind")), "file"), NAME: left})
            items.append(None)
    return shown, items


# ---- messages as a message of Pydantic AI


def _dump(messages: Sequence[Message]) -> Fields:
    """What Pydantic AI's own JSON says of the message that these were made from."""
    first = messages[0]
    mark = first.extra[NAME]
    if "json" in mark:
        return cast("Fields", json.loads(mark["json"]))
    if first.role != "assistant":
        return {**mark["message"], "parts": [_part_dump(message) for message in messages]}
    content = first.content
    texts = iter([content] if isinstance(content, str) else [part["text"] for part in content or []])
    calls = iter(first.tool_calls)
    parts = []
    for left in mark["parts"]:
        part = dict(left)
        if left["part_kind"] == "tool-call" and (call := next(calls, None)) is not None:
            part |= {"tool_call_id": call.id, "tool_name": call.name, "args": call.arguments}
        elif left["part_kind"] == "text":
            part["content"] = next(texts, "")
        elif left["part_kind"] == "thinking" and "content" not in left:
            part["content"] = first.reasoning
        parts.append(part)
    model = {"model_name": first.model} if "model_name" not in mark["message"] else {}
    return {**mark["message"], **model, "parts": parts}


def _part_dump(message: Message) -> Fields:
    mark = message.extra[NAME]
    if not message.role:
        return cast("Fields", mark["part"])
    content: Any = message.content
    if "items" in mark:
        content = [_item(part, left) for part, left in zip(content, mark["items"], strict=True)]
    elif "is_json" in mark:
        content = json.loads(content)
    called = {"tool_call_id": message.tool_call_id, "tool_name": message.name} if message.role == "tool" else {}
    return {**mark["part"], **called, "content": content}


def _item(part: Fields, left: Any) -> Any:
    if left is None:
        return part[NAME]
    if left == 0:
        return part["text"]
    url = part["image_url"]["url"]
    if left["kind"] == "image-url":
        return {**left, "url": url}
    return {**left, "data": url.partition(",")[2].replace("+", "-").replace("/", "_")}
