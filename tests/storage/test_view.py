"""What is read of a log: what counts in it and what was moved out of it, each record once, by number."""

from __future__ import annotations

import os

import pytest

import nacre
from nacre.testing import Disk
from tests.damage.lines import header, message, resealed
from tests.simulated import LOG, ROOT, names, opened, said, say, store


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
