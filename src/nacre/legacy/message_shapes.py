"""A message as earlier agents spelled it, and as we do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from nacre.entries import Message, ToolCall
from nacre.errors import InvalidMessage
from nacre.history.message_text import text_of

_MILLISECONDS = 1e11
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS = "content_parts"
_SPELLINGS = {"reasoning_content": "reasoning", "model_name": "model", "created_at": "created"}


def from_earlier(mapping: Mapping[str, Any]) -> Message:
    """Read a message of an earlier agent.

    What this shape does not know, or holds in another type, stays in `extra` under its old name. Raises
    InvalidMessage if it has no role.
    """
    rest = {name: value for name, value in mapping.items() if name not in _NAMES or value not in _NOTHING}
    role = rest.pop("role", None)
    if not isinstance(role, str) or not role:
        raise InvalidMessage(f"a message's role must be a word, not {role!r:.100}")
    if isinstance(rest.get(_PARTS), list):
        # An export of ours, that the earlier agent has not rewritten.
        rest["content"] = rest.pop(_PARTS)
    known: dict[str, Any] = {}
    for name, field, read in _FIELDS:
        value = read(rest[name]) if name in rest and field not in known else None
        if value is not None:
            known[field] = value
            del rest[name]
    media = (*known.pop("media", ()), *known.pop("attachments", ()))
    return Message(role=role, **known, media=media, extra=rest)


def to_earlier(message: Message) -> dict[str, Any]:
    """Spell a message as earlier agents read it."""
    found = replace(message, media=()).to_mapping()
    for theirs, ours in _SPELLINGS.items():
        if ours in found and not {ours, theirs} & message.extra.keys():
            found[theirs] = found.pop(ours)
    # References as text under one name and those that are objects under the other, if that keeps their order.
    texts = [item for item in message.media if isinstance(item, str)]
    objects = [item for item in message.media if not isinstance(item, str)]
    if list(message.media) != texts + objects:
        texts, objects = list(message.media), []
    return found | {name: media for name, media in (("media", texts), ("attachments", objects)) if media}


def to_picoclaw(message: Message) -> dict[str, Any]:
    """Spell a message with the types that picoclaw demands: it passes over every message in which one is another.

    Parts of a content and fields that it does not know are kept under names that it ignores, and are lost when it
    rewrites its file.
    """
    found = to_earlier(message)
    if not isinstance(message.content, str):
        found["content"] = text_of(message)
        if message.content is not None:
            found[_PARTS] = message.content
    for call in found.get("tool_calls", ()):
        function = call.get("function")
        if isinstance(function, dict) and not isinstance(function.get("arguments"), str):
            function["arguments"] = json.dumps(function.get("arguments"), ensure_ascii=False)
    return {name: value for name, value in found.items() if name not in _THEIRS or _THEIRS[name](value)}


def is_same(ours: Message, theirs: Message) -> bool:
    """Tell whether a message of ours, with its time, is one of an earlier agent, which may not have had a time.

    Where both have the same time, what picoclaw loses when it rewrites a message makes no difference.
    """
    if theirs.created is not None and theirs.created != ours.created:
        return False
    if replace(ours, created=None) == replace(theirs, created=None):
        return True
    return theirs.created is not None and _core(ours) == _core(theirs)


def _core(message: Message) -> dict[str, Any]:
    """What picoclaw keeps of a message."""
    found = to_picoclaw(message)
    calls = [(call.get("id"), call.get("function")) for call in found.get("tool_calls", ())]
    return {name: found.get(name) for name in _THEIRS if name != "tool_calls"} | {"tool_calls": calls}


def moment(value: Any) -> datetime | None:
    """Read a time: RFC 3339 text, or seconds or milliseconds since 1970; without a zone it is taken as UTC."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / (1000 if value > _MILLISECONDS else 1), UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    found = found if found.utcoffset() is not None else found.replace(tzinfo=UTC)
    # Earlier agents wrote the year 1 where they knew no time.
    return found if found > _EPOCH else None


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _items(value: Any) -> tuple[Any, ...] | None:
    return tuple(value) if isinstance(value, list) else None


def _calls(value: Any) -> tuple[ToolCall, ...] | None:
    """Tool calls, if every one of them is one."""
    try:
        calls = tuple(map(ToolCall.from_mapping, value)) if isinstance(value, list) else None
    except InvalidMessage:
        return None
    return calls if all(isinstance(call.id, str) and isinstance(call.name, str) for call in calls or ()) else None


_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("content", "content", lambda value: value if isinstance(value, str | list) else None),
    ("tool_calls", "tool_calls", _calls),
    ("tool_call_id", "tool_call_id", _text),
    ("name", "name", _text),
    ("reasoning", "reasoning", _text),
    ("reasoning_content", "reasoning", _text),
    ("model", "model", _text),
    ("model_name", "model", _text),
    ("created", "created", moment),
    ("created_at", "created", moment),
    ("media", "media", _items),
    ("attachments", "attachments", _items),
)

_THEIRS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("role", "content", "model_name", "created_at", "reasoning_content", "tool_call_id"), _is_text),
    "media": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "attachments": lambda value: _are_objects(value) and all(_is_text(text) for one in value for text in one.values()),
    "system_parts": _are_objects,
    "tool_calls": _are_objects,
}
"""The fields of a message that picoclaw has, each with what its value must be."""

_NAMES = frozenset(name for name, _, _ in _FIELDS)
_NOTHING = (None, "0001-01-01T00:00:00Z")
