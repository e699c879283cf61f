"""How many tokens something costs, about: an estimate without a tokenizer, corrected by what providers report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from nacre.entries import Message, ToolCall

PER_MESSAGE = 4
PER_CALL = 4
PER_MEDIUM = 1000
PER_TOOL = 12

_WIDE = r"\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
# Cuts text about where tokenizers do: a piece is a token. Measured against four vocabularies; the numbers are theirs.
_PIECE = re.compile(
    r"(?<=[a-z]{8})[a-z]{1,4}| ?[A-Z]?[a-z]{1,8}|\d"
    r"|={4,}|-{4,}|_{4,}|\.{4,}|\*{4,}|#{4,}|~{4,}|\^{4,}"
    r"| ?[!-/:-@\[-`{-~]{1,3}|[A-Z]{1,2}"
    rf"| ?[{_WIDE}]{{1,2}}| ?[\u00aa-\u1fff]{{1,5}}"
    r"|\s+|."
)
_LONG = 64 * 1024
_SAMPLES = 16
_SAMPLE = _LONG // _SAMPLES

_encode = msgspec.json.Encoder().encode


class Described(Protocol):
    """A tool as a model is told of it."""

    @property
    def name(self) -> str:
        """What it is called by."""

    @property
    def description(self) -> str:
        """What it is for."""

    @property
    def parameters(self) -> dict[str, Any]:
        """A JSON schema of what it takes."""


class Shown(Protocol):
    """All that a model is shown."""

    @property
    def system(self) -> str:
        """The system prompt."""

    @property
    def messages(self) -> Sequence[Message]:
        """What was said."""

    @property
    def tools(self) -> Sequence[Described]:
        """What it may call."""


@lru_cache(maxsize=512)
def count(text: str) -> int:
    """The tokens of a text; of a very long one by samples."""
    if len(text) <= _LONG:
        return len(_PIECE.findall(text))
    starts = range(0, len(text) - _SAMPLE + 1, (len(text) - _SAMPLE) // (_SAMPLES - 1))
    pieces = sum(len(_PIECE.findall(text, start, start + _SAMPLE)) for start in starts)
    return pieces * len(text) // (len(starts) * _SAMPLE)


def estimate(message: Message) -> int:
    """The tokens of a message, with what every message costs beside its text."""
    fields = (message.name, message.tool_call_id, message.reasoning)
    tokens = sum(map(_call, message.tool_calls)) + sum(count(field) for field in fields if field)
    parts = message.content if isinstance(message.content, list) else [message.content or ""]
    return PER_MESSAGE + tokens + PER_MEDIUM * len(message.media) + sum(map(_part, parts))


def definition(tool: Described) -> int:
    """The tokens of a tool's definition."""
    return PER_TOOL + count(tool.name) + count(tool.description) + _value(tool.parameters)


def cost(context: Shown, *, reply: int = 0) -> int:
    """The tokens of all that a model is shown, and of the room that is kept for its reply."""
    system = PER_MESSAGE + count(context.system) if context.system else 0
    return system + sum(map(estimate, context.messages)) + sum(map(definition, context.tools)) + reply


class Calibration(Struct, frozen=True, kw_only=True):
    """How many tokens of a model an estimated one is; learned from what its provider reports.

    `seen` counts the reports that taught something. A report that is much lower than the estimate
    comes from a prompt that the server had cached; it says nothing. Others that are lower than
    expected may, so the ratio rises quickly and falls slowly.
    """

    ratio: float = 1.0
    seen: int = 0

    def learned(self, estimated: int, reported: int) -> Calibration:
        """The calibration after a request of so many estimated tokens was reported with so many."""
        if estimated < _TELLING or reported < _LOWEST * estimated:
            return self
        found = min(reported / estimated, _HIGHEST)
        weight = _FALL if found < self.ratio else _RISE if self.seen else 1.0
        return Calibration(ratio=self.ratio + weight * (found - self.ratio), seen=self.seen + 1)

    def tokens(self, estimated: int) -> int:
        """An estimate in the model's own tokens."""
        return round(estimated * self.ratio)

    def room(self, tokens: int) -> int:
        """How many estimated tokens fit into a number of the model's own."""
        return int(tokens / self.ratio)


_TELLING = 64
_LOWEST, _HIGHEST = 0.5, 4.0
_RISE, _FALL = 0.5, 0.125


def _call(call: ToolCall) -> int:
    return PER_CALL + count(call.id) + count(call.name) + _value(call.arguments)


def _part(part: Any) -> int:
    if isinstance(part, dict):
        if part.get("type") == "image_url":
            return PER_MEDIUM
        part = part["text"] if isinstance(part.get("text"), str) else part
    return _value(part)


def _value(value: Any) -> int:
    """The tokens of a text, or of a value's JSON."""
    return count(value if isinstance(value, str) else _encode(value).decode())
