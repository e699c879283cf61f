"""The cold file: whole lines in frames, and no more of it read or trusted than its log vouches for."""

from __future__ import annotations

import pytest

from nacre.log import cold
from nacre.log.ops import Ops
from nacre.testing import Disk, Fault, Process
from tests.damage.lines import conversation
from tests.simulated import LOG, opened, said, say

PATH = "/cold/k.jsonl.zst"
LINES = conversation("k", ["a", "b", "c"])


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def process(disk: Disk) -> Process:
    return disk.process()


def texts(ops: Ops, length: int | None) -> list[object]:
    """What the pieces of a cold file say; None for damage."""
    pieces = cold.pieces(ops, PATH, length)
    return [piece.record.n if piece.record is not None else None for piece in pieces]


def test_lines_come_back_in_the_order_in_which_they_were_added(process: Process) -> None:
    length = cold.append(process, PATH, 0, LINES[:2])
    length = cold.append(process, PATH, length, LINES[2:])
    assert texts(process, length) == texts(process, None) == [1, 2, 3, 4]


def test_no_lines_are_no_frame(process: Process) -> None:
    assert list(cold.frames([])) == []
    assert cold.append(process, PATH, 0, []) == 0


def test_a_frame_is_filled_with_lines_but_never_splits_one() -> None:
    line = b"x" * (50 * 1024) + b"\n"
    assert len(list(cold.frames([line] * 5))) == 3


def test_a_cold_file_that_should_be_there_is_damage(process: Process) -> None:
    assert (texts(process, None), texts(process, 0), texts(process, 7)) == ([], [], [None])


def test_a_cold_file_that_should_be_longer_is_damage_behind_what_it_holds(process: Process) -> None:
    length = cold.append(process, PATH, 0, LINES)
    assert texts(process, length + 1) == [1, 2, 3, 4, None]


def test_a_rotten_frame_ends_the_reading(disk: Disk, process: Process) -> None:
    first = cold.append(process, PATH, 0, LINES[:2])
    length = cold.append(process, PATH, first, LINES[2:])
    disk.write_durable(PATH, disk.read(PATH)[:first] + b"x" * (length - first))
    assert texts(process, length) == [1, 2, None]
    assert cold.whole_length(process, PATH) == first


def test_a_cold_file_that_is_cut_while_it_is_read_is_damage(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    length = cold.append(process, PATH, 0, LINES)
    monkeypatch.setattr(process, "pread", lambda fd, size, offset: b"")
    assert texts(process, length) == [None]


def test_what_a_compaction_left_unfinished_is_cut_off_by_the_next(process: Process) -> None:
    length = cold.append(process, PATH, 0, LINES[:1])
    cold.append(process, PATH, length, LINES[1:3])
    length = cold.append(process, PATH, length, LINES[3:])
    assert texts(process, length) == texts(process, None) == [1, 4]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_append_gives_its_room_back(disk: Disk, process: Process, call: str) -> None:
    length = cold.append(process, PATH, 0, LINES[:1])
    before = disk.read(PATH)
    if call == "fsync":
        disk.fail(Fault(call="fsync", nth=2))  # the first settles the folder's name
    else:
        disk.fail(Fault(call="write"))
    with pytest.raises(OSError, match="Input/output error"):
        cold.append(process, PATH, length, LINES[1:])
    assert disk.read(PATH) == before


def test_a_failed_first_append_leaves_no_file(disk: Disk, process: Process) -> None:
    disk.fail(Fault(call="write"))
    with pytest.raises(OSError, match="Input/output error"):
        cold.append(process, PATH, 0, LINES)
    assert process.listdir("/cold") == []


def test_a_session_whose_moved_out_records_are_gone_says_so_and_goes_on(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    (moved_out,) = disk.process().listdir("/store/cold")
    disk.process().unlink(f"/store/cold/{moved_out}")
    assert [finding.kind for finding in sessions.verify("k").findings] == ["cold"]
    say(sessions, "d")
    assert said(sessions) == ["c", "d"]
    assert b'"cold":' in disk.read(LOG)
