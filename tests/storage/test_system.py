"""The real operating system, where it is more than one call."""

from __future__ import annotations

import os
from pathlib import Path

from nacre.storage.system import System


def test_a_lock_that_is_taken_is_not_waited_for(tmp_path: Path) -> None:
    system = System()
    one, other = (system.open(str(tmp_path / "log"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system.flock(one, wait=False)
    assert not system.flock(other, wait=False)
    system.unlock(one)
    assert system.flock(other, wait=True)
    system.close(one)
    system.close(other)


def test_readers_share_a_lock_that_no_writer_has(tmp_path: Path) -> None:
    system = System()
    one, other = (system.open(str(tmp_path / "log"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system.share(one)
    assert system.share(other)
    system.unlock(other)
    assert system.flock(one, wait=False)
    assert not system.share(other)
    system.close(one)
    system.close(other)
