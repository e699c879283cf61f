"""Answers as real servers send them: whole, in odd frames, and broken in every place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nacre.agent.ports import Context, Reply
from nacre.codec import encode_message
from nacre.errors import ProviderError
from nacre.messages import Message
from nacre.providers import anthropic, ollama, openai
from nacre.providers.model_server import Timeouts
from tests.ollama_server import Answer, OllamaServer
from tests.providers.peers import WEATHER, Listener, replayed
from tests.providers.streams import STREAMS, Kind, Stream

CONTEXT = Context(messages=[Message(role="user", content="Hello")], tools=[WEATHER])
TIMEOUTS = Timeouts(attempts=1)
MAKERS: dict[Kind, Callable[[str], Any]] = {
    "openai": lambda host: openai.OpenAI("m", base_url=host, timeouts=TIMEOUTS),
    "anthropic": lambda host: anthropic.Anthropic("m", base_url=host, timeouts=TIMEOUTS),
    "ollama": lambda host: ollama.Ollama("m", num_ctx=4096, host=host, tools="native", timeouts=TIMEOUTS),
}
BODIES: dict[Kind, Callable[[Context], Any]] = {
    "openai": lambda context: openai.body(context, openai.Settings(model="m", return_reasoning=True)),
    "anthropic": lambda context: anthropic.body(context, anthropic.Settings(model="m")),
    "ollama": lambda context: ollama.body(context, ollama.Settings(model="m", num_ctx=4096)),
}


def framed(kind: Kind, pieces: list[bytes], end: bytes = b"\n") -> bytes:
    """Pieces as they are sent: lines of JSON, or server-sent events."""
    if kind == "ollama":
        return b"".join(piece + end for piece in pieces)
    return b"".join(b"data: " + piece + end + end for piece in pieces)


def encoded(stream: Stream) -> list[bytes]:
    return [piece.encode() if isinstance(piece, str) else json.dumps(piece).encode() for piece in stream.pieces]


def replies(kind: Kind, *answers: Answer, listener: Listener | None = None) -> list[Reply]:
    """What a provider makes of each of a server's answers."""

    async def run() -> list[Reply]:
        async with replayed(*answers) as server:
            provider = MAKERS[kind](server.host)
            try:
                return [await provider.complete(CONTEXT, emit=listener or Listener()) for _ in answers]
            finally:
                await provider.close()

    return anyio.run(run)


def assert_understood(stream: Stream, reply: Reply) -> None:
    message = reply.message
    assert (message.content, message.reasoning, reply.finish) == (stream.content, stream.reasoning, stream.finish)
    calls = [
        replace(call, id=wanted.id or call.id) for call, wanted in zip(message.tool_calls, stream.calls, strict=True)
    ]
    assert [(call.name, call.arguments, call.extra) for call in calls] == [
        (call.name, call.arguments, call.extra) for call in stream.calls
    ]
    assert (reply.usage.prompt if reply.usage else 0) == stream.prompt


