"""What people do to the pages: every edit is taken in, and nothing that they wrote is overwritten."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.memory.agent_memory import Memory
from nacre.sessions import Sessions
from nacre.storage.system import System
from tests.memory.scene import answer, days, facts, learn, memory, page, turn

FACTS = ("The cat is called Tom.", "Tea is taken without milk.", "The office is in Porto.")


@pytest.fixture
def kept(sessions: Sessions, folder: Path) -> Memory:
    """A memory with three facts on its page."""
    made = memory(sessions, folder)
    for fact in FACTS:
        made.remember(fact)
    return made


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "MEMORY.md"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_changed_line_is_a_changed_fact(kept: Memory, folder: Path) -> None:
    change(folder, "Porto", "Braga")
    assert facts(kept) == [*FACTS[:2], "The office is in Braga."]
    kept.settle()
    assert facts(kept) == [*FACTS[:2], "The office is in Braga."]
    assert page(folder)[2] == "- The office is in Braga."


def test_a_changed_line_keeps_where_it_was_learned(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    kept = memory(sessions, folder, answer("", ("", "Moved to Lisbon")))
    learn(kept, "k")
    change(folder, "- Moved to Lisbon [k 2]", "- Moved with the whole family to Lisbon, in May [k 2]")
    kept.settle()
    line = kept.find("Lisbon")
    assert line.source is not None
    assert (line.source.key, line.source.n) == ("k", 2)


def test_an_added_line_is_a_fact_in_its_place(kept: Memory, folder: Path) -> None:
    change(folder, "- Tea", "* Bread is rye\n- Tea")
    kept.settle()
    assert facts(kept) == [FACTS[0], "Bread is rye", *FACTS[1:]]
    kept.remember("The bus is number 7")
    assert page(folder)[1:] == ["* Bread is rye", f"- {FACTS[1]}", f"- {FACTS[2]}", "- The bus is number 7"]


def test_a_removed_line_is_forgotten_and_not_learned_again(kept: Memory, sessions: Sessions, folder: Path) -> None:
    change(folder, f"- {FACTS[1]}\n", "")
    kept.settle()
    assert facts(kept) == [FACTS[0], FACTS[2]]
    turn(sessions, "k", "tea is taken without milk")
    learn(memory(sessions, folder, answer("", ("", FACTS[1]))), "k")
    assert facts(kept) == [FACTS[0], FACTS[2]]


def test_headings_prose_and_blank_lines_stay_where_they_are(kept: Memory, folder: Path) -> None:
    change(folder, "# Memory", "# All about me\n\nI wrote this.")
    change(folder, "- Tea", "\n## Drinks\n\n- Tea")
    wanted = (folder / "MEMORY.md").read_text()
    kept.settle()
    assert (folder / "MEMORY.md").read_text() == wanted
    assert facts(kept) == list(FACTS)
    kept.remember("The bus is number 7")
    assert (folder / "MEMORY.md").read_text() == f"{wanted}- The bus is number 7\n"


def test_a_line_struck_through_by_a_person_no_longer_holds(kept: Memory, folder: Path) -> None:
    change(folder, f"- {FACTS[0]}", f"- ~~{FACTS[0]}~~")
    kept.settle()
    assert facts(kept) == list(FACTS[1:])
    assert page(folder)[0] == f"- ~~{FACTS[0]}~~"


def test_lines_in_another_order_are_the_same_facts(kept: Memory, folder: Path) -> None:
    file = folder / "MEMORY.md"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], lines[6], lines[5], lines[4]]))
    kept.settle()
    assert facts(kept) == [FACTS[2], FACTS[1], FACTS[0]]


def test_a_page_that_was_deleted_comes_back(kept: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").unlink()
    kept.settle()
    assert facts(kept) == list(FACTS)
    assert len(page(folder)) == 3


def test_a_page_that_was_emptied_stays_empty(kept: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").write_text("")
    kept.settle()
    assert facts(kept) == []


def test_a_page_that_is_made_before_there_is_a_fact_gets_its_head(sessions: Sessions, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").touch()
    memory(sessions, folder).settle()
    assert (folder / "MEMORY.md").read_text().startswith("# Memory\n")


def test_a_page_stays_when_nothing_is_left_on_it(kept: Memory, sessions: Sessions, folder: Path) -> None:
    for fact in FACTS:
        kept.forget(fact)
    memory(sessions, folder).settle()
    assert page(folder) == []


def test_a_page_that_was_there_before_is_taken_in(sessions: Sessions, folder: Path) -> None:
    folder.mkdir(parents=True)
    text = "# My notes\n\n- I like figs\nand plums\n"
    (folder / "MEMORY.md").write_text(text)
    kept = memory(sessions, folder)
    kept.settle()
    assert (folder / "MEMORY.md").read_text() == text
    assert facts(kept) == ["I like figs"]


def test_without_what_was_last_written_no_line_counts_as_taken_out(
    kept: Memory, sessions: Sessions, folder: Path
) -> None:
    (folder / "memory" / ".rendered" / "MEMORY.json").write_text("{")
    change(folder, f"- {FACTS[1]}\n", "- Coffee is fine too\n")
    again = memory(sessions, folder)
    again.settle()
    assert set(facts(again)) == {*FACTS, "Coffee is fine too"}


def test_another_store_takes_over_what_is_on_the_page(kept: Memory, root: Path, folder: Path) -> None:
    with nacre.open(root / "other") as others:
        other = memory(others, folder)
        other.settle()
        assert facts(other) == list(FACTS)
        assert len(page(folder)) == 3


@pytest.mark.parametrize("content", [b"\xff\xfe\x00 not text", b"x" * (17 << 20)])
def test_a_page_that_is_no_text_is_left_as_it_is(kept: Memory, folder: Path, content: bytes) -> None:
    (folder / "MEMORY.md").write_bytes(content)
    kept.remember("The bus is number 7")
    assert (folder / "MEMORY.md").read_bytes() == content
    assert len(facts(kept)) == 4


def test_a_page_behind_a_link_stays_behind_it(kept: Memory, folder: Path) -> None:
    (folder / "MEMORY.md").rename(folder / "notes.md")
    (folder / "MEMORY.md").symlink_to(folder / "notes.md")
    kept.remember("The bus is number 7")
    assert (folder / "MEMORY.md").is_symlink()
    assert "number 7" in (folder / "notes.md").read_text()


def test_line_ends_of_another_system_are_no_edit(kept: Memory, folder: Path) -> None:
    text = (folder / "MEMORY.md").read_text()
    (folder / "MEMORY.md").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    kept.settle()
    assert facts(kept) == list(FACTS)


def test_an_edited_day_is_taken_in(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "sort the invoices")
    kept = memory(sessions, folder)
    learn(kept, "k")
    [file] = (folder / "memory").glob("*.md")
    file.write_text(file.read_text().replace("sort the invoices", "invoices done") + "\nA good day.\n")
    kept.settle()
    turn(sessions, "k", "next")
    learn(kept, "k")
    assert "invoices done" in days(folder)[0]
    assert "A good day." in file.read_text()
    assert len(kept.days()) == 2


def test_a_conflict_keeps_both(kept: Memory, sessions: Sessions, folder: Path) -> None:
    first = kept.remember("The user lives in Berlin.", subject="home")
    change(folder, "lives in Berlin", "lives in Bern")
    other = memory(sessions, folder, answer("", ("home", "The user lives in Lisbon.")))
    turn(sessions, "k", "I live in Lisbon")
    learn(other, "k")
    assert facts(kept)[3:] == ["The user lives in Bern.", "The user lives in Lisbon."]
    assert first.id not in {line.id for line in kept.list()}


class Saving(System):
    """The operating system, with a person who saves the page before one of its calls."""

    def __init__(self, at: int, save: Callable[[], None]) -> None:
        self._left = at
        self._save = save

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._left -= 1
            if not self._left:
                self._save()
        return super().__getattribute__(name)


@pytest.mark.parametrize("by_name", [False, True])
def test_nothing_saved_at_any_moment_is_lost(root: Path, by_name: bool) -> None:
    saved = 0
    for at in range(1, 200):
        folder = root / str(at)
        sessions = nacre.open(":memory:")
        file = folder / "MEMORY.md"
        memory(sessions, folder).remember("The cat is called Tom.")

        def save(file: Path = file) -> None:
            nonlocal saved
            saved += 1
            text = file.read_text() if file.exists() else ""
            target = file.with_name("other") if by_name else file
            target.write_text(f"{text}- I was here.\n")
            if by_name:
                target.rename(file)

        busy = memory(sessions, folder, system=Saving(at, save))
        busy.remember(f"Thing {at} is new.")
        memory(sessions, folder).settle()
        assert saved < at or "- I was here." in page(folder), f"saved before call {at}"
        if saved < at:
            assert saved > 20
            return
    pytest.fail("there was no end to it")


class Filling(System):
    """The operating system, with a sandbox that once finds no page, and makes an empty one to cover it."""

    def __init__(self) -> None:
        self._is_left = True

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old.endswith("/MEMORY.md") and self._is_left:
            self._is_left = False
            Path(old).touch()


def test_an_empty_page_that_is_made_while_it_is_written_takes_nothing_out(
    kept: Memory, sessions: Sessions, folder: Path
) -> None:
    memory(sessions, folder, system=Filling()).remember("The bus is number 7")
    kept.settle()
    assert facts(kept) == [*FACTS, "The bus is number 7"]
    assert len(page(folder)) == 4


def test_random_edits_are_kept_line_by_line(sessions: Sessions, folder: Path) -> None:
    rng = random.Random(7)
    kept = memory(sessions, folder)
    for step in range(60):
        kept.remember(f"Machine fact number {step} here.")
        file = folder / "MEMORY.md"
        lines = file.read_text().splitlines()
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(lines) + 1)
            operation = rng.choice(["add", "add", "drop", "change", "swap", "blank"])
            if operation == "add":
                lines.insert(at, rng.choice(["- ", "", "## "]) + f"mine {rng.random()}")
            elif operation == "blank":
                lines.insert(at, "")
            elif at < len(lines):
                if operation == "drop":
                    del lines[at]
                elif operation == "change":
                    lines[at] += " indeed"
                else:
                    lines[at], lines[-1] = lines[-1], lines[at]
        file.write_text("".join(f"{line}\n" for line in lines))
        kept.settle()
        assert file.read_text().splitlines() == lines
    assert facts(memory(sessions, folder)) == facts(kept)
