"""What every adapter reads of a conversation: its own messages, those of others, and those that were erased."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import nacre
from nacre.integrations.conversation import read_conversation
from nacre.messages import Message, ToolCall

OWN: dict[str, Any] = {"ours": {}}


def call(*ids: str, **more: Any) -> Message:
    return Message(
        role="assistant", tool_calls=tuple(ToolCall(id=id, name="clock", arguments={}) for id in ids), **more
    )


def result(id: str, **more: Any) -> Message:
    return Message(role="tool", content=f"result of {id}", tool_call_id=id, **more)


def said(role: str, text: str, **more: Any) -> Message:
    return Message(role=role, content=text, **more)


def shown(messages: list[Message]) -> list[str]:
    """Each message in short, with `own` before those of the framework."""
    return list(
        read_conversation(messages, "ours", lambda one: f"own {short(one.to_openai())}", lambda one: [short(one)])
    )


def short(message: dict[str, Any]) -> str:
    calls = [one["id"] for one in message.get("tool_calls", ())]
    id = f" {message['tool_call_id']}" if "tool_call_id" in message else ""
    return f"{message['role']}{id} {calls or message['content']}"


def turn(extra: dict[str, Any]) -> list[Message]:
    return [
        said("user", "What time is it?", extra=extra),
        call("c1", "c2", extra=extra),
        result("c1", extra=extra),
        result("c2", extra=extra),
        said("assistant", "Noon.", extra=extra),
    ]


def after_erasing(place: int, extra: dict[str, Any]) -> list[Message]:
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("cli:1", turn(extra))
        sessions.redact("cli:1", sessions.snapshot("cli:1").numbers[place])
        return sessions.get_history("cli:1")


def test_messages_of_others_are_in_the_shape_of_openais_chat() -> None:
    assert shown([said("user", "hi", extra=OWN), call("c1"), said("user", "well?"), said("note", "a note")]) == [
        "own user hi",
        "assistant ['c1']",
        "tool c1 interrupted, outcome unknown",
        "user well?",
        "user [note] a note",
    ]


@pytest.mark.parametrize("wrote", [lambda line: f"own {line}", lambda line: line], ids=["own", "others"])
@pytest.mark.parametrize("place", range(5))
def test_every_call_has_one_result_whichever_message_was_erased(place: int, wrote: Callable[[str], str]) -> None:
    extra = OWN if wrote("").startswith("own") else {}
    expected = [
        wrote("user What time is it?"),
        wrote("assistant ['c1', 'c2']"),
        wrote("tool c1 result of c1"),
        wrote("tool c2 result of c2"),
        wrote("assistant Noon."),
    ]
    expected[place] = [
        "user [erased]",
        "assistant ['c1', 'c2']",
        "tool c1 [erased]",
        "tool c2 [erased]",
        "assistant [erased]",
    ][place]
    assert shown(after_erasing(place, extra)) == expected


def test_a_result_that_others_stored_for_a_call_of_ours_is_kept() -> None:
    assert shown([call("c1", extra=OWN), result("c1"), said("user", "Thanks.")]) == [
        "own assistant ['c1']",
        "tool c1 result of c1",
        "user Thanks.",
    ]


def test_a_second_result_is_left_out() -> None:
    assert shown([call("c1", extra=OWN), result("c1", extra=OWN), result("c1"), said("user", "Thanks.")]) == [
        "own assistant ['c1']",
        "own tool c1 result of c1",
        "user Thanks.",
    ]


@pytest.mark.parametrize("earlier", [[], [result("c1", name="clock")]], ids=["none", "one"])
@pytest.mark.parametrize("asking", [{}, OWN], ids=["others", "own"])
def test_a_late_result_of_others_replaces_the_one_before_it(asking: dict[str, Any], earlier: list[Message]) -> None:
    late = Message(role="tool", content="late", tool_call_id="c1")
    reply = said("assistant", "Wait.", extra=OWN)
    own = "own " if asking else ""
    expected = [f"{own}assistant ['c1']", "tool c1 late", "own assistant Wait.", "user Thanks."]
    if asking and not earlier:
        # The call stays as the framework wrote it, and so does what comes after it.
        expected[1:3] = reversed(expected[1:3])
    assert shown([call("c1", extra=asking), *earlier, reply, late, said("user", "Thanks.")]) == expected


def test_a_result_of_others_stands_with_their_call_also_behind_the_result_of_ours() -> None:
    assert shown([call("c1", extra=OWN), call("c2"), result("c1"), result("c2"), said("user", "Thanks.")]) == [
        "own assistant ['c1']",
        "assistant ['c2']",
        "tool c2 result of c2",
        "tool c1 result of c1",
        "user Thanks.",
    ]


@pytest.mark.parametrize("seed", range(200))
def test_each_call_is_read_with_the_newest_result_whoever_wrote_between(seed: int) -> None:
    random = Random(seed)
    messages: list[Message] = []
    newest: dict[str, str | None] = {}
    answered: set[str] = set()
    for n in range(random.randint(2, 14)):
        extra = random.choice([OWN, {}])
        waiting = [id for id in newest if id not in answered]
        kind = random.choice(["call", "result", "result", "text"])
        if kind == "call":
            messages.append(call(f"c{n}", extra=extra))
            newest[f"c{n}"] = None
        elif kind == "result" and waiting:
            id = random.choice(waiting)
            # A framework answers once; what others have answered, it leaves alone.
            if extra and newest[id] is not None:
                continue
            messages.append(replace(result(id, extra=extra), content=f"result {n}"))
            newest[id] = f"tool {id} result {n}"
            answered |= {id} if extra else set()
        else:
            messages.append(said("user", f"text {n}", extra=extra))
    found = [line.removeprefix("own ") for line in shown(messages)]
    results = [line for line in found if line.startswith("tool")]
    assert len(results) == len(set(results))
    for id, line in newest.items():
        mine = [one for one in results if one.startswith(f"tool {id} ")]
        assert mine == ([line] if line else mine)
    assert [line for line in found if "text" in line] == [
        f"user {one.content}" for one in messages if one.role == "user"
    ]


def test_a_late_result_belongs_to_no_call_that_the_framework_has_answered() -> None:
    answered = [call("c1"), result("c1", extra=OWN)]
    assert shown([*answered, result("c1"), said("user", "Thanks.")]) == [
        "assistant ['c1']",
        "own tool c1 result of c1",
        "user Thanks.",
    ]


def test_ids_that_are_used_again_belong_to_the_last_call() -> None:
    assert shown([call("c1", extra=OWN), result("c1", extra=OWN), call("c1"), result("c1")]) == [
        "own assistant ['c1']",
        "own tool c1 result of c1",
        "assistant ['c1']",
        "tool c1 result of c1",
    ]


def test_an_erased_call_without_arguments_keeps_its_results() -> None:
    """All of a turn but its results was erased, and one of those."""
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("cli:1", turn(OWN))
        numbers = sessions.snapshot("cli:1").numbers
        for number in (numbers[0], numbers[1], numbers[2], numbers[4]):
            sessions.redact("cli:1", number)
        assert shown(sessions.get_history("cli:1")) == [
            "user [erased]",
            "assistant ['c1', 'c2']",
            "tool c1 [erased]",
            "own tool c2 result of c2",
            "assistant [erased]",
        ]


@pytest.mark.parametrize("mark", [5, "text", True, None, ["a"]])
def test_what_others_keep_under_the_name_is_no_mark(mark: Any) -> None:
    theirs = {"ours": mark}
    assert shown([said("user", "hi", extra=theirs), call("c1", extra=theirs), said("user", "well?", extra=OWN)]) == [
        "user hi",
        "assistant ['c1']",
        "tool c1 interrupted, outcome unknown",
        "own user well?",
    ]
