"""What a turn did to files: `/diff` shows it, `/undo --files` takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Call, Reply, Request, echo
from tests.everyday.terminal import Screen
from tests.everyday.test_permissions import calling, shell, write

ALLOW = ("--allow", "write_file", "--allow", "edit_file", "--allow", "shell", "--allow", "delegate")
EDIT = Call("edit_file", {"path": "notes", "old_text": "old", "new_text": "changed"})


@pytest.fixture
def project(person: Person) -> Path:
    return person.trust(person.folder("project", notes="first\nold\nlast\n"))


def test_undo_files_takes_back_what_another_process_wrote(person: Person, project: Path) -> None:
    person.model.answer = calling(EDIT, write("new/file", "new\n"), write("new/file", "newer\n"))
    assert person.nacre("chat", *ALLOW, "change them", at=project).code == 0
    assert ((project / "notes").read_text(), (project / "new/file").read_text()) == (
        "first\nchanged\nlast\n",
        "newer\n",
    )
    with Screen(person, "chat", "-c", at=project, rows=50) as screen:
        screen.until("Result:")
        screen.say("/diff")
        screen.until("new/file (new)")
        assert "- old" in screen.text
        assert "+ changed" in screen.text
        assert "+ newer" in screen.text
        screen.say("/undo --files")
        screen.until("notes: restored")
        screen.until("new/file: removed, it was new")
        screen.until("/rewind back undoes")
        screen.type("\x15")
        assert screen.leave() == 0
    assert (project / "notes").read_text() == "first\nold\nlast\n"
    assert not (project / "new/file").exists()


def test_undo_files_leaves_what_was_changed_since_and_names_what_it_cannot_undo(person: Person, project: Path) -> None:
    person.model.answer = calling(EDIT, shell("echo x"))
    assert person.nacre("chat", *ALLOW, "change it", at=project).code == 0
    (project / "notes").write_text("mine\n")
    with Screen(person, "chat", "-c", at=project, rows=50) as screen:
        screen.until("Result:")
        screen.say("/undo --files")
        screen.until("notes: not changed, it was changed after this turn")
        screen.until("changes by shell cannot be undone")
        screen.type("\x15")
        assert screen.leave() == 0
    assert (project / "notes").read_text() == "mine\n"


def test_plain_undo_leaves_files_and_a_delegated_write_is_undone_with_its_turn(person: Person, project: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.last["role"] == "tool":
            return "Result: done"
        if "delegate" not in request.tools:
            return echo(request)
        return [EDIT if request.said.startswith("edit the notes") else Call("delegate", {"task": "edit the notes"})]

    person.model.answer = answer
    assert person.nacre("chat", *ALLOW, "change it", at=project).code == 0
    with Screen(person, "chat", "-c", at=project, rows=50) as screen:
        screen.until("Result:")
        screen.say("/undo")
        screen.until("/rewind back undoes")
        assert "changed" in (project / "notes").read_text()
        screen.type("\x15")
        screen.say("/rewind back")
        screen.until("the session is as it was before the rewind")
        screen.say("/undo --files")
        screen.until("notes: restored")
        screen.type("\x15")
        assert screen.leave() == 0
    assert (project / "notes").read_text() == "first\nold\nlast\n"


def test_copies_are_not_shown_to_the_model_and_are_erased_with_the_session(person: Person, project: Path) -> None:
    (project / "notes").write_text("ANCIENT " * 20_000)
    person.model.answer = calling(write("notes", "short"))
    key = person.ask(*ALLOW, "shorten it", at=project)["session"]
    person.model.answer = echo
    person.ask("-c", "and now?", at=project)
    assert not any("ANCIENT" in str(request.body) for request in person.model.requests)
    with person.sessions() as sessions:
        (copy,) = sessions.records(key, "x.file")
        assert (copy.data["path"], copy.data["before"]) == ("notes", "ANCIENT " * 20_000)
    assert person.nacre("sessions", "rm", key, "--permanent", "--yes").code == 0
    files = [file for file in person.store.rglob("*") if file.is_file()]
    assert not any(b"ANCIENT ANCIENT" in file.read_bytes() for file in files)


def test_undo_files_does_not_mention_a_command_that_was_refused(person: Person, project: Path) -> None:
    person.model.answer = calling(EDIT, shell("echo x > y"))
    person.nacre("chat", "--allow", "edit_file", "change it", at=project)
    with Screen(person, "chat", "-c", at=project, rows=50) as screen:
        screen.until("Result:")
        screen.say("/undo --files")
        screen.until("notes: restored")
        screen.until("/rewind back undoes")
        assert "cannot be undone" not in screen.text
        screen.type("\x15")
        assert screen.leave() == 0
