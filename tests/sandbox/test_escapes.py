"""Every attempt fails in every sandbox, as root and as an ordinary user; without one, they succeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.attempts import ATTEMPTS, FATAL, FREE
from tests.sandbox.campaign import PYTHON
from tests.sandbox.places import usable

NOBODY = 65534
USERS = [0, NOBODY] if os.getuid() == 0 else [os.getuid()]
CAMPAIGN = Path(__file__).with_name("campaign.py")

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"the attempts need {PYTHON}")


def campaign(kind: str, user: int, names: list[str]) -> dict[str, str]:
    root = CAMPAIGN.parents[2]
    done = subprocess.run(
        [sys.executable, "-B", str(CAMPAIGN), kind, str(user), ",".join(names)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd="/",
        env={**os.environ, "NACRE_TEST_TOKEN": "SECRET", "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, str] = json.loads(done.stdout)
    return results


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 40


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", ["bwrap", "landlock"])
def test_no_attempt_gets_out(kind: str, user: int) -> None:
    usable(kind)
    results = campaign(kind, user, list(ATTEMPTS))
    escaped = {name: result for name, result in results.items() if not result.startswith("held")}
    assert {name: result for name, result in escaped.items() if name not in FATAL or result != "died of 31"} == {}
    assert len(results) == len(ATTEMPTS)


@pytest.mark.parametrize("user", USERS)
def test_without_a_sandbox_the_same_attempts_succeed(user: int) -> None:
    results = campaign("off", user, sorted(FREE))
    assert {name for name, result in results.items() if result != "ESCAPED"} == set()
    assert set(results) == FREE
