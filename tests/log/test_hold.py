"""One process at a time is at a turn, and whoever asks hears which."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from nacre.testing import Disk, Fault
from tests.simulated import opened


def test_a_turn_elsewhere_is_told_with_who_has_it(root: Path) -> None:
    with nacre.open(root) as sessions:
        mine, other = sessions.hold("k"), sessions.hold("k")
        mine.take()
        with pytest.raises(nacre.SessionBusy, match=f'"pid": {os.getpid()}'):
            other.take()
        mine.close()
        other.take()
        other.close()
        assert list((root / "locks").iterdir()) == []


def test_what_a_killed_process_left_is_taken_over(root: Path) -> None:
    code = "import os, sys, nacre; nacre.open(sys.argv[1]).hold('k').take(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(root)], check=False)
    assert (root / "locks/k.turn").exists()
    with nacre.open(root) as sessions:
        hold = sessions.hold("k")
        hold.take()
        assert f'"pid": {os.getpid()}' in (root / "locks/k.turn").read_text()
        hold.close()
        hold.close()


def test_a_file_that_is_another_s_by_now_is_left_alone(root: Path) -> None:
    with nacre.open(root) as sessions:
        hold = sessions.hold("k")
        hold.take()
        other = root / "locks/other"
        other.write_text("another's")
        other.rename(root / "locks/k.turn")
        hold.close()
        assert (root / "locks/k.turn").read_text() == "another's"


def test_a_name_that_goes_between_opening_and_locking_is_noticed() -> None:
    disk = Disk()
    hold = opened(disk).hold("k")
    disk.fail(Fault(call="stat", errno=errno.ENOENT))
    hold.take()
    hold.close()
    hold.take()


def test_who_has_it_may_not_say(root: Path) -> None:
    with nacre.open(root) as sessions:
        mine, other = sessions.hold("k"), sessions.hold("k")
        mine.take()
        (root / "locks/k.turn").write_text("")
        with pytest.raises(nacre.SessionBusy, match="it does not say which"):
            other.take()
        mine.close()


def test_a_store_that_cannot_be_written_says_so() -> None:
    disk = Disk()
    hold = opened(disk).hold("k")
    disk.fail(Fault(call="mkdir", errno=errno.EROFS))
    with pytest.raises(nacre.Refused, match="cannot be held"):
        hold.take()


def test_ram_has_nobody_to_keep_away() -> None:
    with nacre.open(":memory:") as sessions:
        mine, other = sessions.hold("k"), sessions.hold("k")
        mine.take()
        other.take()
        mine.close()
