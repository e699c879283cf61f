"""The same conversations with an independent implementation of each wire, tools and all."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from nacre.agent.ports import Context, Provider, Reply
from nacre.errors import ProviderError
from nacre.messages import Message
from nacre.providers.anthropic import SIGNED, Anthropic
from nacre.providers.model_server import Timeouts
from nacre.providers.ollama import Ollama
from nacre.providers.openai import OpenAI
from tests.providers.peers import WEATHER, Listener, asked, completed

Make = Callable[[str, Timeouts], Provider]


def _ollama(address: str, timeouts: Timeouts) -> Provider:
    return Ollama("gpt-4o", host=address, num_ctx=4096, timeouts=timeouts)


def _openai(address: str, timeouts: Timeouts) -> Provider:
    return OpenAI("gpt-4o", base_url=f"{address}/v1", key="k", timeouts=timeouts)


def _azure(address: str, timeouts: Timeouts) -> Provider:
    return OpenAI("gpt-4o", base_url=address, key="k", azure="2024-10-21", timeouts=timeouts)


def _anthropic(address: str, timeouts: Timeouts) -> Provider:
    return Anthropic("claude", base_url=address, key="k", timeouts=timeouts)


every = pytest.mark.parametrize("make", [_ollama, _openai, _azure, _anthropic])


@every
def test_text_comes_in_pieces_and_whole(make: Make, aimock: str) -> None:
    listener = Listener()
    reply = completed(make(aimock, Timeouts()), asked("tell me"), listener)
    assert reply.message.content == listener.text == "Grüße 🦪 aus der Tiefe, in mehreren Stücken."
    assert len(listener.events) > 3
    assert reply.finish == "stop"


@every
def test_tools_are_called_and_their_results_are_answered(make: Make, aimock: str) -> None:
    async def run() -> tuple[Reply, Reply]:
        provider = make(aimock, Timeouts())
        question = asked("weather, please", system="Be kind.", tools=(WEATHER,))
        first = await provider.complete(question, emit=Listener())
        results = [
            Message(role="tool", tool_call_id=call.id, name=call.name, content="Snow.")
            for call in first.message.tool_calls
        ]
        messages = [*question.messages, first.message, *results]
        last = await provider.complete(Context(messages=messages, tools=[WEATHER]), emit=Listener())
        await provider.close()
        return first, last

    first, last = anyio.run(run)
    assert [(call.name, call.arguments) for call in first.message.tool_calls] == [
        ("weather", {"city": "Oslo", "days": 2}),
        ("weather", {"city": "Rome", "days": 1}),
    ]
    assert (first.finish, last.finish) == ("calls", "stop")
    assert last.message.content == "Snow in Oslo, sun in Rome."


@pytest.mark.parametrize("make", [_openai, _anthropic])
def test_thoughts_are_told_apart_from_words(make: Make, aimock: str) -> None:
    listener = Listener()
    reply = completed(make(aimock, Timeouts()), asked("think first"), listener)
    assert (reply.message.reasoning, reply.message.content) == ("Hm, let me see.", "Forty-two.")
    assert listener.thoughts == "Hm, let me see."


def test_a_signature_comes_with_the_thoughts(aimock: str) -> None:
    reply = completed(_anthropic(aimock, Timeouts()), asked("think first"))
    assert reply.message.extra[SIGNED][0]["thinking"] == "Hm, let me see."
    assert reply.message.extra[SIGNED][0]["signature"]


@every
def test_too_many_requests_are_asked_again_and_then_an_error(make: Make, aimock: str) -> None:
    listener = Listener()
    provider = make(aimock, Timeouts(sleep=listener.sleep, attempts=3))
    with pytest.raises(ProviderError, match="answered 429: slow down"):
        completed(provider, asked("throttle"), listener)
    assert len(listener.waits) == 2


def test_models_are_listed_on_each_wire(aimock: str) -> None:
    async def run() -> list[list[str]]:
        providers: list[Ollama | OpenAI] = [
            Ollama("gpt-4o", host=aimock, num_ctx=4096),
            OpenAI("gpt-4o", base_url=f"{aimock}/v1", key="k"),
        ]
        found = [await provider.models() for provider in providers]
        for provider in providers:
            await provider.close()
        return found

    assert all("gpt-4o" in models for models in anyio.run(run))
