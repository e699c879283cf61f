"""Microsoft Agent Framework: `NacreHistoryProvider`, a `HistoryProvider`; the extra is `agent-framework`.

A message is stored as one of nacre's: its texts, its images, its tool calls. The results of several calls, which the
framework puts into one message, are as many messages of a tool. Under `agent_framework` in `extra` is what these
cannot say, so that a message is read as it was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from typing import Any, ClassVar, NamedTuple, cast

from msgspec.structs import replace

from nacre.checks import check_key, check_text, is_unicode, show
from nacre.client_shapes import part_text
from nacre.errors import InvalidArgument, missing_extra
from nacre.integrations.access import AnySessions, awaited, change, check_sessions, finish, read_active
from nacre.integrations.conversation import is_exact, is_own, lacks_call, mend_erased, read_conversation
from nacre.messages import ERASED, ERASED_TEXT, ToolCall, Version, is_erased
from nacre.messages import Message as Stored
from nacre.sessions import Sessions

try:
    from agent_framework import HistoryProvider, Message
except ModuleNotFoundError as error:
    raise missing_extra("agent-framework", error) from error

NAME = "agent_framework"
_JOINED = "joined"
_FOREIGN = "foreign"
_ORIGIN = f"{NAME}:"
_PLAIN_TEXT = [{"type": "text"}]


class NacreHistoryProvider(HistoryProvider):
    """The history of agents in sessions of nacre, each under the id of its `AgentSession`.

    `sessions` are `Sessions` or `AsyncSessions`, of any store. Messages that are sent again, as in a transcript that is
    replayed, are not stored twice; what that costs does not grow with the history. One message of a user alone is known
    again only by its `message_id`: without one it is stored each time, also by a retry: people say the same twice. A
    question with its answer, word for word as before and both without ids, is taken for a replay and not stored, as by
    the framework's own providers.
    With `skip_excluded`, messages that a compaction has excluded are not loaded. `last` loads only the last messages.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "nacre"

    def __init__(  # noqa: PLR0913 - what every history provider takes
        self,
        sessions: AnySessions,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
        last: int | None = None,
    ) -> None:
        self._sessions = check_sessions(sessions)
        if last is not None and (type(last) is not int or last < 1):
            raise InvalidArgument(f"last must be a number of messages from 1 on, or None, not {show(last)}")
        super().__init__(
            check_text(source_id, "source_id"),
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.skip_excluded = skip_excluded
        self.last = last

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - for providers that keep messages in it
        **kwargs: Any,  # noqa: ARG002 - for other providers
    ) -> list[Message]:
        """The messages of a session, oldest first."""
        key = check_key(session_id)

        def load(plain: Sessions) -> list[Message]:
            messages = [Message.from_dict(one.message) for one in _read(plain, key, self.last)[0]]
            if self.skip_excluded:
                messages = [one for one in messages if not one.additional_properties.get("_excluded", False)]
            return messages

        return await awaited(self._sessions).call(load)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - for providers that keep messages in it
        **kwargs: Any,  # noqa: ARG002 - for other providers
    ) -> None:
        """Append those messages that are not stored yet, all or none; durable when it returns."""
        key = check_key(session_id)
        if messages:
            given = list(messages)
            await finish(awaited(self._sessions), lambda plain: _save(plain, key, [one.to_dict() for one in given]))


def _save(plain: Sessions, key: str, given: list[dict[str, Any]]) -> None:
    def save() -> None:
        # Only as many as are given can be the same.
        stored, version = _read(plain, key, len(given), of_own=_may_skip_others(given))
        if new := new_messages(stored, given):
            plain.add_messages(key, [one for message in new for one in to_stored(message)], expect=version)

    # Another may have written meanwhile, perhaps the same.
    change(plain, key, save)


class Known(NamedTuple):
    """A message that is stored; whether something of it was erased, and whether others wrote it."""

    message: dict[str, Any]
    is_erased: bool = False
    is_foreign: bool = False


