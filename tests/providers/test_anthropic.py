"""Anthropic's wire: turns that follow its rules, and answers put together from its events."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nacre.agent.ports import Context, Form, Reply, Usage
from nacre.errors import ContextOverflow, ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers.anthropic import SIGNED, Anthropic, Settings, body
from nacre.providers.model_server import Timeouts
from tests.ollama_server import Answer, OllamaServer, line, refusal
from tests.providers.peers import WEATHER, Listener, asked, conversation, replayed, sse

SETTINGS = Settings(model="m", max_tokens=100)
CACHED = {"cache_control": {"type": "ephemeral"}}
START = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 5, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _said(text: str) -> dict[str, Any]:
    return _delta(0, type="text_delta", text=text)


def _end(reason: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def _answered(*answers: Answer, listener: Listener | None = None) -> tuple[Reply, OllamaServer]:
    hears = listener or Listener()

    async def run() -> tuple[Reply, OllamaServer]:
        async with replayed(*answers) as server:
            provider = Anthropic("m", base_url=server.host, key="k", timeouts=Timeouts(sleep=hears.sleep))
            try:
                return await provider.complete(asked("Hello"), emit=hears), server
            finally:
                await provider.close()

    return anyio.run(run)


def _reply(*pieces: Any, listener: Listener | None = None) -> Reply:
    return _answered(Answer(chunks=(sse(*pieces),)), listener=listener)[0]


# ---- what is asked


def test_turns_alternate_and_results_come_first() -> None:
    found = body(Context(messages=conversation(), tools=[WEATHER]), SETTINGS)
    question, call, results = found["messages"]
    assert question == {"role": "user", "content": [_text("How is the weather?")]}
    assert call["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"unparsed": '{"city": '}},
    ]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "Snow."},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "not an object", "is_error": True},
        _text("And be quick.") | CACHED,
    ]


def test_words_that_came_before_a_result_still_stand_after_it() -> None:
    question, call, first, second, words = conversation()
    found = body(Context(messages=[question, call, first, words, second]), SETTINGS)
    assert [block["type"] for block in found["messages"][-1]["content"]] == ["tool_result", "tool_result", "text"]


def test_what_repeats_is_marked_for_the_cache() -> None:
    context = Context(system="Be kind.", messages=asked("a", "b").messages, tools=[WEATHER, WEATHER])
    found = body(context, SETTINGS)
    assert found["system"] == [_text("Be kind.") | CACHED]
    assert ["cache_control" in tool for tool in found["tools"]] == [False, True]
    assert found["tools"][0]["input_schema"] == WEATHER.parameters
    assert found["messages"] == [{"role": "user", "content": [_text("a"), _text("b") | CACHED]}]


def test_a_strict_form_goes_along_and_no_other() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    strict = replace(asked("Hello"), form=Form(schema=schema, strict=True))
    assert body(strict, SETTINGS)["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert "output_config" not in body(replace(asked("Hello"), form=Form(schema=schema)), SETTINGS)


def test_settings_go_along() -> None:
    asks = Settings(model="m", max_tokens=2000, thinking=1024, options={"top_k": 5})
    found = body(asked("Hello"), asks)
    assert (found["max_tokens"], found["stream"], found["top_k"]) == (2000, True, 5)
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert not {"system", "tools"} & found.keys()


def test_signed_thoughts_go_back_unchanged_to_the_model_that_had_them() -> None:
    signed = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    thought = Message(role="assistant", content="Yes.", reasoning="Hm.", model="m", extra={SIGNED: signed})
    context = Context(messages=[*asked("a").messages, thought, *asked("b").messages])
    assert body(context, SETTINGS)["messages"][1]["content"] == [*signed, _text("Yes.")]
    assert body(context, Settings(model="other"))["messages"][1]["content"] == [_text("Yes.")]


def test_nothing_is_sent_where_nothing_was_said() -> None:
    silent = Message(role="assistant", content=" \n")
    result = Message(role="tool", tool_call_id="a", content="")
    found = body(Context(messages=[*asked("a").messages, silent, *asked(" ", "b").messages]), SETTINGS)
    assert found["messages"] == [{"role": "user", "content": [_text("a"), _text("b") | CACHED]}]
    assert body(asked(" "), SETTINGS)["messages"][0]["content"] == [_text("(nothing)") | CACHED]
    assert "content" not in body(Context(messages=[result]), SETTINGS)["messages"][0]["content"][0]


def test_images_are_sources() -> None:
    urls = ["data:image/png;base64,AAAA", "https://example.org/a.png"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    found = body(Context(messages=[Message(role="user", content=[*parts, _text("?")])]), SETTINGS)
    data, link, _ = found["messages"][0]["content"]
    assert data["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert link["source"] == {"type": "url", "url": "https://example.org/a.png"}


def test_images_of_results_are_in_the_results() -> None:
    parts = [_text("a map"), {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    found = body(Context(messages=[Message(role="tool", tool_call_id="a", content=parts)]), SETTINGS)
    (block,) = found["messages"][0]["content"]
    assert block["content"] == [
        _text("a map"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]


def test_ids_of_other_providers_are_made_to_fit_alike() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(id="functions.weather:0", name="weather", arguments={}),))
    result = Message(role="tool", tool_call_id="functions.weather:0", content="Snow.")
    asks, answers = body(Context(messages=[call, result]), SETTINGS)["messages"]
    assert asks["content"][0]["id"] == answers["content"][0]["tool_use_id"]
    assert asks["content"][0]["id"].startswith("call_")


def test_version_and_key_are_in_every_head() -> None:
    _, server = _answered(Answer(chunks=(sse(START, _end("end_turn"), STOP),)))
    assert server.requests[0][0] == "/v1/messages"
    assert (server.heads[0]["x-api-key"], server.heads[0]["anthropic-version"]) == ("k", "2023-06-01")


# ---- what is answered


def test_text_usage_and_end() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10, "output_tokens": 1}
    listener = Listener()
    reply = _reply(
        {"type": "message_start", "message": {"id": "msg_1", "usage": usage}},
        _start(0, type="text", text=""),
        {"type": "ping"},
        _said("Good "),
        _said("day."),
        {"type": "content_block_stop", "index": 0},
        _end("end_turn", output_tokens=9),
        STOP,
        listener=listener,
    )
    assert reply.message == Message(role="assistant", content="Good day.", model="m")
    assert reply.usage == Usage(prompt=115, completion=9, cached=100, request="msg_1")
    assert (reply.finish, listener.text) == ("stop", "Good day.")


def test_thoughts_are_kept_with_their_signature() -> None:
    listener = Listener()
    reply = _reply(
        START,
        _start(0, type="thinking", thinking="", signature=""),
        _delta(0, type="thinking_delta", thinking="Hm. "),
        _delta(0, type="thinking_delta", thinking="Yes."),
        _delta(0, type="signature_delta", signature="c2ln"),
        _start(1, type="redacted_thinking", data="xyz"),
        _start(2, type="text", text="Good day."),
        _end("end_turn"),
        STOP,
        listener=listener,
    )
    assert reply.message.extra == {
        SIGNED: [
            {"type": "thinking", "thinking": "Hm. Yes.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "xyz"},
        ]
    }
    assert (reply.message.reasoning, listener.thoughts) == ("Hm. Yes.", "Hm. Yes.")


def test_thoughts_that_no_one_signed_are_only_thoughts() -> None:
    thinking = _start(0, type="thinking", thinking="Hm.", signature="")
    reply = _reply(START, thinking, _end("end_turn"), STOP)
    assert (reply.message.reasoning, reply.message.extra) == ("Hm.", {})


def test_calls_are_put_together() -> None:
    reply = _reply(
        START,
        _start(0, type="text", text="I look."),
        _start(1, type="tool_use", id="toolu_1", name="weather", input={}),
        _delta(1, type="input_json_delta", partial_json=""),
        _delta(1, type="input_json_delta", partial_json='{"city": "Os'),
        _delta(1, type="input_json_delta", partial_json='lo"}'),
        _start(2, type="tool_use", id="toolu_2", name="weather", input={}),
        _end("tool_use"),
        STOP,
    )
    assert reply.message.tool_calls == (
        ToolCall(id="toolu_1", name="weather", arguments={"city": "Oslo"}),
        ToolCall(id="toolu_2", name="weather", arguments={}),
    )
    assert reply.finish == "calls"


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "stop")]
)
def test_why_it_stopped(reason: str, finish: str) -> None:
    assert _reply(START, _said("a"), _end(reason), STOP).finish == finish


# ---- what fails


def test_overloaded_before_the_first_word_is_asked_again() -> None:
    listener = Listener()
    busy = Answer(
        chunks=(sse(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),)
    )
    reply, _ = _answered(busy, Answer(chunks=(sse(START, _said("Hi."), _end("end_turn"), STOP),)), listener=listener)
    assert (reply.message.content, len(listener.waits)) == ("Hi.", 1)


def test_overloaded_after_the_first_word_is_an_error() -> None:
    listener = Listener()
    with pytest.raises(ProviderError, match="failed in the middle of its answer: Overloaded"):
        _reply(
            START,
            _said("Well, "),
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            listener=listener,
        )
    assert (listener.text, listener.waits) == ("Well, ", [])


def test_an_answer_without_its_stop_is_an_error() -> None:
    with pytest.raises(ProviderError, match="ended its answer before it was complete"):
        _reply(START, _said("Well, "), _end("end_turn"))


def test_too_long_is_an_overflow() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"}
    with pytest.raises(ContextOverflow, match="prompt is too long"):
        _answered(Answer(chunks=(line({"type": "error", "error": error}),), status=400))


def test_too_large_is_an_overflow() -> None:
    with pytest.raises(ContextOverflow):
        _answered(refusal("too large", status=413))


def test_a_bad_key_is_said_to_be_one() -> None:
    with pytest.raises(ProviderError, match="refuses the key: invalid x-api-key"):
        _answered(refusal("invalid x-api-key", status=401))
