"""Messages and times in their canonical form on disk: checked, encoded, and read again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from nacre.checks import is_unicode, show
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall, check_created, check_list, check_mapping
from nacre.records import AppendMessage, Record, Records

ERASED = "redacted"
"""In `extra` of a message whose content was erased: true."""
ERASED_TEXT = "[erased]"
"""What readers are shown in its place."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
_MINUTE = timedelta(minutes=1)
_MAX_DEPTH = 100
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_PLAIN = {"role", "content"}

_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode


def encode_text(role: str, content: str) -> AppendMessage:
    """Encode a message that has only a role and a text, which most have."""
    if type(role) is str and type(content) is str and role:
        try:
            return AppendMessage(msgspec.Raw(_encode({"role": role, "content": content})))
        except UnicodeEncodeError:
            pass
    return encode_message(Message(role=role, content=content))


def encode_message(message: Message | Mapping[str, Any]) -> AppendMessage:
    """Check a message and encode it; raises InvalidMessage for what JSON cannot hold faithfully."""
    if type(message) is dict and message.keys() == _PLAIN:
        return encode_text(message["role"], message["content"])
    value = message if isinstance(message, Message) else Message.from_mapping(message)
    _check_message(value)
    if value.created is not None and (value.created.utcoffset() or _MINUTE) % _MINUTE:
        # RFC 3339 has no zones of broken minutes.
        value = replace(value, created=value.created.astimezone(UTC))
    lossy = False
    try:
        try:
            raw = _encode(value)
        except (TypeError, UnicodeEncodeError):
            # Rare, so it may cost more: subclasses of text and numbers, or lone surrogates.
            value = _map_leaves(value, _plain_type)
            try:
                raw = _encode(value)
            except UnicodeEncodeError:
                raw, lossy = _encode(_map_leaves(value, _without_surrogates)), True
        is_text = type(value.content) is str and not (value.tool_calls or value.media or value.extra)
        if not is_text or value.created is not None:
            # What no reader could decode must not be written. Texts alone always can be.
            _decode_message(raw)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        # A value that only says that it is a text or a number, a time that no text stands for.
        raise InvalidMessage(f"a message cannot be stored: {error}") from error
    return AppendMessage(raw=msgspec.Raw(raw), lossy=lossy)


def plain_json(value: Any, what: str) -> Any:
    """Check a JSON value that is not a message and give it in plain types, without lone surrogates."""
    if type(value) is dict and all(
        type(text) is str and is_unicode(text) for name_and_item in value.items() for text in name_and_item
    ):
        return dict(value)
    _check_json(value, what, _MAX_DEPTH)
    return _map_leaves(value, lambda leaf: _without_surrogates(_plain_type(leaf)))


def message_of(record: Record, view: Records) -> Message:
    """Return the whole message of a record, with the time it was stored where its writer gave none."""
    message = record.m if record.blobs is None else view.whole(record).m
    if message is None:
        raise InvalidMessage(f"record {record.n} is a {record.t!r}, not a message")
    if record.gone is not None:
        # Its content was erased; what is left of it is empty, not absent.
        message = replace(message, content="", extra={**message.extra, ERASED: True})
    if message.created is None:
        force_setattr(message, "created", time_of(record))
    return message


def is_erased(message: Message) -> bool:
    """Tell whether the content of a message was erased."""
    return message.extra.get(ERASED) is True


def time_of(record: Record) -> datetime:
    return parse_time(record.ts)


def parse_time(text: str) -> datetime:
    """Read the time of a record, in UTC; 1970 for one that is none, which `verify` reports and reading survives."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # Some times of the years 1 and 9999 are in no year of a calendar in UTC.
        return EPOCH


def is_time(text: str) -> bool:
    """Tell whether a record's time is one, with its zone."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.tzinfo is not None and moment.astimezone(UTC) is not None
    except (ValueError, OverflowError):
        return False


def timestamp(seconds: float) -> str:
    """Return a wall clock reading as every record spells it, in UTC and milliseconds.

    A clock that is beyond what a calendar holds, the years 1 to 9999, is taken for the nearest time in it.
    """
    millis = min(max(_FIRST_MILLI, math.floor(seconds * 1000)), _LAST_MILLI)
    whole, rest = divmod(millis, 1000)
    return f"{_second_text(whole)}.{rest:03d}Z"


@lru_cache(maxsize=2)
def _second_text(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def _check_message(message: Message) -> None:
    if not isinstance(message.role, str) or not message.role:
        raise InvalidMessage(f"a message's role must be a word, not {show(message.role)}")
    for field in ("tool_call_id", "name", "reasoning", "model"):
        value = getattr(message, field)
        if value is not None and not isinstance(value, str):
            raise InvalidMessage(f"a message's {field} must be text, not {type(value).__name__}")
    if not isinstance(message.content, str | list | None):
        raise InvalidMessage(
            f"a message's content must be text, a list of parts or None, not {type(message.content).__name__}"
        )
    if isinstance(message.content, list):
        _check_json(message.content, "content", _MAX_DEPTH)
    for call in check_list(message.tool_calls or (), "tool_calls"):
        if not isinstance(call, ToolCall):
            raise InvalidMessage(f"tool_calls must contain ToolCall values, not {type(call).__name__}")
        if not isinstance(call.id, str) or not isinstance(call.name, str):
            raise InvalidMessage(f"a tool call's id and name must be text, not {show(call.id)} and {show(call.name)}")
        _check_json(call.arguments, "arguments", _MAX_DEPTH)
        _check_json(check_mapping(call.extra, "extra"), "extra", _MAX_DEPTH)
    if message.media:
        _check_json(list(check_list(message.media, "media")), "media", _MAX_DEPTH)
    if message.created is not None:
        check_created(message.created)
    if message.extra:
        _check_json(check_mapping(message.extra, "extra"), "extra", _MAX_DEPTH)


def _check_json(value: Any, what: str, depth: int) -> None:
    """Refuse what JSON would change in silence: NaN, huge integers, bytes, keys that are not text."""
    if depth == 0:
        raise InvalidMessage(f"{what} is nested more than {_MAX_DEPTH} levels deep")
    match value:
        case str() | bool() | None:
            pass
        case int() | float():
            if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
                raise InvalidMessage(f"{what} has an integer of more than 64 bits: {show(value)}")
            if not math.isfinite(value):
                raise InvalidMessage(f"{what} has {value}, which JSON cannot represent")
        case list() | tuple():
            for item in value:
                _check_json(item, what, depth - 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidMessage(f"{what} has a key that is not text: {show(key)}")
                _check_json(item, what, depth - 1)
        case _:
            raise InvalidMessage(f"{what} has a {type(value).__name__}, which JSON cannot represent")


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a change to every text and number in a JSON value or a message."""
    if isinstance(value, Struct):
        return type(value)(**{field: _map_leaves(item, change) for field, item in asdict(value).items()})
    if isinstance(value, list | tuple):
        items = [_map_leaves(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {change(key): _map_leaves(item, change) for key, item in value.items()}
    return change(value)


def _plain_type(value: Any) -> Any:
    """A subclass's text or number as the plain one, which is all that JSON can hold."""
    if type(value) in (str, bool, int, float):
        return value
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _without_surrogates(value: Any) -> Any:
    """Join surrogate pairs and put U+FFFD for lone ones, which no JSON reader agrees on."""
    if not isinstance(value, str) or is_unicode(value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