CUTS = {
    "whole": lambda raw: [raw],
    "a byte at a time": lambda raw: [raw[at : at + 1] for at in range(len(raw))],
    "a byte order mark": lambda raw: [b"\xef", b"\xbb\xbf" + raw],
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_every_servers_stream_is_understood(stream: Stream, end: bytes, cut: Callable[[bytes], list[bytes]]) -> None:
    raw = framed(stream.kind, encoded(stream), end)
    (reply,) = replies(stream.kind, Answer(chunks=cut(raw)))
    assert_understood(stream, reply)


def test_openrouters_thoughts_go_back_to_their_model_in_one_piece() -> None:
    stream = STREAMS["OpenRouter"]
    (reply,) = replies("openai", Answer(chunks=[framed("openai", encoded(stream))]))
    context = Context(messages=[reply.message])
    thought = {
        "type": "reasoning.text",
        "text": "Let me see.",
        "signature": "c2ln",
        "format": "anthropic-claude-v1",
        "index": 0,
    }
    assert openai.body(context, openai.Settings(model="m"))["messages"][0]["reasoning_details"] == [thought]
    assert "reasoning_details" not in openai.body(context, openai.Settings(model="other"))["messages"][0]


def test_a_signed_call_goes_back_to_its_model_alone() -> None:
    (reply,) = replies("openai", Answer(chunks=[framed("openai", encoded(STREAMS["Gemini over OpenAI's wire"]))]))
    own, other = (
        openai.body(Context(messages=[reply.message]), openai.Settings(model=model))["messages"][0]["tool_calls"][0]
        for model in ("m", "other")
    )
    assert own["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    assert "extra_content" not in other


# ---- servers that do not stream, or end in a way of their own


@pytest.mark.parametrize(
    "name", ["a whole answer where a stream was asked for", "a whole message where a stream was asked for"]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_plain_json_is_an_answer(name: str, indent: int | None) -> None:
    stream = STREAMS[name]
    (reply,) = replies(stream.kind, Answer(chunks=[json.dumps(stream.pieces[0], indent=indent).encode()]))
    assert_understood(stream, reply)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error": {"message": "the model is on fire", "code": 418}}', "the model is on fire"),
        (b'{\n  "error": "the model is on fire"\n}\n', "the model is on fire"),
        (
            b"<!DOCTYPE html>\n<html><head><style>p {}</style><title>Open WebUI</title></head></html>",
            "a page instead of an answer: 'Open WebUI'; check the address",
        ),
        (b"upstream timed out\nsorry\n", "not JSON: b'upstream timed out"),
    ],
    ids=["error", "error in lines", "page", "text"],
)
def test_what_is_no_stream_is_told_with_its_reason_and_asked_once(kind: Kind, body: bytes, reason: str) -> None:
    listener = Listener()
    with pytest.raises(ProviderError) as caught:
        replies(kind, Answer(chunks=[body]), listener=listener)
    assert reason in str(caught.value)
    assert listener.notices == []


def test_done_may_have_a_blank_behind_it() -> None:
    raw = framed("openai", [b'{"choices": [{"delta": {"content": "Hi."}, "finish_reason": null}]}', b"[DONE] "])
    (reply,) = replies("openai", Answer(chunks=[raw]))
    assert reply.message.content == "Hi."


def test_an_empty_reason_for_the_end_is_an_end_and_is_said() -> None:
    listener = Listener()
    piece = b'{"choices": [{"delta": {"content": "Hi."}, "finish_reason": ""}]}'
    (reply,) = replies("openai", Answer(chunks=[framed("openai", [piece])]), listener=listener)
    assert (reply.message.content, reply.finish) == ("Hi.", "stop")
    assert listener.notices == ["the server did not say why its answer ended; it may be incomplete"]


@pytest.mark.parametrize(
    "piece",
    [
        '{"choices": [{"delta": {}, "finish_reason": "error"}]}',
        '{"choices": [{"error": {"message": "burnt", "code": 502}}]}',
    ],
)
def test_an_answer_that_ends_with_an_error_has_failed(piece: str) -> None:
    with pytest.raises(ProviderError, match=r"with an error, and did not say which|burnt"):
        replies("openai", Answer(chunks=[framed("openai", [piece.encode()])]))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (
            {"raw": '{"error": {"message": "key limit"}}', "provider_name": "Google"},
            "Provider returned error (Google: key limit)",
        ),
        ({"raw": "busy"}, "Provider returned error (busy)"),
        ({"raw": ""}, "Provider returned error"),
        ("nonsense", "Provider returned error"),
    ],
)
def test_the_reason_of_the_server_behind_openrouter_is_told(metadata: Any, reason: str) -> None:
    error = {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    with pytest.raises(ProviderError) as caught:
        replies("openai", Answer(chunks=[json.dumps(error).encode()], status=400))
    assert str(caught.value).endswith(f"answered 400: {reason}")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("nothing", [None, "", "{}", {}, []], ids=repr)
def test_a_call_without_arguments_may_have_none_of_any_kind(kind: Kind, nothing: Any) -> None:
    function = {"name": "weather", "arguments": nothing}
    pieces: dict[Kind, list[dict[str, Any]]] = {
        "openai": [{"choices": [{"delta": {"tool_calls": [{"function": function}]}, "finish_reason": "tool_calls"}]}],
        "anthropic": [
            {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "weather", "input": nothing}},
            {"type": "message_stop"},
        ],
        "ollama": [{"message": {"tool_calls": [{"function": function}]}, "done": True}],
    }
    raw = framed(kind, [json.dumps(piece).encode() for piece in pieces[kind]])
    (reply,) = replies(kind, Answer(chunks=[raw]))
    assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [("weather", {})]


# ---- Groq, which reads calls itself and refuses those that it cannot read


def refused_call(generation: str, *, status: int) -> Answer:
    error = {
        "message": "Failed to call a function. See 'failed_generation' for more details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": generation,
    }
    raw = json.dumps({"error": error}).encode()
    return Answer(chunks=[raw if status != 200 else b"event: error\n" + framed("openai", [raw])], status=status)


@pytest.mark.parametrize("status", [400, 200])
def test_a_call_that_groq_could_not_read_is_read_here(status: int) -> None:
    listener = Listener()
    answer = refused_call('<function=weather>{"city": "Oslo"}</function>', status=status)
    (reply,) = replies("openai", answer, listener=listener)
    assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [("weather", {"city": "Oslo"})]
    assert (reply.finish, listener.notices) == ("calls", [])


