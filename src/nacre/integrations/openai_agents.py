"""OpenAI Agents SDK: `NacreSession`, a `Session` for its `Runner`; the extra is `openai-agents`.

Each item of the Responses API is one message of the session:

    {"role": …, "content": …}, a message       the role and its text; a list of one text is that text
    function_call, and others with a call_id    the assistant with one tool call
    function_call_output, and its like          a tool's message
    web_search_call, compaction, reasoning …    an item without a role, with its fields in `extra`

Under `openai_agents` in `extra` is what a message cannot say, so that an item is read as it was given.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from nacre.async_sessions import AsyncSessions
from nacre.checks import check_key, show
from nacre.client_shapes import part_text
from nacre.errors import InvalidArgument, InvalidMessage, missing_extra
from nacre.integrations.access import AnySessions, awaited, change, check_sessions, finish, read_active
from nacre.integrations.conversation import (
    is_exact_json,
    is_own,
    lacks_call,
    order_read,
    read_conversation,
    with_results,
)
from nacre.messages import ERASED_TEXT, Message, ToolCall, Version, is_erased
from nacre.records import Pop, Truncate
from nacre.sessions import AnyOperation, Sessions

try:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings
    from agents.memory import session as sdk_session
except ModuleNotFoundError as error:
    raise missing_extra("openai-agents", error) from error

NAME = "openai_agents"
Item: TypeAlias = Any

_MAX_KEPT = 1000
_MAX_BYTES = 2**20
_MAX_TAILS = 64
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_RESERVED = {NAME, "is_call", "is_json", "part", "screenshot"}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Tail(NamedTuple):
    """The last items of a session as JSON, and the version that the session had then.

    The list grows with the session, so that an append copies nothing: what is after `end` is of a later version.
    """

    version: Version
    items: list[bytes]
    end: int
    size: int
    is_whole: bool


class _Tails:
    """The tails of the sessions of a store that were used last: a server makes a `NacreSession` for each request."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    def get(self, key: str) -> _Tail | None:
        with self._lock:
            found = self._tails.get(key)
            if found is not None:
                self._tails.move_to_end(key)
            return found

    def put(self, key: str, tail: _Tail | None) -> None:
        with self._lock:
            self._tails.pop(key, None)
            # One that is too long is forgotten: the next read begins with what was asked for.
            if tail is not None and tail.size <= _MAX_BYTES:
                self._tails[key] = tail
                if len(self._tails) > _MAX_TAILS:
                    self._tails.popitem(last=False)


_tails: WeakKeyDictionary[AsyncSessions, _Tails] = WeakKeyDictionary()


