"""Arguments of wrong types and values, for every public method: refused before anything is written, or legal.

The methods and their parameters are read from the signatures, so a new method is covered without being named here.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nacre
from nacre.records import AppendRecord, Rewind, SetMeta, Summarise, Truncate
from nacre.storage.group_commit import Pending

WAIT = 30
USER = {"role": "user", "content": "x"}


class Own(Exception):
    """Raised by a caller's own value when it is looked at."""


class Hostile:
    """Says yes to every question and raises where it is shown."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 2

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        raise Own


class Pretender:
    """Says that it is a text, which `isinstance` believes."""

    __class__ = str  # type: ignore[assignment]


class Marked(str):
    """A text that shows itself as another one."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"

    def __len__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


class Half(int):
    """A number that compares and converts as others do not."""

    def __int__(self) -> int:
        return 99

    def __lt__(self, other: object) -> bool:
        return True


class Word(StrEnum):
    USE = "use"


class Level(IntEnum):
    HIGH = 2


class Broken(dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        raise Own


WRONG: list[Any] = [
    None, True, False, 0, 1, 2, -1, 2.0, 2.5, -0.0, math.nan, math.inf, 2**63, -(2**70), 10**5000, 1j,
    "", "2", "x", "\0", "a\0b", "\ud800", "x.\ud800", "x.", "x.y", "nacre:x", "k" * 1025, "x." + "y" * 70_000,
    b"", b"x", bytearray(b"x"), (), [], {}, set(), [None], [2.5], ["\ud800"], [b"x"], {"a": b"x"}, {1: 2}, {"role": 1},
    object(), Hostile(), Pretender(), Marked("user"), Marked("x.\ud800"), Half(2), Half(-3), Word.USE, Level.HIGH,
    Broken(a=1), [Hostile()], [Pretender()], range(2), iter([USER]), lambda: None, int, Own(), ...,
    datetime(2020, 1, 1), datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC),  # noqa: DTZ001
]  # fmt: skip

wrong: st.SearchStrategy[Any] = (
    st.sampled_from(WRONG) | st.floats() | st.integers() | st.text(max_size=4) | st.binary(max_size=3)
)
call_fields = st.dictionaries(st.sampled_from(["id", "name", "arguments", "type", "function", "extra"]), wrong)
message_fields = st.dictionaries(
    st.sampled_from(["role", "content", "tool_call_id", "name", "reasoning", "media", "model", "created", "extra"]),
    wrong,
)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """A message, or an entry, with wrong parts in it."""
    fields: dict[str, Any] = {"role": "user", **draw(message_fields)}
    if draw(st.booleans()):
        fields["tool_calls"] = draw(st.lists(call_fields, max_size=2))
    shape = draw(st.sampled_from(["mapping", "message", "note", "meta"]))
    if shape == "mapping":
        return fields
    if shape == "message":
        calls = [nacre.ToolCall(**{k: v for k, v in call.items() if k in ("id", "name", "arguments", "extra")})
                 for call in fields.pop("tool_calls", [])]  # fmt: skip
        return nacre.Message(**fields, tool_calls=tuple(calls))
    return AppendRecord(draw(wrong), draw(wrong)) if shape == "note" else SetMeta(draw(wrong))


RIGHT: dict[str, Any] = {
    "role": "user", "content": "x", "message": USER, "last": 1, "summary": "x", "upto": 3, "history": [USER],
    "keep_last": 1, "messages": [USER], "operations": [USER, AppendRecord("use", {"in": 1})], "expect": None,
    "lease": None, "id": "once", "to": 5, "at": 5, "archived": False, "prefix": "", "internal": False, "limit": 3,
    "order": "updated", "query": "x", "fields": {"title": "x"}, "more": {"label": "x"}, "after": 0, "kind": "x.kind",
    "data": {"a": 1},
}  # fmt: skip
"""A legal value for each parameter; a key is made for each call, and what has no value here gets a text."""

METHODS = sorted(
    name
    for name, member in inspect.getmembers(nacre.Sessions, inspect.isfunction)
    if not name.startswith("_") and name != "close"
)


TAKE_MESSAGES = {"role", "content", "message", "messages", "history", "operations", "fields", "kind", "data", "id"}


def parameters_of(name: str) -> set[str]:
    return set(inspect.signature(getattr(nacre.Sessions, name)).parameters) - {"self"}


