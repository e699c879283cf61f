"""Verifying: what does not follow is found, and what cannot be checked is taken at its word."""

from __future__ import annotations

import pytest

from nacre.records import Record, State
from nacre.storage.recovery import Gaps
from nacre.testing import Disk
from tests.damage.lines import conversation, resealed
from tests.simulated import LOG, opened, say

HEADER, A, B, C = conversation("k", ["a", "b", "c"])


def found(*lines: bytes) -> list[tuple[str, str]]:
    disk = Disk()
    disk.write_durable(LOG, b"".join(lines))
    return [(finding.kind, finding.detail) for finding in opened(disk).verify().findings]


def test_a_log_that_is_as_it_was_written_is_in_order() -> None:
    assert found(HEADER, A, B, C) == []


@pytest.mark.parametrize("change", [{"p": 0}, {"st": [3, 2, 1, 0, 0, 3]}])
def test_a_record_that_does_not_follow_from_the_one_before_it_is_found(change: dict[str, object]) -> None:
    assert found(HEADER, A, resealed(B, **change), C)[0] == (
        "state",
        "record 3 does not follow from the one before it",
    )


def test_a_missing_record_is_found() -> None:
    assert found(HEADER, A, C, resealed(C, n=5, p=4, st=[5, 4, 4, 0, 0, 5])) == [("missing", "record 3 is missing")]


def test_a_repeated_record_and_one_out_of_order_are_found() -> None:
    assert found(HEADER, A, B, B, A, C) == [
        ("repeated", "record 3 is here again"),
        ("order", "record 2 is here after record 3"),
    ]


def test_a_summary_of_what_was_moved_out_is_taken_at_its_word() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a" * 500, "b" * 500, "c")
    sessions.set_summary("k", "s", upto=3)
    sessions.save("k")
    assert b'"upto":3' in disk.read(LOG)
    assert b'"n":3,' not in disk.read(LOG)
    assert sessions.verify().ok


def test_every_gap_is_named() -> None:
    gaps = Gaps()
    for n in (1, 2, 3, 4, 6, 7, 13, 15, 19):
        gaps.see(Record(v=1, n=n, t="use", ts="", st=State()))
    assert gaps.found == "records 5, 8 to 12, 14, 16 to 18 are missing"


def test_of_very_many_gaps_the_first_are_named() -> None:
    gaps = Gaps()
    for n in range(1, 100, 2):
        gaps.see(Record(v=1, n=n, t="use", ts="", st=State()))
    assert gaps.found.endswith(", 38, 40, and 29 more are missing")


@pytest.mark.parametrize(("kept", "text"), [(2, ""), (3, "1 record is missing"), (4, "2 records are missing")])
def test_a_mark_says_how_many_are_missing_before_it(kept: int, text: str) -> None:
    gaps = Gaps()
    for n in (1, 4):
        gaps.see(Record(v=1, n=n, t="use", ts="", st=State()))
    gaps.see(Record(v=1, n=9, t="mark", ts="", kept=kept, st=State()))
    assert gaps.found == (f"{text} before record 9" if text else "")
    gaps.see(Record(v=1, n=11, t="use", ts="", st=State()))
    assert gaps.found.endswith("record 10 is missing")