@pytest.mark.parametrize("status", [400, 200])
def test_a_call_that_nobody_can_read_is_asked_for_once_more_and_then_told(status: int) -> None:
    async def run(*answers: Answer) -> tuple[Reply | ProviderError, OllamaServer]:
        async with replayed(*answers) as server:
            provider = MAKERS["openai"](server.host)
            try:
                return await provider.complete(CONTEXT, emit=Listener()), server
            except ProviderError as error:
                return error, server
            finally:
                await provider.close()

    broken = refused_call("<function=weather>{", status=status)
    fine = Answer(chunks=[framed("openai", encoded(STREAMS["OpenAI, text"]))])
    reply, server = anyio.run(run, broken, fine)
    assert isinstance(reply, Reply)
    assert (reply.message.content, len(server.requests)) == ("Hello.", 2)
    error, server = anyio.run(run, broken)
    assert "the model wrote: '<function=weather>{'" in str(error)
    assert len(server.requests) == 2


# ---- calls written as text by models that could have made them


def spoken(kind: Kind, text: str) -> Answer:
    """An answer with a text, in pieces of three characters."""
    parts = [text[at : at + 3] for at in range(0, len(text), 3)]
    pieces: list[dict[str, Any]]
    match kind:
        case "openai":
            pieces = [{"choices": [{"delta": {"content": part}}]} for part in parts]
            pieces.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        case "anthropic":
            block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            deltas = [{"type": "text_delta", "text": part} for part in parts]
            pieces = [block, *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas)]
            pieces.append({"type": "message_stop"})
        case "ollama":
            pieces = [{"message": {"content": part}, "done": False} for part in parts]
            pieces.append({"message": {"content": ""}, "done": True, "done_reason": "stop"})
    return Answer(chunks=[framed(kind, [json.dumps(piece).encode() for piece in pieces])])


WRITTEN = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'


@pytest.mark.parametrize("kind", MAKERS)
def test_a_call_written_as_text_is_a_call_and_is_not_shown(kind: Kind) -> None:
    listener = Listener()
    (reply,) = replies(kind, spoken(kind, f"I look.\n{WRITTEN}"), listener=listener)
    assert (reply.message.content, reply.finish, listener.text) == ("I look.", "calls", "I look.\n")
    (call,) = reply.message.tool_calls
    assert (call.name, call.arguments, bool(call.id)) == ("weather", {"city": "Oslo"}, True)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "text", [f"So:\n```\n{WRITTEN}\n```", f"{WRITTEN} is how.", "  Plain, with <tags> and {braces}.\n"]
)
def test_text_that_shows_a_call_is_shown_and_kept_to_the_letter(kind: Kind, text: str) -> None:
    listener = Listener()
    (reply,) = replies(kind, spoken(kind, text), listener=listener)
    assert (reply.message.content, reply.message.tool_calls, reply.finish) == (text, (), "stop")
    assert listener.text == text.lstrip()


@pytest.mark.parametrize("kind", MAKERS)
def test_a_thought_that_the_server_left_in_the_text_is_a_thought(kind: Kind) -> None:
    listener = Listener()
    (reply,) = replies(kind, spoken(kind, f"<think>Maybe {WRITTEN}?</think>No."), listener=listener)
    assert (reply.message.content, reply.message.reasoning) == ("No.", f"Maybe {WRITTEN}?")
    assert (listener.text, listener.thoughts) == ("No.", f"Maybe {WRITTEN}?")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("text", ["half of it", "a < b and <", "See [", "One\nf", "Two\n to", "```py\nx = 1\n``"])
def test_an_answer_that_breaks_off_is_shown_as_far_as_it_came(kind: Kind, text: str) -> None:
    listener = Listener()
    whole = b"".join(spoken(kind, text).chunks).rstrip(b"\n")
    broken = Answer(chunks=[whole[: whole.rindex(b"\n") + 1], framed(kind, [b'{"error": "on fire"}'])])
    with pytest.raises(ProviderError, match="on fire"):
        replies(kind, broken, listener=listener)
    assert listener.text == text


# ---- pieces with something wrong anywhere in them

