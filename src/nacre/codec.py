"""Messages, bytes and times in their canonical form on disk: checked, encoded, and read again."""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from nacre.checks import is_unicode, show
from nacre.errors import InvalidMessage
from nacre.messages import ERASED, Message, ToolCall, check_created, check_list, check_mapping, is_type
from nacre.records import AppendMessage, Record, Records

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
_MINUTE = timedelta(minutes=1)
_MAX_DEPTH = 100
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_PLAIN = {"role", "content"}
_MARK = "$bytes"
ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
"""The roles that providers have. What is shown of another one is written in `as_shown` of `nacre.history.pairing`."""
BY_MCP = "mcp"
"""The role of what another program has said over MCP, which is nobody's word."""
PARTS = frozenset(
    ("text", "input_text", "output_text", "refusal", "image_url", "image", "input_image", "input_audio", "audio",
     "file", "input_file", "document", "video", "video_url", "thinking", "redacted_thinking", "reasoning",
     "reasoning_text", "tool_use", "tool_result", "search_result")
)  # fmt: skip
"""The kinds of content that a provider has."""
_MAX_WARNED = 100
_warned: set[tuple[str, str]] = set()

_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode


def encode_text(role: str, content: str) -> AppendMessage:
    """Encode a message that has only a role and a text, which most have."""
    if type(role) is str and type(content) is str and role in ROLES:
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
    if _is_plain(value):
        try:
            return AppendMessage(msgspec.Raw(_encode(value)))
        except UnicodeEncodeError:
            pass
    with _refused("a message"):
        is_binary = _check_message(value)
        if is_binary:
            # In plain types first: a name that is an enum is stored as what it stands for.
            value = _mark_bytes(_map_leaves(value, _plain_type))
    if value.created is not None and (value.created.utcoffset() or _MINUTE) % _MINUTE:
        # RFC 3339 has no zones of broken minutes.
        value = replace(value, created=value.created.astimezone(UTC))
    lossy = False
    with _refused("a message"):
        try:
            raw = _encode(value)
        except (TypeError, UnicodeEncodeError):
            # Rare, so it may cost more: subclasses of text and numbers, or lone surrogates.
            value = _map_leaves(value, _plain_type)
            try:
                raw = _encode(value)
            except UnicodeEncodeError:
                raw, lossy = _encode(_map_leaves(value, _without_surrogates)), True
        # By value: what is empty but of another kind could not be decoded either.
        is_text = type(value.content) is str and value.tool_calls == () and value.media == () and value.extra == {}
        if not is_text or value.created is not None:
            # What no reader could decode must not be written. Texts alone always can be.
            _decode_message(raw)
    return AppendMessage(raw=msgspec.Raw(raw), lossy=lossy, bin=is_binary)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Refuse what cannot be stored as it is.

    Such as a value that only says that it is text, a time that no text stands for, a view of bytes that was released.
    """
    try:
        yield
    except InvalidMessage:
        raise
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"{what} cannot be stored: {error}") from error


def plain_json(value: Any, what: str) -> Any:
    """Check a JSON value that is not a message and give it in plain types, without lone surrogates."""
    if _has_only_texts(value):
        return dict(value)
    with _refused(what):
        if _check_json(value, what, _MAX_DEPTH):
            raise InvalidMessage(f"{what} has bytes, which JSON cannot represent")
        return _map_leaves(value, lambda leaf: _without_surrogates(_plain_type(leaf)))


def encode_data(value: Any) -> tuple[Any, bool]:
    """Check what a record of a caller's own kind is to hold: the same, and whether there are bytes in it."""
    if _has_only_texts(value):
        return dict(value), False
    with _refused("data"):
        is_binary = _check_json(value, "data", _MAX_DEPTH)
        plain = _map_leaves(value, lambda leaf: _without_surrogates(_plain_type(leaf)))
        return _mark_bytes(plain) if is_binary else plain, is_binary


def data_of(record: Record) -> Any:
    """Return what a record of a caller's own kind holds."""
    return _unmark_bytes(record.data) if record.bin else record.data


def message_in(record: Record) -> Message | None:
    """Return the message of a record as it is there, without the large payloads that it only names."""
    return _unmark_bytes(record.m) if record.bin else record.m


