"""What the tests of the agent share: a kernel over a store, tools that note what they did, and a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio

from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Ask, Effect, Event, Guard, Output, Provider, Scene, Spec, Tool
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Call, Scripted, Step
from nacre.sessions import Sessions

T = TypeVar("T")
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}


class Echo:
    """A tool that notes what it is called with and gives it back."""

    def __init__(self, name: str = "echo", *, act: Callable[[str], Awaitable[str]] | None = None) -> None:
        self.spec = Spec(name=name, description="Give x back.", parameters=SCHEMA)
        self.effect: Effect = "read"
        self.ran: list[str] = []
        self._act = act

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        self.ran.append(arguments["x"])
        return Output(text=await self._act(arguments["x"]) if self._act is not None else f"<{arguments['x']}>")


def allowing(key: str, ask: Ask | None) -> Guard:
    async def allow(tool: Tool, call: ToolCall) -> str:
        return ""

    return allow


def agent(provider: Provider, *tools: Tool, **changes: Any) -> Agent:
    """An agent that may do everything."""
    by_name = {tool.spec.name: tool for tool in tools}
    return Agent(**{"provider": lambda: provider, "tools": by_name, "guard": allowing, **changes})


def words(content: str, key: str = "k", **fields: Any) -> UserMessage:
    return UserMessage(key=key, content=content, **fields)


async def said(sessions: Sessions, answering: Agent, *contents: str) -> list[Message | None]:
    """The answers to words that are said one after the other."""
    async with Kernel(sessions, lambda _: answering) as kernel:
        return [await kernel.deliver(words(content)) for content in contents]


def converse(sessions: Sessions, steps: Sequence[Step], *contents: str, tools: Sequence[Tool] = ()) -> Scripted:
    """Run a scripted conversation to its end."""
    provider = Scripted(steps)
    anyio.run(said, sessions, agent(provider, *tools), *contents)
    return provider


def lines(sessions: Sessions, key: str = "k") -> list[str]:
    """The live messages, one line each."""
    return [_line(message) for message in sessions.get_history(key)]


def _line(message: Message) -> str:
    calls = "".join(f" {call.name}({call.arguments})" for call in message.tool_calls)
    return f"{message.role}: {message.content}{calls}"


class Watching:
    """Remembers every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)


def call(name: str = "echo", x: str = "a") -> Call:
    return Call(name, {"x": x})
