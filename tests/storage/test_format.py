"""A line of a log: sealed, read back as it was, safe to print, and told from what only looks like one."""

from __future__ import annotations

import pytest

from nacre.errors import FormatTooNew
from nacre.messages import Message
from nacre.records import Record, State
from nacre.storage.format import fields, is_intact, number, resealed, salvage, seal, unseal
from tests.damage import lines
from tests.damage.lines import TIME, conversation

OPEN, FIRST, SECOND = conversation("k", ["a", "b"])


def note(data: object) -> Record:
    return Record(v=1, n=7, t="x.test", ts=TIME, data=data, st=State(2, 1, 1, 0, 0, 2))


def test_a_line_is_what_the_format_says() -> None:
    record = Record(v=1, n=2, b=1, t="msg", ts=TIME, p=0, m=Message(role="user", content="a"), st=State(2, 1, 1, h=2))
    assert seal(record) == FIRST
    assert unseal(FIRST[:-1]) == record


def test_where_a_session_went_back_is_a_field_of_its_own() -> None:
    line = seal(Record(v=1, n=5, t="head", ts=TIME, to=2, st=State(2, 1, 1, 0, 0, 5, 5)))
    assert b'"st":[2,1,1,0,0,5],"br":5,"crc":"' in line
    record = unseal(line[:-1])
    assert record is not None
    assert record.st == State(2, 1, 1, 0, 0, 5, 5)


@pytest.mark.parametrize("text", ["\x7f", "\x9b", "\u200f", "\u2028", "\u202e", "\u2066", "\u061c"])
def test_what_could_drive_a_terminal_is_escaped_and_comes_back(text: str) -> None:
    line = seal(note(f"é{text}"))
    assert b"\xc3\xa9\\u%04x" % ord(text) in line
    record = unseal(line[:-1])
    assert record is not None
    assert record.data == f"é{text}"


def test_a_value_that_looks_like_a_record_is_disguised_and_comes_back() -> None:
    line = seal(note({"v": 1, "n": 3}))
    assert b'"data":{"\\u0076":1,"n":3}' in line
    assert line.count(b'{"v":1,"n":') == 1
    record = unseal(line[:-1])
    assert record is not None
    assert record.data == {"v": 1, "n": 3}


def test_a_kind_that_uses_our_field_names_in_another_way_is_kept_by_what_every_record_has() -> None:
    line = lines.seal({"v": 1, "n": 9, "t": "later", "ts": TIME, "text": [1], "st": [2, 1, 1, 0, 0, 2], "br": 4})
    assert unseal(line[:-1]) == Record(v=1, n=9, t="later", ts=TIME, st=State(2, 1, 1, 0, 0, 2, 4), br=4)


def test_a_message_of_another_shape_is_damage() -> None:
    line = lines.seal({"v": 1, "n": 9, "t": "msg", "ts": TIME, "m": 5, "st": [0, 0, 0, 0, 0, 0]})
    assert is_intact(line[:-1])
    assert unseal(line[:-1]) is None


def test_what_is_no_record_at_all_is_damage() -> None:
    line = lines.seal({"v": 1, "n": "x"})
    assert is_intact(line[:-1])
    assert unseal(line[:-1]) is None


def test_an_intact_line_of_a_later_format_is_named() -> None:
    with pytest.raises(FormatTooNew, match="record 1 has format 2"):
        unseal(lines.header("k", version=2)[:-1])


def test_a_number_is_read_without_the_rest() -> None:
    assert (number(SECOND[:-1]), number(SECOND[:-2]), number(b"")) == (3, 0, 0)


def test_a_line_is_sealed_anew_with_every_field_it_had() -> None:
    old = lines.seal({"v": 1, "n": 9, "t": "later", "ts": TIME, "ours": 5, "st": [1, 1, 1, 1, 1, 1], "br": 3})
    assert fields(resealed(old[:-1], p=None, st=State())[:-1]) == {
        "v": 1, "n": 9, "t": "later", "ts": TIME, "ours": 5, "st": [0, 0, 0, 0, 0, 0],
    }  # fmt: skip


def test_a_line_is_sealed_anew_with_another_link() -> None:
    assert resealed(SECOND[:-1], p=0, st=State(3, 1, 1, h=3)) == lines.resealed(SECOND, p=0, st=[3, 1, 1, 0, 0, 3])


def test_whole_records_are_found_in_a_line_of_damage() -> None:
    torn, whole, last = FIRST[:40], FIRST[:-1], SECOND[:-1]
    assert salvage(torn + whole + b"\0" + last) == [
        (40, 40 + len(whole)),
        (41 + len(whole), 41 + len(whole) + len(last)),
    ]


def test_a_line_made_to_cost_time_is_given_up_after_some_tries() -> None:
    bait = b'{"v":1,"n":' + b',"crc":"00000000"}' * 62
    assert salvage(bait + FIRST[:-1]) == [(len(bait), len(bait) + len(FIRST) - 1)]
    bait = b'{"v":1,"n":' + b',"crc":"00000000"}' * 63
    assert salvage(bait + FIRST[:-1]) == []