def message_of(record: Record, view: Records) -> Message:
    """Return the whole message of a record, with the time it was stored where its writer gave none."""
    message = message_in(record if record.blobs is None else view.whole(record))
    if message is None:
        raise InvalidMessage(f"record {record.n} is a {record.t!r}, not a message")
    if record.gone is not None:
        # Its content was erased; what is left of it is empty, not absent.
        message = replace(message, content="", extra={**message.extra, ERASED: True})
    if message.created is None:
        force_setattr(message, "created", time_of(record))
    return message


def time_of(record: Record) -> datetime:
    return parse_time(record.ts)


def parse_time(text: str) -> datetime:
    """Read the time of a record, in UTC; 1970 for one that is none, which `verify` reports and reading survives."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is UTC:
            # As every record of ours has it, and every message that is read needs it.
            return moment
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # Some times of the years 1 and 9999 are in no year of a calendar in UTC.
        return EPOCH


def sortable(moment: datetime) -> str:
    """A time as a text; such texts sort as the times do."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


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
    millis = math.floor(seconds * 1000)
    if not _FIRST_MILLI <= millis <= _LAST_MILLI:
        millis = _FIRST_MILLI if millis < 0 else _LAST_MILLI
    # Every append does this: three digits without the machinery of a format.
    return f"{_second_text(millis // 1000)}.{str(1000 + millis % 1000)[1:]}Z"


