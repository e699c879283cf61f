"""Every backend keeps the one contract that ships with the package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

import nacre
from nacre.testing import contract
from nacre.testing.contract import (
    EARLIER_CONTRACT,
    FILES_CONTRACT,
    REOPEN_CONTRACT,
    SEARCH_CONTRACT,
    STORE_CONTRACT,
    UPKEEP_CONTRACT,
    Check,
    EarlierCheck,
    name,
)
from tests import blocking

Places = dict[str, Callable[[Path], nacre.Sessions]]
PLACES: Places = {
    "files": nacre.open,
    "ram": lambda _: nacre.open(":memory:"),
    "files, async": lambda root: blocking.opened(lambda: nacre.open_async(root)),
    "ram, async": lambda _: blocking.opened(lambda: nacre.open_async(":memory:")),
}
EARLIER: dict[str, Callable[[Path], nacre.SessionStore]] = {
    **PLACES,
    "forgiving": lambda root: nacre.Forgiving(nacre.open(root)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("check", [*STORE_CONTRACT, *UPKEEP_CONTRACT], ids=name)
def test_a_store_keeps_the_contract(check: Check, place: str, root: Path) -> None:
    check(lambda: PLACES[place](root))


@pytest.mark.parametrize("place", ["files", "files, async"])
@pytest.mark.parametrize("check", [*REOPEN_CONTRACT, *SEARCH_CONTRACT, *FILES_CONTRACT], ids=name)
def test_files_keep_the_contracts_of_reopening_of_searching_and_of_files(check: Check, place: str, root: Path) -> None:
    check(lambda: PLACES[place](root))


@pytest.mark.parametrize("place", EARLIER)
@pytest.mark.parametrize("check", EARLIER_CONTRACT, ids=name)
def test_a_store_keeps_the_contract_of_the_earlier_systems(check: EarlierCheck, place: str, root: Path) -> None:
    check(lambda: EARLIER[place](root))


def test_every_check_is_in_a_contract() -> None:
    written = {
        function
        for function_name, function in inspect.getmembers(contract, inspect.isfunction)
        if function.__module__ == contract.__name__ and not function_name.startswith("_") and function is not name
    }
    durable = {*REOPEN_CONTRACT, *SEARCH_CONTRACT, *UPKEEP_CONTRACT, *FILES_CONTRACT}
    assert written == {*STORE_CONTRACT, *durable, *EARLIER_CONTRACT}


def test_a_check_that_fails_says_what_it_saw(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "left over")
    with pytest.raises(AssertionError, match=r"left over.*want \[\]"):
        contract.an_unknown_key_reads_as_empty(lambda: nacre.open(root))