ODD: list[Any] = [
    *(None, True, 0, -1, 7, 1.5, 10**30, "", "x", "\ud800", "[DONE]", [], [None], [5], ["x"], [[]], [{}]),
    *({}, {"": None}, {"a": 1}, {"message": 5}, {"message": {}}, {"code": []}, {"type": {}}, {"text": 5}),
    {"error": {"error": [{"message": None}]}},
]
FIELDS = ("error", "delta", "tool_calls", "function_call", "content", "usage", "id", "index", "reasoning_details")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value at which something stands: what holds it, and under which key or index."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def mutate(pieces: list[Any], rng: random.Random) -> list[bytes]:
    """Pieces of which one has something wrong: a value, a field too few or too many, a byte, its place."""
    pieces = json.loads(json.dumps(pieces))
    at = rng.randrange(len(pieces))
    match rng.randrange(12):
        case 0:
            pieces[at] = rng.choice(ODD)
        case 1:
            del pieces[at]
        case 2:
            pieces.insert(rng.randrange(len(pieces)), pieces[at])
        case 3:
            raw = bytearray(json.dumps(pieces[at]).encode())
            raw[rng.randrange(len(raw))] = rng.randrange(256)
            return [bytes(raw) if index == at else json.dumps(piece).encode() for index, piece in enumerate(pieces)]
        case _:
            for _ in range(rng.choice([1, 1, 2, 3])):
                found = list(places(pieces[at])) if isinstance(pieces[at], dict) else []
                if not found:
                    break
                inside, key = rng.choice(found)
                wrong = rng.choice([*ODD, ODD, "delete"])
                if wrong == "delete":
                    del inside[key]
                else:
                    inside[key] = json.loads(json.dumps(wrong))
                if rng.random() < 0.1 and isinstance(inside, dict):
                    inside[rng.choice(["error", "delta", "tool_calls", "content", "usage", "id", "index"])] = (
                        rng.choice(ODD)
                    )
    return [piece.encode() if piece == "[DONE]" else json.dumps(piece).encode() for piece in pieces]


async def judge(provider: Any, kind: Kind) -> str:
    """Ask once: "understood", "told", or the raw error."""
    try:
        reply = await provider.complete(CONTEXT, emit=Listener())
        encode_message(reply.message)
        json.dumps(BODIES[kind](Context(messages=[*CONTEXT.messages, reply.message]))).encode()
    except ProviderError as error:
        str(error).encode()
        return "told" if str(error) else "an error without words"
    except Exception as error:  # noqa: BLE001 - what must not happen is counted
        return f"{type(error).__name__}: {error}"
    return "understood"


def test_no_mutated_piece_raises_anything_but_a_provider_error(campaign: bool) -> None:
    rng = random.Random(13)
    chosen = [rng.choice(list(STREAMS)) for _ in range(20_000 if campaign else 1_500)]
    mutated = [(name, mutate(STREAMS[name].pieces, rng)) for name in chosen]
    answers = [Answer(chunks=[framed(STREAMS[name].kind, pieces)]) for name, pieces in mutated]

    async def run() -> list[str]:
        async with replayed(*answers) as server:
            made = {kind: make(server.host) for kind, make in MAKERS.items()}
            found = [await judge(made[STREAMS[name].kind], STREAMS[name].kind) for name in chosen]
            for provider in made.values():
                await provider.close()
            return found

    found = anyio.run(run)
    raw = [
        (outcome, name, pieces)
        for outcome, (name, pieces) in zip(found, mutated, strict=True)
        if outcome not in {"understood", "told"}
    ]
    assert raw == []
    # Both happen often: neither is everything refused, nor everything swallowed.
    assert min(found.count("understood"), found.count("told")) > len(found) // 5


def test_no_odd_list_or_error_raises_anything_but_a_provider_error(campaign: bool) -> None:
    rng = random.Random(14)
    values = [
        {"data": [{"id": "a", "max_model_len": 5, "meta": {"n_ctx": 4}}], "models": [{"name": "a", "size": 1}],
         "capabilities": ["tools"], "model_info": {"x.context_length": 9}},
        {"error": {"message": "no", "type": "t", "code": 400, "metadata": {"raw": "{}", "provider_name": "p"}},
         "detail": [{"msg": "no"}], "message": "no"},
    ]  # fmt: skip
    bodies = [b"\n".join(mutate([rng.choice(values)], rng)) or b"{}" for _ in range(4_000 if campaign else 400)]
    answers = [Answer(chunks=[body], status=status) for body in bodies for status in (200, 400)]

    async def run() -> list[str]:
        raw: list[str] = []
        async with replayed(*answers) as server:
            made = {kind: make(server.host) for kind, make in MAKERS.items()}
            for _ in answers:
                try:
                    await made[rng.choice(list(MAKERS))].list_models()
                except ProviderError as error:
                    str(error).encode()
                except Exception as error:  # noqa: BLE001 - what must not happen is counted
                    raw.append(f"{type(error).__name__}: {error}")
            for provider in made.values():
                await provider.close()
        return raw

    assert anyio.run(run) == []


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_description_of_a_model_is_none(odd: Any) -> None:
    shown = json.dumps({"capabilities": odd, "model_info": odd}).encode()

    async def run() -> None:
        async with replayed(Answer(chunks=[shown])) as server:
            provider = MAKERS["ollama"](server.host)
            found = await provider.capabilities()
            assert found is None or found == ollama.Capabilities()
            await provider.close()

    anyio.run(run)
