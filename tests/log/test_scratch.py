"""The next version of a log."""

from __future__ import annotations

from nacre.testing import Disk
from tests.simulated import LOG, opened, said, say


def test_a_great_log_is_written_anew_block_by_block() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a" * 2**20, "lost", "c" * 2**20)
    disk.write_durable(LOG, disk.read(LOG).replace(b'"lost"', b'"rots"'))
    writes: list[int] = []
    disk.before = lambda call, arguments: writes.append(len(arguments[1]) >> 20) if call == "write" else None
    assert sessions.repair("k").set_aside == 1
    assert writes == [0, 1, 1, 0]
    assert said(sessions) == ["a" * 2**20, "c" * 2**20]
