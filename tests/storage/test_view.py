"""What is read of a log: what counts in it and what was moved out of it, each record once, by number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from nacre.testing import Disk
from tests.damage.lines import header, message, resealed
from tests.paths import log_of
from tests.simulated import LOG, ROOT, first, interrupt, names, opened, said, say, store


@pytest.fixture
def disk() -> Disk:
    return Disk()


def numbers(sessions: nacre.Sessions) -> list[int]:
    return [entry.n for entry in sessions.records("k")]


def lock(disk: Disk) -> None:
    """Be another process that is writing the log."""
    process = disk.process()
    process.flock(process.open(LOG, os.O_RDWR), wait=True)


def test_an_incomplete_group_behind_damage_is_not_read_while_nobody_may_mend_it(disk: Disk) -> None:
    log = [
        header("k"),
        message(2, "a", before=0, ordinal=1),
        message(3, "b", before=2, ordinal=2),
        b"rotten\n",
        resealed(message(4, "c", before=3, ordinal=3), b=3),
        resealed(message(5, "d", before=4, ordinal=4), b=3, tx=[5, 2]),
    ]
    disk.write_durable(LOG, b"".join(log))
    lock(disk)
    sessions = opened(disk)
    assert (said(sessions), numbers(sessions)) == (["a", "b", "c"], [1, 2, 3, 4])
    assert disk.read(LOG) == b"".join(log)


def test_a_record_that_was_moved_out_and_brought_back_is_read_once(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    sessions.rewind("k", 3)
    assert said(sessions) == ["a", "b"]
    assert [entry.message.content for entry in sessions.transcript("k")] == ["a", "b", "c"]
    assert numbers(sessions) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_moved_out_records_are_read_where_the_log_lost_those_behind_them(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", "b", "c")
    sessions.rewind("k", 2)
    sessions.save("k")
    kept = disk.read(LOG).splitlines(keepends=True)
    assert [line[:12] for line in kept] == [b'{"v":1,"n":1', b'{"v":1,"n":2', b'{"v":1,"n":5', b'{"v":1,"n":6']
    disk.write_durable(LOG, b"".join(kept[:2]))
    assert numbers(opened(disk)) == [1, 2, 3, 4]


def test_records_after_a_number_are_those_of_the_whole_log_wherever_they_are(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *"abcdef")
    sessions.truncate_history("k", 2)
    sessions.save("k")
    sessions.fork("k", "fork")
    say(sessions, *"ghi")
    say(sessions, *"jkl", key="fork")
    for key in ("k", "fork"):
        everything = [entry.n for entry in sessions.records(key)]
        for n in range(1, everything[-1] + 2):
            assert [entry.n for entry in sessions.records(key, after=n)] == everything[n:], (key, n)
            assert [entry.n for entry in sessions.records(key, last=n)] == everything[-n:], (key, n)


def test_records_after_a_number_are_few_where_the_log_can_be_entered_there(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *"abcdefgh")
    found = store(disk.process()).read("k", lambda view: [[r.n for r in view.after(n, 2)] for n in (0, 3, 8, 9)])
    assert found == [[1, 2], [4, 5], [9], []]


def test_records_whose_neighbours_were_lost_are_read_and_the_loss_is_reported(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *"abcdefgh")
    lines = disk.read(LOG).splitlines(keepends=True)
    disk.write_durable(LOG, b"".join([*lines[:4], lines[2], *lines[6:]]))
    again = opened(disk)
    assert [entry.n for entry in again.records("k", after=2)] == [3, 4, 7, 8, 9]
    assert [entry.n for entry in again.records("k", "msg", last=4)] == [4, 7, 8, 9]
    assert not again.verify("k").ok


def test_lines_that_are_gone_without_a_trace_are_noticed_by_a_part_of_the_records(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *"abcdefgh")
    lines = disk.read(LOG).splitlines(keepends=True)
    disk.write_durable(LOG, b"".join([*lines[:4], *lines[6:]]))
    again = opened(disk)
    assert [entry.n for entry in again.records("k", after=2)] == [3, 4, 7, 8, 9]
    assert len(again.quarantine("k")) == 1


def test_a_generation_that_is_brought_back_between_two_looks_is_found(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    uid = sessions.page().items[0].generation
    sessions.archive("k")
    process = disk.process()
    reader = store(process)
    first(process, "listdir", lambda: sessions.unarchive("k"))
    assert reader.read_generation("k", uid, lambda view: view.n) == 2


def test_rot_that_is_met_by_a_part_of_the_records_is_mended(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *"abcdefgh")
    lines = disk.read(LOG).splitlines(keepends=True)
    disk.write_durable(LOG, b"".join([*lines[:5], b"rotten\n", *lines[6:]]))
    again = opened(disk)
    assert [entry.n for entry in again.records("k", "msg", after=4)] == [5, 7, 8, 9]
    assert [entry.bytes for entry in again.quarantine("k")] == [7]


def test_a_generation_that_is_brought_back_while_its_records_are_read_is_read_on(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, *("a" for _ in range(100)))
    sessions.archive("k")
    found = sessions.records("k", "msg")
    next(found)
    sessions.unarchive("k")
    assert len(list(found)) == 99


def test_the_records_of_a_deletion_that_was_not_finished_are_not_read(disk: Disk) -> None:
    sessions = opened(disk)
    for _ in range(2):
        say(sessions, *("a" for _ in range(100)))
        sessions.archive("k")
    found = sessions.records("k", "msg")
    next(found)
    interrupt(disk, "unlink")
    with pytest.raises(TimeoutError):
        sessions.delete("k")
    assert len(list(found)) < 64


def test_going_back_to_the_first_record_meets_each_once_though_a_log_below_a_fork_is_out_of_order(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", "b", "c", "d")
    sessions.fork("k", "fork")
    sessions.fork("fork", "second")
    # The log of `k`, which is the lowest; the one of `fork` is its header alone.
    (base,) = (f"{ROOT}/base/{name}" for name in names(disk, "base") if name.endswith(".1.jsonl"))
    header, *rest = disk.read(base).splitlines(keepends=True)
    disk.write_durable(base, b"".join([header, *reversed(rest)]))
    back = store(disk.process()).read("second", lambda view: [record.n for record in view.back(view.n)])
    assert back == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("last", [50, None])
def test_a_long_group_at_the_end_is_read_once(root: Path, last: int | None) -> None:
    class Counting(System):
        count = 0

        def pread(self, fd: int, size: int, offset: int) -> bytes:
            found = super().pread(fd, size, offset)
            self.count += len(found)
            return found

    system = Counting()
    sessions = nacre.Sessions(FileStore(str(root), rules=RULES, system=system))
    say(sessions, "a")
    sessions.add_messages("k", [{"role": "user", "content": "x" * 100}] * 1000)
    size = log_of(root, "k").stat().st_size
    system.count = 0
    assert len(sessions.get_history("k", last=last)) == (last or 1001)
    # And the header once more.
    assert size <= system.count <= size + 8 * 1024
    # It is known then that the group is whole.
    for _ in range(3):
        system.count = 0
        assert len(sessions.get_history("k", last=50)) == 50
        assert system.count <= 64 * 1024


def test_a_long_group_is_looked_at_again_once_the_log_has_changed(root: Path) -> None:
    with nacre.open(root) as sessions:
        say(sessions, "a")
        sessions.add_messages("k", [{"role": "user", "content": f"{n}"} for n in range(200)])
        assert len(sessions.get_history("k")) == 201
        log = log_of(root, "k")
        whole = log.read_bytes()
        # As a power cut leaves it: the last lines were never written, so that nothing of the group was acknowledged.
        log.write_bytes(whole[: whole.index(b'"150"')])
        assert said(sessions) == ["a"]


def test_many_logs_that_end_in_a_long_group_are_known(root: Path) -> None:
    with nacre.open(root) as sessions:
        for _ in range(2):
            for n in range(300):
                if not sessions.exists(f"k{n}"):
                    sessions.add_messages(f"k{n}", [{"role": "user", "content": "x"}] * 65)
                assert len(sessions.get_history(f"k{n}", last=3)) == 3
