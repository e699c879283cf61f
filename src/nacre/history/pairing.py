"""Messages as every provider takes them: each tool call directly followed by its result; the log stays as it is.

Messages other than results stay in their order, and results go to their calls. So what is appended
to a log is appended to its projection, but for a result that comes late: it takes the place of the words
that stood for it, or of an earlier result of the same call. A request then is no prefix of the next one;
a model that reads "waiting for approval" where a payment was made would cost more than a cache does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.attachments import describe_file
from nacre.client_shapes import image_part
from nacre.messages import ERASED_TEXT, Message, ToolCall, is_erased

INTERRUPTED = "interrupted, outcome unknown"
RECALLED = "recalled"
PASTED = "pasted"
"""In `extra` of a user's message: where its words are pasted or piped in, each place as its begin and end."""
SAID_AS = "said_as"
"""In `extra` of what is shown as a user's words: the role that it has in the log."""

_MAX_ID = 40
_MAX_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,([a-zA-Z0-9+/]+={0,2})")
_EMPTY = "[empty message]"
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")


class Piece(Struct, frozen=True, kw_only=True):
    """The projection of a piece of a log, how many calls in it were never answered, and how many results are not shown.

    The calls of the results that seek one may stand before it.
    """

    messages: list[Message]
    interrupted: int = 0
    orphans: int = 0
    seeking: list[Message] = []


def pair(messages: Sequence[Message]) -> list[Message]:
    """The messages with every call answered once, in the calls' order, directly after it.

    A call without a result is answered as interrupted. Of several results of one call the last counts:
    a tool that asks for approval answers first that it waits. Results without a call, empty answers of the
    model and messages of a user without any content are left out. Ids become unique; names, ids, arguments and
    contents take a form that all providers accept; what has a role of its own is shown as a user's words.
    """
    return settle(messages).messages


def settle(messages: Iterable[Message]) -> Piece:
    """The same, with what had to be settled."""
    piece = attach_results(messages)
    orphans = piece.orphans + len(piece.seeking)
    return replace(piece, messages=distinct(piece.messages), orphans=orphans, seeking=[])


def attach_results(messages: Iterable[Message]) -> Piece:
    """Give results to their calls; ids stay as they are.

    in the log   user   call 1,2   user   result 2   result 1   reply   result 1 again
    attached     user   call 1,2   result 1 again   result 2   user   reply            (one orphan: the first result 1)
    """
    messages = list(messages)
    # 1. Most turns are words alone.
    if not any(message.role == "tool" or message.tool_calls for message in messages):
        said = (as_shown(message) for message in messages)
        return Piece(messages=[message for message in said if message is not None])
    # 2. Messages stay in their order. A result goes to the newest call of its id, wherever it comes; one that names no
    #    call goes to one that waits, which none does any more when the model has replied without a call.
    order: list[_Asking | Message] = []
    waiting = _Waiting()
    for message in messages:
        if message.role == "tool":
            waiting.take(message)
            continue
        seen = as_shown(message)
        if seen is not None and seen.tool_calls:
            order.append(waiting.add(_Asking(seen, message.tool_calls)))
            continue
        if message.role == "assistant":
            waiting.close()
        if seen is not None:
            order.append(seen)
    # 3. Each call is followed by its results, or by a word that it was interrupted.
    return Piece(
        messages=[message for item in order for message in (item.all() if isinstance(item, _Asking) else (item,))],
        interrupted=sum(item.results.count(None) for item in order if isinstance(item, _Asking)),
        orphans=waiting.orphans,
        seeking=waiting.seeking,
    )


def distinct(messages: Sequence[Message]) -> list[Message]:
    """Attached messages with ids that every provider takes, each used once."""
    # Most are words alone. What stays as it is stays the same value, so that what was worked out about it still holds.
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return list(messages)
    found: list[Message] = []
    used: dict[str, int] = {}
    answers: Iterator[str] = iter(())
    for message in messages:
        if message.tool_calls:
            ids = [_unused_id(call.id, used) for call in message.tool_calls]
            answers = iter(ids)
            calls = tuple(replace(call, id=id) for call, id in zip(message.tool_calls, ids, strict=True))
            found.append(message if calls == message.tool_calls else replace(message, tool_calls=calls))
        elif message.role == "tool":
            id = next(answers)
            found.append(message if id == message.tool_call_id else replace(message, tool_call_id=id))
        else:
            found.append(message)
    return found


