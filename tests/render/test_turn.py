"""A turn as it is drawn: calls and thoughts on one line each, the answer as Markdown, nothing that drives it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nacre.agent.ports import Approval, Called, Effect, Event, Notice, Output, Returned, Spec, Text, Thought
from nacre.messages import ToolCall
from nacre.render.terminal import Sheet
from nacre.render.text import width
from nacre.render.turn import Turn, question

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\r\x00"
LOOK = ToolCall(id="1", name="look", arguments={"path": "a"})


class Tool:
    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.spec = Spec(name="tool", description="", parameters={})

    async def run(self, *_: Any) -> Output:
        return Output(text="")


def drawn(*events: Event, columns: int = 60) -> list[str]:
    turn = Turn(lambda: Sheet(columns=columns))
    return [line for event in events for line in turn.take(event)] + turn.end()


def test_a_call_is_one_line_with_its_result() -> None:
    events = (Called(LOOK), Returned(LOOK, Output(text="first\nsecond")))
    assert drawn(*events) == ['▸ look(path="a") → first (12 B)']


def test_a_failed_call_is_marked() -> None:
    assert drawn(Returned(LOOK, Output(text="no such file", failed=True))) == ['× look(path="a") → no such file']


def test_a_call_that_was_stopped_says_so() -> None:
    assert drawn(Called(LOOK)) == ['■ look(path="a") → stopped']


def test_calls_that_run_side_by_side_each_have_a_line() -> None:
    other = ToolCall(id="2", name="list", arguments={"path": "b"})
    turn = Turn(lambda: Sheet(columns=60))
    for event in (Called(LOOK), Called(other)):
        assert turn.take(event) == []
    assert turn.live == ['▸ look(path="a")', '▸ list(path="b")']
    assert turn.doing == "running look, list"
    assert turn.take(Returned(LOOK, Output(text="first"))) == ['▸ look(path="a") → first']
    assert turn.live == ['▸ list(path="b")']
    assert turn.end() == ['■ list(path="b") → stopped']


def test_a_call_that_a_delegated_task_was_refused_ends_no_call_with_its_id() -> None:
    turn = Turn(lambda: Sheet(columns=60))
    refused = ToolCall(id=LOOK.id, name="shell", arguments={"command": "rm a"})
    turn.take(Called(LOOK))
    assert turn.take(Returned(refused, Output(text="no", failed=True), session="k/1")) == [
        '× shell(command="rm a") → no'
    ]
    assert (turn.live, turn.doing) == (['▸ look(path="a")'], "running look")
    assert turn.end() == ['■ look(path="a") → stopped']


def test_thoughts_are_folded_and_the_answer_stands_apart() -> None:
    assert drawn(Thought("hm\n"), Thought("well"), Text("**Yes**"), Text(".")) == ["~ hm (7 B)", "", "Yes.", ""]


def test_what_is_said_between_calls_stands_apart_from_them() -> None:
    events = (Text("Let me look."), Called(LOOK), Returned(LOOK, Output(text="x")), Text("It is x."))
    assert drawn(*events) == ["Let me look.", "", '▸ look(path="a") → x', "", "It is x.", ""]


def test_what_runs_is_seen_while_it_runs() -> None:
    turn = Turn(lambda: Sheet(columns=60))
    assert (turn.doing, turn.live) == ("thinking", [])
    turn.take(Thought("one\ntwo"))
    assert turn.live == ["~ two"]
    turn.take(Called(LOOK))
    assert (turn.doing, turn.live) == ("running look", ['▸ look(path="a")'])
    turn.take(Returned(LOOK, Output(text="x")))
    turn.take(Text("an"))
    assert (turn.doing, turn.live) == ("answering", ["", "an"])


def test_a_notice_is_a_line_of_its_own() -> None:
    assert drawn(Notice("asked again")) == ["· asked again"]


def test_a_long_notice_is_wrapped_and_never_cut() -> None:
    text = "this model is tiny: it is here to try things out; do not rely on what it says"
    assert drawn(Notice(text), columns=40) == [
        "· this model is tiny: it is here to try",
        "  things out; do not rely on what it",
        "  says",
    ]


@pytest.mark.parametrize("columns", [40, 80])
def test_nothing_drives_the_terminal_or_is_wider_than_it(columns: int) -> None:
    call = ToolCall(id=HOSTILE, name=HOSTILE, arguments={HOSTILE: HOSTILE * 9})
    output = Output(text=f"{HOSTILE * 9}\n{HOSTILE}")
    lines = drawn(
        Thought(HOSTILE * 9), Notice(HOSTILE * 9), Called(call), Returned(call, output), Text(HOSTILE), columns=columns
    )
    lines += question(Approval(tool=Tool("run"), call=call), Sheet(columns=columns))
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))
    assert max(map(width, lines)) <= columns


def test_a_person_is_shown_the_exact_command() -> None:
    call = ToolCall(name="shell", arguments={"command": "rm -rf   build\nls", "timeout": 5})
    assert question(Approval(tool=Tool("run"), call=call), Sheet()) == [
        "? shell: rm -rf   build …",
        "    $ rm -rf   build",
        "    $ ls",
        "    timeout = 5",
    ]


def test_a_person_is_shown_what_always_would_allow_and_who_wants_it() -> None:
    call = ToolCall(name="shell", arguments={"command": "git log"})
    rules = ("shell(git *)", "write_file")
    asked = Approval(tool=Tool("run"), call=call, always=rules, skill="pdf\x1b[2J")
    assert question(asked, Sheet(columns=100))[-1] == (
        "  always = allow shell(git *), write_file in this session, as the skill pdf\\x1b[2J wants"
    )


def test_a_command_that_does_not_fit_goes_on_without_losing_a_character() -> None:
    command = "echo " + "a b   c" * 20
    call = ToolCall(name="shell", arguments={"command": command})
    lines = question(Approval(tool=Tool("run"), call=call), Sheet(columns=30))[1:]
    assert lines[0].startswith("    $ ")
    assert lines[1].startswith("      ")
    assert "".join(line[6:] for line in lines) == command


def test_a_person_is_shown_the_exact_change() -> None:
    call = ToolCall(name="edit_file", arguments={"path": "a.py", "old_text": "x = 1", "new_text": "x = 2\ny = 3"})
    assert question(Approval(tool=Tool("write"), call=call), Sheet()) == [
        "? edit_file: a.py",
        "    - x = 1",
        "    + x = 2",
        "    + y = 3",
    ]


def test_a_long_change_says_how_much_of_it_is_not_shown() -> None:
    call = ToolCall(name="write_file", arguments={"path": "a", "content": "\n".join(map(str, range(100)))})
    lines = question(Approval(tool=Tool("write"), call=call), Sheet(), limit=10)
    assert (lines[0], len(lines)) == ("? write_file: a", 10)
    assert lines[-1] == "    … 92 more lines: v shows all"
    assert len(question(Approval(tool=Tool("write"), call=call), Sheet(), limit=1000)) == 101
