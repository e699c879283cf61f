"""What takes a log's place after a crash that left gaps."""

from __future__ import annotations

import pytest

from nacre.entries import Describe, Note, Unit, Wish, say_plainly
from nacre.history.live import RULES
from nacre.log.batch import Ticket
from nacre.log.log import LogFile
from nacre.log.place import Place
from nacre.testing import Disk
from tests.simulated import LOG, ROOT, opened, said, say

A, B, C = (say_plainly("user", text) for text in "abc")


def written_together(*wishes: Wish) -> Disk:
    """A log with one batch of many units."""
    disk = Disk()
    opened(disk)
    log = LogFile(disk.process(), Place.of(ROOT, "k"), rules=RULES)
    log.commit([Ticket(Unit((wish,))) for wish in wishes])
    log.close()
    return disk


def lose(disk: Disk, number: int) -> None:
    """Let a power cut leave zeros where one record of a batch was."""
    lines = disk.read(LOG).splitlines(keepends=True)
    lines[number - 1] = b"\0" * len(lines[number - 1])
    disk.write_durable(LOG, b"".join(lines))


@pytest.mark.parametrize(("lost", "left"), [(2, ["b", "c"]), (3, ["a", "c"]), (4, ["a", "b"])])
def test_a_message_that_a_crash_took_out_of_a_batch_leaves_no_trace(lost: int, left: list[str]) -> None:
    disk = written_together(A, B, C)
    lose(disk, lost)
    sessions = opened(disk)
    say(sessions, "d")
    assert said(sessions) == [*left, "d"]
    assert [info.messages for info in sessions.list()] == [3]
    sessions.discard("k")
    assert sessions.verify().ok


def test_what_followed_a_gap_keeps_its_content() -> None:
    disk = written_together(A, B, Note("x.note", {"k": 1}), Describe({"title": "T"}))
    lose(disk, 3)
    sessions = opened(disk)
    say(sessions, "d")
    assert (said(sessions), sessions.get_meta("k")) == (["a", "d"], {"title": "T"})
    assert [(entry.n, entry.data) for entry in sessions.records("k", "x.note")] == [(4, {"k": 1})]
    sessions.discard("k")
    assert sessions.verify().ok
