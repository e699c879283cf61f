"""llama.cpp's server with a tiny real model, which speaks OpenAI's wire and Anthropic's; what it says means nothing."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from nacre.agent.ports import Context, Event, Provider, Reply
from nacre.errors import ContextOverflow
from nacre.providers.anthropic import Anthropic
from nacre.providers.model_server import Timeouts
from nacre.providers.openai import OpenAI
from tests.providers.peers import WEATHER, Listener, asked, completed, conversation

Make = Callable[[str, int], Provider]


def _openai(url: str, most: int) -> Provider:
    return OpenAI("smollm2", base_url=url, max_tokens=most, options={"temperature": 0})


def _anthropic(url: str, most: int) -> Provider:
    return Anthropic("smollm2", base_url=url, max_tokens=most, options={"temperature": 0})


both = pytest.mark.parametrize("make", [_openai, _anthropic])


@both
def test_an_answer_is_streamed_and_counted(make: Make, llama_server: str) -> None:
    listener = Listener()
    reply = completed(make(llama_server, 8), asked("Say hello.", system="Be brief."), listener)
    assert reply.message.content == listener.text
    assert reply.message.model == "smollm2"
    assert reply.usage is not None
    assert reply.usage.prompt > 10
    assert 1 <= reply.usage.completion <= 8
    assert reply.usage.request


@both
def test_an_answer_that_ran_out_of_room_says_so(make: Make, llama_server: str) -> None:
    assert completed(make(llama_server, 2), asked("Count to a hundred.")).finish == "length"


@both
def test_too_much_to_read_is_an_overflow(make: Make, llama_server: str) -> None:
    with pytest.raises(ContextOverflow, match=r"exceeds the available context size \(2048 tokens\)"):
        completed(make(llama_server, 8), asked("word " * 5000))


@both
def test_a_conversation_with_calls_and_results_is_taken(make: Make, llama_server: str) -> None:
    context = Context(system="Be brief.", messages=conversation(), tools=[WEATHER])
    assert completed(make(llama_server, 4), context).usage is not None


@both
def test_a_repeated_beginning_is_read_from_the_cache(make: Make, llama_server: str) -> None:
    context = asked("The same words, twice, and enough of them to be worth keeping.")
    completed(make(llama_server, 2), context)
    usage = completed(make(llama_server, 2), context).usage
    assert usage is not None
    assert 0 < usage.cached <= usage.prompt


@both
def test_a_cancelled_answer_frees_the_slot(make: Make, llama_server: str) -> None:
    async def run() -> dict[str, Any]:
        provider = make(llama_server, 1500)
        async with anyio.create_task_group() as group:

            def stop(_: Event) -> None:
                assert _slot(llama_server)["is_processing"]
                group.cancel_scope.cancel()

            await provider.complete(asked("Tell a very long story."), emit=stop)
        await provider.close()
        with anyio.fail_after(10):
            while (slot := await anyio.to_thread.run_sync(_slot, llama_server))["is_processing"]:
                pass
        return slot

    assert anyio.run(run)["next_token"][0]["has_next_token"]


def test_a_finished_answer_leaves_nothing_to_say(llama_server: str) -> None:
    completed(_openai(llama_server, 2), asked("Hello"))
    assert not _slot(llama_server)["next_token"][0]["has_next_token"]


def _slot(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/slots") as response:  # noqa: S310 - a server of ours
        found: dict[str, Any] = json.load(response)[0]
    return found


@both
def test_requests_after_finished_and_aborted_streams_do_not_fail(make: Make, llama_server: str) -> None:
    async def run() -> list[Reply]:
        provider = make(llama_server, 3)
        replies = []
        for _ in range(5):
            replies.append(await provider.complete(asked("Hello"), emit=Listener()))
            async with anyio.create_task_group() as group:
                await provider.complete(asked("Hello"), emit=lambda _: group.cancel_scope.cancel())
        await provider.close()
        return replies

    assert len(anyio.run(run)) == 5


def test_an_answer_is_held_to_a_schema(llama_server: str) -> None:
    schema = {"type": "object", "properties": {"tool": {"enum": ["a", "b"]}}, "required": ["tool"]}

    async def run() -> Reply:
        provider = OpenAI("smollm2", base_url=llama_server, max_tokens=40)
        reply = await provider.complete(asked("Pick one."), emit=Listener(), schema=schema)
        await provider.close()
        return reply

    assert json.loads(str(anyio.run(run).message.content))["tool"] in {"a", "b"}


@pytest.mark.parametrize("kind", [OpenAI, Anthropic])
def test_models_are_listed(kind: type[OpenAI | Anthropic], llama_server: str) -> None:
    async def run() -> list[str]:
        provider = kind("smollm2", base_url=llama_server, timeouts=Timeouts(attempts=1))
        found = await provider.models()
        await provider.close()
        return found

    assert len(anyio.run(run)) == 1