def as_shown(message: Message) -> Message | None:
    """A message other than a result, as every model is shown it; None if it is not shown.

    What a model said stays its own. All else is a user's words: those of another role than `user`, whether a provider
    has it or not, with that role in brackets before them. What says nothing is left out, and so is an item without a
    role, which no provider takes. An empty text of a user is shown to be empty, since the answer to it follows.
    """
    if not message.role or is_silent(message):
        return None
    if message.role == "assistant":
        content = _content(message.content)
        # Providers reject white space at the end of a reply.
        if isinstance(content, str):
            content = content.rstrip()
        else:
            content = [*content[:-1], {**content[-1], "text": content[-1]["text"].rstrip()}]
        if not message.tool_calls and not content and not (content := _placeholder(message)):
            return None
        return _change(message, content, tuple(map(_call, message.tool_calls)))
    content = _content(message.content, has_images=True)
    if not (content.strip() if isinstance(content, str) else content):
        content = _placeholder(message)
    if message.role == "user":
        recalled = message.extra.get(RECALLED)
        if not isinstance(recalled, str) or not recalled.strip():
            return _change(message, content or _EMPTY)
        # What was remembered when the message came stands before it.
        return without_facts(_change(message, _put_before(content or _EMPTY, recalled, "\n\n")))
    if not content:
        return None
    said = _put_before(content, f"[{message.role}]", " ")
    return replace(_change(message, said), role="user", extra={**message.extra, SAID_AS: message.role})


def is_silent(message: Message) -> bool:
    """Tell whether a user's message has no content at all, not even an empty text.

    Frameworks keep in such messages what only they can read, such as an approval: nobody said anything.
    """
    has_any = message.content is not None or message.media or RECALLED in message.extra or is_erased(message)
    return message.role == "user" and not has_any


def without_facts(message: Message) -> Message:
    """A message without what was remembered when it came."""
    if RECALLED not in message.extra:
        return message
    return replace(message, extra={name: value for name, value in message.extra.items() if name != RECALLED})


# ---- which call a result belongs to


class _Asking:
    """A message that calls tools, and the results it has so far."""

    def __init__(self, message: Message, calls: Sequence[ToolCall]) -> None:
        self.message = message
        self.calls = calls
        self.results: list[Message | None] = [None] * len(calls)

    def take(self, result: Message) -> bool:
        """Keep a result if a call still waits for it; if it names a call that has one, in the place of that one."""
        last = -1
        for at, call in enumerate(self.calls):
            is_meant = result.tool_call_id == call.id if result.tool_call_id else result.name in (None, "", call.name)
            if is_meant and self.results[at] is None:
                self.results[at] = result
                return True
            last = at if is_meant else last
        if result.tool_call_id:
            self.results[last] = result
        return False

    def all(self) -> Iterator[Message]:
        yield self.message
        for call, result in zip(self.message.tool_calls, self.results, strict=True):
            if result is None:
                failed = {"failed": True}
                yield Message(role="tool", tool_call_id=call.id, name=call.name, content=INTERRUPTED, extra=failed)
            else:
                content = ERASED_TEXT if is_erased(result) else _content(result.content, has_images=True)
                is_same = content is result.content and not result.tool_calls
                if is_same and (result.tool_call_id, result.name) == (call.id, call.name):
                    yield result
                else:
                    yield replace(result, tool_calls=(), tool_call_id=call.id, name=call.name, content=content)


