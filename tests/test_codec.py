"""Messages and tool calls: frozen, faithful in JSON, and clear about what they cannot hold."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import nacre
from nacre.codec import data_of, encode_data, encode_message, message_in, message_of, plain_json
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall
from nacre.records import MemoryView, Record, State

SETTINGS = settings(derandomize=True, deadline=None, max_examples=200)
NAMES = st.text() | st.sampled_from(["$bytes", "$$bytes", "$$$bytes"])
JSON = st.recursive(
    st.none()
    | st.binary(max_size=9)
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)
TIMES = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5.5)), timezone(timedelta(hours=-11))]))
CALLS = st.builds(ToolCall, id=st.text(), name=st.text(), arguments=st.text() | OBJECTS, extra=OBJECTS)
MESSAGES = st.builds(
    Message,
    role=st.text(min_size=1),
    content=st.none() | st.text() | st.lists(JSON, max_size=4),
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    tool_call_id=st.none() | st.text(),
    name=st.none() | st.text(),
    reasoning=st.none() | st.text(),
    media=st.lists(JSON, max_size=3).map(tuple),
    model=st.none() | st.text(),
    created=st.none() | TIMES,
    extra=OBJECTS,
)
CUSTOM_CALL = {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
OPENAI_CALLS = st.fixed_dictionaries(
    {
        "id": st.text(),
        "type": st.sampled_from(["function", "custom"]),
        "function": st.fixed_dictionaries(
            {"name": st.text(), "arguments": st.text()}, optional={"thought_signature": st.text()}
        ),
    },
    optional={"index": st.integers(0, 9), "extra_content": OBJECTS},
)
OPENAI = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": st.none() | st.text() | st.lists(OBJECTS)},
    optional={
        "name": st.text(),
        "tool_call_id": st.text(),
        "tool_calls": st.lists(OPENAI_CALLS, min_size=1, max_size=3),
        "reasoning": st.text(),
        "reasoning_content": st.text(),
        "refusal": st.none() | st.text(),
        "audio": OBJECTS,
        "extra": JSON,
        "id": st.text(),
    },
)


class Text(str):
    """Text that is more than text to its owner, as a template's is."""

    __slots__ = ()


class Whole(int):
    """A number that is more than a number to its owner, as an array's is."""


class Real(float):
    """The same, with a fraction."""


