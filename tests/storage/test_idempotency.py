"""Idempotency keys: which still count."""

from __future__ import annotations

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import MemoryView, Record, State, Transaction
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.transaction import WINDOW, Ids, PendingCommit, content_of, fingerprint
from nacre.testing import Disk
from tests.damage.lines import TIME
from tests.postgres.rows import Rows
from tests.simulated import ROOT, opened


def view(n: int) -> MemoryView:
    return MemoryView([Record(v=1, n=n, t="x.test", ts=TIME, st=State())])


def test_ids_that_no_longer_count_are_forgotten_some_at_a_time() -> None:
    ids = Ids()
    ids.add({f"id{n}": (n, "") for n in range(1, 4609)}, after=0, upto=4608)
    assert len(ids.window(view(4608))) == 4608
    ids.add({"id4609": (4609, "")}, after=4608, upto=4609)
    left = ids.window(view(4609))
    assert (len(left), min(n for n, _ in left.values()), "id4609" in left) == (4096, 514, True)


def test_a_busy_log_has_few_ids_in_memory_and_knows_every_retry_in_the_window() -> None:
    disk = Disk()
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES)
    opened(disk)
    held = []
    for n in range(2, 5202):
        log.writer.commit([note(n)])
        held.append(log.writer.ids_held)
    assert max(held) == 4608
    oldest, too_old = note(5202 - WINDOW), note(5201 - WINDOW)
    log.writer.commit([oldest, too_old])
    assert (oldest.number, too_old.number) == (1106, 5202)


def note(n: int) -> PendingCommit:
    """What becomes record `n`, if it is the first under its id."""
    operation = encode_text("user", f"{n}")
    return PendingCommit(Transaction((operation,), id=f"id{n}", print=fingerprint([content_of(operation)])))


def test_ids_of_the_generation_before_count_until_this_one_has_as_many_records_as_count() -> None:
    ids = Ids()
    earlier = {"before": (9000, ""), "again": (9001, "")}
    assert set(ids.window(view(4094), lambda: earlier)) == {"before", "again"}
    ids.add({"again": (4095, "")}, after=4094, upto=4095)
    assert set(ids.window(view(4095))) == {"before", "again"}
    ids.add({"new": (4096, "")}, after=4095, upto=4096)
    assert ids.window(view(4096)) == {"again": (4095, ""), "new": (4096, "")}


def test_ids_behind_records_that_were_not_seen_are_read_from_the_log() -> None:
    ids = Ids()
    ids.add({"other": (9, "")}, after=8, upto=9)
    assert ids.window(view(9)) == {}


def test_a_unit_that_is_longer_than_the_window_is_known_to_another_process(lasting_place: str) -> None:
    transaction = [{"role": "user", "content": "a"}] * (WINDOW + 10)
    with nacre.open(lasting_place) as one, nacre.open(lasting_place) as other:
        number = one.add_messages("k", transaction, id="once")
        assert other.add_messages("k", transaction, id="once") == number


def test_a_database_keeps_ids_without_limit(empty_database: str) -> None:
    with nacre.open(empty_database) as one, nacre.open(empty_database) as other:
        number = one.add_messages("k", [{"role": "user", "content": "a"}], id="once")
        other.add_messages("k", [{"role": "user", "content": "-"}] * WINDOW)
        assert other.add_messages("k", [{"role": "user", "content": "a"}], id="once") == number
        with pytest.raises(nacre.Conflict):
            other.add_messages("k", [{"role": "user", "content": "b"}], id="once")


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


def test_the_ids_of_a_deleted_session_do_not_count_for_the_next_one_though_a_fork_keeps_them(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "a", id="once")
        sessions.fork("k", "fork")
        sessions.delete("k")
        assert sessions.add_message("k", "user", "b", id="once") == 2
        assert [message.content for message in sessions.get_history("k")] == ["b"]
        assert sessions.add_message("fork", "user", "a", id="once") == 2
        assert len(sessions.get_history("fork")) == 1


def test_the_ids_of_a_session_in_the_trash_do_not_count_until_it_is_restored(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "a", id="once")
        sessions.move_to_trash("k")
        sessions.add_message("k", "user", "b")
        assert sessions.add_message("k", "user", "c", id="once") == 3
        sessions.archive("k")
        sessions.restore_from_trash(sessions.list_trash()[0].id)
        assert sessions.add_message("k", "user", "a", id="once") == 2
        assert [stored.message.content for stored in sessions.transcript("k")] == ["b", "c", "a"]


def test_the_ids_of_an_archived_generation_count(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "a", id="once")
        sessions.archive("k")
        sessions.add_message("k", "user", "b")
        assert sessions.add_message("k", "user", "a", id="once") == 2
        with pytest.raises(nacre.Conflict, match="was used for other content"):
            sessions.add_message("k", "user", "c", id="once")
        assert [message.content for message in sessions.get_history("k")] == ["b"]


def test_a_database_begins_a_session_again_though_the_clock_of_who_began_the_last_one_was_ahead(
    empty_database: str,
) -> None:
    with nacre.open(empty_database) as sessions, Rows(empty_database) as rows:
        sessions.add_message("k", "user", "a")
        sessions.move_to_trash("k")
        for table in ("sessions", "records"):
            rows.run(f"UPDATE {{s}}.{table} SET uid = 'ffffffff-ffff-ffff-ffff-ffffffffffff'")  # noqa: S608 - our own names
        assert sessions.add_message("k", "user", "b") == 2
