"""Two machines with one database: one memory, and on each machine pages that show it and may be edited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.memory.store import MEMORY_PAGE, FactStore, Line
from nacre.sessions import Sessions
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.storage.system import System
from tests.memory.scene import answer, facts, learn, memory, page, turn


@pytest.fixture
def both(database: str) -> Iterator[tuple[Sessions, Sessions]]:
    init(parse(database))
    with nacre.open(database) as one, nacre.open(database) as other:
        yield one, other


def test_what_one_machine_learns_the_other_recalls_and_shows(both: tuple[Sessions, Sessions], tmp_path: Path) -> None:
    one, other = both
    first = memory(one, tmp_path / "one", answer("", ("home", "Lives in Lisbon")))
    second = memory(other, tmp_path / "other")
    turn(one, "k", "I live in Lisbon")
    assert learn(first, "k") == 1
    assert "Lives in Lisbon" in second.recall("Where do I live?", tokens=500)
    second.settle()
    assert page(tmp_path / "other") == page(tmp_path / "one") != []


def test_a_turn_is_learned_from_once(both: tuple[Sessions, Sessions], tmp_path: Path) -> None:
    one, other = both
    said = answer("", ("home", "Lives in Lisbon"))
    kept = [memory(sessions, tmp_path / str(at), said) for at, sessions in enumerate(both)]
    turn(one, "k", "I live in Lisbon")
    assert [learn(each, "k") for each in kept] == [1, 0]
    assert facts(kept[1]) == ["Lives in Lisbon"]
    assert other.get_history("k") == one.get_history("k")


def test_edits_of_the_pages_of_two_machines_are_both_kept(both: tuple[Sessions, Sessions], tmp_path: Path) -> None:
    kept = [memory(sessions, tmp_path / str(at)) for at, sessions in enumerate(both)]
    kept[0].remember("Likes figs")
    for each in kept:
        each.settle()
    for at, text in enumerate(("Likes pears", "Likes plums")):
        with (tmp_path / str(at) / "MEMORY.md").open("a") as file:
            file.write(f"- {text}\n")
    for each in (*kept, *kept):
        each.settle()
    assert sorted(facts(kept[0])) == sorted(facts(kept[1])) == ["Likes figs", "Likes pears", "Likes plums"]
    assert page(tmp_path / "0") == page(tmp_path / "1")


def test_one_that_was_stopped_while_it_changed_memory_changes_nothing_more(both: tuple[Sessions, Sessions]) -> None:
    store = FactStore(both[0], System())
    line = Line(id="a1", page=MEMORY_PAGE, text="Likes figs", at="2026-01-01T00:00:00Z")
    with store.hold():
        store.write([line])
        both[1].hold("nacre:memory.lock").take_over()
        with pytest.raises(nacre.LeaseLost):
            store.write([line])
        with pytest.raises(nacre.LeaseLost):
            store.erase({"a1"})
    assert [found.text for found in FactStore(both[1], System()).read().facts] == ["Likes figs"]
