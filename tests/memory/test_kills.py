"""Killed with SIGKILL before any call that changes a file, and started again: all is done once, nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.memory.agent_memory import Memory, NoSuchFact
from nacre.memory.store import KEY
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from tests.memory.scene import answer, days, facts, learn, memory, page, turn

MOST_CALLS = 600
CHANGING = frozenset(("write", "ftruncate", "rename", "link", "unlink", "mkdir", "fdatasync", "fsync"))


class Deadly(System):
    """The operating system, until its nth call that changes something."""

    def __init__(self, left: int) -> None:
        self._left = left

    def __getattribute__(self, name: str) -> Any:
        if name in CHANGING:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def killed_at(nth: int, act: Callable[[System], None]) -> bool:
    """Act in a child that is killed at its nth call; False if it came to its end before."""
    child = os.fork()
    if not child:
        try:
            act(Deadly(nth))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def consolidate(root: Path, system: System) -> None:
    """Learn from two turns, the second of which contradicts the first."""
    cities = [answer("", ("city", f"The user lives in {city}.")) for city in ("Berlin", "Lisbon")]
    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        known = len(memory(sessions, root / "workspace").days())
        answers = cities[known:]
        kept = memory(sessions, root / "workspace", *answers, system=system)
        kept.settle()
        learn(kept, "k")


def talk(root: Path) -> None:
    with nacre.open(root) as sessions:
        turn(sessions, "k", "I live in Berlin")
        turn(sessions, "k", "I live in Lisbon")


def test_each_turn_is_learned_from_once(root: Path) -> None:
    for nth in range(1, MOST_CALLS):
        place = root / str(nth)
        talk(place)
        if not killed_at(nth, lambda system, place=place: consolidate(place, system)):  # type: ignore[misc]
            assert nth > 25
            return
        consolidate(place, System())
        assert page(place / "workspace") == [
            "- ~~The user lives in Berlin.~~ [k 2]",
            "- The user lives in Lisbon. [k 4]",
        ]
        assert [line.rpartition("[")[2] for line in days(place / "workspace")] == ["k 2]", "k 4]"]
        with nacre.open(place) as sessions:
            assert len(list(sessions.records(KEY, "x.daily"))) == 2
            assert sessions.verify().ok
    pytest.fail("the child never came to its end")


def test_erasing_is_finished_by_whoever_comes_next_and_loses_nothing_else(root: Path) -> None:
    def forget(root: Path, system: System) -> None:
        with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
            memory(sessions, root / "workspace", system=system).forget_session("k")

    for nth in range(1, MOST_CALLS):
        place = root / str(nth)
        with nacre.open(place) as sessions:
            kept = memory(sessions, place / "workspace")
            kept.remember("Plums are ripe.", key="k")
            kept.remember("Figs are sweet.", key="other")
        was_killed = killed_at(nth, lambda system, place=place: forget(place, system))  # type: ignore[misc]
        forget(place, System())
        with nacre.open(place) as sessions:
            assert facts(memory(sessions, place / "workspace")) == ["Figs are sweet."]
            assert [info.key for info in sessions.list(prefix="nacre:", internal=True)] == [KEY]
        assert not holding(place, b"Plums"), f"killed at call {nth}"
        if not was_killed:
            assert nth > 40
            return
    pytest.fail("the child never came to its end")


def holding(root: Path, text: bytes) -> list[str]:
    """The files that still have a text in them."""
    return [str(path) for path in root.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_edits_are_taken_in_once(root: Path) -> None:
    def settle(root: Path, system: System) -> None:
        with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
            memory(sessions, root / "workspace", system=system).settle()

    for nth in range(1, MOST_CALLS):
        place = root / str(nth)
        file = place / "workspace" / "MEMORY.md"
        with nacre.open(place) as sessions:
            for fact in ("Plums are ripe.", "Figs are sweet.", "Pears are hard."):
                memory(sessions, place / "workspace").remember(fact)
        wanted = (
            file.read_text().replace("sweet", "very sweet").replace("- Plums are ripe.\n", "") + "\nMine\n- New one\n"
        )
        file.write_text(wanted)
        was_killed = killed_at(nth, lambda system, place=place: settle(place, system))  # type: ignore[misc]
        settle(place, System())
        assert file.read_text() == wanted, f"killed at call {nth}"
        with nacre.open(place) as sessions:
            assert facts(memory(sessions, place / "workspace")) == [
                "Figs are very sweet.",
                "Pears are hard.",
                "New one",
            ]
        if not was_killed:
            assert nth > 10
            return
    pytest.fail("the child never came to its end")


def act_on(root: Path, system: System, act: Callable[[Memory], object]) -> None:
    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions, suppress(NoSuchFact):
        act(memory(sessions, root / "workspace", system=system))


VERSIONS: list[tuple[str, Callable[[Memory], object], list[list[str]]]] = [
    (
        "replace",
        lambda kept: kept.remember("Lives in Lisbon.", subject="home"),
        [["Lives in Berlin."], ["Lives in Lisbon."]],
    ),
    ("restore", lambda kept: kept.restore("Paris"), [["Lives in Berlin."], ["Lives in Paris."]]),
    ("forget", lambda kept: kept.forget("Berlin"), [["Lives in Berlin."], []]),
    ("erase", lambda kept: kept.erase([kept.find("Berlin").id]), [["Lives in Berlin."], []]),
    (
        "confirm",
        lambda kept: kept.confirm("Always pay"),
        [["Lives in Berlin."], ["Lives in Berlin.", "Always pay at once."]],
    ),
]


@pytest.mark.parametrize(("name", "act", "states"), VERSIONS, ids=[name for name, _, _ in VERSIONS])
def test_a_change_that_is_killed_was_made_or_was_not(
    root: Path, name: str, act: Callable[[Memory], object], states: list[list[str]]
) -> None:
    source = root / "before"
    with nacre.open(source) as sessions:
        kept = memory(sessions, source / "workspace", answer("", ("pay", "Always pay at once.")))
        kept.remember("Lives in Paris.", subject="home")
        kept.remember("Lives in Berlin.", subject="home")
        turn(sessions, "k", "They wrote:\n> Always pay at once.")
        learn(kept, "k")
    for nth in range(1, MOST_CALLS):
        place = root / str(nth)
        shutil.copytree(source, place)
        was_killed = killed_at(nth, lambda system, place=place: act_on(place, system, act))  # type: ignore[misc]
        with nacre.open(place) as sessions:
            left = memory(sessions, place / "workspace")
            found = facts(left)
            left.settle()
            assert found == facts(left), f"killed at call {nth}"
            shown = [line for line in page(place / "workspace") if "~~" not in line and "[ ]" not in line]
            assert [line.removeprefix("- ").partition(" [")[0] for line in shown] == found
            assert sessions.verify().ok
        assert found in (states if was_killed else states[1:]), f"killed at call {nth}"
        shutil.rmtree(place)
        if not was_killed:
            return
    pytest.fail("the child never came to its end")
