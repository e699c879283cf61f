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
LONGEST_LIFE = 0.06


def storm_over(warm: Warm, root: Path, *, kills: int, seed: int) -> dict[str, int]:
    """Kill four at a time and look, with a new store now and then; returns how often each step was acknowledged."""
    rng = random.Random(seed)
    done = dict.fromkeys(generations.STEPS, 0)
    account, longest = generations.Account(), LONGEST_LIFE
    for cycle in range(kills // PROCESSES):
        if cycle % CYCLES_PER_STORE == 0:
            if cycle and not any(step.answer == "done" and step.label.startswith("c") for step in account.steps):
                # On a busy machine every process may be killed before it has done anything: they live longer now.
                longest = min(2 * longest, 60.0)
            shutil.rmtree(root, ignore_errors=True)
            account = generations.Account()
        jobs = [job(root, f"c{cycle}p{process}", rng, longest) for process in range(PROCESSES)]
        before = len(account.steps)
        account.add(warm.race(jobs))
        for step in account.steps[before:]:
            done[step.kind] += step.answer == "done"
        generations.check(root, account, cycle=cycle, doomed=rng.choice(generations.KEYS))
    return done


def job(root: Path, name: str, rng: random.Random, longest: float) -> Job:
    arguments = {"root": str(root), "name": name, "seed": rng.getrandbits(32)}
    return Job(task="generations:live", arguments=arguments, kill_after=rng.uniform(0.004, longest))


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_brings_nothing_back_and_leaves_nothing_behind(
    warm: Warm, root: Path, campaign: bool, seed: int
) -> None:
    done = storm_over(warm, root, kills=2_500 if campaign else 60, seed=seed)
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
