"""The conversation in a real terminal: typed, stopped, asked, resumed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nacre
from tests.cli.chat.ptys import ALT_ENTER, CTRL_C, CTRL_D, ENTER, Terminal, environment

pytest.importorskip("prompt_toolkit", reason="the line editor is not installed: pip install 'nacre-sessions[agent]'")

NEVER: dict[str, Any] = {"until": "/nonexistent/never"}
KEY = "talk"
Start = Callable[..., Terminal]


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Start:
    """Start `nacre chat` with a scripted model in a terminal."""

    def begin(script: list[Any], *words: str, mark: str = "tokens (", **more: str) -> Terminal:
        places = {f"XDG_{name}_HOME": tmp_path / name for name in ("CACHE", "CONFIG", "DATA", "STATE")}
        command = ["-m", "tests.cli.chat.program", json.dumps(script), "chat", "--trust", *words]
        terminal = Terminal(command, environment(NACRE_HOME=root, **places, **more))
        terminal.until(mark)
        return terminal

    return begin


def history(root: Path) -> list[nacre.Message]:
    """The messages of the only session."""
    with nacre.open(root) as sessions:
        (info,) = sessions.list()
        return sessions.get_history(info.key)


def said(root: Path) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in history(root)]


def test_a_conversation_with_tools(start: Start, root: Path) -> None:
    script = [[{"thinks": "hm"}, {"call": "look", "says": "three\nfiles"}], ["There are **three**."], ["Bye."]]
    with start(script) as terminal:
        terminal.say("what is here, and why?")
        assert "~ hm" in terminal.until('▸ look(says="three\\nfiles") → three (11 B)')
        terminal.until("There are three.")
        terminal.until("what is here, and why?")
        terminal.say("thanks")
        terminal.until("Bye.")
        terminal.type(CTRL_D)
        terminal.until("Resume with: nacre chat -r chat-")
        assert terminal.ends() == 0
    assert [role for role, _ in said(root)] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    with nacre.open(root) as sessions:
        assert [info.title for info in sessions.list()] == ["what is here, and why?"]


def test_ctrl_c_in_the_middle_of_a_stream_stops_the_turn_and_the_session_goes_on(start: Start, root: Path) -> None:
    with start([["Once upon ", NEVER], ["Fine."]]) as terminal:
        terminal.say("tell me")
        terminal.until("Once upon")
        terminal.type(CTRL_C)
        terminal.until("stopped; the session continues")
        terminal.say("never mind")
        terminal.until("Fine.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert said(root) == [
        ("user", "tell me"),
        ("assistant", "Once upon\n\n[stopped by the user]"),
        ("user", "never mind"),
        ("assistant", "Fine."),
    ]


def test_ctrl_c_in_the_middle_of_a_tool_stops_the_turn(start: Start, root: Path) -> None:
    with start([[{"call": "look", "wait": True}], ["Fine."]]) as terminal:
        terminal.say("look")
        terminal.until("running look")
        terminal.type(CTRL_C)
        terminal.until("look(wait=true) → stopped")
        terminal.say("and now?")
        terminal.until("Fine.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert said(root)[-2:] == [("user", "and now?"), ("assistant", "Fine.")]


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(start: Start, root: Path) -> None:
    with start([["Never asked."]]) as terminal:
        terminal.type("half a line")
        terminal.until("half a line")
        terminal.type(CTRL_C + CTRL_C)
        terminal.until("again")
        terminal.type(CTRL_C)
        assert terminal.ends() == 0
        assert "Resume with" not in terminal.text
    with nacre.open(root) as sessions:
        assert list(sessions.list()) == []


def test_a_call_is_shown_and_runs_only_if_somebody_allows_it(start: Start, root: Path, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    call = {"call": "shell", "command": "make clean", "touch": str(flag)}
    with start([[call], ["As you like."], [call], ["Done."], [call], ["Again."]]) as terminal:
        terminal.say("clean up")
        assert "? shell: make clean" in terminal.until("[y]es, [n]o")
        terminal.say("maybe")
        terminal.say("no")
        terminal.until("As you like.")
        assert not flag.exists()
        terminal.say("do it")
        terminal.until("[y]es, [n]o")
        terminal.say("always")
        terminal.until("Done.")
        assert flag.exists()
        terminal.say("once more")
        assert "[y]es" not in terminal.until("Again.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert "the user said no" in str(said(root)[2][1])


def test_a_draft_is_neither_lost_nor_taken_for_an_answer(start: Start, root: Path, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    with start([["Hm. ", {"until": str(flag)}, {"call": "shell", "command": "ls"}], ["Fine."], ["Good."]]) as terminal:
        terminal.say("go")
        terminal.until("Hm.")
        terminal.type("my draft")
        terminal.until("my draft")
        flag.touch()
        terminal.until("[v]iew")
        terminal.type(CTRL_C)
        terminal.until("> my draft")
        terminal.type(ENTER)
        terminal.until("Fine.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert said(root)[-2:] == [("user", "my draft"), ("assistant", "Fine.")]


def test_words_said_during_a_turn_are_given_to_it(start: Start, root: Path, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    script = [["Let me see. ", {"until": str(flag)}, {"call": "look", "says": "x"}], ["It is x, in French."]]
    with start(script) as terminal:
        terminal.say("look")
        terminal.until("Let me see.")
        terminal.say("in French please")
        terminal.until("1 waiting")
        flag.touch()
        terminal.until("It is x, in French.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    roles = [role for role, _ in said(root)]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


def test_several_lines_are_one_message(start: Start, root: Path) -> None:
    with start([["Three."]]) as terminal:
        terminal.type("one\\" + ENTER + "two" + ALT_ENTER + "\x1b[200~three\nfour\x1b[201~")
        terminal.until("four")
        terminal.type(ENTER)
        terminal.until("Three.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert said(root)[0] == ("user", "one\ntwo\nthree\nfour")


def test_a_turn_that_a_crash_cut_short_is_finished_when_the_session_is_resumed(start: Start, root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "are you there?")
    with start([["I am."]], "-r", KEY, mark="are you there?") as terminal:
        terminal.until("the last turn was interrupted; finishing it")
        terminal.until("I am.")
        terminal.type(CTRL_D)
        terminal.until(f"Resume with: nacre chat -r {KEY}")
        assert terminal.ends() == 0
    assert said(root) == [("user", "are you there?"), ("assistant", "I am.")]


def test_a_session_at_work_elsewhere_can_be_forked(start: Start, root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "hello")
        sessions.add_message(KEY, "assistant", "hi")
        hold = sessions.hold(KEY)
        hold.take()
        with start([["Here."]], "-r", KEY) as terminal:
            terminal.say("me too")
            assert "in use by another process" in terminal.until("[f]ork")
            terminal.say("f")
            terminal.until(f"you are now in {KEY}-2")
            terminal.until("Here.")
            terminal.type(CTRL_D)
            assert terminal.ends() == 0
        hold.close()
        assert len(sessions.get_history(KEY)) == 2
        assert [message.content for message in sessions.get_history(f"{KEY}-2")] == ["hello", "hi", "me too", "Here."]


def test_waiting_for_another_process_can_be_given_up(start: Start, root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "hello")
        sessions.add_message(KEY, "assistant", "hi")
        hold = sessions.hold(KEY)
        hold.take()
        with start([["Here."]], "-r", KEY) as terminal:
            terminal.say("me too")
            terminal.until("[w]ait")
            terminal.say("w")
            terminal.until("waiting")
            terminal.type(CTRL_C)
            terminal.until("stopped")
            hold.close()
            terminal.type(CTRL_D)
            assert terminal.ends() == 0
        assert len(sessions.get_history(KEY)) == 2


def test_a_failing_model_is_told_and_asked_again(start: Start, root: Path) -> None:
    with start([[{"fails": "the server is gone"}], ["Back."]]) as terminal:
        terminal.say("hello")
        terminal.until("× the server is gone")
        terminal.until("/resume asks again")
        terminal.say("/resume")
        terminal.until("Back.")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    assert said(root) == [("user", "hello"), ("assistant", "Back.")]


def test_an_ordered_end_by_a_signal_says_how_to_go_on(start: Start, root: Path) -> None:
    with start([["Hm. ", NEVER]]) as terminal:
        terminal.say("hello")
        terminal.until("Hm.")
        terminal.signal(signal.SIGTERM)
        terminal.until("Resume with: nacre chat -r")
        assert terminal.ends() == 128 + signal.SIGTERM
    assert said(root) == [("user", "hello")]


def test_nothing_that_a_message_says_drives_the_terminal(start: Start) -> None:
    with start([["owned \x1b]0;title\x07\x1b[31mred\x9b2J"]]) as terminal:
        terminal.say("hello")
        terminal.until("owned \\x1b]0;title\\x07\\x1b[31mred\\x9b2J")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0


def test_incognito_keeps_nothing(start: Start, root: Path, tmp_path: Path) -> None:
    with start([["Who?"]], "--incognito") as terminal:
        terminal.say("it is me")
        terminal.until("Who?")
        terminal.type(CTRL_D)
        terminal.until("nothing was stored")
        assert terminal.ends() == 0
    written = [path for place in (root, tmp_path) for path in place.rglob("*") if path.is_file()]
    assert not [path for path in written if b"it is me" in path.read_bytes()]


def test_commands_and_earlier_lines_are_completed_and_recalled(start: Start) -> None:
    with start([["One."], ["Two."]]) as terminal:
        terminal.say("first words")
        terminal.until("One.")
        terminal.type("\x1b[A")
        terminal.until("first words")
        terminal.type(ENTER)
        terminal.until("Two.")
        terminal.type("/rew")
        terminal.until("go back to before a message")
        terminal.type("\t")
        terminal.until("ind")
        terminal.type(ENTER)
        terminal.until("#3")
        terminal.until("tokens (")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0


def test_a_missing_line_editor_is_told_in_one_line(start: Start) -> None:
    with start([["Hi."]], mark="input is plain: pip install", WITHOUT="prompt_toolkit") as terminal:
        terminal.say("hello")
        terminal.until("Hi.")
        # Typed before the prompt, it would be lost: `input` changes the mode of the terminal.
        terminal.until("> ")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0


def test_without_a_line_editor_it_works_all_the_same(start: Start, root: Path) -> None:
    script = [["Once upon ", NEVER], [{"call": "shell", "command": "ls"}], ["Fine."]]
    with start(script, mark="> ", TERM="dumb", NO_COLOR="1") as terminal:
        terminal.say("tell me")
        terminal.until("Ctrl-C stops it")
        terminal.type(CTRL_C)
        terminal.until("stopped; the session continues")
        terminal.say("!touch pasted")
        terminal.until("!command needs the line editor")
        terminal.say("list\\")
        terminal.say("them")
        terminal.until("[y]es, [n]o")
        terminal.say("y")
        terminal.until("Fine.")
        # Typed before the prompt, it would be lost: `input` changes the mode of the terminal.
        terminal.until("> ")
        terminal.type(CTRL_D)
        terminal.until("Resume with")
        assert terminal.ends() == 0
        assert "\x1b[3" not in terminal.text
    assert ("user", "list\nthem") in said(root)


def test_words_that_come_back_without_a_line_editor_do_not_drive_the_terminal(start: Start, root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "\x1b]0;owned\x07\x1b[2Jhello")
        sessions.add_message(KEY, "assistant", "Hi.")
    with start([["Never asked."]], "-r", KEY, mark="> ", TERM="dumb", NO_COLOR="1") as terminal:
        terminal.say("/undo")
        terminal.until("(your draft: \\x1b]0;owned\\x07\\x1b[2Jhello)")
        # Typed before the prompt, it would be lost: `input` changes the mode of the terminal.
        terminal.until("> ")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
