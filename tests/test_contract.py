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

FACES: dict[str, Callable[[str], nacre.Sessions]] = {
    "plain": nacre.open,
    "async": lambda place: blocking.opened(lambda: nacre.open_async(place)),
}
EARLIER: dict[str, Callable[[str], nacre.SessionStore]] = {
    **FACES,
    "forgiving": lambda place: nacre.Forgiving(nacre.open(place)),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", [*STORE_CONTRACT, *UPKEEP_CONTRACT], ids=name)
def test_a_store_keeps_the_contract(check: Check, place: str, face: str) -> None:
    check(lambda: FACES[face](place))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", [*REOPEN_CONTRACT, *SEARCH_CONTRACT], ids=name)
def test_a_place_that_lasts_keeps_the_contracts_of_reopening_and_of_searching(
    check: Check, lasting_place: str, face: str
) -> None:
    check(lambda: FACES[face](lasting_place))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", FILES_CONTRACT, ids=name)
def test_files_keep_the_contract_of_files(check: Check, root: Path, face: str) -> None:
    check(lambda: FACES[face](str(root)))


@pytest.mark.parametrize("face", EARLIER)
@pytest.mark.parametrize("check", EARLIER_CONTRACT, ids=name)
def test_a_store_keeps_the_contract_of_the_earlier_systems(check: EarlierCheck, place: str, face: str) -> None:
    check(lambda: EARLIER[face](place))


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
