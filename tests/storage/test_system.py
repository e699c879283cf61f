"""The real operating system, where it is more than one call."""

from __future__ import annotations

import os
from pathlib import Path

from nacre.storage.system import Ops


def test_a_lock_that_is_taken_is_not_waited_for(tmp_path: Path) -> None:
    ops = Ops()
    one, other = (ops.open(str(tmp_path / "log"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert ops.flock(one, wait=False)
    assert not ops.flock(other, wait=False)
    ops.unlock(one)
    assert ops.flock(other, wait=True)
    ops.close(one)
    ops.close(other)


def test_readers_share_a_lock_that_no_writer_has(tmp_path: Path) -> None:
    ops = Ops()
    one, other = (ops.open(str(tmp_path / "log"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert ops.share(one)
    assert ops.share(other)
    ops.unlock(other)
    assert ops.flock(one, wait=False)
    assert not ops.share(other)
    ops.close(one)
    ops.close(other)
