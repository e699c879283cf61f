"""On a simulated disk, nothing acknowledged is ever lost and nothing is half done, wherever the power is cut."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest

from nacre.testing import Fault
from nacre.testing.disk import Mode
from tests.crash import simulation

CHUNKS = 8
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every crash that is recovered from would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    simulation.blobs_from(0)


def until(campaign: bool, few: int, many: int) -> int:
    """How many images this chunk must try."""
    return (many if campaign else few) // CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_power_cut_before_any_call_loses_nothing(chunk: int, *, campaign: bool) -> None:
    tried, seed = 0, chunk
    while tried < until(campaign, 12_000, 700_000):
        tried += simulation.power_cuts(seed)
        seed += CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_power_cut_in_a_batch_of_many_callers_leaves_whole_units(chunk: int, *, campaign: bool) -> None:
    tried, seed = 0, chunk
    while tried < until(campaign, 6_000, 200_000):
        tried += simulation.torn_batches(seed)
        seed += CHUNKS


def test_a_refused_batch_of_many_callers_leaves_nothing_behind() -> None:
    assert sum(simulation.refused_batches(seed) for seed in range(40)) >= 40


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_then_continued_by_another_then_power_cut_loses_nothing(chunk: int, *, campaign: bool) -> None:
    tried, seed = 0, chunk
    while tried < until(campaign, 2_000, 100_000):
        tried += simulation.kills(seed)
        seed += CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_failing_call_refuses_or_says_that_it_does_not_know(chunk: int, *, campaign: bool) -> None:
    faults: list[tuple[Mode, int]] = [("error", code) for code in ERRORS]
    faults += [("short", errno.ENOSPC), ("short", errno.EIO), ("kill", 0)]
    tried, seed = 0, chunk
    while tried < until(campaign, 2_400, 100_000):
        plans = (
            Fault(call="*", nth=nth, errno=code, count=count, mode=mode)
            for nth in range(1, simulation.calls(seed) + 1)
            for mode, code in faults[(nth + seed) % 3 :: 3]
            for count in (1, None)
        )
        tried += simulation.failing_calls(seed, plans)
        seed += CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_relaxed_session_loses_only_what_was_not_yet_flushed(chunk: int, *, campaign: bool) -> None:
    tried, seed = 0, chunk
    while tried < until(campaign, 2_000, 60_000):
        tried += simulation.relaxed_cuts(seed)
        seed += CHUNKS
