"""Input that cannot be stored gets a clear error and changes nothing; everything else comes back exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre
from tests.damage.stores import KEY, lines_of

MEGABYTE = 1 << 20
DELETE_AND_C1 = [chr(code) for code in range(0x7F, 0xA0)]
BIDI = [chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
LINE_BREAKS = ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85"]
C0 = [chr(code) for code in range(32)]


@pytest.fixture
def sessions(root: Path) -> Iterator[nacre.Sessions]:
    with nacre.open(root) as opened:
        yield opened


def logs(root: Path) -> list[Path]:
    return sorted((root / "sessions").glob("*.jsonl"))


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


BAD_KEYS: list[Any] = ["", "a\0b", "\0", "k" * 1025, "\ud800", "a\udfffb", None, 7, b"bytes", ("a",)]


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: repr(key)[:12])
def test_a_key_that_cannot_name_a_session_is_invalid_everywhere(sessions: nacre.Sessions, root: Path, key: Any) -> None:
    acts: list[Callable[[], object]] = [
        lambda: sessions.add_message(key, "user", "x"),
        lambda: sessions.get_history(key),
        lambda: sessions.set_summary(key, "x"),
        lambda: sessions.truncate_history(key, 1),
        lambda: sessions.transcript(key),
        lambda: sessions.delete(key),
        lambda: sessions.exists(key),
        lambda: sessions.archive(key),
        lambda: sessions.set_meta(key, title="x"),
        lambda: sessions.save(key),
    ]
    for act in acts:
        with pytest.raises(nacre.InvalidKey):
            act()
    assert logs(root) == []


GOOD_KEYS = [
    ".", "..", "../../etc/passwd", "/", "/etc/passwd", "a/b", "a\\b", "a:b", "a_b", "a b", "a", "A", "CON", "con",
    "nul.txt", "-rf", "~", "~a", ".hidden", "a.jsonl", "ü", "u\u0308", "ÅNGSTRÖM", "ångström", "ß", "ss", "telegram:42",
    "日本語", "🐚", "%2e%2e", "\n", "\t", "x" * 1024, "日" * 1024, "a\u202eb", "a\x7f", " ", "sessions/demo",
    "\u0130", "i\u0307", "\u0131",
]  # fmt: skip


def test_distinct_keys_are_distinct_sessions_and_stay_inside(sessions: nacre.Sessions, root: Path) -> None:
    for key in GOOD_KEYS:
        sessions.add_message(key, "user", f"for {key}")
    for key in GOOD_KEYS:
        assert [message.content for message in sessions.get_history(key)] == [f"for {key}"]
    assert sorted(info.key for info in sessions.list()) == sorted(GOOD_KEYS)
    assert {path.name for path in root.parent.iterdir()} == {root.name}
    assert len({path.name.casefold() for path in logs(root)}) == len(GOOD_KEYS)


def test_true_keys_survive_a_new_process_and_an_archive(sessions: nacre.Sessions, root: Path) -> None:
    for key in GOOD_KEYS:
        sessions.add_message(key, "user", "x")
        sessions.archive(key)
    with nacre.open(root) as again:
        assert sorted(info.key for info in again.list(archived=True)) == sorted(GOOD_KEYS)


BAD_MESSAGES: list[Any] = [
    {},
    {"content": "no role"},
    {"role": None, "content": "x"},
    {"role": 7, "content": "x"},
    {"role": "", "content": "x"},
    {"role": "user", "content": 7},
    {"role": "user", "content": {"text": "x"}},
    {"role": "user", "content": float("nan")},
    {"role": "user", "content": [{"type": "text", "score": float("nan")}]},
    {"role": "user", "content": "x", "score": float("inf")},
    {"role": "user", "content": "x", "score": {"deep": [float("-inf")]}},
    {"role": "user", "content": "x", "count": 2**70},
    {"role": "user", "content": "x", "count": -(2**70)},
    {"role": "user", "content": "x", "tree": nested(150)},
    {"role": "user", "content": "x", "tree": nested(50_000)},
    {"role": "user", "content": "x", "odd": object()},
    {"role": "user", "content": b"bytes"},
    {"role": "user", "content": "x", "odd": {1, 2}},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"n": float("nan")}}}],
    },
    "just text",
    None,
    7,
    ["user", "x"],
]


@pytest.mark.parametrize("number", range(len(BAD_MESSAGES)))
def test_a_message_that_cannot_be_stored_is_invalid_and_changes_nothing(
    sessions: nacre.Sessions, root: Path, number: int
) -> None:
    sessions.add_message(KEY, "user", "before")
    (log,) = logs(root)
    content = log.read_bytes()
    with pytest.raises(nacre.InvalidMessage):
        sessions.add_full_message(KEY, BAD_MESSAGES[number])
    assert log.read_bytes() == content
    sessions.add_message(KEY, "user", "after")
    assert [message.content for message in sessions.get_history(KEY)] == ["before", "after"]


def test_one_bad_message_refuses_the_whole_group(sessions: nacre.Sessions) -> None:
    good = nacre.Message(role="user", content="good")
    bad = nacre.Message(role="user", content="x", extra={"score": float("nan")})
    with pytest.raises(nacre.InvalidMessage):
        sessions.add_messages(KEY, [good, bad])
    with pytest.raises(nacre.InvalidMessage):
        sessions.set_history(KEY, [good, bad])
    assert sessions.transcript(KEY) == []


def test_a_bad_message_as_the_first_makes_no_session(sessions: nacre.Sessions, root: Path) -> None:
    with pytest.raises(nacre.InvalidMessage):
        sessions.add_full_message(KEY, {"content": "no role"})
    assert not sessions.exists(KEY)
    assert logs(root) == []


def test_an_unknown_role_is_data(sessions: nacre.Sessions) -> None:
    sessions.add_message(KEY, "narrator", "meanwhile")
    assert sessions.get_history(KEY)[0].role == "narrator"


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_integers_of_64_bits_come_back_exactly(sessions: nacre.Sessions, root: Path, number: int) -> None:
    sessions.add_full_message(KEY, {"role": "user", "content": "x", "count": number})
    with nacre.open(root) as again:
        assert again.get_history(KEY)[0].extra["count"] == number


def test_nesting_that_is_deep_but_allowed_comes_back_exactly(sessions: nacre.Sessions, root: Path) -> None:
    sessions.add_full_message(KEY, {"role": "user", "content": "x", "tree": nested(80)})
    with nacre.open(root) as again:
        assert again.get_history(KEY)[0].extra["tree"] == nested(80)


@pytest.mark.parametrize("text", ["\ud800", "half \udc00 of it", "\ude00\ud83d"], ids=["high", "low", "swapped"])
def test_lone_surrogates_become_replacement_characters_and_are_marked(
    sessions: nacre.Sessions, root: Path, text: str
) -> None:
    sessions.add_message(KEY, "user", text)
    sessions.add_message(KEY, "user", "plain")
    expected = "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    with nacre.open(root) as again:
        assert again.get_history(KEY)[0].content == expected
    (log,) = logs(root)
    assert [b'"lossy":true' in line for line in lines_of(log)] == [False, True, False]


def test_lone_surrogates_in_depth_are_replaced_too(sessions: nacre.Sessions, root: Path) -> None:
    arguments = {"path\ud800": "a\udfff"}
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}]
    sessions.add_full_message(
        KEY, {"role": "assistant", "content": [{"type": "text", "text": "\udfff"}], "tool_calls": calls}
    )
    sessions.set_summary(KEY, "sum \ud800")
    with nacre.open(root) as again:
        assert again.get_summary(KEY) == "sum \ufffd"
        assert again.get_history(KEY)[0].content == [{"type": "text", "text": "\ufffd"}]
        assert again.verify().ok


def test_a_record_over_the_limit_is_refused_and_nothing_is_lost(sessions: nacre.Sessions, root: Path) -> None:
    sessions.add_message(KEY, "user", "before")
    with pytest.raises(nacre.StoreError):
        sessions.add_full_message(KEY, {"role": "tool", "content": ["z" * 60_000] * 300})
    sessions.add_message(KEY, "user", "after")
    with nacre.open(root) as again:
        assert [message.content for message in again.get_history(KEY)] == ["before", "after"]


def test_a_text_whose_escapes_pass_the_limit_is_refused_and_nothing_is_lost(sessions: nacre.Sessions) -> None:
    with pytest.raises(nacre.StoreError):
        sessions.add_full_message(KEY, {"role": "tool", "content": ["\x9b" * 30_000] * 140})
    sessions.add_message(KEY, "user", "after")
    assert [message.content for message in sessions.get_history(KEY)] == ["after"]


def test_a_message_longer_than_any_line_comes_back_exactly(sessions: nacre.Sessions, root: Path) -> None:
    sessions.add_message(KEY, "tool", "z" * (17 * MEGABYTE))
    sessions.add_message(KEY, "user", "after")
    with nacre.open(root) as again:
        assert [len(str(message.content)) for message in again.get_history(KEY)] == [17 * MEGABYTE, 5]


@pytest.mark.parametrize("summary", [None, 7, ["x"], "z" * (17 * MEGABYTE)], ids=["none", "number", "list", "giant"])
def test_a_summary_that_cannot_be_stored_changes_nothing(sessions: nacre.Sessions, summary: Any) -> None:
    sessions.add_message(KEY, "user", "before")
    sessions.set_summary(KEY, "good")
    with pytest.raises(nacre.StoreError):
        sessions.set_summary(KEY, summary)
    assert sessions.get_summary(KEY) == "good"


@pytest.mark.parametrize(
    "data", [float("nan"), {"a": 2**70}, object(), nested(150)], ids=["nan", "huge", "object", "deep"]
)
def test_data_of_a_callers_own_kind_is_held_to_the_same_rules(sessions: nacre.Sessions, data: Any) -> None:
    with pytest.raises(nacre.InvalidMessage):
        sessions.append(KEY, "x.mine", {"data": data})
    with pytest.raises(nacre.InvalidMessage):
        sessions.set_meta(KEY, field=data)
    assert not sessions.exists(KEY)


@pytest.mark.parametrize("kind", ["msg", "open", "del", "x", "x.", "", "mark", "unheard"])
def test_a_kind_that_is_the_stores_own_is_refused(sessions: nacre.Sessions, kind: str) -> None:
    with pytest.raises((nacre.StoreError, ValueError)):
        sessions.append(KEY, kind, {"a": 1})
    assert not sessions.exists(KEY)


@pytest.mark.parametrize("upto", [0, -1, 99, 1])
def test_a_summary_that_names_no_live_message_is_a_conflict(sessions: nacre.Sessions, upto: int) -> None:
    sessions.add_message(KEY, "user", "one")
    with pytest.raises(nacre.Conflict):
        sessions.set_summary(KEY, "so far", upto=upto)
    assert (sessions.get_summary(KEY), len(sessions.get_history(KEY))) == ("", 1)


@pytest.mark.parametrize("keep", [0, -1, -(2**70)])
def test_truncating_to_nothing_keeps_none(sessions: nacre.Sessions, keep: int) -> None:
    sessions.add_message(KEY, "user", "one")
    sessions.truncate_history(KEY, keep)
    assert sessions.get_history(KEY) == []
    assert len(sessions.transcript(KEY)) == 1


@pytest.mark.parametrize("group", [DELETE_AND_C1, BIDI, LINE_BREAKS, C0], ids=["del_c1", "bidi", "breaks", "c0"])
def test_nothing_on_disk_can_drive_a_terminal_and_all_comes_back(
    sessions: nacre.Sessions, root: Path, group: list[str]
) -> None:
    text = "a" + "b".join(group) + "c"
    message = nacre.Message(
        role="assistant",
        content=[{"type": "text", "text": text, text: text}],
        tool_calls=(nacre.ToolCall(id=text, name=text, arguments={text: text}),),
        reasoning=text,
        name=text,
        model=text,
        extra={text: [text]},
    )
    sessions.add_full_message(KEY, message)
    sessions.set_summary(KEY, text)
    sessions.set_meta(KEY, title=text)
    sessions.append(KEY, "x.mine", {text: text}, id=text)
    raw = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file()).decode()
    assert not [letter for letter in {*DELETE_AND_C1, *BIDI, *LINE_BREAKS, *C0} - {"\n"} if letter in raw]
    with nacre.open(root) as again:
        stored = again.get_history(KEY)[0]
        assert (stored.content, stored.tool_calls, stored.extra) == (message.content, message.tool_calls, message.extra)
        assert (stored.reasoning, stored.name, stored.model) == (text, text, text)
        assert (again.get_summary(KEY), again.get_meta(KEY)["title"]) == (text, text)
        assert next(again.records(KEY, "x.mine")).data == {text: text}


@pytest.mark.parametrize("letter", [*DELETE_AND_C1[:3], *BIDI, "\x1b", "\n"], ids=lambda letter: f"U+{ord(letter):04X}")
def test_a_key_cannot_drive_a_terminal_either(sessions: nacre.Sessions, root: Path, letter: str) -> None:
    key = f"a{letter}b"
    sessions.add_message(key, "user", "x")
    (log,) = logs(root)
    assert letter not in log.name
    assert letter.encode() not in log.read_bytes().replace(b"\n", b"")
    assert [info.key for info in sessions.list()] == [key]


def test_the_damaged_pieces_in_quarantine_cannot_drive_a_terminal(sessions: nacre.Sessions, root: Path) -> None:
    sessions.add_message(KEY, "user", "one")
    sessions.close()
    (log,) = logs(root)
    log.write_bytes(log.read_bytes() + "\x1b[2J \u202e \x9b \x7f".encode())
    with nacre.open(root) as again:
        again.add_message(KEY, "user", "two")
    raw = b"".join(path.read_bytes() for path in root.glob("quarantine/*")).decode()
    assert raw
    assert not [letter for letter in {*DELETE_AND_C1, *BIDI, *C0} - {"\n"} if letter in raw]


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n", "\r\n", "\0", "a\u2028b\x85c\x1cd", "🐚" * 100, "\ufeffbom", '"},"crc":"00000000"}\n{"v":1,"n":9'],
)
def test_every_text_comes_back_exactly(sessions: nacre.Sessions, root: Path, text: str) -> None:
    sessions.add_message(KEY, "user", text)
    sessions.add_message(KEY, "user", "after")
    with nacre.open(root) as again:
        assert [message.content for message in again.get_history(KEY)] == [text, "after"]
        assert again.verify().ok


def test_a_retry_with_the_same_id_but_other_content_is_a_conflict(sessions: nacre.Sessions) -> None:
    one, two = nacre.Message(role="user", content="one"), nacre.Message(role="user", content="two")
    number = sessions.add_messages(KEY, [one], id="request-1")
    assert sessions.add_messages(KEY, [one], id="request-1") == number
    with pytest.raises(nacre.Conflict):
        sessions.add_messages(KEY, [two], id="request-1")
    assert len(sessions.transcript(KEY)) == 1
