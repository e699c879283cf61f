"""OpenAI's wire: what is sent, and answers put together from every server's pieces."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nacre.agent.ports import Context, Form, Reply, Usage
from nacre.errors import ContextOverflow, ProviderError, RateLimited
from nacre.messages import Message, ToolCall
from nacre.providers.model_server import Timeouts
from nacre.providers.openai import OpenAI, Settings, body
from tests.ollama_server import Answer, OllamaServer, line, refusal
from tests.providers.peers import WEATHER, Listener, asked, conversation, replayed, sse

SETTINGS = Settings(model="m")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def _delta(**fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def _call(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return _delta(tool_calls=[{**fields, "function": function}])


async def _complete(server: OllamaServer, listener: Listener, **settings: Any) -> Reply:
    timeouts = Timeouts(sleep=listener.sleep)
    provider = OpenAI("m", base_url=f"{server.host}/v1", timeouts=timeouts, **settings)
    try:
        return await provider.complete(asked("Hello"), emit=listener)
    finally:
        await provider.close()


def _reply(*pieces: Any, listener: Listener | None = None) -> Reply:
    return _answered(Answer(chunks=(sse(*pieces),)), listener=listener)[0]


def _answered(*answers: Answer, listener: Listener | None = None, **settings: Any) -> tuple[Reply, OllamaServer]:
    async def run() -> tuple[Reply, OllamaServer]:
        async with replayed(*answers) as server:
            return await _complete(server, listener or Listener(), **settings), server

    return anyio.run(run)


# ---- what is asked


def test_a_conversation_with_tools_has_its_arguments_as_text() -> None:
    found = body(Context(system="Be kind.", messages=conversation(), tools=[WEATHER]), SETTINGS)
    assert found["stream_options"] == {"include_usage": True}
    system, _, call, first, second, last = found["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    assert call == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"unparsed": "{\\"city\\": "}'},
            },
        ],
    }
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "Snow."}
    assert (second["tool_call_id"], last) == ("call_2", {"role": "user", "content": "And be quick."})


def test_settings_and_a_schema_go_along() -> None:
    asks = Settings(model="m", max_tokens=50, limit="max_completion_tokens", options={"temperature": 0})
    found = body(replace(asked("Hello"), form=Form(schema=SCHEMA)), asks, usage=False)
    assert found == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "max_completion_tokens": 50,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        "temperature": 0,
    }


def test_a_strict_form_is_strict_and_any_object_is_what_more_servers_know() -> None:
    strict = replace(asked("Hello"), form=Form(schema=SCHEMA, name="place", strict=True))
    told = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    assert body(strict, SETTINGS)["response_format"] == told
    anything = replace(asked("Hello"), form=Form(schema={"type": "object"}))
    assert body(anything, SETTINGS)["response_format"] == {"type": "json_object"}


def test_beside_tools_a_form_goes_only_to_servers_that_know_both() -> None:
    context = Context(messages=[Message(role="user", content="Hello")], tools=[WEATHER], form=Form(schema=SCHEMA))
    assert "response_format" not in body(context, SETTINGS)
    assert "response_format" in body(context, Settings(model="m", form_with_tools=True))


def test_a_cache_key_goes_only_to_openai_itself() -> None:
    context = replace(asked("Hello"), cache_key="0123")
    assert body(context, Settings(model="m", has_cache_key=True))["prompt_cache_key"] == "0123"
    assert "prompt_cache_key" not in body(asked("Hello"), Settings(model="m", has_cache_key=True))

    async def run() -> OllamaServer:
        async with replayed(Answer(chunks=(sse(_delta(content="Hi."), STOP),))) as server:
            provider = OpenAI("m", base_url=f"{server.host}/v1")
            await provider.complete(context, emit=Listener())
            await provider.close()
            return server

    assert "prompt_cache_key" not in anyio.run(run).requests[0][1]


def test_images_stay_parts_and_text_alone_is_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": "What is this?"}
    both, alone = Message(role="user", content=[text, image]), Message(role="user", content=[text])
    found = body(Context(messages=[both, alone]), SETTINGS)["messages"]
    assert [message["content"] for message in found] == [[text, image], "What is this?"]


def test_images_of_results_follow_the_results() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    note = {"type": "text", "text": "[images of the results above]"}
    seen = Message(role="tool", tool_call_id="a", content=[{"type": "text", "text": "a map"}, image])
    plain, answer = Message(role="tool", tool_call_id="b", content="b"), Message(role="assistant", content="ok")
    found = body(Context(messages=[seen, plain, answer, seen]), SETTINGS)["messages"]
    assert [(message["role"], message["content"]) for message in found] == [
        ("tool", "a map"),
        ("tool", "b"),
        ("user", [note, image]),
        ("assistant", "ok"),
        ("tool", "a map"),
        ("user", [note, image]),
    ]


def test_thoughts_are_sent_back_with_calls_and_only_to_servers_that_want_them() -> None:
    call = Message(role="assistant", reasoning="Hm.", tool_calls=(ToolCall(id="c", name="weather", arguments={}),))
    answer = Message(role="assistant", content="Yes.", reasoning="Ah.")
    plain, wanted = (
        body(Context(messages=[call, answer]), Settings(model="m", return_reasoning=operation))["messages"]
        for operation in (False, True)
    )
    assert [message.get("reasoning_content") for message in plain] == [None, None]
    assert [message.get("reasoning_content") for message in wanted] == ["Hm.", None]


@pytest.mark.parametrize(
    ("model", "operation", "wanted"),
    [
        ("deepseek-chat", None, True),
        ("moonshotai/Kimi-K2-Thinking", None, True),
        ("gpt-5", None, False),
        ("deepseek-chat", False, False),
        ("gpt-5", True, True),
    ],
)
def test_models_that_demand_their_thoughts_get_them_without_being_told(
    model: str, operation: bool | None, wanted: bool
) -> None:
    call = ToolCall(id="c", name="weather", arguments={})
    thought = Message(role="assistant", reasoning="Hm.", tool_calls=(call,))

    async def run() -> dict[str, Any]:
        async with replayed(Answer(chunks=(sse(STOP),))) as server:
            provider = OpenAI(model, base_url=server.host, return_reasoning=operation)
            await provider.complete(Context(messages=[thought]), emit=Listener())
            await provider.close()
            return server.requests[0][1]

    assert ("reasoning_content" in anyio.run(run)["messages"][0]) is wanted


def test_ids_that_are_too_long_are_shortened_alike() -> None:
    long = "x" * 200
    call = Message(role="assistant", tool_calls=(ToolCall(id=long, name="weather", arguments={}),))
    result = Message(role="tool", tool_call_id=long, content="Snow.")
    asks, answers = body(Context(messages=[call, result]), SETTINGS)["messages"]
    assert asks["tool_calls"][0]["id"] == answers["tool_call_id"]
    assert len(answers["tool_call_id"]) <= 40


def test_azure_has_its_own_address_and_header() -> None:
    async def run() -> tuple[str, dict[str, Any]]:
        async with replayed(Answer(chunks=(sse(STOP),))) as server:
            provider = OpenAI("my deployment", base_url=f"{server.host}/openai/", key="k", azure="2024-10-21")
            await provider.complete(asked("Hello"), emit=Listener())
            await provider.close()
            return server.requests[0][0], server.heads[0]

    path, head = anyio.run(run)
    assert path == "/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21"
    assert head["api-key"] == "k"
    assert "authorization" not in head


def test_other_servers_get_a_bearer() -> None:
    _, server = _answered(Answer(chunks=(sse(STOP),)), key="k")
    assert server.requests[0][0] == "/v1/chat/completions"
    assert server.heads[0]["authorization"] == "Bearer k"


def test_models_are_listed() -> None:
    async def run() -> list[str]:
        async with replayed(Answer(chunks=(line({"data": [{"id": "a"}, {"id": "b"}]}),))) as server:
            provider = OpenAI("m", base_url=server.host)
            found = await provider.models()
            await provider.close()
            return found

    assert anyio.run(run) == ["a", "b"]


# ---- what is answered


def test_text_thoughts_usage_and_end() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    listener = Listener()
    reply = _reply(
        {"choices": [], "prompt_filter_results": []},
        _delta(role="assistant", content=None),
        _delta(reasoning_content="Hm. "),
        _delta(reasoning="Yes."),
        _delta(content="Good "),
        _delta(content="day."),
        STOP,
        {"choices": [], "usage": usage},
        "[DONE]",
        listener=listener,
    )
    assert reply.message == Message(role="assistant", content="Good day.", reasoning="Hm. Yes.", model="m")
    assert reply.usage == Usage(prompt=9, completion=3, cached=4, request="chatcmpl-1")
    assert (reply.finish, listener.text, listener.thoughts) == ("stop", "Good day.", "Hm. Yes.")


def test_text_may_come_in_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hello"}]
    listener = Listener()
    reply = _reply(_delta(content=parts), _delta(content=[{"type": "text", "text": " you"}]), STOP, listener=listener)
    assert (reply.message.content, listener.text) == ("Hello you", "Hello you")


def test_a_server_that_streams_nothing_has_its_message_taken() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    message = {"role": "assistant", "content": "whole", "tool_calls": [call]}
    reply = _reply({"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert reply.message.content == "whole"
    assert reply.message.tool_calls == (ToolCall(id="a", name="weather", arguments={}),)


def test_a_message_that_repeats_what_was_streamed_is_left_out() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    assert _reply(_delta(content="Hello"), whole).message.content == "Hello"


def test_calls_are_put_together_by_index() -> None:
    reply = _reply(
        _call(index=0, id="a", name="weather", arguments=""),
        _call(index=1, id="b", name="weather", arguments='{"city"'),
        _call(index=0, arguments='{"city": "Os'),
        _call(index=1, arguments=': "Rome"}'),
        _call(index=0, arguments='lo"}'),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    )
    assert reply.finish == "calls"
    assert [(call.id, call.arguments) for call in reply.message.tool_calls] == [
        ("a", {"city": "Oslo"}),
        ("b", {"city": "Rome"}),
    ]


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_servers_that_number_badly_still_make_two_calls(index: dict[str, int]) -> None:
    reply = _reply(
        _call(**index, id="a", name="weather", arguments='{"city": "Oslo"}'),
        _call(**index, id="b", name="weather", arguments={"city": "Rome"}),
        STOP,
    )
    assert [call.arguments["city"] for call in reply.message.tool_calls] == ["Oslo", "Rome"]
    assert reply.finish == "calls"


@pytest.mark.parametrize("raw", ['{"city": ', "[1]", '{"n": NaN}', '{"n": 123456789012345678901234567890}'])
def test_arguments_that_cannot_be_kept_as_an_object_stay_text(raw: str) -> None:
    reply = _reply(_call(index=0, id="a", name="weather", arguments=raw), STOP)
    assert reply.message.tool_calls == (ToolCall(id="a", name="weather", arguments=raw),)


def test_calls_with_the_same_id_get_different_ones() -> None:
    calls = [{"index": at, "id": "a", "function": {"name": "weather", "arguments": "{}"}} for at in range(2)]
    first, second = _reply(_delta(tool_calls=calls), STOP).message.tool_calls
    assert first.id == "a"
    assert second.id.startswith("call_")


@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "stop"), ("eos", "stop")]
)
def test_why_it_stopped(reason: str, finish: str) -> None:
    assert _reply({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]}).finish == finish


def test_a_server_that_only_says_done_is_done() -> None:
    assert _reply(_delta(content="Hi."), "[DONE]").message.content == "Hi."


def test_a_server_that_cannot_count_is_asked_without() -> None:
    refuses = refusal("Unrecognized request argument supplied: stream_options", status=400)
    reply, server = _answered(refuses, Answer(chunks=(sse(_delta(content="Hi."), STOP),)))
    assert (reply.message.content, reply.usage) == ("Hi.", None)
    assert ["stream_options" in sent for _, sent in server.requests] == [True, False]


# ---- what fails


@pytest.mark.parametrize(
    "chunk",
    [
        sse({"error": {"message": "the engine died", "code": 500}}),
        b'error: {"message": "the engine died", "code": 500}\n\n',
    ],
)
def test_an_error_in_mid_stream_is_an_error(chunk: bytes) -> None:
    with pytest.raises(ProviderError, match="failed in the middle of its answer: the engine died"):
        _answered(Answer(chunks=(sse(_delta(content="Well, ")), chunk)))


def test_an_error_before_the_first_word_that_may_pass_is_asked_again() -> None:
    listener = Listener()
    died = Answer(chunks=(sse({"error": {"message": "the engine died", "code": 503}}),))
    reply, _ = _answered(died, Answer(chunks=(sse(_delta(content="Hi."), STOP),)), listener=listener)
    assert (reply.message.content, len(listener.waits)) == ("Hi.", 1)


def test_an_overflow_in_mid_stream_is_an_overflow() -> None:
    with pytest.raises(ContextOverflow):
        _reply({"error": {"message": "too long", "code": "context_length_exceeded"}})


def test_an_empty_account_is_not_asked_again() -> None:
    listener = Listener()
    poor = Answer(chunks=(line({"error": {"message": "no money", "code": "insufficient_quota"}}),), status=429)
    with pytest.raises(RateLimited, match="the account has no credit left"):
        _answered(poor, listener=listener)
    assert listener.waits == []


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ProviderError, match=r"check the name of the model \('m'\)"):
        _answered(refusal("not found", status=404))
