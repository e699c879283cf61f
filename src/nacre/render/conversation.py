"""A conversation as its readers see it: messages, calls with their results, where it was cut, and what is missing."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.amounts import count
from nacre.attachments import describe_file, without_data
from nacre.client_shapes import describe_bytes, thought_text
from nacre.messages import ERASED_TEXT, Message, QuarantineEntry, Stored, ToolCall, describe_quarantine, is_erased
from nacre.records import Losses
from nacre.render.usage import Usage


class Cover(Struct, frozen=True, kw_only=True):
    """What stands above a conversation; `usage` is None where nobody counted."""

    key: str
    title: str = ""
    created: datetime | None = None
    messages: int = 0
    usage: Usage | None = None

    @property
    def totals(self) -> str:
        """How many messages, and how many tokens where that is known."""
        messages = f"{self.messages:,} message{'s' * (self.messages != 1)}"
        if self.usage is None or not self.usage.total:
            return messages
        used = self.usage
        return f"{messages} · {count(used.total)} tokens ({count(used.input)} in, {count(used.output)} out)"


class Result(Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    label: str
    ts: datetime
    text: str


class Call(Struct, frozen=True, kw_only=True):
    """A tool call, and its result once there is one."""

    id: str
    name: str
    arguments: str
    result: Result | None = None


class MessageView(Struct, frozen=True, kw_only=True):
    """One message; `label` is its number, with its generation's before it where that is not the newest."""

    label: str
    role: str
    ts: datetime
    name: str = ""
    text: str = ""
    reasoning: str = ""
    model: str = ""
    calls: tuple[Call, ...] = ()
    attachments: tuple[str, ...] = ()
    is_live: bool = True


class Cut(Struct, frozen=True, kw_only=True):
    """Where the live history begins, with the summary of what came before and how many messages that hides."""

    summary: str
    hidden: int = 0


Part = MessageView | Cut

_MOST_HELD = 128
"""How many parts wait at most for the results of the first of them, so that a long conversation is never held whole."""


def parts(
    stored: Iterable[Stored], *, live: Container[int] | None = None, newest: str = "", cut: Cut | None = None
) -> Iterator[Part]:
    """The parts of a conversation, results with their calls.

    A result belongs to the newest message that calls with its id, whatever stands between them: other calls, an
    approval, words. Only the first result does; further ones stand where they came. `live` are the numbers in
    generation `newest` that are in the history now, None for all. `cut` is put before the first of them. Holds a
    few messages at a time.
    """
    older: list[str] = []
    held: deque[_Held] = deque()
    waiting: dict[tuple[str, bool, str], _Held] = {}
    for one in stored:
        # 1. Its label: numbers are unlike in all generations of a key.
        label = str(one.n)
        if newest and one.generation != newest:
            if one.generation not in older:
                older.append(one.generation)
            label = f"{older.index(one.generation) + 1}.{one.n}"
        is_live = live is None or (one.n in live and one.generation == newest)
        shown = _view(one, label=label, is_live=is_live)
        # 2. A result goes to the call that waits for it, if both or neither are live.
        id = one.message.tool_call_id or ""
        asking = waiting.get((one.generation, is_live, id)) if shown.role == "tool" else None
        if asking is not None and id in asking.places:
            text = "\n".join((shown.text, *shown.attachments))
            asking.take(id, Result(label=label, ts=shown.ts, text=text))
        else:
            if cut is not None and is_live:
                held.append(_Held(cut))
                cut = None
            held.append(_Held(shown))
            # 3. A call that is made again waits no longer, nor one without an id if something else follows.
            for again in ("", *held[-1].places):
                before = waiting.pop((one.generation, is_live, again), None)
                if before is not None:
                    before.places.pop(again, None)
            waiting.update(((one.generation, is_live, called), held[-1]) for called in held[-1].places)
        # 4. What waits for nothing is given out, and the oldest if it waits too long.
        while held and (not held[0].places or len(held) > _MOST_HELD):
            yield held.popleft().whole()
    yield from (one.whole() for one in held)
    if cut is not None:
        yield cut


