"""A conversation as its readers see it: what was said, the calls with their results, and where it was cut."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.messages import Stored, ToolCall
from nacre.render.text import count, size
from nacre.render.usage import Usage


class Cover(Struct, frozen=True, kw_only=True):
    """What stands above a conversation; `usage` is None where nobody counted."""

    key: str
    title: str = ""
    created: datetime | None = None
    messages: int = 0
    usage: Usage | None = None

    @property
    def counted(self) -> str:
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


class Said(Struct, frozen=True, kw_only=True):
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


Part = Said | Cut


def parts(
    stored: Iterable[Stored], *, live: Container[int] | None = None, newest: str = "", cut: Cut | None = None
) -> Iterator[Part]:
    """The parts of a conversation, results beside their calls.

    `live` are the numbers in generation `newest` that are in the history now, None for all. `cut` is put
    before the first of them. Holds no more than one message and its results at a time.
    """
    labels = _Labels(newest)
    waiting: _Waiting | None = None
    for one in stored:
        is_live = live is None or (one.n in live and one.generation == newest)
        said = _said(one, label=labels.of(one), is_live=is_live)
        if waiting is not None and waiting.takes(said, one.message.tool_call_id):
            continue
        if waiting is not None:
            yield waiting.said()
        if cut is not None and is_live:
            yield cut
            cut = None
        waiting = _Waiting(said)
    if waiting is not None:
        yield waiting.said()
    if cut is not None:
        yield cut


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
            others.append(described(part))
    return "\n".join(texts), tuple(others)


def text_in(part: Any) -> str | None:
    """The text of a part of a message's content; None if it is something else."""
    return part if isinstance(part, str) else _text(part)


def is_text(part: Any) -> bool:
    """Tell whether a part of a message's content is nothing but text."""
    return text_in(part) is not None


def described(part: Any) -> str:
    """A few words for something that is not text: its kind, and where it is or how large."""
    if not isinstance(part, Mapping):
        return _json(part)
    kind = part.get("type") or part.get("mime_type") or "attachment"
    for value in _leaves(part):
        if value.startswith("data:"):
            kept = len(value.partition(",")[2]) * 3 // 4
            return f"{value[5:].partition(';')[0] or kind}, {size(kept)}"
        if value.startswith(("http://", "https://")):
            return f"{kind}: {value}"
    return f"{kind}: {_json(part)}"


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


class _Labels:
    """Numbers that are unlike in all generations of a key."""

    def __init__(self, newest: str) -> None:
        self._newest = newest
        self._seen: list[str] = []

    def of(self, one: Stored) -> str:
        if not self._newest or one.generation == self._newest:
            return str(one.n)
        if one.generation not in self._seen:
            self._seen.append(one.generation)
        return f"{self._seen.index(one.generation) + 1}.{one.n}"


class _Waiting:
    """A message whose calls wait for their results."""

    def __init__(self, said: Said) -> None:
        self._said = said
        self._results: dict[int, Result] = {}
        self._unanswered: dict[str, list[int]] = {}
        for place in range(len(said.calls) - 1, -1, -1):
            self._unanswered.setdefault(said.calls[place].id, []).append(place)

    def takes(self, answer: Said, id: str | None) -> bool:
        """Put a result to its call; False if it is none, no call waits for it, or only one of the two is live."""
        places = self._unanswered.get(id or "")
        if answer.role != "tool" or not places or self._said.is_live != answer.is_live:
            return False
        text = "\n".join((answer.text, *answer.attachments)) if answer.attachments else answer.text
        self._results[places.pop()] = Result(label=answer.label, ts=answer.ts, text=text)
        return True

    def said(self) -> Said:
        if not self._results:
            return self._said
        calls = (replace(call, result=self._results.get(place)) for place, call in enumerate(self._said.calls))
        return replace(self._said, calls=tuple(calls))


def _said(one: Stored, *, label: str, is_live: bool) -> Said:
    message = one.message
    text, others = text_of(message.content)
    return Said(
        label=label,
        role=message.role,
        ts=message.created or one.ts,
        name=message.name or "",
        text=text,
        reasoning=message.reasoning or "",
        model=message.model or "",
        calls=tuple(map(_call, message.tool_calls)),
        attachments=others + tuple(map(described, message.media)),
        is_live=is_live,
    )


def _call(call: ToolCall) -> Call:
    name = call.name or str(call.extra.get("type", "call"))
    return Call(id=call.id, name=name, arguments=arguments_of(call))


def _text(part: Any) -> str | None:
    if isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text"):
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _leaves(item)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
