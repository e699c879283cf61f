"""A day's page grows at its end: a turn writes one line, and whatever interrupts that, the line is there once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nacre
from nacre.memory.agent_memory import Memory
from nacre.sessions import Sessions
from nacre.storage.system import System
from tests.memory.scene import answer, days, learn, memory, turn


class Counting(System):
    """The operating system, which counts the bytes that are written, and stops for good after so many."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.written, self._most = 0, limit

    def write(self, fd: int, data: bytes | memoryview) -> int:
        left = self._most - self.written
        self.written += super().write(fd, data[: max(left, 0)]) if left > 0 else 0
        if len(data) > left:
            raise OSError(28, "No space left on device")
        return len(data)


@contextmanager
def remembering(root: Path, system: System | None = None) -> Iterator[tuple[Sessions, Memory]]:
    with nacre.open(root) as sessions:
        kept = memory(sessions, root / "home", system=system)
        kept.begin()
        yield sessions, kept


def talk(root: Path, count: int) -> None:
    with remembering(root) as (sessions, kept):
        for number in range(count):
            turn(sessions, "k", f"Tell me about oyster {number}")
        learn(kept, "k")


def cost_of_a_turn(root: Path) -> int:
    system = Counting()
    with remembering(root, system) as (sessions, kept):
        before = system.written
        turn(sessions, "k", "Tell me about pearls")
        learn(kept, "k")
        return system.written - before


def test_a_turn_costs_as_much_late_in_the_day_as_early(root: Path) -> None:
    talk(root, 3)
    early = cost_of_a_turn(root)
    talk(root, 30)
    assert cost_of_a_turn(root) <= 1.1 * early < 500


def test_wherever_it_is_cut_off_each_line_is_on_the_page_once(root: Path) -> None:
    talk(root / "first", 3)
    with nacre.open(root / "first") as sessions:
        turn(sessions, "k", "Tell me about pearls")
    shutil.copytree(root / "first", root / "whole")
    # The first characters have one byte and several; after them, here and there.
    for most in (*range(40), *range(40, cost_of_a_turn(root / "whole"), 7)):
        place = root / str(most)
        shutil.copytree(root / "first", place)
        with nacre.open(place) as sessions:
            learn(memory(sessions, place / "home", system=Counting(most)), "k")
            # The next start knows nothing of what went wrong.
            kept = memory(sessions, place / "home")
            kept.settle()
            assert [line.rpartition("[")[2] for line in days(place / "home")] == ["k 2]", "k 4]", "k 6]", "k 8]"]
            assert len(list(kept.days())) == 4
            turn(sessions, "k", "Tell me more")
            learn(kept, "k")
            assert len(days(place / "home")) == 5


def test_what_a_person_adds_and_what_we_add_are_both_kept(root: Path) -> None:
    talk(root, 2)
    (file,) = (root / "home" / "memory").glob("*.md")
    file.write_text(file.read_text() + "- a note of mine")
    talk(root, 1)
    talk(root, 1)
    lines = days(root / "home")
    assert len(lines) == 5
    assert lines.count("- a note of mine") == 1


def test_a_line_that_a_person_takes_out_after_it_was_appended_stays_out(root: Path) -> None:
    talk(root, 3)
    (file,) = (root / "home" / "memory").glob("*.md")
    *others, _ = file.read_text().splitlines(keepends=True)
    file.write_text("".join(others))
    talk(root, 1)
    assert [line.rpartition("[")[2] for line in days(root / "home")] == ["k 2]", "k 4]", "k 8]"]


def test_a_page_that_may_not_be_written_is_replaced(root: Path) -> None:
    class Refusing(System):
        def open(self, path: str, flags: int, mode: int = 0o777) -> int:
            if path.endswith(".md") and flags & os.O_APPEND:
                raise PermissionError(13, "Permission denied", path)
            return super().open(path, flags, mode)

    talk(root, 2)
    with remembering(root, Refusing()) as (sessions, kept):
        turn(sessions, "k", "Tell me about pearls")
        learn(kept, "k")
    assert len(days(root / "home")) == 3


def test_a_page_that_is_taken_away_before_it_is_appended_to_is_written_again(root: Path) -> None:
    class Racing(System):
        is_done = False

        def open(self, path: str, flags: int, mode: int = 0o777) -> int:
            if path.endswith(".md") and flags & os.O_APPEND and not self.is_done:
                self.is_done = True
                Path(path).unlink()
            return super().open(path, flags, mode)

    talk(root, 2)
    system = Racing()
    with remembering(root, system) as (sessions, kept):
        turn(sessions, "k", "Tell me about pearls")
        learn(kept, "k")
    assert system.is_done
    assert len(days(root / "home")) == 3


def test_a_page_that_is_saved_in_place_before_it_is_appended_to_is_read_again(root: Path) -> None:
    class Racing(System):
        is_done = False

        def open(self, path: str, flags: int, mode: int = 0o777) -> int:
            if path.endswith(".md") and flags & os.O_APPEND and not self.is_done:
                self.is_done = True
                with Path(path).open("a") as file:
                    file.write("- a note of mine\n")
            return super().open(path, flags, mode)

    talk(root, 2)
    with remembering(root, Racing()) as (sessions, kept):
        turn(sessions, "k", "Tell me about pearls")
        learn(kept, "k")
    lines = days(root / "home")
    assert len(lines) == 4
    assert lines.count("- a note of mine") == 1


def test_facts_are_appended_too_and_one_that_is_struck_through_is_not_left_as_it_was(root: Path) -> None:
    with nacre.open(root) as sessions:
        kept = memory(sessions, root / "home", answer("", ("city", "The user lives in Berlin.")),
                      answer("", ("city", "The user lives in Lisbon.")))  # fmt: skip
        kept.begin()
        for city in ("Berlin", "Lisbon"):
            turn(sessions, "k", f"I live in {city}")
            learn(kept, "k")
    text = (root / "home" / "MEMORY.md").read_text()
    assert "- ~~The user lives in Berlin.~~ [k 2]\n- The user lives in Lisbon. [k 4]\n" in text
