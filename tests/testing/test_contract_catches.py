"""The contract suite is proven by planted bugs: every check was seen to fail, and every bug to be caught."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre.testing.contract import (
    EARLIER_CONTRACT,
    FILES_CONTRACT,
    REOPEN_CONTRACT,
    SEARCH_CONTRACT,
    STORE_CONTRACT,
    UPKEEP_CONTRACT,
    name,
)
from tests.testing.planted import BUGS, AnyCheck, Bug

ON_FILES = (*REOPEN_CONTRACT, *SEARCH_CONTRACT, *FILES_CONTRACT)
CHECKS = (*STORE_CONTRACT, *UPKEEP_CONTRACT, *ON_FILES, *EARLIER_CONTRACT)


@pytest.mark.parametrize("check", CHECKS, ids=name)
def test_a_check_fails_on_the_bugs_planted_for_it_and_on_no_true_store(check: AnyCheck, root: Path) -> None:
    planted = [bug for bug in BUGS if check in bug.checks]
    assert planted, "plant a bug that this check catches, in tests/testing/planted"
    for bug in planted:
        # Not any error: a check that breaks does not say what it saw, and a bug must not be one of its own making.
        with pytest.raises((AssertionError, nacre.NacreError)):
            check(lambda bug=bug: bug.open(root / bug.name))
    check(lambda: nacre.open(root / "true" if check in ON_FILES else ":memory:"))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_planted_bug_is_caught(bug: Bug) -> None:
    assert bug.checks
    assert set(bug.checks) <= set(CHECKS)
