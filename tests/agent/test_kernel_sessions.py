"""The kernel runs on whatever has the methods that it states, and needs no others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio

import nacre
from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.live_session import KernelSessions
from nacre.agent.ports import Entry, Tool
from nacre.messages import Snapshot, ToolCall
from nacre.providers.scripted import Scripted
from nacre.records import SetMeta, View
from nacre.sessions import Sessions

T = TypeVar("T")


class Few:
    """Sessions that can do no more than what the kernel states."""

    def __init__(self, sessions: Sessions) -> None:
        self.__sessions = sessions

    def submit(
        self,
        key: str,
        operations: Sequence[Entry | SetMeta],
        *,
        id: str | None = None,
        lease: nacre.Lease | None = None,
    ) -> Awaitable[int]:
        return self.__sessions.submit(key, operations, id=id, lease=lease)

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        return self.__sessions.snapshot(key, last=last)

    def is_at(self, key: str, version: nacre.Version) -> bool:
        return self.__sessions.is_at(key, version)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        return self.__sessions.read(key, get)

    def hold(self, key: str) -> nacre.Lease:
        return self.__sessions.hold(key)

    @property
    def is_shared(self) -> bool:
        return self.__sessions.is_shared


def guard(_: str, __: Any) -> Any:
    async def decide(_: Tool, __: ToolCall) -> str:
        return ""

    return decide


def test_a_turn_needs_only_what_is_stated() -> None:
    async def act() -> None:
        with nacre.open(":memory:") as sessions:
            few: KernelSessions = Few(sessions)
            provider = Scripted([["one"], ["two"]], model="m")
            async with Kernel(few, lambda _: Agent(provider=lambda: provider, guard=guard)) as kernel:
                first = await kernel.deliver(UserMessage(key="k", content="a", id="1"))
                again = await kernel.deliver(UserMessage(key="k", content="a", id="1"))
                assert first is not None
                assert again is not None
                assert (first.content, again.content) == ("one", "one")
                sessions.truncate_history("k", 0)
                async with Kernel(few, lambda _: Agent(provider=lambda: provider, guard=guard)) as other:
                    late = await other.deliver(UserMessage(key="k", content="a", id="1"))
                    assert late is not None
                    assert late.content == "one"
                    assert await other.resume("k") is None

    anyio.run(act)
