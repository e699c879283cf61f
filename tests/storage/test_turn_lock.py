"""One process at a time is at a turn, and whoever asks hears which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from nacre.opening import holder_of

HOLDER = "import sys, nacre; nacre.open(sys.argv[1]).hold('k').take(); print(1, flush=True); input()"


def test_a_turn_in_another_process_is_told_with_which(root: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(root)]
    with nacre.open(root) as sessions, subprocess.Popen(command, stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        hold = sessions.hold("k")
        with pytest.raises(nacre.SessionBusy, match=rf"in use by another process \({other.pid}\)"):
            hold.take()
        assert holder_of(str(root), "k") == other.pid
        sessions.hold("another").take()
        other.kill()
        other.wait()
        hold.take()
        hold.close()


def test_in_one_process_there_is_one_holder(root: Path) -> None:
    with nacre.open(root) as sessions, nacre.open(root) as again:
        mine, other = sessions.hold("k"), again.hold("k")
        mine.take()
        with pytest.raises(nacre.SessionBusy, match=rf"in use by this process \({os.getpid()}\)"):
            other.take()
        assert holder_of(str(root), "k") == os.getpid()
        other.close()
        mine.close()
        mine.close()
        other.take()
        other.close()
        assert holder_of(str(root), "k") == 0


def test_to_ask_who_has_it_makes_nothing(root: Path) -> None:
    root.mkdir(exist_ok=True)
    assert holder_of(str(root), "k") == 0
    assert list(root.iterdir()) == []


def test_a_child_of_a_fork_has_none_of_its_parent_s_turns(root: Path) -> None:
    with nacre.open(root) as sessions:
        hold = sessions.hold("k")
        hold.take()
        child = os.fork()
        if not child:
            try:
                sessions.hold("k").take()
            except nacre.SessionBusy as error:
                os._exit(0 if f"another process ({os.getppid()})" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        hold.close()


def test_nothing_is_left_of_a_turn_but_one_empty_file_for_all(root: Path) -> None:
    with nacre.open(root) as sessions:
        for key in ("a", "b"):
            hold = sessions.hold(key)
            hold.take()
            hold.close()
    assert sorted(path.name for path in root.iterdir()) == ["sessions", "turns.lock"]
    assert (root / "turns.lock").stat().st_size == 0


def test_a_store_that_cannot_be_written_says_so(root: Path) -> None:
    with nacre.open(root) as sessions:
        (root / "turns.lock").mkdir()
        with pytest.raises(nacre.Refused, match="cannot be locked"):
            sessions.hold("k").take()
