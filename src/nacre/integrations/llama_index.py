"""LlamaIndex: `NacreChatStore`, a `BaseChatStore`, and `NacreAsyncChatStore` for its `Memory`; extra `llama-index`.

The key of a chat is that of nacre's session. A `ChatMessage` is stored as a message that anybody can read, and what
that cannot say is in `extra["llama_index"]`. Archived messages are truncated from the history and stay in the
transcript; records `x.llama_index` say which they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from nacre.checks import check_int, check_key, check_optional_count, show
from nacre.client_shapes import part_text
from nacre.codec import message_of
from nacre.errors import Conflict, InvalidArgument, InvalidMessage, missing_extra
from nacre.history.pairing import as_shown
from nacre.integrations.access import AnySessions, awaited, blocking, change, check_sessions, finish, read_active
from nacre.integrations.conversation import is_exact, is_own, mend_erased, read_conversation
from nacre.messages import ERASED_TEXT, Message, Snapshot, ToolCall
from nacre.records import AppendRecord, Pop, Truncate, View
from nacre.sessions import AnyOperation, Sessions

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.storage.chat_store.base import BaseChatStore
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
except ModuleNotFoundError as error:
    raise missing_extra("llama-index", error) from error

Fields = dict[str, Any]
NAME = "llama_index"
RECORD = f"x.{NAME}"
_ROLES = frozenset(role.value for role in MessageRole)


class NacreChatStore(BaseChatStore):
    """The chats of LlamaIndex, in nacre's sessions of any store; what is written is durable when the call returns.

    What is deleted is no longer in the history of the session, and stays in its transcript.
    """

    _sessions: AnySessions = PrivateAttr()

    def __init__(self, sessions: AnySessions) -> None:
        super().__init__()
        self._sessions = check_sessions(sessions)

    @classmethod
    def class_name(cls) -> str:
        return "NacreChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages of a key, all at once."""
        plain, made = blocking(self._sessions), to_messages(messages)
        change(plain, check_key(key), lambda: plain.set_history(key, made))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """The messages of a key, oldest first."""
        return _restore(read_active(blocking(self._sessions), check_key(key)).messages)

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message."""
        _submit(blocking(self._sessions), key, to_messages([message]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Take all messages of a key out of its history and return them; None if there are none."""
        return _delete_all(blocking(self._sessions), key)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take the message at an index out and return it; None if there is none."""
        return _delete(blocking(self._sessions), key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the last message out and return it; None if there is none."""
        return _delete(blocking(self._sessions), key, -1)

    def get_keys(self) -> list[str]:
        """The keys that have messages."""
        return _keys(blocking(self._sessions))

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """`set_messages`, awaited."""
        await finish(awaited(self._sessions), lambda _: self.set_messages(key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """`get_messages`, awaited."""
        return await awaited(self._sessions).call(lambda _: self.get_messages(key))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """`add_message`, awaited."""
        await finish(awaited(self._sessions), lambda _: self.add_message(key, message))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """`delete_messages`, awaited."""
        return await finish(awaited(self._sessions), lambda _: self.delete_messages(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """`delete_message`, awaited."""
        return await finish(awaited(self._sessions), lambda _: self.delete_message(key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """`delete_last_message`, awaited."""
        return await finish(awaited(self._sessions), lambda _: self.delete_last_message(key))

    async def aget_keys(self) -> list[str]:
        """`get_keys`, awaited."""
        return await awaited(self._sessions).call(_keys)


class NacreAsyncChatStore(AsyncDBChatStore):
    """The same for `Memory`: the history is what is active, and archived messages are those truncated from it."""

    _sessions: AnySessions = PrivateAttr()

    def __init__(self, sessions: AnySessions) -> None:
        super().__init__()
        self._sessions = check_sessions(sessions)

    @classmethod
    def class_name(cls) -> str:
        return "NacreAsyncChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """The messages of a status, or of both, oldest first."""
        most, start = check_optional_count(limit, "limit"), check_optional_count(offset, "offset") or 0
        wanted = None if status is None else _check_status(status)
        found = await awaited(self._sessions).call(lambda plain: _of_status(plain, check_key(key), wanted))
        return found[start:] if most is None else found[start : start + most]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """How many messages there are."""
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append messages, all or none."""
        given, wanted = list(messages), _check_status(status)
        if given:
            await finish(awaited(self._sessions), lambda plain: _submit(plain, key, _entries(given, wanted)))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages of a key, archived ones too, at once."""
        given, wanted = list(messages), _check_status(status)
        forget: list[AnyOperation] = [Truncate(0), AppendRecord(RECORD, {"forgotten": True})]
        await finish(awaited(self._sessions), lambda plain: _submit(plain, key, [*forget, *_entries(given, wanted)]))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take the active message at an index out and return it; None if there is none."""
        return await finish(awaited(self._sessions), lambda plain: _delete(plain, key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Take out the messages of a status, or all."""
        wanted = None if status is None else _check_status(status)
        operations: list[AnyOperation] = []
        if wanted != MessageStatus.ARCHIVED:
            operations.append(Truncate(0))
        if wanted != MessageStatus.ACTIVE:
            operations.append(AppendRecord(RECORD, {"forgotten": True}))

        def delete(plain: Sessions) -> None:
            change(plain, check_key(key), lambda: plain.update(key, operations))

        await finish(awaited(self._sessions), delete)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Take the oldest active messages out and return them."""
        return await finish(awaited(self._sessions), lambda plain: _take_oldest(plain, key, n, is_archived=False))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages and return them."""
        return await finish(awaited(self._sessions), lambda plain: _take_oldest(plain, key, n, is_archived=True))

    async def get_keys(self) -> list[str]:
        """The keys that have active messages."""
        return await awaited(self._sessions).call(_keys)


def _check_status(status: object) -> MessageStatus:
    try:
        return MessageStatus(status)
    except ValueError as error:
        raise InvalidArgument(f"status must be a MessageStatus, not {show(status)}") from error


# ---- in a thread


def _keys(plain: Sessions) -> list[str]:
    return [info.key for info in plain.list(order="key") if info.messages]


def _submit(plain: Sessions, key: str, operations: Sequence[AnyOperation]) -> None:
    """Store operations as one step, which may begin a session."""
    change(plain, check_key(key), lambda: plain.submit(key, operations).result())


def _delete_all(plain: Sessions, key: str) -> list[ChatMessage] | None:
    def take() -> list[ChatMessage] | None:
        now = read_active(plain, key)
        is_done = now.messages and plain.update(key, [Truncate(0)], expect=now.version)
        return _restore(now.messages) if is_done else None

    return change(plain, check_key(key), take)


def _delete(plain: Sessions, key: str, idx: int) -> ChatMessage | None:
    """Take one message out; those after it are appended again."""
    check_int(idx, "idx")

    def take() -> ChatMessage | None:
        now, is_as_stored = _read_as_shown(plain, key, last=-idx if idx < 0 else None)
        at = idx + len(now.messages) if idx < 0 else idx
        if not 0 <= at < len(now.messages):
            return None
        count = len(now.messages) - at
        operations: list[AnyOperation] = [Pop()] * count if is_as_stored else [Truncate(0), *now.messages[:at]]
        is_done = plain.update(key, [*operations, *now.messages[at + 1 :]], expect=now.version)
        return next(iter(_restore(now.messages[at : at + 1])), None) if is_done else None

    return change(plain, check_key(key), take)


def _take_oldest(plain: Sessions, key: str, n: int, *, is_archived: bool) -> list[ChatMessage]:
    check_int(n, "n", least=0)

    def take() -> list[ChatMessage]:
        now, is_as_stored = _read_as_shown(plain, key)
        oldest, rest = now.messages[:n], now.messages[n:]
        if not oldest:
            return []
        operations: list[AnyOperation] = [Truncate(len(rest) if is_as_stored else 0)]
        if is_archived and is_as_stored:
            operations.append(AppendRecord(RECORD, {"archived": now.numbers[:n]}))
        elif is_archived:
            operations += [AppendRecord(RECORD, {"message": one.to_mapping()}) for one in oldest]
        if not is_as_stored:
            operations += rest
        return _restore(oldest) if plain.update(key, operations, expect=now.version) else []

    return change(plain, check_key(key), take)


def _read_as_shown(plain: Sessions, key: str, *, last: int | None = None) -> tuple[Snapshot, bool]:
    """A session whose messages have the places in which they are shown, and whether they are stored in these too.

    Where others have written calls and results, a result may be shown that nobody has stored, or one may not be shown:
    then the messages are those to store instead of all.
    """
    now = read_active(plain, key, last=last)
    if all(map(_is_shown_in_place, now.messages)):
        return now, True
    now = read_active(plain, key)
    if all(map(_is_shown_in_place, mend_erased(now.messages, NAME, _mend))):
        return now, True
    return replace(now, messages=to_messages(_restore(now.messages)), numbers=[]), False


def _is_shown_in_place(message: Message) -> bool:
    is_text = not message.tool_calls and message.role != "tool" and as_shown(message) is not None
    return is_own(message, NAME) or is_text


def _of_status(plain: Sessions, key: str, status: MessageStatus | None) -> list[ChatMessage]:
    def read() -> list[ChatMessage]:
        now = read_active(plain, key)
        if status == MessageStatus.ACTIVE or not now.n:
            return _restore(now.messages)
        found: dict[int, Message] = {}
        numbers: list[int] = []
        for entry in plain.records(key, RECORD, before=now.n + 1):
            if entry.generation != now.generation:
                raise Conflict(f"session {key!r} was archived or deleted meanwhile")
            if "forgotten" in entry.data:
                found, numbers = {}, []
            numbers += entry.data.get("archived", [])
            if "message" in entry.data:
                found[entry.n] = Message.from_mapping(entry.data["message"])

        def get(view: View) -> list[tuple[int, Message]]:
            records = [view.find(n) for n in numbers]
            return [(one.n, message_of(one, view)) for one in records if one is not None]

        archived = plain.read(key, get, generation=now.generation)
        if archived is None:
            raise Conflict(f"session {key!r} was deleted meanwhile")
        found |= dict(archived)
        # A rewind makes archived messages live again.
        live = dict(zip(now.numbers, now.messages, strict=True))
        found = found | live if status is None else {n: one for n, one in found.items() if n not in live}
        return _restore(found[n] for n in sorted(found))

    return change(plain, key, read)


def _entries(messages: Sequence[ChatMessage], status: MessageStatus) -> list[Message | AppendRecord]:
    made = to_messages(messages)
    if status == MessageStatus.ACTIVE:
        return list(made)
    return [AppendRecord(RECORD, {"message": one.to_mapping()}) for one in made]


# ---- messages


def to_messages(messages: Iterable[ChatMessage]) -> list[Message]:
    """The messages that those of LlamaIndex are stored as."""
    found = []
    for given in messages:
        if not isinstance(given, ChatMessage):
            raise InvalidMessage(f"a message must be a ChatMessage, not {show(given)}")
        fields = given.model_dump(mode="json")
        made: Message | None = None
        try:
            made = _split(fields)
            is_same = _join(made) == fields and is_exact(made)
        except (InvalidMessage, TypeError, AttributeError):
            is_same = False
        if made is not None and is_same:
            found.append(made)
        else:
            # What no log holds as it is, such as half of a surrogate pair, is kept as a text.
            text = (given.content or "").encode(errors="replace").decode()
            found.append(Message(role=fields["role"], content=text, extra={NAME: {"json": json.dumps(fields)}}))
    return found


def _split(fields: Fields) -> Message:
    more = dict(fields["additional_kwargs"])
    blocks = list(fields["blocks"])
    own: Fields = {}
    calls: tuple[ToolCall, ...] = ()
    id = more.pop("tool_call_id") if isinstance(more.get("tool_call_id"), str) else None
    given = more.get("tool_calls")
    if isinstance(given, list) and given and all(isinstance(one, dict) for one in given):
        read = tuple(map(ToolCall.from_mapping, given))
        if [one.to_mapping() for one in read] == given:
            calls = read
            del more["tool_calls"]
    while not calls and blocks and blocks[-1]["block_type"] == "tool_call":
        call = blocks.pop()
        own.setdefault("calls", []).insert(0, dict(call))
    if "calls" in own:
        calls = tuple(
            ToolCall(id=one.pop("tool_call_id") or "", name=one.pop("tool_name"), arguments=one.pop("tool_kwargs"))
            for one in own["calls"]
        )
    is_text = len(blocks) == 1 and blocks[0].keys() == {"block_type", "text"}
    content: Any = blocks[0]["text"] if is_text else [_part(one) for one in blocks] or None
    if more:
        own["more"] = more
    return Message(role=fields["role"], content=content, tool_calls=calls, tool_call_id=id, extra={NAME: own})


def _part(block: Fields) -> Fields:
    return {"type": block["block_type"], **{name: value for name, value in block.items() if name != "block_type"}}


def _join(message: Message) -> Fields:
    own = message.extra[NAME]
    if "json" in own:
        return cast("Fields", json.loads(own["json"]))
    more = dict(own.get("more", {}))
    content = message.content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [
        {"block_type": one["type"], **{name: value for name, value in one.items() if name != "type"}} for one in parts
    ]
    if message.tool_call_id is not None:
        more["tool_call_id"] = message.tool_call_id
    if "calls" in own:
        for rest, call in zip(own["calls"], message.tool_calls, strict=True):
            said = {"tool_call_id": call.id, "tool_name": call.name, "tool_kwargs": call.arguments}
            blocks.append({**rest, **said})
    elif message.tool_calls:
        more["tool_calls"] = [call.to_mapping() for call in message.tool_calls]
    return {"role": message.role, "additional_kwargs": more, "blocks": blocks}


def _restore(messages: Iterable[Message]) -> list[ChatMessage]:
    mended = mend_erased(messages, NAME, _mend)
    return list(read_conversation(mended, NAME, lambda one: ChatMessage.model_validate(_join(one)), _from_chat))


def _mend(message: Message) -> Message:
    """A message whose content was erased, as one of ours that says so."""
    if message.role not in _ROLES:
        return message
    calls = tuple(replace(call, arguments="{}") for call in message.tool_calls)
    return replace(message, content=ERASED_TEXT, tool_calls=calls, extra={NAME: {}})


def _from_chat(message: Fields) -> list[ChatMessage]:
    """A message of OpenAI's chat, as others are read."""
    content = message.get("content")
    parts: list[Fields] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks: list[Fields] = []
    for part in parts:
        if part["type"] == "image_url":
            blocks.append({"block_type": "image", "url": part["image_url"]["url"]})
        else:
            blocks.append({"block_type": "text", "text": part_text(part)})
    more = {name: message[name] for name in ("tool_calls", "tool_call_id") if name in message}
    fields = {"role": message["role"], "additional_kwargs": more, "blocks": blocks}
    return [ChatMessage.model_validate(fields)]
