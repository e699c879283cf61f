"""Planted bugs: bytes that become something else, and what only looks like them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from nacre import Message, Sessions, ToolCall
from nacre.history.session_state import apply
from nacre.records import AppendMessage, AppendRecord, Operation, Record, Records, RecordStamp, State, Transaction
from nacre.storage.memory_store import MemoryStore
from nacre.storage.transaction import content_of, fingerprint
from nacre.testing import contract
from tests.testing.planted.table import planted

_BYTES = bytes | bytearray | memoryview


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with a change to every value in it, from the inside out."""
    match value:
        case Message() | ToolCall():
            return type(value)(**{field: _map(item, change) for field, item in asdict(value).items()})
        case list() | tuple():
            return change(type(value)(_map(item, change) for item in value))
        case dict():
            return change({name: _map(item, change) for name, item in value.items()})
        case _:
            return change(value)


def _mark(value: Any) -> Any:
    return {"$bytes": b64encode(value).decode()} if isinstance(value, _BYTES) else value


def _has_bytes(value: Any) -> bool:
    return bool(_map(value, _mark) != value)


@planted(contract.bytes_come_back_as_bytes, contract.bytes_under_an_id_are_not_what_they_are_written_as)
def the_mark_of_bytes_is_forgotten(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    record = apply(operation, stamp, state, view)
    return record and replace(record, bin=False)


@planted(contract.bytes_come_back_as_bytes)
def bytes_are_only_known_in_messages(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    record = apply(operation, stamp, state, view)
    return record and replace(record, bin=record.bin and record.m is not None)


class _Read(Sessions):
    """Sessions that change what is read in a history."""

    def change(self, value: Any) -> Any:
        raise NotImplementedError

    def get_history(self, key: str, **rest: Any) -> Any:
        return [_map(message, self.change) for message in super().get_history(key, **rest)]


@planted(contract.bytes_come_back_as_bytes)
class BytesComeBackAsText(_Read):
    def change(self, value: Any) -> Any:
        return value.decode("latin-1") if isinstance(value, bytes) else value


@planted(contract.bytes_come_back_as_bytes)
class NoBytesAreNone(_Read):
    def change(self, value: Any) -> Any:
        return None if value == b"" else value


@planted(contract.bytes_come_back_as_bytes)
class WhatLooksLikeBytesBecomesBytes(_Read):
    def change(self, value: Any) -> Any:
        return b64decode(value["$bytes"]) if isinstance(value, dict) and list(value) == ["$bytes"] else value


@planted(contract.bytes_come_back_as_bytes)
class ManyBytesAreCut(_Read):
    def change(self, value: Any) -> Any:
        return value[:65536] if isinstance(value, bytes) else value


@planted(contract.bytes_come_back_as_bytes)
class CallsLoseTheirBytes(Sessions):
    def add_full_message(self, key: str, message: Any, **rest: Any) -> Any:
        calls = tuple(
            _map(call, lambda value: None if isinstance(value, bytes) else value) for call in message.tool_calls
        )
        return super().add_full_message(key, replace(message, tool_calls=calls), **rest)


@planted(contract.bytes_come_back_as_bytes)
class RecordsShowHowBytesAreWritten(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        return (replace(entry, data=_map(entry.data, _mark)) for entry in super().records(key, kind, **rest))


@planted(contract.bytes_come_back_as_bytes)
class RecordsOfMessagesShowHowBytesAreWritten(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        for entry in super().records(key, kind, **rest):
            yield replace(entry, data=_map(entry.data, _mark)) if entry.kind == "msg" else entry


@planted(contract.bytes_under_an_id_are_not_what_they_are_written_as)
class BytesAreComparedAsTheyAreWritten(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        entries = [one for one in transaction.operations if isinstance(one, AppendMessage | AppendRecord)]
        written = fingerprint(content_of(replace(one, bin=False)) for one in entries)
        return super().run(key, replace(transaction, print=written))


@planted(contract.bytes_under_an_id_are_not_what_they_are_written_as)
class ABytearrayIsAListOfNumbers(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        listed = _map(data, lambda value: list(value) if isinstance(value, bytearray) else value)
        return super().append(key, kind, listed, **rest)


@planted(contract.bytes_under_an_id_are_not_what_they_are_written_as)
class ANoteWithBytesIsStoredAgain(Sessions):
    def append(self, key: str, kind: str, data: Any, *, id: Any = None, **rest: Any) -> Any:
        return super().append(key, kind, data, id=None if _has_bytes(data) else id, **rest)


@planted(contract.bytes_under_an_id_are_not_what_they_are_written_as)
class AMessageWithBytesIsStoredAgain(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], *, id: Any = None, **rest: Any) -> Any:
        given = list(messages)
        return super().add_messages(key, given, id=None if _has_bytes(given) else id, **rest)


@planted(contract.bytes_are_refused_where_only_json_is_kept)
class BytesOfMetaBecomeText(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        super().set_meta(key, given, **_map(fields, _mark))


@planted(contract.bytes_are_refused_where_only_json_is_kept)
class ContentOfBytesIsAPart(Sessions):
    def add_full_message(self, key: str, message: Message | Mapping[str, Any], **rest: Any) -> Any:
        if isinstance(message, Mapping) and isinstance(message["content"], bytes):
            message = {**message, "content": [message["content"]]}
        return super().add_full_message(key, message, **rest)


@planted(contract.bytes_are_refused_where_only_json_is_kept)
class ARefusedFieldOfMetaBeginsTheSession(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        super().set_meta(key, begun=True)
        super().set_meta(key, given, **fields)