def _read(plain: Sessions, key: str, most: int | None, *, of_own: bool = False) -> tuple[list[Known], Version]:
    """The last messages, and what a write expects that was made for them; `of_own` counts only ours."""
    wanted = None if most is None else most + 1
    while True:
        history = read_active(plain, key, last=wanted)
        is_whole = len(history.messages) >= history.live
        stored = history.messages if is_whole else list(dropwhile(_is_joined, history.messages))
        mended = list(mend_erased(stored, NAME, _mend))
        found: list[Known] = []
        for one in read_conversation(mended, NAME, from_stored, from_chat):
            joined, is_foreign = one.pop(_JOINED, False), one.pop(_FOREIGN, False)
            has_erased = one.pop(ERASED, False)
            before = found[-1] if found else None
            # An erased result no longer says whether it was the first of its message.
            follows = joined is True or (before is not None and any(map(_is_result, before.message["contents"])))
            if joined and before is not None and follows:
                before.message["contents"].extend(one["contents"])
                found[-1] = before._replace(is_erased=before.is_erased or has_erased)
            else:
                found.append(Known(one, has_erased, is_foreign))
        if most is None or wanted is None:
            return found, history.version
        are_ours = all(is_own(message, NAME) for message in mended)
        count = sum(not one.is_foreign for one in found) if of_own else len(found)
        if is_whole or (count > most and (are_ours or not lacks_call(mended))):
            return found if of_own else found[-most:], history.version
        wanted *= 2


