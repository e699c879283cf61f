"""Titles: from the first words, and in a conversation from the model, unless somebody gave one."""

from __future__ import annotations

import threading
from pathlib import Path
from subprocess import Popen

from tests.everyday.conftest import Person
from tests.everyday.model import Model, Reply, Request, echo
from tests.everyday.terminal import Screen

MADE = "Boats and their names"


def name_it(request: Request) -> Reply:
    """Answer a request for a title with one, and any other as usual."""
    return f'"{MADE}."' if "You name conversations" in request.system else echo(request)


def titles(person: Person) -> list[str]:
    return [item["title"] for item in person.nacre("sessions", "list", "--json").json["items"]]


def test_a_one_shot_question_is_the_title_and_the_model_is_not_asked_for_one(person: Person, model: Model) -> None:
    model.answer = name_it
    person.ask("three names for a boat, please")
    assert titles(person) == ["three names for a boat, please"]
    assert not [request for request in model.chats if "You name conversations" in request.system]


def test_in_a_conversation_the_model_names_the_session(person: Person, model: Model) -> None:
    model.answer = name_it
    with Screen(person, "chat", "--trust", at=person.folder("work")) as screen:
        screen.say("three names for a boat, please")
        screen.until("You said: three names")
        screen.until(MADE)
        assert screen.leave() == 0
    assert titles(person) == [MADE]


def test_titles_by_the_model_can_be_turned_off(person: Person, model: Model) -> None:
    model.answer = name_it
    person.config("[agent]\ntitles = false\n")
    with Screen(person, "chat", "--trust", at=person.folder("work")) as screen:
        screen.say("a boat")
        screen.until("You said: a boat")
        screen.say("and another")
        screen.until("You said: and another")
        assert screen.leave() == 0
    assert titles(person) == ["a boat"]


def test_a_title_that_a_person_gave_meanwhile_stays(person: Person, model: Model) -> None:
    def rename_first(request: Request) -> Reply:
        if "You name conversations" in request.system:
            assert person.nacre("sessions", "rename", "@last", "Mine").code == 0
        return name_it(request)

    model.answer = rename_first
    with Screen(person, "chat", "--trust", at=person.folder("work")) as screen:
        screen.say("a boat")
        screen.until("You said: a boat")
        screen.until_true(lambda: titles(person) == ["Mine"], "the session was not renamed")
        screen.say("and more")
        screen.until("You said: and more")
        assert screen.leave() == 0
    assert titles(person) == ["Mine"]


def start_and_hang(person: Person, model: Model, text: str, *, at: Path) -> tuple[Popen[str], threading.Event]:
    """Start a chat whose model does not answer before the event is set."""
    asked, may_answer = threading.Event(), threading.Event()

    def hang(request: Request) -> Reply:
        asked.set()
        may_answer.wait(100)
        return echo(request)

    model.answer = hang
    running = person.start("chat", text, at=at)
    assert asked.wait(100)
    return running, may_answer


def test_a_refused_continue_changes_nothing(person: Person, model: Model) -> None:
    here = person.folder("work")
    running, may_answer = start_and_hang(person, model, "alpha", at=here)
    assert titles(person) == ["alpha"]
    files = {path: path.read_bytes() for path in (person.store / "sessions").iterdir()}
    assert person.nacre("chat", "-c", "beta", at=here).code == 5
    assert {path: path.read_bytes() for path in (person.store / "sessions").iterdir()} == files
    may_answer.set()
    running.communicate()
    assert titles(person) == ["alpha"]


def test_a_chat_whose_first_turn_was_killed_keeps_its_title(person: Person, model: Model) -> None:
    here = person.folder("work")
    running, may_answer = start_and_hang(person, model, "alpha", at=here)
    running.kill()
    running.communicate()
    assert titles(person) == ["alpha"]
    model.answer = echo
    may_answer.set()
    person.ask("-c", "beta", at=here)
    assert titles(person) == ["alpha"]


def test_a_chat_without_a_title_is_named_after_its_first_message(person: Person) -> None:
    here = person.folder("work")
    with person.sessions() as sessions:
        sessions.set_meta("chat-20261101-1200-beef", cwd=str(here.resolve()))
        sessions.add_message("chat-20261101-1200-beef", "user", "alpha")
    person.ask("-c", "beta", at=here)
    assert titles(person) == ["alpha"]


def test_a_title_that_a_person_gave_is_kept_by_the_next_message(person: Person) -> None:
    here = person.folder("work")
    person.ask("alpha", at=here)
    assert person.nacre("sessions", "rename", "@last", "Mine").code == 0
    person.ask("-c", "beta", at=here)
    assert titles(person) == ["Mine"]
