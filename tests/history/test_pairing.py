"""Whatever a log holds, what is shown has every call answered once, directly behind it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from nacre.history.pairing import INTERRUPTED, attach_results, pair, settle, without_facts
from nacre.messages import Message, ToolCall
from tests.histories import histories, messages
from tests.history import bodies

FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
PNG = "data:image/png;base64,iVBORw0KGgo="


def user(content: Any) -> Message:
    return Message(role="user", content=content)


def says(content: Any) -> Message:
    return Message(role="assistant", content=content)


def asks(*ids: str, name: str = "shell") -> Message:
    calls = tuple(ToolCall(id=id, name=name, arguments={}) for id in ids)
    return Message(role="assistant", content="", tool_calls=calls)


def result(id: str | None, content: Any = "done", name: str | None = "shell") -> Message:
    return Message(role="tool", tool_call_id=id, name=name, content=content)


def short(found: list[Message]) -> list[str]:
    """Messages in few characters: a call as its id and a question mark, a result as id and content."""
    return [
        "".join(f"{call.id}?" for call in message.tool_calls)
        or (f"{message.tool_call_id}={message.content}" if message.role == "tool" else f"{message.content}")
        for message in found
    ]


def shown(*log: Message) -> list[str]:
    return short(pair(log))


A, B = result("a", "A"), result("b", "B")


# Which result goes where


def test_an_item_without_a_role_is_shown_to_no_model_and_parts_no_call_from_its_result() -> None:
    item = Message.from_mapping({"type": "reasoning", "id": "r", "summary": []})
    call = Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments={}),))
    result = Message(role="tool", tool_call_id="c", name="f", content="done")
    user = Message(role="user", content="a")
    assert pair([item, user, call, item, result, item]) == pair([user, call, result])
    assert pair([Message(role="", content="a thought", extra={"type": "reasoning"})]) == []


def test_what_is_paired_stays_as_it_is() -> None:
    log = [user("q"), asks("a", "b"), A, B, says("done"), user("thanks")]
    assert pair(log) == log


def test_a_call_without_a_result_was_interrupted() -> None:
    found = pair([user("q"), asks("a", "b"), B])
    assert short(found) == ["q", "a?b?", f"a={INTERRUPTED}", "b=B"]
    assert (found[2].name, found[2].extra) == ("shell", {"failed": True})


def test_results_come_in_the_order_of_the_calls() -> None:
    assert shown(user("q"), asks("a", "b"), B, A) == ["q", "a?b?", "a=A", "b=B"]


def test_words_between_a_call_and_its_result_come_behind_it() -> None:
    assert shown(user("q"), asks("a"), user("wait"), A) == ["q", "a?", "a=A", "wait"]


def test_a_result_finds_its_call_behind_other_calls() -> None:
    assert shown(asks("a"), asks("b"), A, B) == ["a?", "a=A", "b?", "b=B"]


def test_a_result_without_a_call_is_left_out_and_counted() -> None:
    found = settle([A, user("q"), asks("b"), A, B, says("done")])
    assert (short(found.messages), found.orphans) == (["q", "b?", "b=B", "done"], 2)


def test_of_several_results_the_last_counts() -> None:
    found = settle([asks("a"), A, result("a", "again"), result("a", "at last")])
    assert (short(found.messages), found.orphans, found.interrupted) == (["a?", "a=at last"], 2, 0)
    assert shown(asks("a", "a"), A, B, result("a", "again"), result("a", "at last")) == [
        "a?a-2?", "a=A", "a-2=at last"
    ]  # fmt: skip


def test_a_result_finds_its_call_behind_an_answer() -> None:
    found = settle([asks("a"), says("it runs"), user("and?"), A, says("done")])
    assert (short(found.messages), found.orphans, found.interrupted) == (
        ["a?", "a=A", "it runs", "and?", "done"], 0, 0
    )  # fmt: skip


def test_an_answer_ends_the_wait_for_results_that_name_no_call() -> None:
    found = settle([asks("a"), says("done"), result(None)])
    assert (short(found.messages), found.orphans, found.interrupted) == (["a?", f"a={INTERRUPTED}", "done"], 1, 1)


def test_a_second_result_does_not_go_to_an_older_call_of_the_same_id() -> None:
    log = (asks("a"), user("again"), asks("a"), A, result("a", "twice"))
    assert shown(*log) == ["a?", f"a={INTERRUPTED}", "again", "a-2?", "a-2=twice"]


def test_results_without_an_id_go_to_the_newest_call_that_waits() -> None:
    log = (asks("", ""), asks(""), result("", "1"), result(None, "2"), result(None, "3"), result(None, "4"))
    assert shown(*log) == ["call?call-2?", "call=2", "call-2=3", "call-3?", "call-3=1"]


def test_a_result_without_an_id_goes_by_its_name() -> None:
    log = (asks("", name="shell"), asks("", name="read"), result("", "1"), result("", "2", name=None))
    assert shown(*log) == ["call?", "call=1", "call-2?", "call-2=2"]


def test_a_result_that_finds_no_call_in_a_piece_seeks_it_before() -> None:
    nameless = result(None)
    piece = attach_results([user("w"), nameless, A, says("x"), B, nameless])
    assert (piece.seeking, piece.orphans) == ([nameless, A, B], 1)


# Ids, names and arguments


def test_ids_that_come_again_become_unique() -> None:
    log = (asks("a", "a"), A, result("a", "B"), user("q"), asks("a", "a-2"), A)
    assert shown(*log) == [
        "a?a-2?", "a=A", "a-2=B", "q", "a-3?a-2-2?", "a-3=A", f"a-2-2={INTERRUPTED}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "made"),
    [
        (("functions.shell:0",), ["functions_shell_0"]),
        (("é",), ["_"]),
        (("x" * 41, "x" * 60), ["x" * 40, "x" * 38 + "-2"]),
    ],
)
def test_ids_take_a_form_that_all_providers_accept(ids: tuple[str, ...], made: list[str]) -> None:
    found = pair([asks(*ids), *map(result, ids)])
    assert [call.id for call in found[0].tool_calls] == made
    assert [message.tool_call_id for message in found[1:]] == made


@pytest.mark.parametrize(
    ("name", "made"), [("", "unknown"), ("functions.shell", "functions_shell"), ("y" * 80, "y" * 64)]
)
def test_names_take_a_form_that_all_providers_accept(name: str, made: str) -> None:
    found = pair([asks("a", name=name), result("a", name=name)])
    assert (found[0].tool_calls[0].name, found[1].name) == (made, made)


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ("null", {}),
        ("[1]", {"value": [1]}),
        (7, {"value": 7}),
        ('{"a": ', {"unreadable": '{"a": '}),
        ("[" * 5000, {"unreadable": "[" * 5000}),
    ],
)
def test_arguments_become_an_object(arguments: Any, made: dict[str, Any]) -> None:
    call = ToolCall(id="a", name="shell", arguments=arguments, extra={"signature": "s"})
    found = pair([Message(role="assistant", tool_calls=(call,))])
    assert found[0].tool_calls == (ToolCall(id="a", name="shell", arguments=made, extra={"signature": "s"}),)


def test_a_call_of_something_else_than_a_function_is_shown_as_one() -> None:
    call = ToolCall(id="a", extra={"type": "custom", "custom": {"input": "x"}})
    found = pair([Message(role="assistant", tool_calls=(call,))])
    assert found[0].tool_calls == (ToolCall(id="a", name="custom", arguments={"custom": {"input": "x"}}),)


# Roles and contents


@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "text", "text": " "}], [{"type": "thinking"}]])
def test_an_answer_that_says_nothing_is_left_out(content: Any) -> None:
    assert shown(user("q"), says(content)) == ["q"]


@pytest.mark.parametrize("content", ["", " \n", [], [""]])
def test_a_user_who_says_nothing_is_shown_to_say_nothing(content: Any) -> None:
    assert shown(user(content)) == ["[empty message]"]


def test_a_users_message_without_any_content_is_left_out() -> None:
    assert shown(user("q"), user(None), says("a")) == ["q", "a"]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_of_attachments_alone_says_so(role: str) -> None:
    assert shown(Message(role=role, media=("a.png",))) == ["[attachment]"]


@pytest.mark.parametrize(
    ("content", "made"),
    [("be brief", "[system] be brief"), (["be", PNG], None), ("", None)],
)
def test_what_has_a_role_of_its_own_is_shown_as_a_users_words(content: Any, made: str | None) -> None:
    found = pair([Message(role="system", content=content)])
    if isinstance(content, list):
        assert [part["text"] for part in found[0].content or () if isinstance(part, dict)] == ["[system]", "be", PNG]
    else:
        assert [message.content for message in found] == ([made] if made else [])
    assert all(message.role == "user" and message.extra == {"said_as": "system"} for message in found)


def test_an_answer_does_not_end_with_white_space() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b \n"}]
    assert shown(says(" a \n")) == [" a"]
    assert pair([says(parts)])[0].content == [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("part", "made"),
    [
        ({"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "a"}),
        ("a", {"type": "text", "text": "a"}),
        (7, {"type": "text", "text": "[part]"}),
        ({"type": 7}, {"type": "text", "text": "[part]"}),
        ({"type": "audio", "data": "…"}, {"type": "text", "text": "[audio]"}),
        ({"type": "image_url", "image_url": {"url": PNG}}, {"type": "image_url", "image_url": {"url": PNG}}),
        ({"type": "image_url", "image_url": PNG}, {"type": "image_url", "image_url": {"url": PNG}}),
        ({"type": "image_url", "image_url": {"url": PNG[:-1]}}, {"type": "text", "text": "[image]"}),
        ({"type": "image_url", "image_url": "file:///a"}, {"type": "text", "text": "[image]"}),
        ({"type": "image_url", "image_url": None}, {"type": "text", "text": "[image]"}),
        ({"type": "image_url", "image_url": "https://a/b"}, {"type": "text", "text": "[image at https://a/b]"}),
    ],
)
def test_parts_are_text_or_an_image_that_is_here(part: Any, made: dict[str, Any]) -> None:
    assert pair([user([part, {"type": "text", "text": ""}])])[0].content == [made]


def test_users_and_results_show_images_and_answers_do_not() -> None:
    image = {"type": "image_url", "image_url": {"url": PNG}}
    found = pair([asks("a"), result("a", [image]), Message(role="assistant", content=[image])])
    assert [message.content for message in found[1:]] == [[image], [{"type": "text", "text": "[image]"}]]


def test_fields_that_belong_to_other_roles_are_not_shown() -> None:
    odd = Message(role="user", content="q", tool_calls=(ToolCall(id="a"),), tool_call_id="a")
    assert pair([odd]) == [user("q")]


# Of all histories


@FEW
@given(histories())
def test_what_is_paired_is_paired_and_taken_by_all(log: list[Message]) -> None:
    found = pair(log)
    assert pair(found) == found
    bodies.check([user("first"), *found])


@FEW
@given(histories(), messages())
def test_what_is_appended_changes_nothing_before_it_but_the_words_for_its_call(
    log: list[Message], new: Message
) -> None:
    before, after = pair(log), pair([*log, new])
    if new.role != "tool":
        assert after[: len(before)] == before
        return
    changed = [at for at, (old, now) in enumerate(zip(before, after, strict=True)) if old != now]
    assert len(changed) <= 1
    assert all(before[at].role == "tool" and after[at].extra == new.extra for at in changed)
    assert new.tool_call_id or all(before[at].content == INTERRUPTED for at in changed)


# What was remembered when words came


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("Where am I?", "You live in Oslo.\n\nWhere am I?"),
        (
            [{"type": "text", "text": "Where?"}],
            [{"type": "text", "text": "You live in Oslo."}, {"type": "text", "text": "Where?"}],
        ),
    ],
)
def test_what_is_remembered_comes_before_the_words(content: Any, shown: Any) -> None:
    (message,) = pair([Message(role="user", content=content, extra={"recalled": "You live in Oslo.", "a": 1})])
    assert (message.content, message.extra) == (shown, {"a": 1})
    assert pair([message]) == [message]


@pytest.mark.parametrize("recalled", ["", "  ", 7, None])
def test_nothing_that_is_remembered_adds_nothing(recalled: Any) -> None:
    (message,) = pair([Message(role="user", content="hi", extra={"recalled": recalled})])
    assert message.content == "hi"


def test_what_was_recalled_can_be_left_out() -> None:
    reminded = Message(role="user", content="hi", extra={"recalled": "a fact", "id": "1"})
    assert without_facts(reminded) == Message(role="user", content="hi", extra={"id": "1"})
    plain = Message(role="user", content="hi")
    assert without_facts(plain) is plain
