"""The list of sessions to resume, in a real terminal: for bare `-r`, for `/resume`, and where `-c` finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday.conftest import Person
from tests.everyday.terminal import CTRL_C, DOWN, ENTER, ESCAPE, TAB, UP, Screen


@pytest.fixture
def here(person: Person) -> Path:
    """A folder with two sessions; a third session belongs to another folder."""
    here, there = person.folder("here"), person.folder("there")
    said = (
        (there, "the weather in Lisbon"),
        (here, "a cake for Anna, with cherries"),
        (here, "the tax return of 2025"),
    )
    with person.sessions() as sessions:
        for number, (folder, words) in enumerate(said, 1):
            key = f"chat-20261101-120{number}-beef"
            sessions.add_message(key, "user", words)
            sessions.add_message(key, "assistant", f"You said: {words}")
            sessions.set_meta(key, title=words, cwd=str(folder))
    return here


def picker(person: Person, here: Path, *words: str, columns: int = 80) -> Screen:
    screen = Screen(person, "chat", "--trust", *(words or ("-r",)), columns=columns, at=here)
    screen.until("Resume a session of")
    screen.until("Esc")
    return screen


@pytest.mark.parametrize("columns", [40, 58, 80, 200])
def test_the_list_shows_title_age_and_folder_at_any_width(person: Person, here: Path, columns: int) -> None:
    with picker(person, here, columns=columns) as screen:
        assert "Resume a session of this folder (2)" in screen.text
        assert "> the tax return of 2025" in screen.text
        assert "just now" in screen.text
        assert "~/here · chat-" in screen.text
        assert "Lisbon" not in screen.text
        assert max(map(len, screen.lines)) <= columns
        screen.type(TAB)
        screen.until("Resume a session of every folder (3)")
        assert "~/there · chat-" in screen.text
        screen.type(TAB)
        screen.until_gone("Lisbon")


def test_the_arrows_move_and_enter_resumes(person: Person, here: Path) -> None:
    with picker(person, here) as screen:
        screen.type(DOWN + DOWN + UP + DOWN)
        screen.until("> a cake for Anna, with cherries")
        screen.type(ENTER)
        screen.until("You said: a cake for Anna, with cherries")
        screen.until_gone("Resume a session of")
        screen.say("and plums")
        screen.until("You said: and plums")
        assert screen.leave() == 0
    with person.sessions() as sessions:
        (key,) = [info.key for info in sessions.list() if info.title.startswith("a cake")]
    assert "and plums" in person.said(key)


def test_typing_filters_the_list(person: Person, here: Path) -> None:
    with picker(person, here) as screen:
        screen.type("CHERR cake")
        screen.until("this folder (1)")
        assert "tax return" not in screen.text
        screen.type(" zebra")
        screen.until("no session matches")
        screen.type("\x15tax")
        screen.until("> the tax return")
        screen.type(ENTER)
        screen.until("You said: the tax return of 2025")
        assert screen.leave() == 0


@pytest.mark.parametrize("key", [ESCAPE, CTRL_C])
def test_the_list_is_left_without_a_choice(person: Person, here: Path, key: str) -> None:
    with picker(person, here) as screen:
        screen.type(key)
        screen.until("no session was chosen")
        assert screen.code() == 1


def test_resume_in_a_conversation_shows_the_list(person: Person, here: Path) -> None:
    with Screen(person, "chat", "--trust", columns=40, at=here) as screen:
        screen.until("gemma4:e4b ·")
        screen.say("/resume")
        screen.until("Resume a session of this folder (2)")
        screen.type("cake")
        screen.until("> a cake")
        screen.type(ENTER)
        screen.until("You said: a cake for Anna, with cherries")
        screen.say("/resume")
        screen.until("Resume a session of")
        screen.type(ESCAPE)
        screen.until("no session was chosen")
        screen.say("and plums")
        screen.until("You said: and plums")
        assert screen.leave() == 0


@pytest.mark.usefixtures("here")
def test_continue_where_there_is_nothing_shows_the_list_of_every_folder(person: Person) -> None:
    with picker(person, person.folder("empty"), "-c") as screen:
        assert "there is no chat session of" in screen.words
        assert "Resume a session of every folder (3)" in screen.text
        screen.type("lisbon")
        screen.until("> the weather in Lisbon")
        screen.type(ENTER)
        screen.until("this session was started in")
        screen.until("You said: the weather in Lisbon")
        assert screen.leave() == 0


def test_without_a_line_editor_a_number_chooses_and_ctrl_c_leaves(person: Person, here: Path) -> None:
    with Screen(person, "chat", "--trust", "-r", at=here, TERM="dumb") as screen:
        screen.until("Resume which session?")
        screen.type(CTRL_C)
        screen.until("no session was chosen")
        screen.until_shell()
        screen.run("nacre", "chat", "--trust", "-r")
        screen.until_true(lambda: screen.scrollback.count("Resume which session?") == 2, "the list does not come")
        screen.say("1")
        screen.until("You said: the tax return of 2025")


def test_a_typed_title_is_first_whatever_is_newer(person: Person) -> None:
    here = person.folder("here")
    said = (("Tax", "first"), ("Tax return", "second"), ("return of the Tax", "third"), ("boats", "about a Tax return"))
    with person.sessions() as sessions:
        for number, (title, text) in enumerate(said, 1):
            key = f"chat-20261101-120{number}-beef"
            sessions.add_message(key, "user", text)
            sessions.add_message(key, "assistant", f"You said: {text}")
            sessions.set_meta(key, title=title, cwd=str(here))
    with picker(person, here) as screen:
        screen.type("tax return")
        screen.until("this folder (3)")
        shown = [line.strip("> ").split("  ")[0] for line in screen.lines if "just now" in line]
        assert shown == ["Tax return", "return of the Tax", "boats"]
        screen.type("\x15tax")
        screen.until("> Tax  ")
        screen.type(ENTER)
        screen.until("You said: first")
        assert screen.leave() == 0


def test_resume_says_where_a_session_belongs(person: Person, here: Path) -> None:
    with person.sessions() as sessions:
        sessions.add_message("telegram::42::7", "user", "from a phone")
        sessions.add_message("telegram::42::7", "assistant", "Hello.")
    with Screen(person, "chat", "--trust", at=here) as screen:
        screen.until("gemma4:e4b ·")
        screen.say("/sessions lisbon")
        screen.until("the weather in Lisbon · ~/there")
        screen.say("/resume the weather in Lisbon")
        screen.until("You said: the weather in Lisbon")
        screen.until("this session was started in")
        screen.say("/resume telegram::42::7")
        screen.until("this session belongs to the channel telegram")
        screen.say("/resume the tax return of 2025")
        screen.until("You said: the tax return of 2025")
        assert screen.leave() == 0
        assert screen.scrollback.count("this session was started in") == 1
