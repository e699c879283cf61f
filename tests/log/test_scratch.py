"""The next version of a log."""

from __future__ import annotations

from nacre.testing import Disk
from tests.simulated import LOG, opened, said

LONG = ["a" * 60_000] * 18


def test_a_great_log_is_written_anew_block_by_block() -> None:
    disk = Disk()
    sessions = opened(disk)
    for content in (LONG, "lost", LONG):
        sessions.add_full_message("k", {"role": "user", "content": content})
    disk.write_durable(LOG, disk.read(LOG).replace(b'"lost"', b'"rots"'))
    writes: list[int] = []
    disk.before = lambda call, arguments: writes.append(len(arguments[1]) >> 20) if call == "write" else None
    assert sessions.repair("k").set_aside == 1
    assert writes == [0, 1, 1, 0]
    assert said(sessions) == [LONG, LONG]