class NacreSession:
    """A session of the OpenAI Agents SDK, stored under its id.

    `sessions` are `Sessions` or `AsyncSessions`, of any store. Several may have the same id, in several processes.
    `clear_session` and `pop_item` take items out of the history; they stay in the transcript.

    The last items that were read or added are remembered, at most 2,000 items and 1 MiB of each of the last 64
    sessions, for all that are made of the same `sessions`. They are read again only if somebody else has written to
    the session.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        sessions: AnySessions,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = check_key(session_id)
        self._sessions = awaited(check_sessions(sessions))
        self.session_settings = (
            SessionSettings(**session_settings)
            if isinstance(session_settings, dict)
            else session_settings or SessionSettings()
        )
        self._tails = _tails.setdefault(self._sessions, _Tails())

    def __repr__(self) -> str:
        return f"NacreSession({self.session_id!r})"

    # ---- the protocol of a session

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items, oldest first; with a limit the last ones. One below 0 means all of them, as in the SDK."""
        if limit is None and self.session_settings is not None:
            settings = self.session_settings
            limit = settings["limit"] if isinstance(settings, dict) else settings.limit
        if limit is not None and type(limit) is not int:
            raise InvalidArgument(f"limit must be a number of items or None, not {show(limit)}")
        most = None if limit is None or limit < 0 else limit
        if most == 0:
            return []
        return await self._sessions.call(lambda plain: self._read(plain, most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none; durable when it returns."""
        if not isinstance(items, list | tuple):
            raise InvalidArgument(f"items must be a list, not {show(items)}")
        if items:
            await finish(self._sessions, lambda plain: self._add(plain, items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item off and return it; None if there is none."""
        return await finish(self._sessions, self._pop)

    async def clear_session(self) -> None:
        """Begin with an empty history."""

        def clear(plain: Sessions) -> None:
            change(plain, self.session_id, lambda: plain.clear(self.session_id))

        await finish(self._sessions, clear)

    # ---- what the SDK's own wrappers look for, to compact a history in one step

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        def replace_all(plain: Sessions) -> None:
            messages = to_messages(items)
            change(plain, self.session_id, lambda: plain.set_history(self.session_id, messages))

        await finish(self._sessions, replace_all)
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> Any:
        """The last items, and a function that replaces the last of them unless the history has changed since.

        None if others have written among them, whose messages are several items or none, or if the SDK is too old.
        """
        make = getattr(sdk_session, "_CompactionSnapshot", None)
        now = await self._sessions.call(lambda plain: read_active(plain, self.session_id, last=limit))
        if make is None or not all(is_own(message, NAME) for message in now.messages):
            return None

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            count = len(now.messages) - start
            if count <= 0:
                return False

            is_pruned = prune_prefix is not None and now.live > len(now.messages)

            def replace_last(plain: Sessions) -> bool:
                latest = read_active(plain, self.session_id, last=None if is_pruned else 0)
                # Anything but the history may be another by now: the model has been at work in between.
                if (latest.generation, latest.expect) != (now.generation, now.expect):
                    return False
                operations: list[AnyOperation] = []
                if prune_prefix is not None and is_pruned:
                    before = latest.messages[: now.live - count]
                    is_gone = (is_own(message, NAME) and prune_prefix(to_item(message)) for message in before)
                    operations.append(Truncate(now.live - sum(1 for _ in takewhile(bool, is_gone))))
                operations += [Pop()] * count
                is_done = plain.update(self.session_id, [*operations, *to_messages(output)], expect=latest.version)
                return bool(is_done)

            return await finish(
                self._sessions, lambda plain: change(plain, self.session_id, lambda: replace_last(plain))
            )

        return make([to_item(message) for message in now.messages], now.live <= limit, replace_suffix)

    # ---- in a thread

    def _read(self, plain: Sessions, most: int | None) -> list[TResponseInputItem]:
        tail = self._tails.get(self.session_id)
        if tail is not None and most is not None and (tail.is_whole or tail.end >= most):  # noqa: SIM102 - the second reads
            if plain.is_at(self.session_id, tail.version):
                last = tail.items[max(tail.end - most, 0) : tail.end]
                return cast("list[TResponseInputItem]", _decode(b"[%b]" % b",".join(last)))
        wanted = most
        while True:
            now = read_active(plain, self.session_id, last=wanted)
            messages = list(map(_mend, now.messages))
            items = list(read_conversation(messages, NAME, to_item, from_chat))
            is_whole, are_ours = len(messages) >= now.live, all(is_own(message, NAME) for message in messages)
            if most is None or wanted is None or is_whole:
                break
            # Messages of others may be several items, or none.
            if len(items) >= most and (are_ours or not lacks_call(messages)):
                break
            wanted *= 2
        items = items if most is None else items[-most:]
        # How messages of others are read depends on what comes after them: they are not remembered.
        if most is not None and most <= _MAX_KEPT and now.n and are_ours and not any(map(_is_text, messages)):
            kept = list(map(_encode, items))
            tail = _Tail(Version(now.n, now.generation), kept, len(kept), sum(map(len, kept)), is_whole)
            self._tails.put(self.session_id, tail)
        return items

    def _add(self, plain: Sessions, items: Iterable[TResponseInputItem]) -> None:
        given = list(items)
        messages = to_messages(given)
        before = self._tails.get(self.session_id)
        number = change(plain, self.session_id, lambda: plain.add_messages(self.session_id, messages))
        self._tails.put(self.session_id, None)
        if before is None or before.version.n + len(given) != number or any(map(_is_text, messages)):
            return
        # Nobody else has written since: what is remembered goes on.
        kept, new, is_whole = before.items, list(map(_encode, given)), before.is_whole
        kept.extend(new)
        size = before.size + sum(map(len, new))
        if len(kept) > 2 * _MAX_KEPT:
            kept, is_whole = kept[-_MAX_KEPT:], False
            size = sum(map(len, kept))
        version = Version(number, before.version.generation)
        self._tails.put(self.session_id, _Tail(version, kept, len(kept), size, is_whole))

    def _pop(self, plain: Sessions) -> TResponseInputItem | None:
        def pop_last() -> TResponseInputItem | None:
            now = read_active(plain, self.session_id, last=1)
            if not now.messages:
                return None
            operations: list[AnyOperation] = [Pop()]
            last = _mend(now.messages[0])
            if is_own(last, NAME):
                item = to_item(last)
            else:
                now = read_active(plain, self.session_id)
                item, operations = _pop_foreign(list(map(_mend, now.messages)))
            # Nothing is changed if the session was archived or deleted meanwhile.
            is_popped = plain.update(self.session_id, operations, expect=now.version)
            return cast("TResponseInputItem", item) if is_popped else None

        return change(plain, self.session_id, pop_last)


def _pop_foreign(messages: list[Message]) -> tuple[Item, list[AnyOperation]]:
    """The last item of a history that others have written to last, and the operations that take it off.

    Their messages may be several items: those that stay are written again as our own. If they are none, the item
    before them is the last. Results that are shown with a call further up stay as they are.
    """
    count = next((at for at, message in enumerate(reversed(messages)) if is_own(message, NAME)), len(messages))
    shown = takewhile(lambda one: not one[1], reversed(list(with_results(messages, NAME))))
    items = [item for message, _ in reversed(list(shown)) for item in from_chat(message.to_openai())]
    whose = [is_own(message, NAME) for message in messages]
    at_the_end = set(takewhile(lambda at: not whose[at], reversed(order_read(messages, whose))))
    further_up = [messages[at] for at in range(len(messages) - count, len(messages)) if at not in at_the_end]
    if items:
        return items[-1], [*[Pop()] * count, *further_up, *to_messages(items[:-1])]
    if count < len(messages):
        return to_item(messages[-count - 1]), [*[Pop()] * (count + 1), *further_up]
    return None, [Pop()] * count


# ---- items as messages


def to_messages(items: Iterable[Item]) -> list[Message]:
    """The messages that items are stored as."""
    found = []
    for item in items:
        if not is_exact_json(item):
            # What no log holds as it is, such as lone surrogates and NaN, is kept as a text.
            try:
                text = json.dumps(item)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidMessage(f"an item cannot be stored: {error}") from error
            found.append(Message(role="", extra={"type": "item", NAME: {"json": text}}))
        else:
            found.append(to_message(item))
    return found


def to_message(item: Item) -> Message:
    """The message that an item is stored as."""
    if type(item) is not dict or not _RESERVED.isdisjoint(item):
        return _whole(item)
    rest = dict(item)
    role, kind = rest.get("role"), rest.get("type")
    if type(role) is str and role:
        if "content" not in rest or (kind is not None and kind != "message"):
            return _whole(item)
        return _from_message(item, rest)
    if type(kind) is not str or not kind or "role" in rest:
        return _whole(item)
    call_id = rest.get("call_id")
    if type(call_id) is str and call_id:
        if kind.endswith("_call_output") and "output" in rest:
            return _from_output(rest)
        if kind.endswith("_call"):
            return _from_call(item, rest)
    return Message(role="", extra={**rest, NAME: {}})


def _from_message(item: Item, rest: dict[str, Any]) -> Message:
    role, content = rest.pop("role"), rest.pop("content")
    if type(content) is list and len(content) == 1 and type(content[0]) is dict:
        # One text, as nearly all have it.
        part = dict(content[0])
        field = _TEXTS.get(part.get("type", "")) if type(part.get("type")) is str else None
        if field is not None and type(part.get(field)) is str:
            text = part.pop(field)
            return Message(role=role, content=text, extra={NAME: {**rest, "part": part}})
    if not isinstance(content, str | list | None):
        return _whole(item)
    return Message(role=role, content=content, extra={NAME: rest})


def _from_call(item: Item, rest: dict[str, Any]) -> Message:
    kind, call_id, name = rest["type"], rest.pop("call_id"), rest.get("name")
    if kind == "function_call" and type(name) is str and "arguments" in rest:
        del rest["name"]
        call = ToolCall(id=call_id, name=name, arguments=rest.pop("arguments"))
    elif kind == "custom_tool_call" and type(name) is str and type(rest.get("input")) is str:
        del rest["name"]
        call = ToolCall(id=call_id, extra={"type": "custom", "custom": {"name": name, "input": rest.pop("input")}})
    elif "id" in rest and type(rest["id"]) is not str:
        return _whole(item)
    else:
        # Of a computer, a shell …: the call has all its fields.
        call = ToolCall(id=call_id, extra=rest)
        rest = {"is_call": True}
    return Message(role="assistant", tool_calls=(call,), extra={NAME: rest})


def _from_output(rest: dict[str, Any]) -> Message:
    call_id, output = rest.pop("call_id"), rest.pop("output")
    if type(output) is list and all(type(part) is dict and type(part.get("type")) is str for part in output):
        return Message(role="tool", tool_call_id=call_id, content=output, extra={NAME: rest})
    if type(output) is dict and output.get("type") == "computer_screenshot":
        shown = [{**output, "type": "input_image"}]
        return Message(role="tool", tool_call_id=call_id, content=shown, extra={NAME: {"screenshot": rest}})
    if type(output) is str:
        return Message(role="tool", tool_call_id=call_id, content=output, extra={NAME: rest})
    return Message(role="tool", tool_call_id=call_id, content=json.dumps(output), extra={NAME: {"is_json": rest}})


def _whole(item: Item) -> Message:
    """An item that is nothing of what messages are: it is kept as it is."""
    return Message(role="", extra={"type": "item", NAME: {"item": item}})


def _is_text(message: Message) -> bool:
    """Tell whether a message is an item that is kept as a text."""
    return not message.role and is_own(message, NAME) and "json" in message.extra[NAME]


# ---- messages as items


def to_item(message: Message) -> Item:
    """The item that one of our own messages was made of."""
    kept = message.extra[NAME]
    if not message.role:
        if "json" in kept:
            return json.loads(kept["json"])
        return kept["item"] if "item" in kept else {k: v for k, v in message.extra.items() if k != NAME}
    if message.tool_calls:
        return _to_call(message.tool_calls[0], kept)
    if message.role == "tool" and message.tool_call_id is not None:
        call = {"call_id": message.tool_call_id}
        if "screenshot" in kept:
            shown = cast("list[dict[str, Any]]", message.content)
            return {**kept["screenshot"], **call, "output": {**shown[0], "type": "computer_screenshot"}}
        if "is_json" in kept:
            return {**kept["is_json"], **call, "output": json.loads(cast("str", message.content))}
        return {**kept, **call, "output": message.content}
    if "part" in kept:
        part = kept["part"]
        content: Any = [{**part, _TEXTS[part["type"]]: message.content}]
        return {
            **{name: value for name, value in kept.items() if name != "part"},
            "role": message.role,
            "content": content,
        }
    return {**kept, "role": message.role, "content": message.content}


def _to_call(call: ToolCall, kept: dict[str, Any]) -> Item:
    if "is_call" in kept:
        return {**call.extra, "call_id": call.id}
    if "custom" in call.extra:
        return {**kept, **call.extra["custom"], "call_id": call.id}
    return {**kept, "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _mend(message: Message) -> Message:
    """A message whose content was erased, as an item that says so; all others as they are."""
    if not is_erased(message) or is_own(message, NAME) or not message.role or len(message.tool_calls) > 1:
        return message
    if message.tool_calls:
        calls = (replace(message.tool_calls[0], arguments="{}", extra={}),)
        return replace(message, tool_calls=calls, extra={NAME: {"type": "function_call"}})
    own = {"type": "function_call_output"} if message.role == "tool" else {}
    return replace(message, content=ERASED_TEXT, extra={NAME: own})


def from_chat(message: dict[str, Any]) -> list[Item]:
    """The items for a message of OpenAI's chat, as others are read."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": _text(content)}]
    found: list[Item] = []
    if role != "assistant":
        found.append(
            {"role": role, "content": content if isinstance(content, str) else list(map(_part, content or ()))}
        )
    elif text := _text(content):
        found.append({"role": role, "content": text})
    for call in message.get("tool_calls", ()):
        if call["type"] == "custom":
            found.append({"type": "custom_tool_call", "call_id": call["id"], **call["custom"]})
        else:
            found.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return found


def _text(content: Any) -> str:
    return "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
    if part["type"] == "file" and isinstance(part.get("file"), dict):
        return {"type": "input_file", **part["file"]}
    return {"type": "input_text", "text": part_text(part)}