@lru_cache(maxsize=2)
def _second_text(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def _is_plain(message: Message) -> bool:
    """Tell whether a message is a text with at most some texts in `extra`, as adapters write it: it needs no check."""
    return (
        type(message) is Message
        and type(message.content) is str
        and type(message.role) is str
        and message.role in ROLES
        and message.tool_calls == ()
        and message.media == ()
        and message.tool_call_id is None
        and message.name is None
        and message.reasoning is None
        and message.model is None
        and message.created is None
        and type(message.extra) is dict
        and _has_plain_values(message.extra, 3)
    )


def _has_plain_values(value: dict[Any, Any], depth: int) -> bool:
    for key, item in value.items():
        kind = type(item)
        is_plain = kind is str or kind is bool or item is None
        if kind is dict and depth:
            is_plain = _has_plain_values(item, depth - 1)
        if not is_plain or type(key) is not str:
            return False
    return True


def _check_message(message: Message) -> bool:
    """Refuse what no log can hold; tell whether there are bytes in the message."""
    if not isinstance(message.role, str) or not (message.role or _is_item(message)):
        raise InvalidMessage(f"a message's role must be a word, not {show(message.role)}")
    if message.role and message.role not in ROLES and message.role != BY_MCP:
        _warn_once("role", message.role, "it as a user's words, with the role in brackets")
    for field in ("tool_call_id", "name", "reasoning", "model"):
        value = getattr(message, field)
        if value is not None and not isinstance(value, str):
            raise InvalidMessage(f"a message's {field} must be text, not {type(value).__name__}")
    if not isinstance(message.content, str | list | None):
        raise InvalidMessage(
            f"a message's content must be text, a list of parts or None, not {type(message.content).__name__}"
        )
    is_binary = False
    if isinstance(message.content, list):
        for part in message.content:
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(part, str) and (type(kind) is not str or kind not in PARTS):
                _warn_once("kind of content", kind if type(kind) is str else "without a type", "only the name of it")
        is_binary = _check_json(message.content, "content", _MAX_DEPTH)
    for call in check_list(message.tool_calls or (), "tool_calls"):
        if not isinstance(call, ToolCall):
            raise InvalidMessage(f"tool_calls must contain ToolCall values, not {type(call).__name__}")
        if not isinstance(call.id, str) or not isinstance(call.name, str):
            raise InvalidMessage(f"a tool call's id and name must be text, not {show(call.id)} and {show(call.name)}")
        is_binary |= _check_json(call.arguments, "arguments", _MAX_DEPTH)
        is_binary |= _check_json(check_mapping(call.extra, "extra"), "extra", _MAX_DEPTH)
    if message.media:
        is_binary |= _check_json(list(check_list(message.media, "media")), "media", _MAX_DEPTH)
    if message.created is not None:
        check_created(message.created)
    if message.extra:
        is_binary |= _check_json(check_mapping(message.extra, "extra"), "extra", _MAX_DEPTH)
    return is_binary


def _is_item(message: Message) -> bool:
    """Tell whether a message without a role is an item, which has nothing but its own fields."""
    rest = Message(role="", created=message.created, extra=message.extra)
    return message.role == "" and is_type(check_mapping(message.extra, "extra").get("type")) and message == rest


def _warn_once(what: str, value: str, how: str) -> None:
    """Say that no provider knows a role, or a kind of content; it is stored all the same."""
    if (what, value) in _warned or len(_warned) >= _MAX_WARNED:
        return
    _warned.add((what, value))
    from logging import getLogger  # noqa: PLC0415 - a third of what importing nacre costs; most programs have it loaded

    getLogger("nacre").warning("no model knows the %s %r: it is stored, and models are shown %s", what, value, how)


def _check_json(value: Any, what: str, depth: int) -> bool:
    """Refuse what JSON would change in silence: NaN, huge integers, keys that are not text; tell if there are bytes."""
    if depth == 0:
        raise InvalidMessage(f"{what} is nested more than {_MAX_DEPTH} levels deep")
    match value:
        case str() | bool() | None:
            return False
        case int() | float():
            if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
                raise InvalidMessage(f"{what} has an integer of more than 64 bits: {show(value)}")
            if not math.isfinite(value):
                raise InvalidMessage(f"{what} has {value}, which JSON cannot represent")
            return False
        case list() | tuple():
            is_binary = False
            for item in value:
                is_binary |= _check_json(item, what, depth - 1)
            return is_binary
        case dict():
            is_binary = False
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidMessage(f"{what} has a key that is not text: {show(key)}")
                is_binary |= _check_json(item, what, depth - 1)
            return is_binary
        case bytes() | bytearray() | memoryview():
            return True
        case _:
            raise InvalidMessage(f"{what} has a {type(value).__name__}, which JSON cannot represent")


def _has_only_texts(value: Any) -> bool:
    """Tell whether a value is an object of texts, which need no other look."""
    return type(value) is dict and all(
        type(text) is str and is_unicode(text) for name_and_item in value.items() for text in name_and_item
    )


def _mark_bytes(value: Any) -> Any:
    """Put `{"$bytes": "<base64>"}` in the place of bytes, and one `$` more into the name of what looks like that."""
    match value:
        case bytes():
            return {_MARK: binascii.b2a_base64(value, newline=False).decode()}
        case dict():
            dollar = "$" if _is_marked(value) else ""
            return {f"{dollar}{name}": _mark_bytes(item) for name, item in value.items()}
        case _:
            return _map_items(value, _mark_bytes)


def _unmark_bytes(value: Any) -> Any:
    """Give back the bytes of what `_mark_bytes` made; what is no base64 is given as it is, such as a lost payload."""
    match value:
        case {"$bytes": str(text), **rest} if not rest:
            try:
                return binascii.a2b_base64(text, strict_mode=True)
            except ValueError:
                return text
        case dict():
            dollar = "$" if _is_marked(value) else ""
            return {name.removeprefix(dollar): _unmark_bytes(item) for name, item in value.items()}
        case _:
            return _map_items(value, _unmark_bytes)


def _is_marked(value: dict[str, Any]) -> bool:
    return len(value) == 1 and (name := next(iter(value))).endswith(_MARK) and not name.removesuffix(_MARK).strip("$")


def _map_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a change to what is in a list or a message; `extra`, whose names are fields, is never bytes itself."""
    if isinstance(value, list | tuple):
        items = map(change, value)
        return tuple(items) if isinstance(value, tuple) else list(items)
    if not isinstance(value, Struct):
        return value
    fields = asdict(value)
    extra = {name: change(item) for name, item in fields.pop("extra").items()}
    return type(value)(**{field: change(item) for field, item in fields.items()}, extra=extra)


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
    """A subclass's text, number or bytes as the plain ones; what only says that it is one raises TypeError."""
    if type(value) in (str, bool, int, float):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return memoryview(value).tobytes()
    return float.__float__(value) if isinstance(value, float) else value


def _without_surrogates(value: Any) -> Any:
    """Join surrogate pairs and put U+FFFD for lone ones, which no JSON reader agrees on."""
    if not isinstance(value, str) or is_unicode(value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