def new_messages(stored: list[Known], given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What comes after the messages that are stored already.

    Either all that is stored is somewhere in what is given, or the end of the one is the beginning of the other. One
    message of a user without an id is no replay: people say the same twice. Where a user speaks after a reply, as in no
    turn, it is a transcript: an erased message is known there by its place among others, and those of other writers,
    of which the sender may have seen none or some, are skipped.
    """
    tries = [stored]
    if _may_skip_others(given):
        sent = {_identity(one) for one in given}
        tries.append([one for one in stored if not one.is_foreign or _identity(one.message) in sent])
        tries.append([one for one in stored if not one.is_foreign])
    for known in tries:
        if end := _end_of_overlap(known[-len(given) :], given):
            return given[end:]
    return given


def _is_transcript(given: list[dict[str, Any]]) -> bool:
    replies = dropwhile(lambda one: one["role"] != "assistant", given)
    return any(one["role"] == "user" for one in replies)


def _may_skip_others(given: list[dict[str, Any]]) -> bool:
    return _is_transcript(given) or all(one.get("message_id") is not None for one in given)


def _end_of_overlap(stored: list[Known], given: list[dict[str, Any]]) -> int:
    """How many of the messages that are given are stored, or before the last of those; 0 if there is no overlap."""
    if not stored:
        return 0
    old, new = [_identity(one.message) for one in stored], list(map(_identity, given))
    knows_erased = _is_transcript(given) and any(one.is_erased for one in stored)
    is_one_question = stored[-1].message["role"] == "user" and old[-1][0] != "id"

    def is_like(a: int, b: int) -> bool:
        return old[a] == new[b] or (stored[a].is_erased and stored[a].message["role"] == given[b]["role"])

    def are_same(at: int, start: int, count: int) -> bool:
        if old[at : at + count] == new[start : start + count]:
            return True
        # An erased message may be any of its role, if others say where it was.
        places = range(count)
        return (
            knows_erased
            and all(is_like(at + n, start + n) for n in places)
            and any(old[at + n] == new[start + n] for n in places)
        )

    for start in range(len(new) - len(old) + 1):
        if are_same(0, start, len(old)):
            if start == 0 and len(old) == 1 and is_one_question:
                break
            return start + len(old)
    for count in range(min(len(old), len(new)), 0, -1):
        if are_same(len(old) - count, 0, count) and not (count == 1 and is_one_question):
            return count
    return 0


def _identity(message: dict[str, Any]) -> tuple[str, ...]:
    if message.get("message_id") is not None:
        return ("id", str(message["message_id"]))
    return ("content", str(message["role"]), json.dumps(message["contents"], sort_keys=True))


# ---- messages as they are stored


def to_stored(message: dict[str, Any]) -> list[Stored]:
    """What a message of the framework is stored as: one message, or one for each result of a call."""
    # Erasing the message leaves this.
    id = message.get("message_id")
    origin = {"origin": {"id": f"{_ORIGIN}{id}"}} if isinstance(id, str) and is_unicode(id) else {}
    made = _split(message)
    if all(map(is_exact, made)):
        return [replace(made[0], extra={**made[0].extra, **origin}), *made[1:]]
    # What no log holds as it is, such as NaN and half of a surrogate pair, is kept as a text.
    texts = [one["text"] for one in message["contents"] if isinstance(one.get("text"), str)]
    clean = "\n".join(texts).encode(errors="replace").decode()
    role = message["role"] if message["role"] and is_unicode(message["role"]) else "user"
    return [Stored(role=role, content=clean, extra={NAME: {"json": json.dumps(message)}, **origin})]


def _split(message: dict[str, Any]) -> list[Stored]:
    """One message, or one for each result; what the framework alone has is in `extra`."""
    rest = {name: value for name, value in message.items() if name not in ("type", "role", "contents")}
    if not rest.get("additional_properties", True):
        del rest["additional_properties"]
    name = rest.pop("author_name", None)
    groups = _groups(message["contents"])
    found = [_store(str(message["role"]), name, group) for group in groups]
    first = found[0]
    found[0] = replace(first, extra={NAME: {**first.extra[NAME], **({"more": rest} if rest else {})}})
    return [found[0], *(replace(one, extra={NAME: {**one.extra[NAME], _JOINED: True}}) for one in found[1:])]


def _groups(contents: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Contents with at most one result in each group."""
    groups: list[list[dict[str, Any]]] = [[]]
    for content in contents:
        if _is_result(content) and any(map(_is_result, groups[-1])):
            groups.append([])
        groups[-1].append(content)
    return groups


def _is_result(content: dict[str, Any]) -> bool:
    return content["type"] == "function_result" and bool(content.get("call_id"))


def _store(role: str, name: str | None, contents: list[dict[str, Any]]) -> Stored:
    """One message; `contents` in its `extra` are the contents without what the message has."""
    result = next(filter(_is_result, contents), None)
    reasoning = next(filter(_is_reasoning, contents), None)
    taken = [_take(content, result, reasoning) for content in contents]
    parts = [one.part for one in taken if one.part is not None]
    is_text = len(parts) == 1 and parts[0]["type"] == "text"
    own: dict[str, Any] = {}
    kept = [one.rest for one in taken]
    if kept != _PLAIN_TEXT:
        own["contents"] = kept
    if result is not None and role != "tool":
        own["role"] = role
    return Stored(
        role="tool" if result is not None else role,
        content=parts[0]["text"] if is_text else parts or None,
        tool_calls=tuple(one.call for one in taken if one.call is not None),
        tool_call_id=result["call_id"] if result is not None else None,
        name=name,
        reasoning=reasoning["text"] if reasoning is not None else None,
        extra={NAME: own},
    )


class _Taken(NamedTuple):
    """What a message has of a content, and the rest of it."""

    rest: dict[str, Any]
    part: dict[str, Any] | None = None
    call: ToolCall | None = None


def _take(content: dict[str, Any], result: dict[str, Any] | None, reasoning: dict[str, Any] | None) -> _Taken:
    """What a message takes of one of its contents; next to a result it takes no other text, and no image."""
    if content is result:
        return _take_result(content)
    if content is reasoning:
        return _Taken({**_rest(content, "text"), "is_reasoning": True})
    match content:
        case {"type": "text", "text": str(text)} if result is None:
            return _Taken(_rest(content, "text"), part={"type": "text", "text": text})
        case {"type": "data" | "uri", "uri": str(uri)} if result is None and _is_image(content):
            return _Taken(_rest(content, "uri"), part={"type": "image_url", "image_url": {"url": uri}})
        case {"type": "data" | "uri", "uri": str(uri)} if result is None:
            return _Taken(_rest(content, "uri"), part={"type": "file", "file_url": uri})
        case {"type": "function_call", "call_id": id, "name": str(name)} if id:
            call = ToolCall(id=id, name=name, arguments=content.get("arguments"))
            return _Taken(_rest(content, "call_id", "name", "arguments"), call=call)
        case _:
            return _Taken(_rest(content))


def _take_result(content: dict[str, Any]) -> _Taken:
    shown = content.get("result")
    if not isinstance(shown, str):
        return _Taken(_rest(content, "call_id"))
    rest = _rest(content, "call_id", "result")
    if rest.get("items") == [{"type": "text", "text": shown, "additional_properties": {}}]:
        rest["items"] = True
    return _Taken(rest, part={"type": "text", "text": shown})


def _rest(content: dict[str, Any], *taken: str) -> dict[str, Any]:
    """A content without some fields. Most have an empty mapping of additional properties: it is left out."""
    rest = {name: value for name, value in content.items() if name not in taken}
    if not rest.get("additional_properties", True):
        del rest["additional_properties"]
    else:
        rest.setdefault("additional_properties", None)
    return rest


def _is_image(content: dict[str, Any]) -> bool:
    return str(content.get("media_type", "")).startswith("image/")


def _is_reasoning(content: dict[str, Any]) -> bool:
    return content["type"] == "text_reasoning" and isinstance(content.get("text"), str)


def _is_joined(message: Stored) -> bool:
    return is_own(message, NAME) and bool(message.extra[NAME].get(_JOINED))


def _mend(message: Stored) -> Stored:
    """A message whose content was erased, as one of ours that says so."""
    calls = tuple(replace(call, arguments="{}") for call in message.tool_calls)
    said = {"type": "function_result" if message.role == "tool" else "text"}
    own: dict[str, Any] = {"contents": [said, *({"type": "function_call"} for _ in calls)]}
    origin = message.extra.get("origin")
    id = origin.get("id") if isinstance(origin, dict) else None
    if isinstance(id, str) and id.startswith(_ORIGIN):
        own["more"] = {"message_id": id.removeprefix(_ORIGIN)}
    elif message.role == "tool":
        own[_JOINED] = ERASED
    return replace(message, content=ERASED_TEXT, tool_calls=calls, extra={**message.extra, NAME: own})


def from_stored(message: Stored) -> dict[str, Any]:
    """The message of the framework that one of our own was made of; or the part of it that this one has."""
    own = message.extra[NAME]
    if "json" in own:
        return cast("dict[str, Any]", json.loads(own["json"]))
    texts: list[Any] = [message.content] if isinstance(message.content, str) else list(message.content or ())
    calls = list(message.tool_calls)
    contents = []
    for kept in own.get("contents", _PLAIN_TEXT):
        content = {"additional_properties": {}, **kept}
        if content["additional_properties"] is None:
            del content["additional_properties"]
        kind = kept["type"]
        is_result = kind == "function_result" and "call_id" not in kept
        if kind == "text" and "text" not in kept and texts:
            content["text"] = _text(texts.pop(0))
        elif kept.get("is_reasoning") is True:
            del content["is_reasoning"]
            content["text"] = message.reasoning
        elif kind in ("data", "uri") and "uri" not in kept and texts:
            part = texts.pop(0)
            content["uri"] = part["file_url"] if part["type"] == "file" else part["image_url"]["url"]
        elif kind == "function_call" and "call_id" not in kept and calls:
            call = calls.pop(0)
            content |= {"call_id": call.id, "name": call.name}
            if call.arguments is not None:
                content["arguments"] = call.arguments
        elif is_result:
            content["call_id"] = message.tool_call_id
            if "result" not in kept and texts:
                content["result"] = _text(texts.pop(0))
                if kept.get("items") is True:
                    content["items"] = [{"type": "text", "text": content["result"], "additional_properties": {}}]
        contents.append(content)
    found = {"type": "message", "role": own.get("role", message.role), "contents": contents}
    if message.name is not None:
        found["author_name"] = message.name
    joined = {_JOINED: own[_JOINED]} if own.get(_JOINED) else {}
    erased = {ERASED: True} if is_erased(message) else {}
    return {"additional_properties": {}, **found, **own.get("more", {}), **joined, **erased}


def _text(part: Any) -> str:
    return part if isinstance(part, str) else part["text"]


def from_chat(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """A message of OpenAI's chat, as those of others are read."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    contents: list[dict[str, Any]] = []
    if message["role"] == "tool":
        shown = "\n".join(map(part_text, parts))
        contents.append({"type": "function_result", "call_id": message["tool_call_id"], "result": shown})
    else:
        for part in parts:
            if part["type"] == "image_url":
                contents.append({"type": "uri", "uri": part["image_url"]["url"], "media_type": "image/*"})
            else:
                contents.append({"type": "text", "text": part_text(part)})
    for call in message.get("tool_calls", ()):
        made = call.get("function") or {"name": call["custom"]["name"], "arguments": call["custom"]["input"]}
        contents.append({"type": "function_call", "call_id": call["id"], **made})
    made = {"type": "message", "role": message["role"], "contents": contents, "additional_properties": {}}
    # As it is sent again by those who have read it.
    yield {**Message.from_dict(made).to_dict(), _FOREIGN: True}
