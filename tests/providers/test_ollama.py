"""Ollama's wire, byte by byte; the official client is the witness of the server that stands in for Ollama."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import httpx
import ollama as official
import pytest

from nacre.agent.ports import Context, Reply, Usage
from nacre.errors import ConfigError, ContextOverflow, ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers.model_server import Timeouts
from nacre.providers.ollama import Capabilities, Ollama, Settings, address, body
from tests.ollama_server import Answer, OllamaServer, called, done, line, ollama_server, refusal, said
from tests.providers.peers import WEATHER, Listener, asked, conversation

T = TypeVar("T")
SETTINGS = Settings(model="m", num_ctx=4096)
PIXEL = base64.b64encode(b"an image").decode()
OVERFLOW = (
    '{"error":{"code":400,"message":"request (2622 tokens) exceeds the available context size (512 tokens), '
    'try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2622,"n_ctx":512}}'
)


def _served(
    work: Callable[[OllamaServer], Awaitable[T]], *answers: Answer, models: dict[str, tuple[str, ...]] | None = None
) -> T:
    async def run() -> T:
        async with ollama_server(*answers, models=models) as server:
            return await work(server)

    return anyio.run(run)


def _reply(*answers: Answer, context: Context | None = None, listener: Listener | None = None) -> Reply:
    async def work(server: OllamaServer) -> Reply:
        provider = Ollama("test", host=server.host, num_ctx=4096, timeouts=Timeouts(read=5, sleep=Listener().sleep))
        try:
            return await provider.complete(context or asked("Hello"), emit=listener or Listener())
        finally:
            await provider.close()

    return _served(work, *answers)


def _bytewise(whole: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(whole[at : at + size] for at in range(0, len(whole), size))


# ---- what is asked


def test_the_server_is_told_to_make_room_and_never_to_cut() -> None:
    asks = Settings(model="m", num_ctx=32000, keep_alive="30m", think="low", options={"temperature": 0, "num_ctx": 1})
    found = body(asked("Hello", system="Be kind."), asks, schema={"type": "object"})
    assert found == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"temperature": 0, "num_ctx": 32000},
        "keep_alive": "30m",
        "think": "low",
        "format": {"type": "object"},
    }


def test_calls_have_objects_and_results_name_their_tool() -> None:
    found = body(Context(messages=conversation(), tools=[WEATHER]), SETTINGS)
    _, call, first, second, _ = found["messages"]
    assert call == {
        "role": "assistant",
        "content": "",
        "thinking": "I must look.",
        "tool_calls": [
            {"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}},
            {"id": "call_2", "function": {"index": 1, "name": "weather", "arguments": {"unparsed": '{"city": '}}},
        ],
    }
    assert first == {"role": "tool", "content": "Snow.", "tool_name": "weather", "tool_call_id": "call_1"}
    assert second["tool_name"] == "weather"
    assert found["tools"][0]["function"]["name"] == "weather"


def test_images_go_beside_the_text() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "input_audio", "input_audio": {}},
    ]
    found = body(Context(messages=[Message(role="user", content=parts)]), SETTINGS)
    text = "What is this?\n[input_audio that cannot be shown]"
    assert found["messages"] == [{"role": "user", "content": text, "images": [PIXEL]}]


def test_images_of_results_follow_the_results() -> None:
    parts = [
        {"type": "text", "text": "a map"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    found = body(Context(messages=[Message(role="tool", name="look", tool_call_id="a", content=parts)]), SETTINGS)
    assert found["messages"] == [
        {"role": "tool", "content": "a map", "tool_name": "look", "tool_call_id": "a"},
        {"role": "user", "content": "[images of the results above]", "images": [PIXEL]},
    ]


# ---- what is answered


def test_text_thoughts_usage_and_end() -> None:
    listener = Listener()
    answer = Answer(chunks=(said(thinking="Hm. "), said(thinking="Yes."), said("Good "), said("day."), done()))
    reply = _reply(answer, listener=listener)
    assert reply.message == Message(role="assistant", content="Good day.", reasoning="Hm. Yes.", model="test")
    assert (reply.usage, reply.finish) == (Usage(prompt=11, completion=7), "stop")
    assert (listener.text, listener.thoughts) == ("Good day.", "Hm. Yes.")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_bytes_split_anywhere_make_the_same_text(size: int) -> None:
    whole = said("Grüße 🦪 \u2028 漢字") + done()
    assert _reply(Answer(chunks=_bytewise(whole, size))).message.content == "Grüße 🦪 \u2028 漢字"


def test_half_characters_in_escapes_are_joined() -> None:
    halves = (said("x").replace(b'"x"', b'"a\\ud83e"'), said("x").replace(b'"x"', b'"\\uddaa."'))
    listener = Listener()
    assert _reply(Answer(chunks=(*halves, done())), listener=listener).message.content == "a🦪."
    assert listener.text == "a🦪."


def test_a_slow_drip_is_an_answer() -> None:
    answer = Answer(chunks=[said("one"), said("two"), said("three"), done()], pause=0.01)
    assert _reply(answer).message.content == "onetwothree"


def test_calls_get_ids_of_their_own_where_the_server_gives_none() -> None:
    answer = Answer(chunks=(called("weather", {"city": "Oslo"}), called("weather", {}, id="given"), done()))
    reply = _reply(answer, context=asked("weather", tools=(WEATHER,)))
    first, second = reply.message.tool_calls
    assert (first.name, first.arguments, reply.finish) == ("weather", {"city": "Oslo"}, "calls")
    assert first.id.startswith("call_")
    assert len(first.id) == len("call_") + 12
    assert second == ToolCall(id="given", name="weather", arguments={})


def test_an_answer_that_ran_out_of_room_says_so() -> None:
    assert _reply(Answer(chunks=(said("Once upon"), done("length")))).finish == "length"


def test_an_old_server_that_cut_the_prompt_is_noticed() -> None:
    listener = Listener()
    _reply(Answer(chunks=(said("?"), done(prompt=4096))), listener=listener)
    assert "cut the request" in listener.notices[0]


# ---- what fails


def _failure(*answers: Answer, context: Context | None = None, listener: Listener | None = None) -> str:
    with pytest.raises(ProviderError) as caught:
        _reply(*answers, context=context, listener=listener)
    return str(caught.value)


def test_an_error_in_mid_stream_is_an_error() -> None:
    broken = Answer(chunks=(said("Well, "), line({"error": "the runner has died"})))
    listener = Listener()
    assert "failed in the middle of its answer: the runner has died" in _failure(broken, listener=listener)
    assert listener.text == "Well, "


def test_a_stream_without_its_last_line_is_an_error() -> None:
    assert "ended its answer before it was complete" in _failure(Answer(chunks=(said("Well, "),)))


def test_a_dropped_connection_is_an_error() -> None:
    assert "closed the connection in the middle" in _failure(Answer(chunks=(said("Well, "),), end="cut"))


@pytest.mark.parametrize("text", [OVERFLOW, "the input length exceeds the context length"])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_too_much_to_read_is_an_overflow(text: str, status: int) -> None:
    with pytest.raises(ContextOverflow):
        _reply(refusal(text, status=status))


def test_a_model_that_is_not_there_says_how_to_get_it() -> None:
    async def work(server: OllamaServer) -> str:
        provider = Ollama("gemma4:e4b", host=server.host, num_ctx=4096)
        with pytest.raises(ProviderError) as caught:
            await provider.complete(asked("Hello"), emit=Listener())
        await provider.close()
        return str(caught.value).removeprefix(f"Ollama at {server.host} ")

    assert _served(work) == "does not have the model 'gemma4:e4b'\nTo install it: nacre models pull gemma4:e4b"


def test_a_model_that_cannot_think_says_what_to_do() -> None:
    said = _failure(refusal('"test" does not support thinking', status=400))
    assert said.endswith('answered 400: "test" does not support thinking; leave `think` unset')


def test_no_server_says_how_to_start_it() -> None:
    provider = Ollama("test", host="127.0.0.1:1", num_ctx=4096, timeouts=Timeouts(attempts=1))
    with pytest.raises(
        ProviderError, match=r"Ollama at http://127.0.0.1:1 cannot be reached .*; start it with `ollama serve`"
    ):
        anyio.run(lambda: provider.complete(asked("Hello"), emit=Listener()))


def test_a_turn_that_is_cancelled_hangs_up() -> None:
    async def work(server: OllamaServer) -> None:
        provider = Ollama("test", host=server.host, num_ctx=4096)
        async with anyio.create_task_group() as group:
            await provider.complete(asked("Hello"), emit=lambda _: group.cancel_scope.cancel())
        with anyio.fail_after(5):
            await server.abandoned.wait()
        await provider.close()

    _served(work, Answer(chunks=(said("Well, "),), end="hang"))


# ---- what the server knows


def test_capabilities_and_models() -> None:
    async def work(server: OllamaServer) -> tuple[Capabilities | None, list[str], int]:
        provider = Ollama("seer", host=server.host, num_ctx=4096)
        await provider.capabilities()
        found = await provider.capabilities(), await provider.models(), len(server.requests)
        await provider.close()
        return found

    able, models, requests = _served(work, models={"seer": ("completion", "vision"), "other": ()})
    assert able == Capabilities(tools=False, thinking=False, vision=True, context=8192)
    assert (models, requests) == (["seer", "other"], 2)


def _prompts(tools: Any, models: dict[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    async def work(server: OllamaServer) -> list[dict[str, Any]]:
        provider = Ollama("test", host=server.host, num_ctx=4096, tools=tools)
        try:
            for _ in range(2):
                await provider.complete(asked("Hello", tools=(WEATHER,)), emit=Listener())
        finally:
            await provider.close()
        return server.chats

    return _served(work, models=models)


def test_a_model_that_can_is_given_its_tools_natively() -> None:
    assert ["tools" in chat for chat in _prompts("auto", {"test": ("tools",)})] == [True, True]


def test_a_model_that_cannot_is_told_of_them_in_its_prompt() -> None:
    chats = _prompts("auto", {"test": ("completion",)})
    assert ["tools" in chat for chat in chats] == [False, False]
    assert "weather" in chats[0]["messages"][0]["content"]


def test_tools_by_prompt_can_be_asked_for() -> None:
    assert ["tools" in chat for chat in _prompts("prompted", {"test": ("tools",)})] == [False, False]


def test_native_tools_that_were_asked_for_are_not_replaced_in_silence() -> None:
    with pytest.raises(ProviderError, match=r'does not support tools; set agent\.tools = "prompted"'):
        _prompts("native", {"test": ("completion",)})


# ---- where it is


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("example.org", "http://example.org:11434"),
        ("example.org:8080", "http://example.org:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("http://example.org", "http://example.org:80"),
        ("https://example.org", "https://example.org:443"),
        ("https://example.org:99/ollama/", "https://example.org:99/ollama"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - nothing is bound
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:8080", "http://[::1]:8080"),
        ('  "example.org:1" ', "http://example.org:1"),
    ],
)
def test_every_shape_of_ollama_host_is_understood(host: str, url: str) -> None:
    assert address(host) == url


@pytest.mark.parametrize("host", ["example.org:port", "example.org:70000"])
def test_a_port_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="has an invalid port"):
        address(host)


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: OllamaServer) -> list[str]:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        provider = Ollama("test", num_ctx=4096)
        found = await provider.models()
        await provider.close()
        return found

    assert _served(work) == ["test"]


# ---- the witness


async def _official(server: OllamaServer, **more: Any) -> list[official.ChatResponse]:
    client = official.AsyncClient(host=server.host)
    try:
        stream = await client.chat("test", [{"role": "user", "content": "Hello"}], stream=True, **more)
        return [piece async for piece in stream]
    finally:
        await client._client.aclose()


def test_the_official_client_accepts_our_answers() -> None:
    answer = Answer(chunks=(said("Grüße", thinking="Hm."), called("weather", {"city": "Oslo"}), done("length")))
    first, second, last = _served(_official, answer)
    assert (first.message.content, first.message.thinking) == ("Grüße", "Hm.")
    assert second.message.tool_calls is not None
    assert second.message.tool_calls[0].function.arguments == {"city": "Oslo"}
    assert (last.done_reason, last.prompt_eval_count, last.eval_count) == ("length", 11, 7)


def test_the_official_client_reads_our_lists() -> None:
    async def work(server: OllamaServer) -> tuple[list[str | None], list[str] | None]:
        client = official.AsyncClient(host=server.host)
        listed, shown = await client.list(), await client.show("test")
        await client._client.aclose()
        return [model.model for model in listed.models], shown.capabilities

    assert _served(work) == (["test"], ["completion", "tools", "thinking"])


@pytest.mark.parametrize(
    "answer", [Answer(chunks=(said("Well, "), line({"error": "died"}))), refusal("died", status=500)]
)
def test_the_official_client_takes_our_errors_for_errors(answer: Answer) -> None:
    with pytest.raises(official.ResponseError, match="died"):
        _served(_official, answer)


def test_the_official_client_sees_a_dropped_connection() -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        _served(_official, Answer(chunks=(said("Well, "),), end="cut"))


def test_the_official_client_sends_what_we_send() -> None:
    async def work(server: OllamaServer) -> list[dict[str, Any]]:
        await _official(server, options={"num_ctx": 4096}, think=True, keep_alive="5m")
        provider = Ollama("test", host=server.host, num_ctx=4096, think=True, keep_alive="5m")
        await provider.complete(asked("Hello"), emit=Listener())
        await provider.close()
        return server.chats

    theirs, ours = _served(work)
    assert {key: ours[key] for key in theirs if key != "tools"} == {
        key: theirs[key] for key in theirs if key != "tools"
    }
