"""Erasing a message, killed at every call or cut off from power there: it is finished, and nothing else is touched."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.errors import DurabilityUnknown, Refused
from nacre.testing import Disk, Fault, images
from nacre.testing.tree import Snapshot
from tests.crash.erasing import KEY, PIECE, SECRET, begin, read_rest
from tests.crash.faults import KILL_AFTER, KILL_BEFORE
from tests.crash.test_failing_calls import CALLS
from tests.crash.warm import Job, Warm
from tests.erased import traces, traces_on
from tests.simulated import ROOT, opened

Redact = Callable[[nacre.Sessions], Any]
PLACES: dict[str, Redact] = {
    "in the log": lambda sessions: sessions.redact(KEY, 3),
    "moved out": lambda sessions: sessions.redact("cold", 3),
    "in a fork": lambda sessions: sessions.redact("fork", 3),
    "archived": lambda sessions: sessions.redact("archived", 3),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every crash that is recovered from would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def key_of(place: str) -> str:
    return {"in the log": KEY, "moved out": "cold", "in a fork": "fork", "archived": "archived"}[place]


def prepared(place: str) -> Disk:
    disk = Disk()
    with opened(disk) as sessions:
        begin(sessions, key_of(place), damage=disk.write_durable, read=disk.read)
    return disk


def check_finished(disk: Disk, place: str, rest: object) -> None:
    """Open the store again: the message is all there and nothing is to be done, or nothing of it is left."""
    with opened(disk) as sessions:
        was_begun = bool(names(disk, "redacting"))
        sessions.finish_redactions()
        assert names(disk, "redacting") == []
        found = traces_on(disk, SECRET, ROOT)
        assert not (was_begun and found), found
        if found:
            PLACES[place](sessions)
        assert traces_on(disk, SECRET, ROOT) == traces_on(disk, PIECE, ROOT) == []
        assert read_rest(sessions, key_of(place)) == rest
        assert sessions.verify(key_of(place)).ok
        sessions.add_message(key_of(place), "user", "later")


def names(disk: Disk, folder: str) -> list[str]:
    try:
        return [name for name in disk.process().listdir(f"{ROOT}/{folder}") if not name.endswith(".tmp")]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("place", PLACES)
def test_killed_or_without_power_before_any_call(place: str, campaign: bool) -> None:
    disk = prepared(place)
    moments: list[Snapshot] = []
    with opened(disk) as sessions:
        rest = read_rest(sessions, key_of(place))
        disk.before = lambda *_: moments.append(disk.snapshot())
        PLACES[place](sessions)
        disk.before = None
    assert traces_on(disk, SECRET, ROOT) == []
    assert len(moments) > 20
    for moment in moments:
        check_finished(Disk(at=moment), place, rest)
        for image in images(moment, random.Random(len(moments)), 50 if campaign else 2):
            check_finished(image, place, rest)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_any_failing_call_leaves_what_can_be_finished(place: str, code: int) -> None:
    start = prepared(place)
    with opened(start.clone()) as sessions:
        rest = read_rest(sessions, key_of(place))
    for nth in itertools.count(1):
        disk = start.clone()
        sessions = opened(disk)
        ticks = disk.ticks
        disk.fail(Fault(call="*", nth=nth, errno=code))
        with suppress(Refused, DurabilityUnknown):
            PLACES[place](sessions)
        disk.heal()
        is_over = disk.ticks - ticks < nth
        check_finished(disk, place, rest)
        if is_over:
            return


@pytest.mark.parametrize("place", PLACES)
def test_a_second_try_erases_what_the_first_knew_of(place: str) -> None:
    start = prepared(place)
    for nth in itertools.count(1):
        disk = start.clone()
        ticks = disk.ticks
        with opened(disk) as sessions:
            disk.fail(Fault(call="*", nth=nth))
            with suppress(Refused, DurabilityUnknown):
                PLACES[place](sessions)
            disk.heal()
            is_over = disk.ticks - ticks < nth
            PLACES[place](sessions)
            assert traces_on(disk, SECRET, ROOT) == traces_on(disk, PIECE, ROOT) == names(disk, "redacting") == []
        if is_over:
            return


@pytest.mark.parametrize("mode", [KILL_BEFORE, KILL_AFTER])
@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("ftruncate", "fdatasync", "link")])
def test_killed_at_any_call_of_the_kernel(failing: Warm, root: Path, call: str, mode: int) -> None:
    start = root.with_name("start")
    with nacre.open(start / "store") as sessions:
        begin(sessions, KEY, damage=write, read=lambda path: Path(path).read_bytes())
        rest = read_rest(sessions, KEY)
    for nth in itertools.count(1):
        base = root.with_name(f"case{nth}")
        shutil.copytree(start, base)
        fault = (call, nth, 1, mode, 0)
        job = Job(task="erasing:redact_with_fault", arguments={"base": str(base), "fault": fault})
        (outcome,) = failing.race([job])
        assert outcome.status in {0, -9}, outcome.said("raised")
        os.environ["XDG_CACHE_HOME"], before = str(base / "cache"), os.environ["XDG_CACHE_HOME"]
        try:
            with nacre.open(base / "store") as sessions:
                if not (is_finished := not traces(SECRET, base)):
                    assert len(traces(SECRET, base)) > 1
                    sessions.redact(KEY, 3)
                assert traces(SECRET, base) == traces(PIECE, base) == []
                assert read_rest(sessions, KEY) == rest
                assert sessions.search("launch") == []
                assert sessions.verify(KEY).ok
            assert traces(SECRET, base) == []
        finally:
            os.environ["XDG_CACHE_HOME"] = before
        shutil.rmtree(base)
        if outcome.status == 0:
            assert is_finished
            return


def write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)