class Nowhere(tzinfo):
    """A zone that does not know how far it is from UTC."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def decoded(message: Message) -> Message:
    said = encode_message(message)
    stored = msgspec.json.decode(said.raw, type=Message)
    found = message_in(Record(v=1, n=2, t="msg", ts="", m=stored, bin=said.bin, st=State()))
    assert found is not None
    return found


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


# What comes back is what was given


@SETTINGS
@given(MESSAGES)
def test_a_message_survives_the_codec(message: Message) -> None:
    assert decoded(message) == message


@SETTINGS
@given(OPENAI)
@example({"role": "assistant", "content": None, "extra": {"role": "not ours"}})
@example({"role": "assistant", "content": None, "tool_calls": [CUSTOM_CALL]})
def test_a_mapping_in_openai_shape_comes_back_the_same(mapping: dict[str, Any]) -> None:
    assert Message.from_mapping(mapping).to_mapping() == mapping
    assert decoded(Message.from_mapping(mapping)).to_mapping() == mapping


@SETTINGS
@given(MESSAGES)
def test_a_message_comes_back_from_its_mapping(message: Message) -> None:
    calls = tuple(replace(call, extra={}) for call in message.tool_calls)
    known = replace(message, tool_calls=calls, extra={})
    assert Message.from_mapping(known.to_mapping()) == known


@settings(SETTINGS, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(messages=st.lists(MESSAGES, min_size=1, max_size=2))
def test_any_message_may_be_tried_again_after_reopening(root: Path, messages: list[Message]) -> None:
    with nacre.open(root) as sessions:
        sessions.delete("k")
        number = sessions.add_messages("k", messages, id="once")
        known = sessions.get_history("k")
    with nacre.open(root) as sessions:
        assert sessions.add_messages("k", messages, id="once") == number
        assert sessions.get_history("k") == known


@SETTINGS
@given(JSON)
@example({"$bytes": b"a"})
@example([b"a", {"$bytes": "YQ=="}, {"$$bytes": 1}, {"$bytes": 1, "more": 2}, {"bytes": 1}])
def test_data_with_bytes_survives_the_codec(data: Any) -> None:
    plain, is_binary = encode_data(data)
    stored = msgspec.json.decode(msgspec.json.encode(plain))
    assert data_of(Record(v=1, n=2, t="x.note", ts="", data=stored, bin=is_binary, st=State())) == data


def test_other_kinds_of_bytes_come_back_as_bytes() -> None:
    message = Message(role="user", content=[bytearray(b"a"), memoryview(b"abc")[::2]])
    assert decoded(message).content == [b"a", b"ac"]


class Colour(str, Enum):  # noqa: UP042 - the older kind, whose text is not its value
    RED = "red"


class Image(bytes):
    def __bytes__(self) -> bytes:
        return b"another one"


def test_next_to_bytes_names_and_bytes_of_a_subclass_are_stored_as_what_they_are() -> None:
    given = {Colour.RED: Image(b"a"), "of": Colour.RED}
    assert encode_data(given) == ({"red": {"$bytes": "YQ=="}, "of": "red"}, True)
    assert decoded(Message(role="user", content=[given])).content == [{"red": b"a", "of": "red"}]


class Pretender:
    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property  # type: ignore[misc] # it lies
    def __class__(self) -> type:
        return self.kind


def released() -> memoryview:
    view = memoryview(b"a")
    view.release()
    return view


PRETENDERS = [*map(Pretender, (str, int, float, bytes)), released()]


@pytest.mark.parametrize("value", PRETENDERS, ids=["str", "int", "float", "bytes", "released"])
def test_what_only_says_that_it_is_a_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMessage, match="data"):
        encode_data({"a": value})
    with pytest.raises(InvalidMessage, match="meta"):
        plain_json({"a": value}, "meta")
    with pytest.raises(InvalidMessage):
        encode_message(Message(role="user", content=[value]))


def test_only_a_record_with_bytes_is_marked() -> None:
    assert encode_data([{"$bytes": "YQ=="}]) == ([{"$bytes": "YQ=="}], False)
    assert encode_data([{"$bytes": "YQ=="}, b"a"]) == ([{"$$bytes": "YQ=="}, {"$bytes": "YQ=="}], True)


def test_what_is_marked_as_bytes_and_is_no_base64_is_read_as_text() -> None:
    data = {"a": {"$bytes": "[a large payload is lost]"}, "b": {"$bytes": 7}}
    record = Record(v=1, n=2, t="x.note", ts="", data=data, bin=True, st=State())
    assert data_of(record) == {"a": "[a large payload is lost]", "b": {"bytes": 7}}


@SETTINGS
@given(st.dictionaries(st.sampled_from(["id", "content", "name", "created", "media", "extra", "tool_calls"]), JSON))
def test_an_item_without_a_role_comes_back_as_it_was_given(fields: dict[str, Any]) -> None:
    item = {"type": "function_call", "call_id": "c", **fields}
    message = Message.from_mapping(item)
    assert (message.role, message.kind) == ("", "function_call")
    assert replace(decoded(message), created=datetime.now(UTC)).to_mapping() == item


def warnings_of(program: str) -> list[str]:
    """What is logged by a program of its own, in which nothing was said yet."""
    command = [sys.executable, "-c", f"from nacre.codec import *\n{program}"]
    return subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr.splitlines()


def test_a_role_that_no_model_knows_is_stored_and_said_once() -> None:
    program = "encode_text('user', 'a'); encode_text('a role', 'a'); encode_message({'role': 'a role', 'content': 'b'})"
    (said,) = warnings_of(program)
    assert said == (
        "no model knows the role 'a role': it is stored, and models are shown it as a user's words, "
        "with the role in brackets"
    )


def test_nobody_is_warned_of_what_was_said_over_mcp() -> None:
    assert warnings_of("encode_message({'role': 'mcp', 'content': 'a'})") == []


def test_a_kind_of_content_that_no_model_knows_is_stored_and_said_once() -> None:
    program = "encode_message({'role': 'user', 'content': ['a', {'type': 'text'}, {'type': 'hologram'}, 7]})"
    assert warnings_of(f"{program}\n{program}") == [
        "no model knows the kind of content 'hologram': it is stored, and models are shown only the name of it",
        "no model knows the kind of content 'without a type': it is stored, and models are shown only the name of it",
    ]


def test_not_more_than_a_hundred_unknown_roles_are_named() -> None:
    assert len(warnings_of("for number in range(200): encode_text(f'role {number}', 'a')")) == 100


def test_a_number_keeps_its_kind() -> None:
    content = decoded(Message(role="user", content=[1, 1.0, -0.0, 5e-324, True, 2**64 - 1, -(2**63)])).content
    assert repr(content) == "[1, 1.0, -0.0, 5e-324, True, 18446744073709551615, -9223372036854775808]"


def test_microseconds_and_zones_of_a_time_survive() -> None:
    moment = datetime(2026, 11, 15, 18, 0, 0, 123456, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    created = decoded(Message(role="user", created=moment)).created
    assert created == moment
    assert created.isoformat() == "2026-11-15T18:00:00.123456-03:30"


def test_a_zone_with_seconds_does_not_move_the_time() -> None:
    moment = datetime(1890, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))
    assert decoded(Message(role="user", created=moment)).created == moment


def test_subclasses_of_text_and_numbers_are_stored_as_what_they_are() -> None:
    message = Message(role=Text("user"), content=[Text("a"), Whole(2), Real(1.5)], name=Text("b"))
    assert decoded(message) == Message(role="user", content=["a", 2, 1.5], name="b")


def test_a_time_may_be_given_as_iso_text() -> None:
    message = Message.from_mapping({"role": "user", "content": "a", "created": "2026-11-15T18:00:00.5Z"})
    assert message.created == datetime(2026, 11, 15, 18, 0, 0, 500000, tzinfo=UTC)


def test_only_what_was_given_is_written() -> None:
    assert bytes(encode_message(Message(role="user", content="hi")).raw) == b'{"role":"user","content":"hi"}'
    assert bytes(encode_message(Message(role="user")).raw) == b'{"role":"user"}'


def test_lists_of_calls_and_media_become_tuples() -> None:
    call = ToolCall(id="c1", name="ls", arguments="{}")
    message = Message(role="assistant", tool_calls=[call], media=["media://1"])  # type: ignore[arg-type]
    assert message == Message(role="assistant", tool_calls=(call,), media=("media://1",))


def test_a_call_in_our_own_shape_is_read_too() -> None:
    call = ToolCall.from_mapping({"id": "c1", "name": "ls", "arguments": {"path": "."}, "index": 0})
    assert call == ToolCall(id="c1", name="ls", arguments={"path": "."}, extra={"index": 0})


def test_arguments_are_kept_as_they_came() -> None:
    text = ToolCall.from_mapping({"id": "c1", "function": {"name": "ls", "arguments": '{ "path":"." }'}})
    mapping = ToolCall.from_mapping({"id": "c1", "function": {"name": "ls", "arguments": {"path": "."}}})
    assert (text.arguments, mapping.arguments) == ('{ "path":"." }', {"path": "."})


@pytest.mark.parametrize("value", [Message(role="user"), ToolCall(id="c1", name="ls", arguments="{}")])
def test_values_are_frozen(value: Message | ToolCall) -> None:
    with pytest.raises(AttributeError):
        value.name = "other"  # type: ignore[misc]


def test_two_messages_do_not_share_their_extra() -> None:
    Message(role="user").extra["a"] = 1
    assert Message(role="user").extra == {}


# What cannot be stored is refused with the reason


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"content": "a"}, "needs a role, or a type if it is another"),
        ({"type": "", "id": "a"}, "needs a role"),
        ({"type": 7}, "needs a role"),
        ({"role": "", "type": "reasoning", "content": "a"}, "role must be a word"),
        (Message(role="", extra={"id": "a"}), "role must be a word"),
        (Message(role="", content="a", extra={"type": "reasoning"}), "role must be a word"),
        ({"role": 7, "content": "a"}, "role must be a word, not 7"),
        ({"role": None, "content": "a"}, "role must be a word, not None"),
        ({"role": "", "content": "a"}, "role must be a word, not ''"),
        ({"role": "user", "content": 7}, "content must be text, a list of parts or None, not int"),
        ({"role": "user", "content": b"a"}, "not bytes"),
        ({"role": "user", "content": {"a": 1}}, "not dict"),
        ({"role": "user", "content": [{"x": {1, 2}}]}, "content has a set"),
        ({"role": "user", "content": [float("nan")]}, "content has nan"),
        ({"role": "user", "content": [{"x": float("inf")}]}, "content has inf"),
        ({"role": "user", "x": float("-inf")}, "extra has -inf"),
        ({"role": "user", "x": 2**64}, "extra has an integer of more than 64 bits: 18446744073709551616"),
        ({"role": "user", "x": -(2**63) - 1}, "more than 64 bits: -9223372036854775809"),
        ({"role": "user", "x": {1: "a"}}, "extra has a key that is not text: 1"),
        ({"role": "user", "content": nested(101)}, "content is nested more than 100 levels deep"),
        ({"role": "user", "x": nested(101)}, "extra is nested more than 100 levels deep"),
        ({"role": "user", "name": 7}, "name must be text, not int"),
        ({"role": "tool", "tool_call_id": 7}, "tool_call_id must be text, not int"),
        ({"role": "user", "media": "a.png"}, "media must be a list, not str"),
        ({"role": "assistant", "tool_calls": "ls"}, "tool_calls must be a list, not str"),
        ({"role": "assistant", "tool_calls": ["ls"]}, "a tool call must be a mapping, not str"),
        ({"role": "assistant", "tool_calls": [{"function": "ls"}]}, "function must be a mapping, not str"),
        (
            {"role": "assistant", "tool_calls": [{"id": 7, "name": "ls"}]},
            "id and name must be text, not 7 .int. and",
        ),
        ({"role": "assistant", "tool_calls": [{"arguments": {"x": float("nan")}}]}, "arguments has nan"),
        ({"role": "assistant", "tool_calls": [{"index": 2**64}]}, "extra has an integer"),
        ({"role": "user", "created": "yesterday"}, "created is not a time: 'yesterday'"),
        ({"role": "user", "created": "2026-11-15T18:00:00"}, "created must be an aware datetime"),
        ({"role": "user", "created": 1700000000}, "created must be an aware datetime"),
        ("hello", "a message must be a mapping, not str"),
    ],
)
def test_a_mapping_that_cannot_be_stored_is_refused(mapping: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        encode_message(mapping)


@pytest.mark.parametrize(
    "message",
    [
        Message(role=7),  # type: ignore[arg-type]
        Message(role="user", content=7),  # type: ignore[arg-type]
        Message(role="user", created=datetime(2026, 11, 15)),  # noqa: DTZ001
        Message(role="user", created=datetime(2026, 11, 15, tzinfo=Nowhere())),
        Message(role="user", created="yesterday"),  # type: ignore[arg-type]
        Message(role="user", extra=7),  # type: ignore[arg-type]
        Message(role="user", media="a.png"),  # type: ignore[arg-type]
        Message(role="user", tool_calls=("ls",)),  # type: ignore[arg-type]
        Message(role="user", tool_calls=(ToolCall(id=7),)),  # type: ignore[arg-type]
        Message(role="user", tool_calls=(ToolCall(extra=7),)),  # type: ignore[arg-type]
    ],
)
def test_a_message_that_cannot_be_stored_is_refused(message: Message) -> None:
    with pytest.raises(InvalidMessage):
        encode_message(message)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidMessage, match="nested more than 100 levels deep"):
        encode_message(Message(role="user", content=endless))


def test_nesting_of_less_than_a_hundred_is_kept() -> None:
    message = Message(role="user", content=nested(99), extra={"deep": nested(98)})
    assert decoded(message) == message


def test_a_message_of_more_than_16_megabytes_is_refused_and_nothing_is_stored() -> None:
    with nacre.open(":memory:") as sessions:
        with pytest.raises(InvalidMessage, match="16"):
            sessions.add_full_message("k", {"role": "user", "content": ["x" * 60_000] * 280})
        assert not sessions.exists("k")


# What JSON readers disagree on is made plain


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83e\uddaa", "🦪"),
        ("\ufeff\ud800", "\ufeff\ufffd"),
        ("\ud800\ud800x\udc00", "\ufffd\ufffdx\ufffd"),
    ],
)
def test_lone_surrogates_become_the_replacement_character(given_text: str, kept: str) -> None:
    message = Message(role="user", content=[{given_text: given_text}], extra={"x": (given_text,)})
    assert decoded(message) == Message(role="user", content=[{kept: kept}], extra={"x": [kept]})
    assert plain_json([given_text], "data") == [kept]


def test_what_lost_a_surrogate_is_marked() -> None:
    assert encode_message(Message(role="user", content="\ud800")).lossy
    assert not encode_message(Message(role="user", content="\ufffd 🦪")).lossy


def test_a_message_with_a_lone_surrogate_keeps_everything_else() -> None:
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    calls = (ToolCall(id="c1", name="ls", arguments={"x": [1, 2.5, None]}),)
    message = Message(role="assistant", content="\ud800", tool_calls=calls, media=("a",), created=moment)
    assert decoded(message) == replace(message, content="\ufffd")


@pytest.mark.parametrize("value", [float("nan"), 2**64, b"a", {1: 2}, nested(101)])
def test_data_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMessage, match="data"):
        plain_json({"a": value}, "data")


def test_a_record_that_is_no_message_has_none() -> None:
    record = msgspec.convert({"v": 1, "n": 3, "t": "trunc", "ts": "", "st": [0] * 6}, Record)
    with pytest.raises(InvalidMessage, match="record 3 is a 'trunc', not a message"):
        message_of(record, MemoryView([record]))


def test_what_is_recalled_is_whole_already() -> None:
    record = msgspec.convert({"v": 1, "n": 3, "t": "msg", "ts": "", "m": {"role": "x"}, "st": [0] * 6}, Record)
    assert MemoryView([record]).whole(record) is record


@pytest.mark.parametrize(
    "extra",
    [{}, {"a": {"b": {"c": "d", "e": None, "f": True}}}, {"a": {"b": {"c": {"d": {"e": {}}}}}}, {"ü": "\ud800"}],
)
def test_a_text_with_a_few_texts_beside_it_is_encoded_as_any_other_message(extra: dict[str, Any]) -> None:
    message = Message(role="user", content="hi", extra=extra)
    # A time, which the quick way does not know, is the only difference.
    timed = replace(message, created=datetime(2026, 1, 1, tzinfo=UTC))
    one, other = (json.loads(bytes(encode_message(it).raw)) for it in (message, timed))
    assert {**one, "created": other["created"]} == other
    assert encode_message(message).lossy == encode_message(timed).lossy


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", content="hi", extra={"a": {"b": math.nan}}),
        Message(role="user", content="hi", extra={"a": {1: "b"}}),
        Message(role="user", content="hi", extra={"a": 2**70}),
        Message(role="user", content="hi", tool_calls=0),  # type: ignore[arg-type]
        Message(role="user", content="hi", media=0),  # type: ignore[arg-type]
        Message(role="user", content="hi", extra=[]),  # type: ignore[arg-type]
        Message(role="", content="hi"),
    ],
)
def test_what_no_log_can_hold_is_refused_beside_a_text_too(message: Message) -> None:
    with pytest.raises(InvalidMessage):
        encode_message(message)
