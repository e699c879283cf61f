"""Answers that are held to a schema: one JSON object that is either a reply or a call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from nacre.agent.ports import Spec, Text
from nacre.providers.text_tools import lenient_json
from nacre.providers.text_tools.call_shapes import Found
from nacre.providers.text_tools.parser import Answer, read, settled

_REPLY = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_STRING = re.compile(
    r'(?:[^"\\]|\\(?:[^u]|u(?![dD][89abAB])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}))*'
)


def schema_of(tools: Sequence[Spec]) -> dict[str, Any]:
    """The schema of an answer: a reply, or a call of one of these tools."""
    reply = _closed({"reply": {"type": "string"}})
    return {"anyOf": [reply, *map(call_schema, tools)]}


def call_schema(tool: Spec) -> dict[str, Any]:
    """The schema of a call of a tool."""
    return _closed({"name": {"const": tool.name}, "arguments": tool.parameters})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def read_held(text: str, tools: Sequence[Spec], *, cut: bool = False) -> Answer:
    """Read such an answer; one that does not follow the schema is read like any other text.

    A reply that was cut short is given as far as it came; a call never is.
    """
    try:
        value, _ = lenient_json.Source(text).strictly(len(text) - len(text.lstrip()))
    except lenient_json.Wrong:
        said = Said()
        said.feed(text)
        return Answer(content=said.shown) if said.shown else read(text, tools, cut=cut)
    match value:
        case {"reply": str(reply)} if len(value) == 1:
            return Answer(content=reply)
        case {"name": str(name), "arguments": dict(arguments)}:
            call = settled(Found(name=name, arguments=arguments), {tool.name for tool in tools})
            return Answer(calls=(call,))
        case _:
            return read(text, tools, cut=cut)


class Said:
    """Gives the reply of such an answer as it comes, without the JSON around it."""

    def __init__(self) -> None:
        self._text = ""
        self._at: int | None = None
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        """All that was given so far."""
        return "".join(self._shown)

    def feed(self, piece: str) -> list[Text]:
        """Take the next piece; gives what may be shown now."""
        self._text += piece
        if self._at is None:
            found = _REPLY.match(self._text)
            if found is None:
                return []
            self._at = found.end()
        found = _STRING.match(self._text, self._at)
        raw = found[0] if found else ""
        self._text, self._at = self._text[self._at + len(raw) :], 0
        said = json.loads(f'"{raw}"', strict=False) if raw else ""
        self._shown += [said] if said else []
        return [Text(said)] if said else []
