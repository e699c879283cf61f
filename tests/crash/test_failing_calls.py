"""Whichever call fails, however, and for however long: what was acknowledged is there, and what was refused is not."""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from tests.crash import workload
from tests.crash.faults import FAIL, FOR_EVER, KILL_AFTER, KILL_BEFORE, SHORT, Fault
from tests.crash.warm import Job, Outcome, Warm
from tests.crash.workload import Generation, State

# An interrupted call is tried again by the interpreter: for ever would be a hang of the shim's own making.
MANY_TIMES = 50

CALLS = ("write", "fdatasync", "fsync", "ftruncate", "rename", "link", "unlink", "open", "mkdir")
FAULTS = {
    "EIO": (FAIL, errno.EIO),
    "ENOSPC": (FAIL, errno.ENOSPC),
    "EDQUOT": (FAIL, errno.EDQUOT),
    "EINTR": (FAIL, errno.EINTR),
    "short": (SHORT, 0),
    "SIGKILL": (KILL_BEFORE, 0),
}
NEVER_REACHED = 1_000


def is_sensible(call: str, name: str) -> bool:
    """Only a write can be short."""
    return name != "short" or call == "write"


def fault_of(call: str, nth: int, name: str, *, lasting: bool) -> Fault:
    mode, error = FAULTS[name]
    if name == "SIGKILL":
        return Fault(call, nth, 1, KILL_AFTER if lasting else KILL_BEFORE, 0)
    count = MANY_TIMES if name == "EINTR" else FOR_EVER
    return Fault(call, nth, count if lasting else 1, mode, error)


def live_and_check(failing: Warm, root: Path, faults: list[Fault]) -> Outcome:
    """One case from an empty or prepared directory to the clean look afterwards."""
    before = prepare_torn_log(root) if faults[0].call == "ftruncate" else {}
    job = Job(task="faults:live_with_faults", arguments={"root": str(root), "faults": faults})
    outcome = failing.race([job])[0]
    assert outcome.status in {0, -9}, f"{faults}: {outcome.said('raised') or outcome.status}"
    try:
        workload.check(root, outcome.lines, before)
    except (AssertionError, nacre.StoreError) as error:
        error.add_note(
            f"{faults} answered {[(*step[:2], answer) for step, answer, _ in workload.answers(outcome.lines)]}"
        )
        raise
    shutil.rmtree(root, ignore_errors=True)
    return outcome


def prepare_torn_log(root: Path) -> dict[str, State]:
    """A session whose last line is torn, so that recovery has something to cut."""
    with nacre.open(root) as sessions:
        sessions.add_message("torn", "user", "t1")
    (log,) = (root / "sessions").glob("*.jsonl")
    with log.open("ab") as file:
        file.write(b'{"v":1,"n":3,"t":"msg","ts":"20')
    return {"torn": State(active=Generation(("t1",), ("t1",)))}


def until_it_is_no_longer_called(failing: Warm, root: Path, faults: Iterator[list[Fault]]) -> list[Outcome]:
    """Every case of a series, up to the first whose fault was never met."""
    outcomes: list[Outcome] = []
    for number, case in enumerate(itertools.islice(faults, NEVER_REACHED)):
        outcome = live_and_check(failing, root.with_name(f"case{number}"), case)
        if outcome.status == 0 and outcome.said("fired") == [0]:
            return outcomes
        outcomes.append(outcome)
    pytest.fail("the series does not end")


def steps_not_done(outcome: Outcome) -> int:
    unwell = [answer for _, answer, _ in workload.answers(outcome.lines) if answer in {"refused", "unknown"}]
    return len(unwell) + len(outcome.said("unopened"))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for_ever"])
@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call in CALLS for name in FAULTS if is_sensible(call, name)]
)
def test_a_failing_call_costs_nothing_acknowledged(
    failing: Warm, root: Path, campaign: bool, call: str, name: str, lasting: bool
) -> None:
    stride = 1 if campaign or name in {"EIO", "SIGKILL"} else 3
    cases = ([fault_of(call, nth, name, lasting=lasting)] for nth in itertools.count(1, stride))
    until_it_is_no_longer_called(failing, root, cases)


@pytest.mark.parametrize("call", CALLS)
def test_one_failing_call_costs_at_most_one_step(failing: Warm, root: Path, call: str) -> None:
    cases = ([Fault(call, nth, 1, FAIL, errno.EIO)] for nth in itertools.count(1))
    for outcome in until_it_is_no_longer_called(failing, root, cases):
        assert steps_not_done(outcome) <= 1


@pytest.mark.parametrize("count", [1, FOR_EVER])
def test_short_writes_are_completed(failing: Warm, root: Path, count: int) -> None:
    cases = ([Fault("write", nth, count, SHORT, 0)] for nth in itertools.count(1, 4))
    for outcome in until_it_is_no_longer_called(failing, root, cases):
        assert steps_not_done(outcome) == 0


def test_a_short_write_that_then_fails_is_rolled_back(failing: Warm, root: Path) -> None:
    cases = (
        [Fault("write", nth, 1, SHORT, 0), Fault("write", nth, 1, FAIL, errno.ENOSPC)] for nth in itertools.count(1)
    )
    for outcome in until_it_is_no_longer_called(failing, root, cases):
        assert steps_not_done(outcome) <= 1


@pytest.mark.parametrize("call", ["ftruncate", "fdatasync", "rename", "write"])
def test_a_roll_back_that_fails_too_is_never_taken_for_success(failing: Warm, root: Path, call: str) -> None:
    short = (Fault("write", nth, 1, SHORT, 0) for nth in itertools.count(1))
    cases = ([first, Fault(call, 1 if call != "write" else first.first, FOR_EVER, FAIL, errno.EIO)] for first in short)
    until_it_is_no_longer_called(failing, root, cases)


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open", "unlink"])
def test_a_rescue_that_fails_too_is_never_taken_for_success(failing: Warm, root: Path, call: str) -> None:
    flushes = (Fault("fdatasync", nth, 1, FAIL, errno.EIO) for nth in itertools.count(1))
    until_it_is_no_longer_called(
        failing, root, ([flush, Fault(call, flush.first, 2, FAIL, errno.EIO)] for flush in flushes)
    )


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open"])
def test_a_kill_during_a_rescue_costs_nothing_acknowledged(failing: Warm, root: Path, call: str) -> None:
    flushes = (Fault("fdatasync", nth, 1, FAIL, errno.EIO) for nth in itertools.count(1))
    cases = ([flush, Fault(call, flush.first + 1, 1, KILL_BEFORE, 0)] for flush in flushes)
    until_it_is_no_longer_called(failing, root, cases)
