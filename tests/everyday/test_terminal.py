"""`nacre chat` in a real terminal, through an emulator: what a person sees, at any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Call, Model, Reply, Request, Thinking
from tests.everyday.terminal import (
    ALT_ENTER,
    BACKSPACE,
    CTRL_C,
    CTRL_D,
    CTRL_E,
    CTRL_R,
    CTRL_U,
    CTRL_X,
    ENTER,
    TAB,
    Screen,
)

WIDTHS = (40, 58, 80, 200)


def chat(person: Person, columns: int = 80, rows: int = 24, at: Path | None = None, **env: str) -> Screen:
    """Begin a conversation in a trusted folder, and wait until the prompt is there."""
    folder = at or person.folder("project")
    screen = Screen(person, "chat", "--trust", columns=columns, rows=rows, at=folder, **env)
    screen.until_true(lambda: screen.lines and "gemma4:e4b ·" in screen.lines[-1], "there is no footer")
    return screen


def call_once(model: Model, name: str, **arguments: str) -> None:
    """Let the model answer everything with a call, and tell what came of it."""

    def answer(request: Request) -> Reply:
        return f"It said: {request.said}" if request.last["role"] == "tool" else [Call(name, arguments)]

    model.answer = answer


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_conversation_fits_the_screen_at_any_width(person: Person, columns: int) -> None:
    with chat(person, columns) as screen:
        screen.say("hello 世界")
        screen.until("You said: hello 世界")
        assert max(map(len, screen.lines)) <= columns
        assert screen.leave() == 0


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_first_screen_says_what_this_is_and_how_to_get_help(person: Person, columns: int) -> None:
    with chat(person, columns) as screen:
        first = screen.words
        for wanted in (
            "an agent that keeps every conversation",
            "Model: ollama/gemma4:e4b",
            "Folder: ~/project (trusted)",
            "/help for help · Ctrl-D to leave",
        ):
            assert wanted in first
        screen.say("/help")
        screen.until("twice to leave")
        assert "outside the sandbox; the model sees its output" in " ".join(screen.scrollback.split())
        assert max(map(len, screen.lines)) <= columns
        screen.say("one")
        screen.until("You said: one")
        screen.type(CTRL_D)
        screen.until("Resume with: nacre chat -r chat-")
        assert screen.code() == 0


@pytest.mark.parametrize("columns", WIDTHS)
def test_an_approval_is_visible_at_any_width(person: Person, model: Model, columns: int) -> None:
    folder = person.folder("project")
    call_once(model, "shell", command="echo ran > flag")
    with chat(person, columns, at=folder) as screen:
        screen.say("do it")
        screen.until("Allow? [y]es, [n]o,")
        assert "? shell: echo ran > flag" in screen.words
        screen.say("what is this about?")
        screen.until("Please answer the question")
        assert not (folder / "flag").exists()
        screen.say("yes")
        screen.until("It said:")
        screen.until("> what is this about?")
        assert (folder / "flag").read_text() == "ran\n"
        screen.type(CTRL_U)
        assert screen.leave() == 0


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_long_change_leaves_the_tool_and_the_file_on_the_screen(person: Person, model: Model, columns: int) -> None:
    folder = person.folder("project")
    call_once(model, "write_file", path="src/long.py", content="".join(f"line_{n} = {n}\n" for n in range(200)))
    with chat(person, columns, at=folder) as screen:
        screen.say("write it")
        screen.until("Allow? [y]es, [n]o,")
        assert "? write_file: src/long.py" in screen.text
        assert "line_0 = 0" in screen.text
        assert "more lines: v shows all" in screen.words
        screen.say("v")
        screen.until_true(lambda: "line_199 = 199" in screen.scrollback, "not all of it is shown")
        screen.until("Allow? [y]es, [n]o,")
        assert "? write_file: src/long.py" in screen.text
        screen.say("n")
        screen.until("It said:")
        assert not (folder / "src").exists()
        assert screen.leave() == 0


def test_a_question_stays_visible_when_the_window_changes(person: Person, model: Model) -> None:
    call_once(model, "write_file", path="long.py", content="".join(f"line_{n} = {n}\n" for n in range(200)))
    with chat(person, 200, 40) as screen:
        screen.say("write it")
        screen.until("Allow? [y]es, [n]o,")
        for columns, rows in ((80, 24), (40, 24), (58, 12), (200, 24)):
            screen.resize(columns, rows)
            screen.type("x")
            screen.until("[v]iew: > x")
            screen.until("? write_file: long.py")
            screen.until("Allow? [y]es, [n]o,")
            screen.type(BACKSPACE)
            screen.until_gone("[v]iew: > x")
        screen.say("n")
        screen.until("It said:")
        assert screen.leave() == 0


def test_ctrl_z_and_fg_bring_the_line_back_and_ctrl_c_does_not_kill(person: Person) -> None:
    with chat(person) as screen:
        screen.type("half a line")
        screen.until("half a line")
        screen.suspend()
        screen.run("echo", "in the shell")
        screen.until("'in the shell' in the shell")
        screen.resume()
        screen.until("> half a line")
        screen.type(CTRL_C)
        screen.until_gone("half a line")
        screen.say("still here")
        screen.until("You said: still here")
        assert screen.leave() == 0


def test_ctrl_c_leaves_a_search_and_nothing_typed_afterwards_is_lost(person: Person) -> None:
    with chat(person) as screen:
        screen.say("an old question")
        screen.until("You said: an old question")
        screen.type(CTRL_R + "old")
        screen.until("I-search")
        screen.type(CTRL_C)
        screen.until_gone("I-search")
        screen.say("a new question")
        screen.until("You said: a new question")
        screen.type(CTRL_R + "old")
        screen.until("> an old question I-search")
        screen.type(ENTER)
        screen.until_gone("I-search")
        screen.type("?" + ENTER)
        screen.until("You said: an old question")
        assert screen.leave() == 0


def test_a_long_paste_is_one_line_and_sent_whole(person: Person, model: Model) -> None:
    text = "\n".join(f"line {n}" for n in range(1, 121))
    with chat(person, 40) as screen:
        screen.type("explain ")
        screen.paste(text)
        screen.until("> explain [pasted 120 lines]")
        screen.type(BACKSPACE)
        screen.until_gone("[pasted")
        screen.paste(text)
        screen.until("> explain [pasted 120 lines]")
        screen.type(ENTER)
        screen.until("You said: line 120")
        assert "line 60" not in screen.text
        assert screen.leave() == 0
    assert any(request.said.endswith(f"explain {text}") for request in model.chats)


def test_several_lines_are_edited_as_one_message(person: Person, model: Model) -> None:
    with chat(person, 40) as screen:
        screen.type("first 世界" + ALT_ENTER + "second" + "\x1b[D" * 3 + "X\\" + ENTER)
        screen.until("secX")
        screen.until("ond")
        screen.type(ENTER)
        screen.until("You said: ond")
        assert screen.leave() == 0
    assert any(request.said.endswith("first 世界\nsecX\nond") for request in model.chats)


def test_a_message_is_written_in_the_editor(person: Person, model: Model) -> None:
    editor = person.home / "editor"
    editor.write_text('#!/bin/sh\necho "from the editor" >> "$1"\n')
    editor.chmod(0o755)
    with chat(person, EDITOR=str(editor)) as screen:
        screen.type("first line\\" + ENTER)
        screen.until("> first line")
        screen.type(CTRL_X + CTRL_E)
        screen.until("from the editor")
        screen.type(ENTER)
        screen.until("You said: from the editor")
        assert screen.leave() == 0
    assert any(request.said.endswith("first line\nfrom the editor") for request in model.chats)


def test_a_mentioned_file_is_completed_and_attached(person: Person, model: Model) -> None:
    folder = person.folder("project", **{"notes.txt": "the secret is 42\n"})
    with chat(person, at=folder) as screen:
        screen.type("what is in @no")
        screen.until("notes.txt")
        screen.type(TAB)
        screen.until("what is in @notes.txt")
        screen.type(ENTER)
        screen.until("attached: notes.txt")
        screen.until("You said: what is in @notes.txt")
        assert screen.leave() == 0
    assert any("the secret is 42" in request.said for request in model.chats)


def test_a_mention_in_pasted_text_or_in_a_pipe_attaches_nothing(person: Person, model: Model) -> None:
    folder = person.folder("project", **{"notes.txt": "the secret is 42\n"})
    with chat(person, at=folder) as screen:
        screen.paste("what is in @notes.txt")
        screen.until("> what is in @notes.txt")
        screen.type(ENTER)
        screen.until("You said: what is in @notes.txt")
        assert screen.leave() == 0
    person.nacre("chat", at=folder, stdin="what is in @notes.txt")
    person.nacre("chat", "what is in @notes.txt", at=folder)
    assert not any("the secret is 42" in request.said for request in model.chats)


def test_a_command_is_run_and_its_output_goes_along_with_the_next_message(person: Person, model: Model) -> None:
    folder = person.folder("project", **{"notes.txt": ""})
    with chat(person, at=folder) as screen:
        screen.say("!ls; exit 3")
        screen.until("(runs as you, outside the sandbox)")
        screen.until("notes.txt (exit code 3; the model sees the output with your next message)")
        screen.say("what was that?")
        screen.until("You said: what was that?")
        assert screen.leave() == 0
    sent = [request.said for request in model.chats if request.said.endswith("what was that?")]
    assert "$ ls; exit 3\nnotes.txt\n" in sent[0]


def test_a_pasted_command_is_never_run(person: Person) -> None:
    folder = person.folder("project")
    with chat(person, at=folder) as screen:
        screen.paste("!touch pasted")
        screen.until("> !touch pasted")
        screen.type(ENTER)
        screen.until("pasted text is never run")
        screen.type(CTRL_C)
        screen.say("!touch typed")
        screen.until("(exit code 0")
        assert screen.leave() == 0
    person.nacre("chat", at=folder, stdin="!touch piped")
    assert [path.name for path in folder.iterdir()] == ["typed"]


def test_ctrl_c_ends_a_command_and_the_conversation_goes_on(person: Person) -> None:
    with chat(person) as screen:
        # By a shell of its own, without a moment in which a shell that is about to start another program keeps Ctrl-C.
        screen.say("!sh -c 'echo started; exec sleep 600'")
        screen.until("outside the sandbox) started")
        screen.type(CTRL_C)
        screen.until("(exit code -2")
        screen.say("still here")
        screen.until("You said: still here")
        assert screen.leave() == 0


@pytest.mark.parametrize(("bell", "wanted"), [("bell", b"\x07"), ("notify", b"\x1b]9;nacre: The answer is ready\x07")])
def test_the_end_of_a_long_turn_is_heard(person: Person, bell: str, wanted: bytes) -> None:
    person.config(f'[cli]\nbell = "{bell}"\nbell_after = 0\n')
    with chat(person) as screen:
        assert wanted not in screen.raw
        screen.say("hello")
        screen.until("You said: hello")
        screen.until_true(lambda: wanted in screen.raw, "there is no bell")
        assert screen.leave() == 0


@pytest.mark.parametrize("reply", [[], [Thinking("Hm.")]])
def test_an_empty_answer_is_reported(person: Person, model: Model, reply: Reply) -> None:
    model.answer = lambda _: reply
    with chat(person) as screen:
        screen.say("hello")
        screen.until("the model gave no answer: ask again")
        assert screen.leave() == 0


def test_a_call_that_fails_again_and_again_ends_the_turn_and_is_reported(person: Person, model: Model) -> None:
    model.answer = lambda request: [Call("read_file", {"path": "missing"})] if request.tools else "nothing"
    with chat(person) as screen:
        screen.say("look")
        screen.until("stopped: read_file failed 3 times in a row")
        assert screen.leave() == 0


def test_undo_brings_back_a_message_with_what_was_attached_to_it(person: Person, model: Model) -> None:
    folder = person.folder("project", **{"notes.txt": "the secret is 42\n"})
    with chat(person, at=folder) as screen:
        screen.say("what is in @notes.txt ?")
        screen.until("You said: what is in @notes.txt ?")
        screen.until_gone("Ctrl-C stops it")
        screen.say("/undo")
        screen.until("The conversation is as it was before 'what is in @notes.txt ?'")
        screen.until("Your next message has the 1 attachment of that one. > what is in @notes.txt ?")
        screen.type(" Please." + ENTER)
        screen.until("You said: what is in @notes.txt ? Please.")
        assert screen.leave() == 0
    sent = [request.said for request in model.chats if request.said.endswith("Please.")]
    assert "the secret is 42" in sent[0]


def test_viewing_a_change_shows_all_of_it_once(person: Person, model: Model) -> None:
    call_once(model, "write_file", path="long.py", content="".join(f"line_{n} = {n}\n" for n in range(200)))
    with chat(person) as screen:
        screen.say("write it")
        screen.until("more lines: v shows all")
        screen.say("v")
        screen.until_gone("v shows all")
        screen.until("? write_file: long.py (new file) Allow? [y]es, [n]o,")
        assert screen.scrollback.count("line_199 = 199") == 1
        assert "line_199 = 199" in screen.text
        screen.say("n")
        screen.until("It said:")
        assert screen.leave() == 0


def test_viewing_a_change_that_was_shown_whole_does_not_print_it_again(person: Person, model: Model) -> None:
    call_once(model, "write_file", path="short.py", content="line_0 = 0\n")
    with chat(person) as screen:
        screen.say("write it")
        screen.until("Allow? [y]es, [n]o,")
        screen.say("v")
        screen.until("(this is all of it) ? write_file: short.py (new file) Allow? [y]es, [n]o,")
        assert screen.text.count("line_0 = 0") == 1
        screen.say("n")
        screen.until("It said:")
        assert screen.leave() == 0


def test_ctrl_c_before_and_after_a_message_does_not_leave(person: Person) -> None:
    with chat(person) as screen:
        screen.type(CTRL_C + "hello" + ENTER)
        screen.until("You said: hello")
        screen.until_gone("Ctrl-C stops it")
        # The editor reads again: a key between two lines is nobody's.
        screen.type("x")
        screen.until("> x")
        screen.type("\x7f")
        screen.until_gone("> x")
        screen.type(CTRL_C)
        screen.until("Ctrl-C again to leave")
        screen.say("still here")
        screen.until("You said: still here")
        assert screen.leave() == 0


def test_a_command_that_was_stopped_at_its_approval_is_reported_as_not_run(person: Person, model: Model) -> None:
    call_once(model, "shell", command="echo ran > flag")
    with chat(person) as screen:
        screen.say("do it")
        screen.until("Allow? [y]es, [n]o,")
        screen.type(CTRL_C)
        screen.until("stopped; the session continues from here")
        model.answer = lambda request: f"I see: {request.messages[-3]['content']}"
        screen.say("well?")
        screen.until("I see: not run: stopped by the user")
        assert screen.leave() == 0


def test_notices_come_after_the_messages_of_a_resumed_session(person: Person) -> None:
    first, other = person.folder("first"), person.folder("other")
    key = person.ask("hello", at=first)["session"]
    with Screen(person, "chat", "-r", key, columns=200, at=other) as screen:
        screen.until("is new to nacre.")
        screen.type("n" + ENTER)
        screen.until("for help")
        screen.until("to trust it: nacre trust")
        words = " ".join(screen.scrollback.split())
        assert words.index("You said: hello") < words.index("Model: ollama/gemma4:e4b")
        assert words.index("Model:") < words.index(f"this session was started in {first}")
        assert words.count("files can only be read") == 1
        assert screen.leave() == 0


def test_notices_are_broken_between_words(person: Person) -> None:
    folder = person.folder("a-project-with-a-long-name-that-fills-a-good-part-of-a-line")
    with Screen(person, "chat", "hello", columns=60, at=folder) as screen:
        screen.until("Do you trust this folder")
        screen.type("n" + ENTER)
        screen.until("Resume with:")
        shown = set(screen.scrollback.split())
        assert {"If", "agent", "change", "files", "run", "commands", "here", "asks", "before"} <= shown
        assert {"is", "not", "trusted:", "only", "be", "read;", "trust", "it:"} <= shown
        assert screen.code() == 0
