"""What the tests of the HTTP providers are written with: any server's bytes, a conversation, a listener."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from nacre.agent.ports import Context, Event, Notice, Provider, Reply, Spec, Text, Thought
from nacre.messages import Message, ToolCall
from tests.ollama_server import Answer, OllamaServer, serving

WEATHER = Spec(
    name="weather",
    description="Say how the weather is.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)


class Replayed(OllamaServer):
    """A server that gives its answers one after the other, whatever the path."""

    def answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self.next()


@asynccontextmanager
async def replayed(*answers: Answer) -> AsyncIterator[OllamaServer]:
    async with serving(Replayed(answers, {})) as server:
        yield server


def sse(*values: Mapping[str, Any] | str) -> bytes:
    """Server-sent events, one per value."""
    texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


class Listener:
    """Hears what is emitted, and what is waited for instead of sleeping."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.waits: list[float] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def thoughts(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Thought))

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def asked(*words: str, system: str = "", tools: tuple[Spec, ...] = ()) -> Context:
    return Context(system=system, messages=[Message(role="user", content=text) for text in words], tools=tools)


def completed(provider: Provider, context: Context, listener: Listener | None = None) -> Reply:
    """Ask once, in a loop of its own."""

    async def run() -> Reply:
        try:
            return await provider.complete(context, emit=listener or Listener())
        finally:
            await provider.close()

    return anyio.run(run)


def conversation() -> list[Message]:
    """Two calls, one of which failed, and words that came in while they ran."""
    calls = (
        ToolCall(id="call_1", name="weather", arguments={"city": "Oslo"}),
        ToolCall(id="call_2", name="weather", arguments='{"city": '),
    )
    return [
        Message(role="user", content="How is the weather?"),
        Message(role="assistant", content="", tool_calls=calls, reasoning="I must look.", model="m"),
        Message(role="tool", tool_call_id="call_1", name="weather", content="Snow."),
        Message(role="tool", tool_call_id="call_2", content="not an object", extra={"failed": True}),
        Message(role="user", content="And be quick."),
    ]