class _Held:
    """A part of a conversation; `places` are those of its calls that wait for a result, by id, the first one last."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._results: dict[int, Result] = {}
        self.places: dict[str, list[int]] = {}
        calls = part.calls if isinstance(part, MessageView) else ()
        for place in range(len(calls) - 1, -1, -1):
            self.places.setdefault(calls[place].id, []).append(place)

    def take(self, id: str, result: Result) -> None:
        self._results[self.places[id].pop()] = result
        if not self.places[id]:
            del self.places[id]

    def whole(self) -> Part:
        """The part with the results of its calls; it takes no more."""
        self.places.clear()
        if not self._results or isinstance(self._part, Cut):
            return self._part
        calls = (replace(call, result=self._results.get(place)) for place, call in enumerate(self._part.calls))
        return replace(self._part, calls=tuple(calls))


def _view(one: Stored, *, label: str, is_live: bool) -> MessageView:
    message = one.message
    text, others = text_of(message.content)
    if is_erased(message):
        text, others = ERASED_TEXT, ()
    elif not message.role:
        # An item that is no message.
        text = thought_text(message.extra) or f"```json\n{item_json(message)}\n```"
    return MessageView(
        label=label,
        role=message.kind,
        ts=message.created or one.ts,
        name=message.name or "",
        text=text,
        reasoning=message.reasoning or "",
        model=message.model or "",
        calls=tuple(
            Call(id=call.id, name=call.name or str(call.extra.get("type", "call")), arguments=arguments_of(call))
            for call in message.tool_calls
        ),
        attachments=others + tuple(map(describe_part, message.media)),
        is_live=is_live,
    )


def text_of(content: str | list[Any] | None) -> tuple[str, tuple[str, ...]]:
    """A message's text, and a few words for each part of it that is none."""
    if isinstance(content, str):
        return content, ()
    texts, others = [], []
    for part in content or ():
        text = text_in(part)
        if text is not None:
            texts.append(text)
        else:
            others.append(describe_part(part))
    return "\n".join(texts), tuple(others)


def item_json(message: Message) -> str:
    """The fields of an item that is no message, without base64, and without empty ones, as some marks are."""
    rest = {name: value for name, value in message.extra.items() if name != "type" and value != {}}
    return _json(without_data(rest))


def text_in(part: Any) -> str | None:
    """The text of a part of a message's content; None if it is something else."""
    if isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text"):
        part = part.get("text")
    return part if isinstance(part, str) else None


def is_text(part: Any) -> bool:
    """Tell whether a part of a message's content is nothing but text."""
    return text_in(part) is not None


def describe_part(part: Any) -> str:
    """A few words for something that is not text: its kind, and where it is or how large."""
    if isinstance(part, bytes):
        return str(describe_bytes(part))
    if words := describe_file(part):
        return words
    if not isinstance(part, Mapping):
        return _json(part)
    kind = part.get("type") or part.get("mime_type") or "attachment"
    if (thought := thought_text(part)) is not None:
        return f"{kind}: {thought}" if thought else str(kind)
    place = next((value for value in _leaves(part) if value.startswith(("http://", "https://"))), "")
    return f"{kind}: {place or _json(without_data(part))}"


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as a person would write them, name=value by name=value."""
    given = call.arguments
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return str(call.arguments)
    if isinstance(given, Mapping):
        return ", ".join(f"{name}={_json(value)}" for name, value in given.items())
    return "" if given in (None, "") else _json(given)


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _leaves(item)


def _json(value: Any) -> str:
    return msgspec.json.encode(describe_bytes(value)).decode()


class Notice(Struct, frozen=True, kw_only=True):
    """How much of a session waits in quarantine: whole records, bytes, a sentence, and the command that shows it."""

    records: int
    bytes: int
    text: str
    command: str


def notices(entries: Iterable[QuarantineEntry]) -> Mapping[str, Notice]:
    """A notice for each session that has unsettled entries; give it what `Sessions.quarantine` gives."""
    found: dict[str, list[QuarantineEntry]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry)
    return {
        key: Notice(
            records=sum(len(entry.records) for entry in of),
            bytes=sum(entry.bytes for entry in of),
            text=describe_quarantine(of),
            command=f"nacre sessions quarantine show {shlex.quote(key)}",
        )
        for key, of in found.items()
    }


class Unreadable(Struct, frozen=True, kw_only=True):
    """How much of a session could not be read: records, large payloads, a sentence, and the command that shows more."""

    records: int
    payloads: int
    text: str
    command: str


def unreadable(key: str, losses: Losses) -> Unreadable | None:
    """A notice of what a read could not find; None if it found everything."""
    if not losses:
        return None
    command = f"nacre sessions verify {shlex.quote(key)}"
    return Unreadable(records=losses.records, payloads=losses.payloads, text=losses.text, command=command)
