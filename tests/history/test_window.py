"""The newest whole turns that fit, the active one always, and a note of what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nacre.history.pairing import INTERRUPTED, RECALLED, SAID_AS, pair, without_facts
from nacre.history.window import Costs, Turns, Window, recent, window
from nacre.messages import Message, ToolCall
from tests.histories import histories, messages
from tests.history import bodies

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def one(_: Message) -> int:
    return 1


def user(content: str) -> Message:
    return Message(role="user", content=content)


def says(content: str) -> Message:
    return Message(role="assistant", content=content)


def asks(*ids: str) -> Message:
    return Message(role="assistant", tool_calls=tuple(ToolCall(id=id, name="shell", arguments={}) for id in ids))


def result(id: str, content: str = "done") -> Message:
    return Message(role="tool", tool_call_id=id, name="shell", content=content)


def turns(count: int) -> list[Message]:
    return [message for n in range(count) for message in (user(f"q{n}"), says(f"a{n}"))]


def texts(found: Window) -> list[object]:
    return [message.content for message in found.messages]


def test_what_fits_is_shown_whole() -> None:
    found = window(turns(3), tokens=100, limit=6, estimate=one)
    assert found == Window(messages=turns(3), tokens=6, left_out=0, interrupted=0, orphans=0, shortened=0)


def test_nothing_is_shown_of_nothing() -> None:
    assert window([], tokens=100, limit=6).messages == []


@pytest.mark.parametrize(("most", "first"), [(5, "q2"), (3, "q2"), (2, "q2"), (0, "q2")])
def test_at_most_so_many_messages_of_whole_turns(most: int, first: str) -> None:
    assert texts(window(turns(3), tokens=1000, limit=most))[1] == first


@pytest.mark.parametrize(("tokens", "first"), [(6, "q0"), (5, "q2"), (4, "q2"), (0, "q2")])
def test_at_most_so_many_tokens_with_the_note(tokens: int, first: str) -> None:
    found = window(turns(3), tokens=tokens, limit=50, estimate=one)
    assert next(text for text in texts(found) if str(text).startswith("q")) == first
    assert found.tokens == len(found.messages)


@pytest.mark.parametrize(
    ("most", "note"), [(8, "[4 earlier messages are not shown]"), (4, "[8 earlier messages are not shown]")]
)
def test_a_note_says_how_much_is_left_out(most: int, note: str) -> None:
    assert texts(window(turns(5), tokens=1000, limit=most))[0] == note


def test_a_note_says_that_one_message_is_left_out() -> None:
    found = window([says("hello"), *turns(1)], tokens=1000, limit=2)
    assert (texts(found), found.left_out) == (["[1 earlier message is not shown]", "q0", "a0"], 1)


def test_a_summary_comes_first() -> None:
    found = window(turns(2), summary=" so far ", tokens=1000, limit=2)
    note = "[summary of what was said before]\nso far\n\n[2 earlier messages are not shown]"
    assert texts(found) == [note, "q1", "a1"]
    assert texts(window([], summary="so far", tokens=0, limit=0)) == ["[summary of what was said before]\nso far"]


def test_a_conversation_without_its_beginning_begins_with_a_note() -> None:
    found = window([asks("a"), result("a"), says("done")], tokens=1000, limit=50)
    assert texts(found) == ["[the beginning of this conversation is not shown]", "", "done", "done"]
    assert found.left_out == 0


def test_the_newest_turn_is_shown_however_long() -> None:
    log = [*turns(2), user("x" * 400), asks("a"), result("a", "y" * 99)]
    found = window(log, tokens=10, limit=1)
    assert found.messages[1:] == pair(log[4:])


def test_what_was_settled_is_counted() -> None:
    found = window([result("z"), user("q"), asks("a"), result("b")], tokens=1000, limit=50)
    assert (found.interrupted, found.orphans, found.left_out) == (1, 2, 0)


def test_a_result_behind_later_words_is_left_out_with_its_call() -> None:
    log = [user("q"), asks("a"), user("wait"), result("a"), says("done")]
    found = window(log, tokens=1000, limit=2)
    assert (texts(found), found.left_out) == (["[3 earlier messages are not shown]", "wait", "done"], 3)
    assert window(log, tokens=1000, limit=5).messages == pair(log)


def test_words_of_other_roles_do_not_begin_a_turn() -> None:
    log = [user("q"), Message(role="system", content="note"), says("a")]
    assert window(log, tokens=0, limit=0).messages == pair(log)
    assert window(pair(log), tokens=0, limit=0).messages == pair(log)


# A turn that is too long


def test_oversize_results_are_cut_oldest_first_and_visibly() -> None:
    log = [user("u" * 400), asks("a", "b"), result("a", "x" * 4000), result("b", "y" * 4000)]
    found = window(log, tokens=1500, limit=50)
    assert found.shortened == 1
    assert found.tokens <= 1500
    assert "\n[4000 characters, of which the middle is not shown]\n" in str(found.messages[2].content)
    assert found.messages[3:] == log[3:]
    assert found.messages[0] == log[0]


def test_results_keep_a_little_however_small_the_room() -> None:
    log = [user("q"), asks("a", "b", "c"), result("a", "x" * 4000), result("b", "y"), result("c", "z" * 4000)]
    found = window(log, tokens=0, limit=50)
    assert (found.shortened, texts(found)[3]) == (2, "y")
    assert all(100 < len(str(found.messages[at].content)) < 300 for at in (2, 4))


def test_parts_of_a_result_are_cut_as_text() -> None:
    parts = [{"type": "text", "text": "x" * 4000}, {"type": "text", "text": "end"}]
    log = [user("q"), asks("a"), Message(role="tool", tool_call_id="a", content=parts)]
    content = window(log, tokens=500, limit=50).messages[2].content
    assert isinstance(content, str)
    assert content.endswith("x\nend")


def test_images_of_a_result_go_before_its_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    seen = Message(role="tool", tool_call_id="a", content=[{"type": "text", "text": "a map"}, image])
    found = window([user("q"), asks("a"), seen], tokens=200, limit=50)
    assert found.messages[2].content == "a map\n[image]"


def test_a_result_that_would_not_become_shorter_stays() -> None:
    log = [user("q"), asks("a"), result("a", "x")]
    found = window(log, tokens=0, limit=50, estimate=lambda _: 100)
    assert (found.messages, found.shortened) == (pair(log), 0)


def steps(count: int, size: int = 1) -> list[Message]:
    return [message for n in range(count) for message in (asks(f"c{n}"), result(f"c{n}", f"{n} " * size))]


def test_the_earlier_steps_of_a_long_turn_are_left_out_and_its_question_stays() -> None:
    found = window([*turns(1), user("q"), *steps(20)], tokens=14, limit=50, estimate=one)
    notes = ["[2 earlier messages are not shown]", "[16 earlier steps of this turn are not shown]"]
    assert texts(found)[:3] == [notes[0], "q", notes[1]]
    assert texts(found)[3:] == ["", "16 ", "", "17 ", "", "18 ", "", "19 "]
    assert (found.left_out, found.tokens <= 14, found.is_cut) == (34, True, True)


def test_of_a_turn_that_is_too_long_the_last_step_stays() -> None:
    found = window([user("q"), *steps(2)], tokens=0, limit=50, estimate=one)
    assert texts(found) == ["q", "[1 earlier step of this turn is not shown]", "", "1 "]


def beginnings(log: list[Message], first: int, **limits: Any) -> list[object]:
    """What requests begin with behind the note while a log grows; the same one in a row counts once."""
    found = [texts(window(log[:end], **limits)) for end in range(first, len(log) + 1)]
    begun = [next(text for text in shown if not str(text).startswith("[")) for shown in found]
    return [text for at, text in enumerate(begun) if not at or text != begun[at - 1]]


@pytest.mark.parametrize("limits", [{"tokens": 400, "limit": 1000}, {"tokens": 10**6, "limit": 60}])
def test_the_beginning_of_what_is_shown_moves_rarely(limits: dict[str, int]) -> None:
    moved = beginnings(turns(400), 100, **limits)
    assert 5 < len(moved) < 60
    assert len(set(moved)) == len(moved)


def test_the_beginning_of_a_long_turn_moves_rarely() -> None:
    log = [user("q"), *steps(300, 4)]
    firsts = [texts(window(log[:end], tokens=1000, limit=50))[1] for end in range(101, len(log) + 1, 2)]
    moved = [first for first, before in zip(firsts[1:], firsts, strict=False) if first != before]
    assert len(moved) == len(set(moved))
    assert 10 < len(moved) < 40


def test_messages_that_are_not_at_hand_are_left_out_with_a_note() -> None:
    found = recent(reversed(turns(30)), count=300, tokens=10**6, limit=1000)
    assert (texts(found)[0], found.is_cut) == (f"[{found.left_out} earlier messages are not shown]", True)
    assert found.left_out >= 240


# Reading no more than needed


@pytest.mark.parametrize(("tokens", "most"), [(10**9, 50), (300, 10**9)])
def test_little_more_is_read_than_is_shown(tokens: int, most: int) -> None:
    read = 0

    def endless() -> Iterator[Message]:
        nonlocal read
        while True:
            for message in (says("a"), user("q")):
                read += 1
                yield message

    found = recent(endless(), count=10**6, tokens=tokens, limit=most)
    assert found.left_out == 10**6 - (len(found.messages) - 1)
    assert read <= 2 * len(found.messages) + 2


@pytest.mark.parametrize(("tokens", "most"), [(10**9, 50), (300, 10**9)])
def test_an_endless_older_turn_is_not_read_to_its_beginning(tokens: int, most: int) -> None:
    read = 0

    def endless() -> Iterator[Message]:
        nonlocal read
        yield user("now")
        while True:
            for message in (result("a"), asks("a")):
                read += 1
                yield message

    found = recent(endless(), count=10**6, tokens=tokens, limit=most)
    assert texts(found) == ["[999999 earlier messages are not shown]", "now"]
    assert read < 110


# Of all histories


@FEW
@given(histories(), st.sampled_from(("", "so far")), st.integers(0, 600), st.integers(0, 12))
def test_a_window_is_the_end_of_what_is_paired(log: list[Message], summary: str, tokens: int, most: int) -> None:
    found = window(log, summary=summary, tokens=tokens, limit=most)
    whole = window(log, tokens=10**9, limit=10**9)
    bodies.check(found.messages)
    assert pair(found.messages) == found.messages
    assert unnamed(whole.messages[-len(pair(log)) :]) == unnamed(pair(log))
    rest = found.messages[1:] if found.left_out or summary else found.messages
    if not found.shortened and not any("of this turn" in str(text) for text in texts(found)):
        assert unnamed(rest) == unnamed(whole.messages)[len(whole.messages) - len(rest) :]


@FEW
@given(histories(), st.integers(0, 600), st.integers(0, 12))
@example([asks("", ""), Message(role="user"), result(""), result("")], 0, 0)
def test_only_a_newest_turn_may_be_over_the_limits(log: list[Message], tokens: int, most: int) -> None:
    found = window(log, tokens=tokens, limit=most)
    # A user's message without content is shown to no model, and begins no turn.
    begin = max((at for at, message in enumerate(log) if message.role == "user" and pair([message])), default=0)
    if found.tokens > tokens or len(found.messages) > most + 1:
        newest = [message.content for message in pair(log[begin:])]
        assert len(found.messages) <= len(newest) + 1
    assert INTERRUPTED not in texts(found) or found.interrupted


def unnamed(messages: list[Message]) -> list[tuple[str, object]]:
    """Without ids, which are made unique within what is shown."""
    return [(message.role, message.content) for message in messages]


def test_a_message_is_estimated_once_while_it_is_remembered() -> None:
    asked: list[Message] = []

    def estimate(message: Message) -> int:
        asked.append(message)
        return 7

    costs = Costs(estimate, limit=2)
    messages = [Message(role="user", content=str(number)) for number in range(3)]
    assert [costs(message) for message in (*messages[:2], *messages[:2])] == [7] * 4
    assert len(asked) == 2
    assert [costs(message) for message in messages] == [7] * 3
    assert len(asked) == 3


# What is remembered of a session that is looked at again and again


LOOKS = ((10**9, 10**9), (32_000, 50), (300, 6), (60, 50), (0, 0), (1000, 3))
"""Tokens and messages that there is room for."""
STEPS = ("say", "say", "say", "say", "cut", "rewind", "read again")


@MANY
@given(st.lists(histories(), min_size=1, max_size=4), st.lists(st.sampled_from(STEPS), max_size=12), st.data())
def test_what_is_remembered_changes_no_window(logs: list[list[Message]], steps: list[str], data: Any) -> None:
    """A session grows message by message, is truncated, rewound and read again, and is looked at after each step."""
    facts = st.sampled_from(({}, {}, {RECALLED: "a fact"}, {RECALLED: "a fact", SAID_AS: "system"}))
    coming = [replace(message, extra={**message.extra, **data.draw(facts)}) for log in logs for message in log]
    known, log = Turns(limit=8), list[Message]()
    for looks, step in enumerate([*steps, *("say" for _ in coming)], 1):
        match step:
            case "say" if coming:
                log.append(coming.pop(0))
            case "cut":
                del log[: data.draw(st.integers(0, 5))]
            case "rewind":
                del log[len(log) - data.draw(st.integers(0, min(5, len(log)))) :]
            case "read again":
                log = [replace(message) for message in log]
            case _:
                pass
        tokens, limit = LOOKS[looks % len(LOOKS)]
        summary, count = ("", "so far")[looks // 2 % 2], len(log) + (0, 0, 7)[looks % 3]
        seen = [*log, *(data.draw(st.lists(messages(), max_size=1)) if looks % 5 == 0 else ())]
        if looks % 4 == 3:
            seen = list(map(without_facts, seen))
        show = partial(recent, count=max(count, len(seen)), summary=summary, tokens=tokens, limit=limit)
        fresh = show(reversed(seen))
        assert show(reversed(seen), known=known) == fresh
        assert show(reversed(seen), known=known) == fresh


def test_a_turn_is_worked_out_once_while_it_is_remembered() -> None:
    asked: list[object] = []

    def estimate(message: Message) -> int:
        asked.append(message.content)
        return 1

    known, log = Turns(estimate), [*turns(3), user("q3")]
    before = recent(reversed(log), count=7, tokens=100, limit=50, known=known)
    asked.clear()
    log += [says("a3"), user("q4")]
    after = recent(reversed(log), count=9, tokens=100, limit=50, known=known)
    assert [text for text in asked if text in {"q0", "a0", "q1", "a1", "q2", "a2"}] == []
    assert {"q3", "a3", "q4"} <= set(asked)
    assert texts(before) == ["q0", "a0", "q1", "a1", "q2", "a2", "q3"]
    assert texts(after) == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3", "q4"]


def test_what_is_shown_as_it_is_stays_the_same_value() -> None:
    call = Message(role="assistant", content="", tool_calls=(ToolCall(id="a", name="shell", arguments={}),))
    log = [user("q"), call, result("a"), says("done"), user("more")]
    assert all(shown is said for shown, said in zip(window(log, tokens=1000, limit=50).messages, log, strict=True))


def test_a_result_that_comes_late_changes_a_turn_that_was_remembered() -> None:
    known, log = Turns(), [user("q"), asks("a"), user("wait")]
    first = recent(reversed(log), count=3, tokens=1000, limit=50, known=known)
    log += [result("a")]
    second = recent(reversed(log), count=4, tokens=1000, limit=50, known=known)
    assert (texts(first), first.interrupted) == (["q", "", INTERRUPTED, "wait"], 1)
    assert (texts(second), second.interrupted) == (["q", "", "done", "wait"], 0)


def test_turns_that_are_too_many_are_worked_out_again() -> None:
    asked: list[object] = []

    def estimate(message: Message) -> int:
        asked.append(message.content)
        return 1

    known, log = Turns(estimate, limit=2), [*turns(4), user("now")]
    first = recent(reversed(log), count=9, tokens=100, limit=50, known=known)
    asked.clear()
    assert recent(reversed(log), count=9, tokens=100, limit=50, known=known) == first
    assert {"q0", "q1", "q2", "q3"} & set(asked)
