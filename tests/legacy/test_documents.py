from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from nacre.legacy.documents import Legacy, Unreadable, read_document, read_lines, spell_time
from nacre.records import SetMeta, Summarise, Truncate
from tests.legacy.earlier import TORN, document, line, meta

WHEN = datetime(2026, 5, 1, tzinfo=UTC)


def lines(data: bytes, *, beside: bytes | None = None) -> Legacy:
    found = read_lines(data, "name", meta=beside, changed=WHEN)
    assert found is not None
    return found


def texts(found: Legacy) -> list[object]:
    return [message.content for message in found.messages]


def test_a_document_tells_key_messages_summary_and_times() -> None:
    found = read_document(document("telegram:1", "a", "b", summary="S"), "telegram_1")
    assert found is not None
    assert (found.key, texts(found), found.summary) == ("telegram:1", ["a", "b"], "S")
    assert (spell_time(found.created), spell_time(found.updated)) == (
        "2026-01-02T03:04:05.678Z",
        "2026-02-02T20:05:06.000Z",
    )


def test_a_document_without_a_good_key_has_its_files_name() -> None:
    for key in ("", "a\0b", "x" * 2000):
        found = read_document(document(key, "a"), "name")
        assert found is not None
        assert found.key == "name"


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"model":"x"}', b'{"messages":[{"role":"user"}]}', b'{"messages":7}'])
def test_other_documents_are_none_of_ours(data: bytes) -> None:
    assert read_document(data, "name") is None


@pytest.mark.parametrize("data", [b"", b'{"key":', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_document(data, "name")


def test_what_is_no_message_in_a_document_is_set_apart() -> None:
    data = json.dumps({"key": "k", "messages": [{"role": "user", "content": "a"}, 7, {"content": "b"}]}).encode()
    found = read_document(data, "k")
    assert found is not None
    assert (texts(found), [bad.raw for bad in found.bad]) == (["a"], [b"7", b'{"content": "b"}'])


def test_fields_that_are_not_known_go_to_the_meta() -> None:
    found = read_document(document("k", "a", agent="main"), "k")
    assert found is not None
    assert found.meta == {"legacy": {"agent": "main"}}


def test_lone_surrogates_do_not_wedge_a_session() -> None:
    found = lines(b'{"role":"user","content":"a\\ud800b"}\n')
    assert texts(found) == ["a\N{REPLACEMENT CHARACTER}b"]


def test_bad_lines_are_set_apart_with_their_place() -> None:
    data = line("one") + b"\n" + TORN + b"\n" + b'{"role":"user","content":NaN}\n' + line("two")[:-1]
    found = lines(data)
    assert texts(found) == ["one", "two"]
    assert [data[bad.start : bad.start + len(bad.raw)] == bad.raw for bad in found.bad] == [True, True]


def test_a_message_glued_to_a_torn_line_is_found() -> None:
    found = lines(line("one") + TORN + line("three") + line("four"))
    assert texts(found) == ["one", "three", "four"]
    assert [bad.raw for bad in found.bad] == [TORN]


def test_a_message_that_is_too_long_for_a_log_is_set_apart() -> None:
    found = lines(line("x" * 17_000_000) + line("a"))
    assert (texts(found), len(found.bad)) == (["a"], 1)


@pytest.mark.parametrize("data", [b"", b"\n", b'{"event":"x"}\n' + line("a"), b"garbage\n", b"7\n"])
def test_other_lines_are_none_of_ours(data: bytes) -> None:
    assert read_lines(data, "name", meta=None, changed=WHEN) is None


def test_metadata_tells_key_summary_and_what_was_dropped() -> None:
    data = line("a") + b"\n" + TORN + b"\n" + line("b") + line("c")
    found = lines(data, beside=meta("tg:1", summary="S", skip=3, aliases=["old"], scope={"v": 1}))
    assert (found.key, found.summary, texts(found), found.dropped) == ("tg:1", "S", ["a", "b", "c"], 2)
    assert found.meta == {"aliases": ["old"], "scope": {"v": 1}}
    operations = [record.operation for record in found.records("now")[3:]]
    assert operations == [Truncate(1), Summarise("S"), SetMeta(found.meta)]


def test_corrupt_metadata_costs_the_key_and_not_the_messages() -> None:
    found = lines(line("a"), beside=b"{")
    assert (found.key, texts(found)) == ("name", ["a"])


def test_a_session_that_holds_no_message_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        read_lines(TORN, "name", meta=meta("k"), changed=WHEN)
    assert lines(b"", beside=meta("k", summary="S")).summary == "S"


def test_times_are_those_of_the_messages_else_of_the_file() -> None:
    timed = line("b", created_at="2026-01-15T00:00:00Z")
    found = read_document(document("k", "a"), "k")
    assert found is not None
    assert [record.ts for record in found.records("now")] == ["2026-02-02T20:05:06.000Z"]
    both = lines(line("a") + timed + line("c") + line("d"), beside=meta("k", updated_at="2026-04-01T00:00:00Z"))
    assert [record.ts[:10] for record in both.records("now")] == [
        "2026-03-01",
        "2026-01-15",
        "2026-01-15",
        "2026-04-01",
    ]
    assert [record.ts[:10] for record in lines(line("a")).records("now")] == ["2026-05-01"]
