"""Four processes archive, unarchive, fork, delete and write the same keys, and are killed at random moments."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash import generations
from tests.crash.warm import Job, Warm

PROCESSES = 4
CYCLES_PER_STORE = 12
MOST_CALLS = 600


def storm_over(warm: Warm, root: Path, *, kills: int, seed: int) -> dict[str, int]:
    """Kill four at a time and look, with a new store now and then; returns how often each step was acknowledged."""
    rng = random.Random(seed)
    done = dict.fromkeys(generations.STEPS, 0)
    account = generations.Account()
    for cycle in range(kills // PROCESSES):
        if cycle % CYCLES_PER_STORE == 0:
            shutil.rmtree(root, ignore_errors=True)
            account = generations.Account()
        before = len(account.steps)
        account.add(warm.race([job(root, f"c{cycle}p{process}", rng) for process in range(PROCESSES)]))
        for step in account.steps[before:]:
            done[step.kind] += step.answer == "done"
        generations.check(root, account, cycle=cycle, doomed=rng.choice(generations.KEYS))
    return done


def job(root: Path, name: str, rng: random.Random) -> Job:
    """A process that is killed before one of its system calls, chosen at random."""
    calls = rng.randrange(1, MOST_CALLS)
    arguments = {"root": str(root), "name": name, "seed": rng.getrandbits(32), "calls": calls}
    return Job(task="generations:live", arguments=arguments)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_brings_nothing_back_and_leaves_nothing_behind(
    warm: Warm, root: Path, campaign: bool, seed: int
) -> None:
    done = storm_over(warm, root, kills=2_500 if campaign else 40, seed=seed)
    assert sum(done.values())


@pytest.mark.parametrize("seed", range(2))
def test_nobody_waits_for_ever(warm: Warm, root: Path, campaign: bool, seed: int) -> None:
    rng = random.Random(seed)
    account = generations.Account()
    for cycle in range(20 if campaign else 1):
        jobs = [
            Job(
                task="generations:live",
                arguments={"root": str(root), "name": f"r{cycle}p{process}", "seed": rng.getrandbits(32), "steps": 150},
            )
            for process in range(PROCESSES)
        ]
        outcomes = warm.race(jobs)
        assert [outcome.status for outcome in outcomes] == [0] * PROCESSES, [out.said("raised") for out in outcomes]
        account.add(outcomes)
        generations.check(root, account, cycle=cycle, doomed=rng.choice(generations.KEYS))
