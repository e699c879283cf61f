"""Writers are killed at random moments, again and again; whatever was acknowledged is there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash import storm
from tests.crash.warm import Job, Warm

LONGEST_LIFE = 0.04
CYCLES_PER_STORE = 10
MORE_CYCLES = 200


def storm_over(warm: Warm, root: Path, *, writers: int, cycles: int, seed: int) -> set[str]:
    """Kill and look, `cycles` times, with a fresh store now and then; returns the kinds of file that came to be."""
    rng = random.Random(seed)
    kinds: set[str] = set()
    account = storm.Account()
    longest, cycle = LONGEST_LIFE, 0
    while cycle < cycles or (not account.announced and cycle < cycles + MORE_CYCLES):
        if cycle % CYCLES_PER_STORE == 0:
            if cycle and not account.announced:
                # On a busy machine every writer may be killed before it writes: they live longer from now on.
                longest = min(2 * longest, 60.0)
            shutil.rmtree(root, ignore_errors=True)
            account = storm.Account()
        jobs = [job(root, f"c{cycle}w{writer}", rng, longest) for writer in range(writers)]
        for outcome in warm.race(jobs):
            account.add(outcome)
        storm.check(root, account)
        kinds |= {file.parent.name for file in root.rglob("*.*")}
        cycle += 1
    assert account.announced
    return kinds


def job(root: Path, name: str, rng: random.Random, longest: float) -> Job:
    life = rng.uniform(0.002, longest)
    return Job(
        task="storm:write_until_killed",
        arguments=storm.arguments(root, name, rng.getrandbits(32)),
        kill_after=life,
    )


@pytest.mark.parametrize("seed", range(4))
def test_one_writer_killed_at_any_moment_loses_nothing(warm: Warm, root: Path, campaign: bool, seed: int) -> None:
    wanted = {"sessions", "archive", "cold"}
    kinds = storm_over(warm, root, writers=1, cycles=2_500 if campaign else 25, seed=seed)
    for more in range(1, 40):
        if not wanted <= kinds:
            # On a busy machine a writer may be killed before it has come to everything it can do.
            kinds |= storm_over(warm, root, writers=1, cycles=25, seed=seed + 1000 * more)
    assert wanted <= kinds


@pytest.mark.parametrize("seed", range(4))
def test_four_writers_killed_at_any_moment_lose_nothing(warm: Warm, root: Path, campaign: bool, seed: int) -> None:
    kinds = storm_over(warm, root, writers=4, cycles=500 if campaign else 10, seed=seed)
    assert "sessions" in kinds


def test_a_real_disk_under_the_storm_loses_nothing(warm: Warm, tmp_path: Path, campaign: bool) -> None:
    storm_over(warm, tmp_path / "store", writers=1, cycles=500 if campaign else 10, seed=9)
    storm_over(warm, tmp_path / "store", writers=4, cycles=100 if campaign else 5, seed=9)
