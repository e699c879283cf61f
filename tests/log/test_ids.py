"""Idempotency keys: which still count."""

from __future__ import annotations

from nacre.entries import Recalled, Record, State
from nacre.log.ids import Ids
from tests.damage.lines import TIME


def past(n: int) -> Recalled:
    return Recalled([Record(v=1, n=n, t="x.test", ts=TIME, st=State())])


def test_ids_that_no_longer_count_are_forgotten_when_they_are_many() -> None:
    ids = Ids()
    ids.add({f"id{n}": (n, "") for n in range(1, 8193)}, after=0, upto=8192)
    assert len(ids.window(past(8192))) == 8192
    ids.add({"id8193": (8193, "")}, after=8192, upto=8193)
    left = ids.window(past(8193))
    assert (len(left), min(n for n, _ in left.values()), "id8193" in left) == (4096, 4098, True)


def test_ids_behind_records_that_were_not_seen_are_read_from_the_log() -> None:
    ids = Ids()
    ids.add({"other": (9, "")}, after=8, upto=9)
    assert ids.window(past(9)) == {}
