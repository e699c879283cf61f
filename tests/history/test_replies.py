"""Words that were stored before under an id, and what they were answered with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.history.replies import (
    MessagesById,
    Taken,
    find_reply,
    id_of,
    ids_answered,
    ids_to_answer,
    ids_waiting,
    is_final,
    last_words,
    place_of_id,
    reply_among,
    turn_starts,
)
from nacre.messages import Message, ToolCall
from nacre.records import SetMeta
from nacre.sessions import Sessions


@pytest.fixture
def sessions(place: str) -> Iterator[Sessions]:
    with nacre.open(place) as opened:
        yield opened


def ask(sessions: Sessions, text: str, *before: Any) -> None:
    """Say something under an id that is the text itself."""
    sessions.submit("k", [*before, Message(role="user", content=text)], id=text).result()


def answer(sessions: Sessions, text: str) -> None:
    sessions.add_message("k", "assistant", text)


def found(sessions: Sessions, text: str, *, id: str = "") -> Any:
    message = sessions._store.read(
        "k",
        lambda view: find_reply(view, text, id=id or text, ends=lambda one: one.role == "assistant"),
    )
    return None if message is None else message.content


def test_each_has_its_own_answer_when_a_summary_has_taken_the_place_of_all(sessions: Sessions) -> None:
    ask(sessions, "a", SetMeta({"system": "Be brief."}))
    answer(sessions, "to a")
    ask(sessions, "b", Message(role="user", content="with b"))
    answer(sessions, "to b")
    sessions.set_summary("k", "All of it.", upto=sessions.snapshot("k").numbers[-1])
    assert (found(sessions, "a"), found(sessions, "b")) == ("to a", "to b")


def test_an_answer_that_was_stored_with_its_message_is_found(sessions: Sessions) -> None:
    call = ToolCall(id="1", name="echo", arguments={})
    for text, *rest in (
        ("a", Message(role="assistant", content="to a")),
        ("b", Message(role="assistant", content="", tool_calls=(call,))),
    ):
        sessions.submit("k", [Message(role="user", content=text), *rest], id=text).result()
    sessions.add_full_message("k", {"role": "tool", "tool_call_id": "1", "content": "ran"})
    answer(sessions, "to b")
    ask(sessions, "c", *(Message(role=role, content="before c") for role in ("user", "assistant")))
    answer(sessions, "to c")
    reply = sessions.read("k", lambda view: find_reply(view, "b", id="b"))
    assert reply is not None
    assert (found(sessions, "a"), reply.content, found(sessions, "c")) == ("to a", "to b", "to c")


def test_what_was_moved_out_of_the_log_is_found(root: Path) -> None:
    with nacre.open(root) as sessions:
        ask(sessions, "a")
        answer(sessions, "to a")
        answer(sessions, "long " * 20_000)
        for _ in range(8):
            sessions.add_message("k", "user", "x" * 60_000)
        sessions.truncate_history("k", 0)
        sessions.save("k")
        assert any((root / "cold").iterdir())
        assert found(sessions, "a") == "to a"


def test_words_without_an_answer_wait_for_the_one_that_comes(sessions: Sessions) -> None:
    ask(sessions, "a")
    ask(sessions, "b")
    assert found(sessions, "a") is None
    answer(sessions, "to both")
    assert (found(sessions, "a"), found(sessions, "b")) == ("to both", "to both")


def test_words_that_were_taken_back_do_not_get_the_answer_to_others(sessions: Sessions) -> None:
    ask(sessions, "a")
    sessions.clear("k")
    ask(sessions, "b")
    answer(sessions, "to b")
    with pytest.raises(Taken, match="'a' was undone"):
        found(sessions, "a")


def test_an_answer_that_was_taken_back_is_still_the_one_that_was_given(sessions: Sessions) -> None:
    ask(sessions, "a")
    answer(sessions, "to a")
    sessions.clear("k")
    assert found(sessions, "a") == "to a"


def test_words_that_were_gone_back_to_are_answered_by_what_came_behind_them(sessions: Sessions) -> None:
    ask(sessions, "a")
    sessions.add_message("k", "user", "aside")
    sessions.rewind("k", 2)
    answer(sessions, "to a")
    assert found(sessions, "a") == "to a"


@pytest.mark.parametrize("id", ["a", "unknown"])
def test_other_words_under_an_id_have_no_answer(sessions: Sessions, id: str) -> None:
    ask(sessions, "a")
    answer(sessions, "to a")
    with pytest.raises(Taken, match=f"another message was sent with the id '{id}'"):
        found(sessions, "b", id=id)


@pytest.mark.parametrize(("extra", "id"), [({}, None), ({"origin": 1}, None), ({"origin": {"id": "a"}}, "a")])
def test_words_have_the_name_that_their_origin_gave_them(extra: dict[str, Any], id: str | None) -> None:
    assert id_of(Message(role="user", extra=extra)) == id


def test_what_is_said_during_a_turn_begins_none() -> None:
    assert turn_starts(["user", "assistant", "tool", "user", "assistant", "user", "user"]) == [0, 5, 6]
    assert turn_starts([]) == []


def test_the_users_newest_message_is_found_also_under_a_summary(sessions: Sessions) -> None:
    assert sessions.read("k", last_words) is None
    answer(sessions, "hello")
    assert sessions.read("k", last_words) is None
    ask(sessions, "a")
    answer(sessions, "b")
    sessions.set_summary("k", "what was said", upto=sessions.snapshot("k").numbers[-1])
    assert getattr(sessions.read("k", last_words), "content", None) == "a"


@pytest.mark.parametrize(
    ("message", "is_end"),
    [
        (Message(role="assistant", content="a"), True),
        (Message(role="assistant", tool_calls=(ToolCall(id="1", name="f", arguments={}),)), False),
        (Message(role="user", content="a"), False),
    ],
)
def test_a_turn_ends_with_an_answer_without_calls(message: Message, is_end: bool) -> None:
    assert is_final(message) is is_end


def test_a_reply_that_names_the_id_is_found_though_it_does_not_follow_the_message(sessions: Sessions) -> None:
    ask(sessions, "a")
    sessions.clear("k")
    ask(sessions, "b")
    answer(sessions, "to b")
    sessions.add_full_message("k", {"role": "assistant", "content": "to a", "answers": ["a"]})
    assert (found(sessions, "a"), found(sessions, "b")) == ("to a", "to b")


def test_a_reply_answers_what_it_names() -> None:
    assert ids_answered(Message(role="assistant", extra={"answers": ["a", "b"]})) == ["a", "b"]
    assert ids_answered(Message(role="assistant", extra={"answers": 1})) == []


def said(id: str, role: str = "user") -> Message:
    return Message(role=role, content=f"of {id}", extra={"origin": {"id": id}} if id else {})


def test_what_waits_came_since_the_last_reply() -> None:
    messages = [said("a"), said("", "assistant"), said("b"), said(""), said("", "tool"), said("c")]
    assert (ids_waiting(messages), ids_waiting(messages[:2]), ids_waiting([])) == (["b", "c"], [], [])


@pytest.mark.parametrize(
    ("first", "ids"), [(None, ["b", "c"]), ("b", ["b", "c"]), ("c", ["c"]), ("old", ["old", "b", "c"]), ("", [])]
)
def test_a_turn_answers_its_own_message_and_what_came_after_it(first: str | None, ids: list[str]) -> None:
    messages = [said("a"), Message(role="assistant", content="A"), said("b"), said("c")]
    assert ids_to_answer(messages, first) == ids


def test_a_reply_among_messages_is_the_first_one_after_its_message() -> None:
    messages = [said("a"), said("b"), said("", "assistant"), said("c")]
    assert reply_among(messages, "of a", id="a") == reply_among(messages, "of b", id="b") == messages[2]
    assert [reply_among(messages, f"of {id}", id=id) for id in ("c", "d", "")] == [None, None, None]
    with pytest.raises(Taken, match="another message was sent with the id 'a'"):
        reply_among(messages, "other", id="a")


# By id, while the list grows and loses its beginning


@settings(deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.sampled_from(("", "a", "b", "c", "d")), st.integers(1, 3)), max_size=30))
def test_an_id_is_found_where_the_first_message_with_it_is(steps: list[str | int]) -> None:
    messages: list[Message] = []
    by_id = MessagesById()
    for step in steps:
        if isinstance(step, int):
            by_id.drop(messages[:step])
            del messages[:step]
        else:
            added = [Message(role="user", content="x", extra={"origin": {"id": step}} if step else {})]
            by_id.add(added)
            messages += added
        for id in ("", "a", "b", "c", "d"):
            assert by_id.place(id) == place_of_id(messages, id)
