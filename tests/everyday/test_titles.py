"""Titles: from the first words, and in a conversation from the model, unless somebody gave one."""

from __future__ import annotations

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