class _Waiting:
    """The calls that a result may belong to: by its id any, else those since the last answer without a call."""

    def __init__(self) -> None:
        self.orphans = 0
        self.seeking: list[Message] = []
        self._asking: list[_Asking] = []
        self._latest: dict[str, _Asking] = {}
        self._is_closed = False

    def add(self, asking: _Asking) -> _Asking:
        self._asking.append(asking)
        self._latest.update((call.id, asking) for call in asking.calls)
        return asking

    def close(self) -> None:
        """A model that has answered waits for no result that does not name its call."""
        self._asking.clear()
        self._is_closed = True

    def take(self, result: Message) -> None:
        """Give a result to the newest message that calls for it; an earlier one of the same call is an orphan."""
        if result.tool_call_id:
            asking = self._latest.get(result.tool_call_id)
            if asking is None:
                self.seeking.append(result)
            else:
                self.orphans += not asking.take(result)
            return
        while self._asking and None not in self._asking[-1].results:
            self._asking.pop()
        if any(asking.take(result) for asking in reversed(self._asking)):
            return
        if self._is_closed:
            self.orphans += 1
        else:
            self.seeking.append(result)


# ---- ids


def _unused_id(id: str, used: dict[str, int]) -> str:
    """An id in the form that all providers take; with a number at its end where it was used before."""
    first = chosen = _NOT_IN_A_NAME.sub("_", id)[:_MAX_ID] or "call"
    while chosen in used:
        used[first] += 1
        number = f"-{used[first]}"
        chosen = first[: _MAX_ID - len(number)] + number
    used[chosen] = 1
    return chosen


# ---- what one message is shown as


def _change(message: Message, content: str | list[Any], calls: tuple[ToolCall, ...] = ()) -> Message:
    """The message itself if it is shown as it is, which most are: what was worked out about it then still holds."""
    if content is message.content and calls == message.tool_calls and message.tool_call_id is None:
        return message
    return replace(message, content=content, tool_calls=calls, tool_call_id=None)


def _put_before(content: str | list[Any], words: str, gap: str) -> str | list[Any]:
    return [{"type": "text", "text": words}, *content] if isinstance(content, list) else f"{words}{gap}{content}"


def _placeholder(message: Message) -> str:
    if is_erased(message):
        return ERASED_TEXT
    return "[attachment]" if message.media else ""


def _call(call: ToolCall) -> ToolCall:
    if "type" in call.extra:
        # A call of something else than a function, as some servers have them.
        rest = {field: value for field, value in call.extra.items() if field != "type"}
        return ToolCall(id=call.id, name=_name(str(call.extra["type"])), arguments=rest)
    # Arguments are an object; what is none is put into one.
    value: Any = call.arguments
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            value = {"unreadable": value}
    if not isinstance(value, dict):
        value = {} if value is None else {"value": value}
    name = _name(call.name)
    return call if (name, value) == (call.name, call.arguments) else replace(call, name=name, arguments=value)


def _name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)[:_MAX_NAME] or "unknown"


# ---- contents


def _content(content: str | list[Any] | None, *, has_images: bool = False) -> str | list[Any]:
    if not isinstance(content, list):
        return content or ""
    parts = [_part(part, has_images=has_images) for part in content]
    return [part for part in parts if part is not None] or ""


def _part(part: Any, *, has_images: bool) -> dict[str, Any] | None:
    """A part as text or an image; None if there is nothing to show."""
    if isinstance(part, str):
        return _text(part)
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or not kind.strip():
        return _text("[part]")
    if kind in _THOUGHTS:
        return None
    if isinstance(part.get("text"), str):
        return _text(part["text"])
    image = image_part(part)
    if image is None:
        return _text("[image]" if kind == "image_url" else f"[{describe_file(part) or kind}]")
    # An image that is here is shown. One that is elsewhere is named: a session must not depend on its being there.
    url = image["image_url"]["url"]
    data = _IMAGE.fullmatch(url) if has_images and isinstance(url, str) else None
    if data is not None and len(data[1]) % 4 == 0:
        return {"type": "image_url", "image_url": {"url": url}}
    is_elsewhere = isinstance(url, str) and url.startswith(("http://", "https://"))
    return _text(f"[image at {url}]" if is_elsewhere else "[image]")


def _text(text: str) -> dict[str, Any] | None:
    return {"type": "text", "text": text} if text.strip() else None