@pytest.fixture(params=["files", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "files" else ":memory:"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def call(sessions: nacre.Sessions, name: str, key: str, replaced: dict[str, Any]) -> None:
    """Call a method with legal arguments but for some, and see what it gives to its end."""
    parameters = list(inspect.signature(getattr(sessions, name)).parameters.values())
    keys = {"key": key, "new_key": f"{key}-new"}
    values = {each.name: replaced.get(each.name, keys.get(each.name, RIGHT.get(each.name, "x"))) for each in parameters}
    positional = [values[each.name] for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
    named = {each.name: values[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            value = values[each.name]
            named |= value if type(value) is dict and all(type(field) is str for field in value) else {"field": value}
    result = getattr(sessions, name)(*positional, **named)
    if isinstance(result, Pending):
        result.result(WAIT)
    elif inspect.isgenerator(result):
        result.close()
    elif isinstance(result, Iterator):
        list(result)


def traces(place: str, sessions: nacre.Sessions, key: str) -> object:
    """What the store holds, without what is derived from it: the session's records, names and sizes of all files."""
    files = [entry for folder, _, _ in os.walk(place) for entry in os.scandir(folder) if entry.is_file()]
    return list(sessions.records(key)), {file.path: file.stat().st_size for file in files if "index" not in file.name}


def try_call(place: str, sessions: nacre.Sessions, name: str, keys: list[str], replaced: dict[str, Any]) -> None:
    """Call a method on the last session, and write to that again; if it was not refused, the next call has another."""
    key = keys[-1]
    sessions.add_messages(key, [USER] * 4)
    sessions.set_summary(key, "s")
    before = traces(place, sessions, key)
    try:
        call(sessions, name, key, replaced)
    except (nacre.StoreError, TypeError, Own):
        assert traces(place, sessions, key) == before
        is_refused = True
    else:
        is_refused = False
    sessions.add_message(key, "user", "later")
    found = said(sessions, key)
    assert found[-1] == "later"
    if not is_refused or len(found) > 60:
        keys.append(f"k{len(keys)}")


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    return [stored.message.content for stored in sessions.transcript(key)]


def assert_all_is_kept(place: str, sessions: nacre.Sessions, keys: Sequence[str]) -> None:
    """In this process, and in another one that knows only the files."""
    assert sessions.verify().ok
    kept = {key: said(sessions, key) for key in keys}
    sessions.close()
    if place == ":memory:":
        return
    program = """
import json, sys, nacre
with nacre.open(sys.argv[1]) as sessions:
    assert sessions.verify().ok, sessions.verify()
    print(json.dumps({key: [s.message.content for s in sessions.transcript(key)] for key in sys.argv[2:]}, default=str))
"""
    found = subprocess.check_output([sys.executable, "-c", program, place, *keys], text=True)
    assert json.loads(found) == json.loads(json.dumps(kept, default=str))


@pytest.mark.parametrize("name", METHODS)
def test_wrong_arguments_are_refused_without_a_trace_and_later_writes_are_intact(name: str, place: str) -> None:
    sessions = nacre.open(place)
    cases = [(parameter, value) for parameter in sorted(parameters_of(name)) for value in WRONG]
    keys = ["k0"]
    for parameter, value in cases:
        try_call(place, sessions, name, keys, {parameter: value})
    assert_all_is_kept(place, sessions, keys)


KEYS = {"key", "new_key", "name", "alias"}


@pytest.mark.parametrize("value", [[], {}, 5, b"x", object(), "", "\ud800", "a\0b"], ids=lambda it: type(it).__name__)
@pytest.mark.parametrize(
    ("name", "parameter"), [(name, parameter) for name in METHODS for parameter in sorted(KEYS & parameters_of(name))]
)
def test_what_cannot_be_a_key_is_refused_as_one(place: str, name: str, parameter: str, value: Any) -> None:
    with nacre.open(place) as sessions:
        sessions.add_messages("k", [USER] * 4)
        sessions.set_summary("k", "s")
        if name == "follow":
            with pytest.raises(nacre.InvalidArgument):
                next(sessions.follow(value))
            return
        with pytest.raises(nacre.InvalidArgument):
            call(sessions, name, "k", {parameter: value})


@pytest.mark.parametrize("name", [name for name in METHODS if TAKE_MESSAGES & parameters_of(name)])
def test_messages_with_wrong_parts_are_refused_without_a_trace_and_later_writes_are_intact(
    name: str, place: str
) -> None:
    sessions = nacre.open(place)
    keys = ["k0"]
    values = messages() | wrong | st.lists(messages() | wrong, max_size=3)

    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(st.sampled_from(sorted(TAKE_MESSAGES & parameters_of(name))), values, min_size=1))
    def go(replaced: dict[str, Any]) -> None:
        try_call(place, sessions, name, keys, replaced)

    go()
    assert_all_is_kept(place, sessions, keys)


@pytest.mark.parametrize(
    "value", [2.5, 4 / 2, True, "2", None, Hostile(), math.nan], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize(
    "act",
    [
        lambda sessions, value: sessions.truncate_history("k", value),
        lambda sessions, value: sessions.rewind("k", value or 0.5),
        lambda sessions, value: sessions.set_summary("k", "s", upto=value or 0.5),
        lambda sessions, value: sessions.fork("k", "new", at=value or 0.5),
        lambda sessions, value: sessions.add_messages("k", [USER], expect=value or 0.5),
        lambda sessions, value: sessions.archive("k", expect=nacre.Version(value)),
        lambda sessions, value: sessions.get_history("k", last=value or 0.5),
        lambda sessions, value: sessions.snapshot("k", last=value or 0.5),
        lambda sessions, value: sessions.follow("k", value),
        lambda sessions, value: sessions.search("x", limit=value),
        lambda sessions, value: sessions.list(limit=value or 0.5),
        lambda sessions, value: sessions.update("k", [Rewind(value)]),
        lambda sessions, value: sessions.update("k", [Truncate(value)]),
        lambda sessions, value: sessions.update("k", [Summarise("S", value or 0.5)]),  # type: ignore[arg-type]
    ],
)
def test_a_number_that_is_no_integer_is_refused(
    place: str, act: Callable[[nacre.Sessions, Any], object], value: Any
) -> None:
    with nacre.open(place) as sessions:
        sessions.add_messages("k", [USER, USER, USER])
        with pytest.raises(nacre.InvalidArgument, match="must be an integer"):
            act(sessions, value)
        assert [stored.n for stored in sessions.transcript("k")] == [2, 3, 4]


@pytest.mark.parametrize("text", [7, None, b"S"])
def test_a_summary_that_cannot_be_stored_is_refused_in_an_update_too(place: str, text: Any) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "x")
        with pytest.raises(nacre.InvalidMessage):
            sessions.update("k", [Summarise(text)])
        assert sessions.get_summary("k") == ""


@pytest.mark.parametrize("kind", ["x.\ud800", "x.", "msg", "open", "", 7, None, Marked("del")])
def test_a_kind_that_cannot_be_stored_is_refused(place: str, kind: Any) -> None:
    with nacre.open(place) as sessions:
        with pytest.raises(nacre.InvalidMessage, match="a record's kind must be"):
            sessions.append("k", kind, 1)
        with pytest.raises(nacre.InvalidMessage, match="a record's kind must be"):
            sessions.submit("k", [AppendRecord(kind, 1)])
        assert not sessions.exists("k")


@pytest.mark.parametrize("generation", [None, 7, b"x"])
def test_a_version_of_no_generation_is_refused(place: str, generation: Any) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "x")
        with pytest.raises(nacre.InvalidArgument, match="the generation of a version must be text"):
            sessions.delete("k", expect=nacre.Version(2, generation))
        assert sessions.exists("k")


@pytest.mark.parametrize("fields", [7, "title", [("title", "T")], b"x"])
def test_meta_that_is_no_mapping_is_refused(place: str, fields: Any) -> None:
    with nacre.open(place) as sessions:
        with pytest.raises(nacre.InvalidMessage, match="must be a mapping"):
            sessions.set_meta("k", fields)
        assert not sessions.exists("k")


def test_ids_that_differ_only_in_lone_surrogates_are_not_taken_for_one(place: str) -> None:
    with nacre.open(place) as sessions, pytest.raises(nacre.InvalidMessage, match="valid Unicode"):
        sessions.add_messages("k", [USER], id="a\ud800")


@pytest.mark.parametrize("target", [7, 2.5, b"/tmp/x", "a\0b", [], Hostile()], ids=lambda value: type(value).__name__)
def test_a_place_that_is_no_path_is_refused(target: Any) -> None:
    with pytest.raises(nacre.InvalidArgument, match="the place of a store must be a path"):
        nacre.open(target)


@pytest.mark.parametrize("durability", ["never", None, 1, Hostile()], ids=lambda value: type(value).__name__)
def test_a_durability_that_there_is_not_is_refused(durability: Any) -> None:
    with pytest.raises(nacre.ConfigError, match="durability must be"):
        nacre.open(":memory:", durability=durability)


def test_a_forgiving_store_counts_a_wrong_argument_as_a_failure(place: str) -> None:
    with nacre.open(place) as sessions:
        forgiving = nacre.Forgiving(sessions)
        forgiving.truncate_history("k", 2.5)  # type: ignore[arg-type]
        assert (forgiving.failures, forgiving.add_message("k", "user", "x")) == (1, 2)
