"""Ends that were cut off, lines that ran together, and bytes that are no text: one bad piece costs one piece."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from tests.damage.lines import conversation
from tests.damage.stores import KEY, assert_every_line_whole, go_on, lines_of, said, set_aside, write

FRAGMENT = b'{"v":1,"n":5,"t":"msg","ts":"2026-11-15T18:00:0'


@pytest.fixture
def log(root: Path) -> Path:
    return write(root, ["one", "two", "three"])


def test_a_log_made_by_hand_from_the_format_is_read(root: Path, log: Path) -> None:
    log.write_bytes(b"".join(conversation(KEY, ["one", "two"])))
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two"], False, True)


def test_every_line_that_is_written_follows_the_format(log: Path) -> None:
    assert_every_line_whole(log)
    assert len(lines_of(log)) == 4


def test_a_cut_at_every_byte_leaves_every_whole_record(root: Path, log: Path) -> None:
    lines = lines_of(log)
    whole = b"".join(lines)
    for size in range(len(b"".join(lines[:-2])), len(whole)):
        log.write_bytes(whole[:size])
        kept = go_on(root).kept
        ends = [len(b"".join(lines[: count + 1])) for count in (1, 2, 3)]
        complete = [text for text, end in zip(["one", "two", "three"], ends, strict=True) if end <= size]
        assert kept[: len(complete)] == complete, size
        assert len(kept) == len(complete) or size + 1 in ends, size
        assert_every_line_whole(log)


def test_a_cut_in_the_first_batch_still_lets_the_session_go_on(root: Path, log: Path) -> None:
    first = b"".join(lines_of(log)[:2])
    for size in range(1, len(first), 7):
        log.write_bytes(first[:size])
        after = go_on(root)
        assert after.loaded == []
        assert after.transcript == ["written afterwards"], size


def test_a_torn_tail_is_kept_in_quarantine(root: Path, log: Path) -> None:
    log.write_bytes(log.read_bytes() + FRAGMENT)
    after = go_on(root)
    assert after.kept == ["one", "two", "three"]
    assert after.set_aside == [FRAGMENT]
    assert after.ok


def test_a_torn_group_at_the_end_disappears_whole(root: Path) -> None:
    log = write(root, ["one"])
    with nacre.open(root) as sessions:
        sessions.add_messages(KEY, [nacre.Message(role="user", content=text) for text in ("a", "b", "c")])
    lines = lines_of(log)
    for count in (3, 4):
        log.write_bytes(b"".join(lines[:count]) + lines[count][:30])
        after = go_on(root)
        assert after.kept == ["one"]
        assert after.ok


def test_readers_do_not_show_a_group_that_is_not_complete(root: Path) -> None:
    log = write(root, ["one"])
    with nacre.open(root) as sessions:
        sessions.add_messages(KEY, [nacre.Message(role="user", content=text) for text in ("a", "b", "c")])
    log.write_bytes(b"".join(lines_of(log)[:-1]))
    assert said(root) == ["one"]


def test_a_record_behind_a_torn_fragment_is_kept(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:3]) + FRAGMENT + lines[3])
    after = go_on(root)
    assert after.kept == ["one", "two", "three"]
    assert FRAGMENT in after.set_aside
    assert_every_line_whole(log)


def test_a_missing_newline_between_two_records_costs_neither(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(lines[0] + lines[1] + lines[2][:-1] + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)
    assert_every_line_whole(log)


def test_all_newlines_missing_cost_no_record_before_the_last(root: Path, log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b"\n", b""))
    assert go_on(root).kept[:2] == ["one", "two"]
    assert_every_line_whole(log)


@pytest.mark.parametrize("size", [1, 511, 512, 4096, 100_000])
def test_a_run_of_zero_bytes_at_the_end_is_set_aside(root: Path, log: Path, size: int) -> None:
    log.write_bytes(log.read_bytes() + b"\0" * size)
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)
    assert sum(len(piece) for piece in after.set_aside) == size


@pytest.mark.parametrize("size", [1, 511, 4096])
def test_a_run_of_zero_bytes_between_records_costs_none(root: Path, log: Path, size: int) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:2]) + b"\0" * size + b"".join(lines[2:]))
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)
    assert b"".join(after.set_aside).strip(b"\n") == b"\0" * size


def test_a_zeroed_record_costs_that_record(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:2]) + b"\0" * len(lines[2]) + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "three"], True)
    assert after.history == ["one", "three", "written afterwards"]


def test_a_file_of_zero_bytes_is_an_empty_session_with_a_report(root: Path, log: Path) -> None:
    size = log.stat().st_size
    log.write_bytes(b"\0" * size)
    after = go_on(root)
    assert (after.loaded, after.reported) == ([], True)
    assert b"".join(after.set_aside) == b"\0" * size


def test_an_emptied_log_is_a_session_that_begins_and_stays_reported(root: Path, log: Path) -> None:
    log.write_bytes(b"")
    with nacre.open(root) as sessions:
        assert not sessions.exists(KEY)
        assert [finding.kind for finding in sessions.verify(KEY).findings] == ["emptied"]
        sessions.add_message(KEY, "user", "new")
        assert [(entry.kind, entry.bytes) for entry in sessions.quarantine(KEY)] == [("emptied", 0)]
        assert [finding.kind for finding in sessions.verify().findings] == ["quarantine"]
        sessions.discard(KEY)
        assert sessions.verify().ok
    assert said(root) == ["new"]


def test_text_cut_inside_a_character_costs_that_record(root: Path) -> None:
    log = write(root, ["one", "zwei: größer €", "three"])
    lines = lines_of(log)
    cut = lines[2].replace("€".encode(), b"\xe2\x82")
    assert cut != lines[2]
    log.write_bytes(lines[0] + lines[1] + cut + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "three"], True)
    assert cut.rstrip(b"\n") in b"".join(after.set_aside)


def test_a_tail_cut_inside_a_character_is_set_aside_unchanged(root: Path) -> None:
    log = write(root, ["one", "grüße €"])
    content = log.read_bytes()
    cut = content[: content.rindex("€".encode()) + 1]
    log.write_bytes(cut)
    after = go_on(root)
    assert after.kept == ["one"]
    assert after.set_aside == [cut[cut.rindex(b"\n") + 1 :]]


def test_windows_line_ends_cost_no_record(root: Path, log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)


def test_damage_is_found_again_after_a_second_accident(root: Path, log: Path) -> None:
    for number in range(3):
        log.write_bytes(log.read_bytes() + b"torn %d" % number)
        assert go_on(root).kept[:3] == ["one", "two", "three"]
    assert set_aside(root) == [b"torn 0", b"torn 1", b"torn 2"]


def test_repair_sets_aside_what_it_removes_and_gives_a_receipt(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(lines[0] + lines[1] + b"rubbish\n" + lines[2] + lines[3])
    with nacre.open(root) as sessions:
        receipt = sessions.repair(KEY)
        assert receipt.key == KEY
        assert receipt.set_aside
        assert [finding.kind for finding in sessions.verify(KEY).findings] == ["quarantine"]
        sessions.discard(KEY)
        assert sessions.verify(KEY).ok
    assert b"rubbish" in b"".join(set_aside(root))
    assert said(root) == ["one", "two", "three"]
