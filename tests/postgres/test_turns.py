"""Turns of processes that stop, die, or have another time on their clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nacre
from tests.postgres.opened import create, opened
from tests.postgres.programs import wait_until

ROOT = Path(__file__).parents[2]
# Three times what a holder on a busy machine needs to renew it.
SECONDS = 3.0
HOLDER = """
import sys, time, nacre
if len(sys.argv) > 3:
    own, ahead = time.time, float(sys.argv[3])
    time.time = lambda: own() + ahead
from tests.postgres.opened import opened
sessions = opened(sys.argv[1], lease_seconds=float(sys.argv[2]))
turn = sessions.hold("k")
turn.take()
print(sessions.append("k", "x.note", 1, lease=turn), flush=True)
for line in sys.stdin:
    try:
        print(sessions.append("k", "x.note", 2, lease=turn), flush=True)
    except nacre.LeaseLost:
        print("lost", flush=True)
"""


@contextmanager
def holding(url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the turn, has stored a note, and tries to store another for each line that it is sent."""
    command = [sys.executable, "-c", HOLDER, url, str(SECONDS), *options]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert read_line(process) == "2"
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def append(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return read_line(process)


def can_take(turn: nacre.Lease) -> bool:
    try:
        turn.take()
    except nacre.SessionBusy:
        return False
    return True


@pytest.fixture
def url(database: str) -> str:
    return create(database)


def test_a_holder_that_was_stopped_for_too_long_has_lost_its_turn_when_it_wakes(url: str) -> None:
    with holding(url) as process, opened(url, lease_seconds=60) as sessions:
        turn = sessions.hold("k")
        assert not can_take(turn)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: can_take(turn), "the end of the turn")
            number = sessions.append("k", "x.note", 3, lease=turn)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert append(process) == "lost"
        assert sessions.append("k", "x.note", 4, lease=turn) == number + 1
        assert [entry.data for entry in sessions.records("k", "x.note")] == [1, 3, 4]


def test_a_holder_that_was_stopped_and_from_whom_nobody_took_it_goes_on(url: str) -> None:
    with holding(url) as process, opened(url) as sessions:
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: sessions.hold("k").holder() == 0, "the end of the turn")
        os.kill(process.pid, signal.SIGCONT)
        assert append(process) == "3"
        # It renews its turn when it is its time again.
        wait_until(lambda: sessions.hold("k").holder() != 0, "the renewal of the turn")
        assert not can_take(sessions.hold("k"))


def test_what_a_holder_that_died_had_is_free_when_it_has_expired(url: str) -> None:
    with holding(url) as process, opened(url, lease_seconds=60) as sessions:
        process.kill()
        process.wait()
        turn = sessions.hold("k")
        wait_until(lambda: can_take(turn), "the end of the turn")
        sessions.append("k", "x.note", 3, lease=turn)
        assert [entry.data for entry in sessions.records("k", "x.note")] == [1, 3]


@pytest.mark.parametrize("ahead", ["-86400", "86400"])
def test_the_clock_of_a_holder_does_not_matter(ahead: str, url: str) -> None:
    with holding(url, ahead) as process, opened(url, lease_seconds=60) as sessions:
        turn = sessions.hold("k")
        # It is renewed, so it stays the other's for longer than it lasts.
        for expected in ("3", "4", "5"):
            assert append(process) == expected
            assert not can_take(turn)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: can_take(turn), "the end of the turn")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert append(process) == "lost"
