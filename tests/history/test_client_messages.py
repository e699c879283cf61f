"""Messages as the clients of OpenAI and Anthropic take them, one by one and as whole histories."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall
from tests import provider_rules
from tests.histories import messages

SETTINGS = settings(derandomize=True, deadline=None, max_examples=200)
PNG = "data:image/png;base64,iVBORw0KGgo="
CALL = ToolCall(id="c1", name="weather", arguments={"city": "Oslo"}, extra={"index": 0})
CUSTOM = ToolCall(extra={"type": "custom", "custom": {"name": "sh", "input": "ls"}})
ITEM = Message.from_mapping({"type": "reasoning", "id": "r", "summary": []})
EVERYTHING = [
    Message(role="system", content="Be brief.", name="boss"),
    Message(role="developer", content=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]),
    ITEM,
    Message(
        role="user",
        name="Ada",
        content=[
            "words",
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"type": "image", "data": b"\x89PNG", "mimeType": "image/png"},
            {"type": "input_image", "image_url": "https://example.org/a.png"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}},
            {"type": "hologram", "raw": b"12"},
            b"123",
        ],
    ),
    Message(
        role="assistant",
        content=[{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Let me see. "}],
        reasoning="hm",
        model="m",
        tool_calls=(CALL, ToolCall(id="c 2", name="raw tool", arguments={"b": b"1"})),
    ),
    Message(role="tool", tool_call_id="c1", name="weather", content="rain"),
    ITEM,
    Message(role="tool", tool_call_id="c 2", content=[{"type": "image_url", "image_url": PNG}], extra={"failed": True}),
    Message(role="narrator", content="Later."),
    Message(role="system", content="Be brief, again."),
    Message(role="assistant", content="It rains.", extra={"refusal": "no more", "stopped": "x"}),
    Message(role="user", name="two words"),
    Message(role="assistant"),
    Message(role="assistant", tool_calls=(CUSTOM,)),
    Message(role="assistant", tool_calls=(ToolCall(id="x" * 60, extra={"type": "server", "a": 1}),)),
    Message(role="tool", content=None),
]  # fmt: skip


def test_a_plain_message_has_nothing_of_ours() -> None:
    message = Message(role="user", content="hi", model="m", media=("a.png",), extra={"recalled": "x"})
    assert message.to_openai() == {"role": "user", "content": "hi"}
    assert message.to_anthropic() == {"role": "user", "content": [{"type": "text", "text": "hi"}]}


def test_calls_have_their_arguments_as_text_and_as_an_object() -> None:
    message = Message(role="assistant", reasoning="hm", tool_calls=(CALL,))
    function = {"name": "weather", "arguments": '{"city":"Oslo"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert message.to_openai() == {"role": "assistant", "content": None, "tool_calls": calls}
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
    assert message.to_anthropic() == {"role": "assistant", "content": [use]}


@pytest.mark.parametrize(
    ("arguments", "text", "value"),
    [
        ('{"a": 1}', '{"a": 1}', {"a": 1}),
        ("", "{}", {}),
        (None, "null", {}),
        ('{"a": ', '{"a": ', {"unreadable": '{"a": '}),
        ([1], "[1]", {"value": [1]}),
        ({"a": b"12"}, '{"a":"2 bytes"}', {"a": "2 bytes"}),
    ],
)
def test_arguments_of_any_kind_are_taken(arguments: Any, text: str, value: Any) -> None:
    call = ToolCall(id="c", name="f", arguments=arguments)
    assert (call.to_openai()["function"]["arguments"], call.to_anthropic()["input"]) == (text, value)


def test_a_call_of_something_else_than_a_function_is_one_where_the_client_has_no_other() -> None:
    own = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    custom, server = ToolCall.from_mapping(own), ToolCall(id="c", extra={"type": "a server's", "x": 1})
    assert custom.to_openai() == own
    use = {"type": "tool_use", "id": "c", "name": "custom", "input": {"custom": {"name": "sh", "input": "ls"}}}
    assert custom.to_anthropic() == use
    assert server.to_openai()["function"] == {"name": "a_server_s", "arguments": '{"x":1}'}


def test_only_fields_that_the_client_has_go_along() -> None:
    named = Message(role="assistant", content="a", name="Ada", extra={"refusal": "no", "stopped": "x"}).to_openai()
    assert named == {"role": "assistant", "content": "a", "name": "Ada", "refusal": "no"}
    assert Message(role="user", content="a", name="two words").to_openai() == {"role": "user", "content": "a"}


def test_a_models_signed_thoughts_are_its_own_blocks() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    message = Message(role="assistant", content=[thought, {"type": "thinking", "thinking": "unsigned"}, "so "])
    assert message.to_anthropic()["content"] == [thought, {"type": "text", "text": "so"}]
    assert message.to_openai()["content"] == [{"type": "text", "text": "so "}]


def test_a_result_is_a_users_turn_to_anthropic() -> None:
    result = Message(role="tool", tool_call_id="c1", name="f", content="no", extra={"failed": True})
    block = {
        "type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "no"}], "is_error": True
    }  # fmt: skip
    assert result.to_anthropic() == {"role": "user", "content": [block]}
    assert result.to_openai() == {"role": "tool", "tool_call_id": "c1", "content": "no"}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": PNG},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "input_image", "image_url": PNG},
        {"type": "image", "data": b"\x89PNG\r\n\x1a\n"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    ],
)
def test_an_image_of_any_shape_is_one_to_both(part: Any) -> None:
    message = Message(role="user", content=[part])
    assert message.to_openai()["content"] == [{"type": "image_url", "image_url": {"url": PNG}}]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert message.to_anthropic()["content"] == [{"type": "image", "source": source}]
    assert nacre.to_openai([message]) == [message.to_openai()]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "data": b"<svg/>", "mimeType": "image/svg+xml"},
        {"type": "image_url", "image_url": "file:///etc/passwd"},
        {"type": "image", "data": 7},
    ],
)
def test_an_image_that_anthropic_does_not_take_is_named(part: Any) -> None:
    assert Message(role="user", content=[part]).to_anthropic()["content"] == [{"type": "text", "text": "[image]"}]


def test_a_file_or_audio_is_given_to_openai_as_it_is() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert Message(role="user", content=[part]).to_openai()["content"] == [part]
    assert Message(role="assistant", content=[part]).to_openai()["content"] == [
        {"type": "text", "text": "[audio/wav, 3 B]"}
    ]


def test_a_role_of_nobodys_is_a_users_words() -> None:
    message = Message(role="narrator", content="Later.")
    assert message.to_openai() == {"role": "user", "content": "[narrator] Later."}
    assert Message(role="system", content="a").to_anthropic()["content"][0] == {"type": "text", "text": "[system]"}


def test_an_item_without_a_role_is_no_message_and_is_left_out_of_a_history() -> None:
    with pytest.raises(InvalidMessage, match="'reasoning' is no message that OpenAI takes"):
        ITEM.to_openai()
    with pytest.raises(InvalidMessage, match="that Anthropic takes"):
        ITEM.to_anthropic()
    assert (nacre.to_openai([ITEM]), nacre.to_anthropic([ITEM])) == ([], ("", []))


def test_a_history_has_its_system_text_apart_and_results_in_one_turn() -> None:
    system, turns = nacre.to_anthropic(EVERYTHING[:8])
    assert system == "Be brief.\n\nBe kind."
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "tool_result"]


def test_a_call_without_a_result_is_answered_as_interrupted() -> None:
    history = [Message(role="user", content="a"), Message(role="assistant", tool_calls=(CALL,))]
    assert nacre.to_openai(history)[-1]["content"] == "interrupted, outcome unknown"


def test_a_history_that_begins_with_an_answer_begins_with_a_users_turn() -> None:
    assert [one["role"] for one in nacre.to_openai([Message(role="assistant", content="a")])] == ["user", "assistant"]


@SETTINGS
@given(st.lists(messages(), min_size=1, max_size=8))
def test_any_history_is_taken_by_both(history: list[Message]) -> None:
    chat = nacre.to_openai(history)
    if any(message["role"] not in ("system", "developer") for message in chat):
        provider_rules.openai({"model": "m", "messages": chat})
    system, turns = nacre.to_anthropic(history)
    if turns:
        body = {"model": "m", "max_tokens": 9, "messages": turns, **({"system": system} if system.strip() else {})}
        provider_rules.anthropic(body)


def test_an_erased_message_says_so_to_a_model_alone_and_in_a_history() -> None:
    hole = Message(role="user", content="", extra={"redacted": True})
    assert hole.to_openai() == {"role": "user", "content": "[erased]"}
    assert nacre.to_openai([hole]) == [hole.to_openai()]
    assert hole.to_anthropic() == {"role": "user", "content": [{"type": "text", "text": "[erased]"}]}
    assert nacre.to_anthropic([hole]) == ("", [hole.to_anthropic()])


@pytest.mark.parametrize(
    "hole",
    [
        Message(role="tool", tool_call_id="c1", content="", extra={"redacted": True}),
        Message(role="assistant", content="", tool_calls=(CALL,), extra={"redacted": True}),
    ],
)
def test_only_what_had_words_says_that_they_are_erased(hole: Message) -> None:
    assert hole.to_openai()["content"] == (None if hole.tool_calls else "[erased]")
    assert ("[erased]" in str(hole.to_anthropic())) is not bool(hole.tool_calls)


def test_an_erased_message_of_another_role_keeps_its_role() -> None:
    hole = Message(role="narrator", content="", extra={"redacted": True})
    assert nacre.to_openai([hole]) == [{"role": "user", "content": "[narrator] [erased]"}]


def test_a_prompt_as_a_mapping_may_be_before_a_history() -> None:
    history: list[Message | dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        Message(role="user", content="a"),
    ]
    assert [one["role"] for one in nacre.to_openai(history)] == ["system", "user"]
    assert nacre.to_anthropic(history)[0] == "Be brief."


def test_what_is_no_history_is_refused() -> None:
    with pytest.raises(nacre.InvalidArgument, match="messages must be a list, not"):
        nacre.to_openai("a")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="a message must be a mapping, not int"):
        nacre.to_anthropic([5])  # type: ignore[list-item]


class Param(TypedDict):
    """What a client's own types call a message."""

    role: str


def test_a_type_checker_lets_a_client_have_a_history() -> None:
    chat: list[Param] = nacre.to_openai([Message(role="user", content="a")])
    turns: list[Param] = nacre.to_anthropic([Message(role="user", content="a")])[1]
    assert (chat[0]["role"], turns[0]["role"]) == ("user", "user")
