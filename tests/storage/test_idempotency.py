"""Idempotency keys: which still count."""

from __future__ import annotations

import pytest

from nacre.records import MemoryView, Record, State
from nacre.storage.transaction import WINDOW, Ids
from nacre.testing import Disk
from tests.damage.lines import TIME
from tests.simulated import opened


def view(n: int) -> MemoryView:
    return MemoryView([Record(v=1, n=n, t="x.test", ts=TIME, st=State())])


def test_ids_that_no_longer_count_are_forgotten_when_they_are_many() -> None:
    ids = Ids()
    ids.add({f"id{n}": (n, "") for n in range(1, 8193)}, after=0, upto=8192)
    assert len(ids.window(view(8192))) == 8192
    ids.add({"id8193": (8193, "")}, after=8192, upto=8193)
    left = ids.window(view(8193))
    assert (len(left), min(n for n, _ in left.values()), "id8193" in left) == (4096, 4098, True)


def test_ids_behind_records_that_were_not_seen_are_read_from_the_log() -> None:
    ids = Ids()
    ids.add({"other": (9, "")}, after=8, upto=9)
    assert ids.window(view(9)) == {}


def test_a_unit_that_is_longer_than_the_window_is_known_to_another_process() -> None:
    disk = Disk()
    transaction = [{"role": "user", "content": "a"}] * (WINDOW + 10)
    number = opened(disk).add_messages("k", transaction, id="once")
    assert opened(disk).add_messages("k", transaction, id="once") == number


@pytest.mark.parametrize(("behind", "known"), [(WINDOW - 1, {"once"}), (WINDOW, set[str]())])
def test_a_unit_counts_for_as_long_as_its_last_record_does(behind: int, known: set[str]) -> None:
    transaction = [
        Record(v=1, n=n, t="x.test", ts=TIME, st=State(), tx=(2, 3), id="once" if n == 2 else None) for n in (2, 3, 4)
    ]
    later = [Record(v=1, n=n, t="x.test", ts=TIME, st=State()) for n in range(5, 5 + behind)]
    assert set(Ids().window(MemoryView([*transaction, *later]))) == known


def test_an_id_is_known_though_part_of_its_unit_was_moved_out() -> None:
    disk = Disk()
    sessions = opened(disk)
    transaction = [{"role": "user", "content": text} for text in ("a", "b", "c" * 5000)]
    number = sessions.add_messages("k", transaction, id="once")
    sessions.pop("k")
    sessions.save("k")
    assert disk.process().listdir("/store/cold")
    assert opened(disk).add_messages("k", transaction, id="once") == number


def test_an_id_that_another_process_used_again_once_it_was_forgotten_stands_for_what_that_one_stored() -> None:
    disk = Disk()
    one, other = opened(disk), opened(disk)
    one.add_messages("k", [{"role": "user", "content": "a"}], id="id")
    other.add_messages("k", [{"role": "user", "content": "-"}] * WINDOW)
    number = other.add_messages("k", [{"role": "user", "content": "b"}], id="id")
    assert one.add_messages("k", [{"role": "user", "content": "b"}], id="id") == number
