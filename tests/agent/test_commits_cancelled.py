"""What is cancelled while a commit waits for the disk: the commit is never cut in half, and its outcome is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Reply
from nacre.errors import Stopped
from nacre.history.session_state import RULES
from nacre.messages import Message
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.system import System


class SlowDisk(System):
    """A disk whose next flush takes until it is let go, once it is told to."""

    def __init__(self) -> None:
        self.is_slow = False
        self.is_flushing, self.may_end = threading.Event(), threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self.is_slow:
            self.is_slow = False
            self.is_flushing.set()
            assert self.may_end.wait(20)
        super().fdatasync(fd)


class Model:
    """A model whose first answer is flushed slowly."""

    model = "m"

    def __init__(self, disk: SlowDisk) -> None:
        self._disk, self._is_first = disk, True

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self._disk.is_slow, self._is_first = self._is_first, False
        return Reply(message=Message(role="assistant", content=f"to {context.messages[-1].content}"))

    async def close(self) -> None:
        """Nothing to release."""


def guard(*_: Any) -> Any:
    async def allow(*_: Any) -> str:
        return ""

    return allow


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def sessions(root: Path, disk: SlowDisk) -> Iterator[Sessions]:
    with Sessions(FileStore(str(root), rules=RULES, system=disk)) as opened:
        yield opened


def said(sessions: Sessions) -> list[object]:
    return [message.content for message in sessions.get_history("k")]


async def pass_rounds() -> None:
    """Let what was cancelled come to the task that it is for."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


def test_a_turn_that_is_stopped_while_its_reply_is_stored_has_its_reply(sessions: Sessions, disk: SlowDisk) -> None:
    async def act() -> None:
        model = Model(disk)
        answers: list[Message | None] = []
        async with Kernel(sessions, lambda _: Agent(provider=lambda: model, guard=guard)) as kernel:

            async def ask(text: str) -> None:
                answers.append(await kernel.deliver(UserMessage(key="k", content=text)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "a")
                await anyio.to_thread.run_sync(disk.is_flushing.wait)
                assert kernel.stop("k")
                await pass_rounds()
                assert answers == []
                disk.may_end.set()
            # What was stopped is over: the next turn is not.
            await ask("b")
        assert [answer and answer.content for answer in answers] == ["to a", "to b"]

    anyio.run(act)
    assert said(sessions) == ["a", "to a", "b", "to b"]


def test_a_kernel_that_ends_while_a_reply_is_stored_gives_the_reply(sessions: Sessions, disk: SlowDisk) -> None:
    async def act() -> None:
        model = Model(disk)
        answers: list[Message | None] = []
        agent = Agent(provider=lambda: model, guard=guard)
        async with anyio.create_task_group() as tasks, Kernel(sessions, lambda _: agent) as kernel:

            async def ask() -> None:
                answers.append(await kernel.deliver(UserMessage(key="k", content="a")))

            async def let_go() -> None:
                await pass_rounds()
                disk.may_end.set()

            tasks.start_soon(ask)
            await anyio.to_thread.run_sync(disk.is_flushing.wait)
            tasks.start_soon(let_go)
        assert [answer and answer.content for answer in answers] == ["to a"]

    anyio.run(act)
    assert said(sessions) == ["a", "to a"]


def test_a_caller_who_is_cancelled_leaves_a_turn_that_goes_on(sessions: Sessions, disk: SlowDisk) -> None:
    async def act() -> None:
        model = Model(disk)
        async with Kernel(sessions, lambda _: Agent(provider=lambda: model, guard=guard)) as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kernel.deliver, UserMessage(key="k", content="a"))
                await anyio.to_thread.run_sync(disk.is_flushing.wait)
                tasks.cancel_scope.cancel()
            disk.may_end.set()
            answer = await kernel.deliver(UserMessage(key="k", content="b"))
            assert answer is not None
            assert answer.content == "to b"

    anyio.run(act)
    assert said(sessions) == ["a", "to a", "b", "to b"]


def test_a_turn_that_is_stopped_before_its_reply_keeps_what_was_said(sessions: Sessions) -> None:
    """A message that is being stored when its turn is stopped is stored, and the turn ends after it."""

    class Waits:
        model = "m"

        async def complete(self, context: Context, *, emit: Emit) -> Reply:
            await anyio.sleep_forever()
            raise AssertionError

        async def close(self) -> None:
            """Nothing to release."""

    async def act() -> None:
        async with Kernel(sessions, lambda _: Agent(provider=Waits, guard=guard)) as kernel:

            async def ask() -> None:
                with pytest.raises(Stopped):
                    await kernel.deliver(UserMessage(key="k", content="a"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                while not kernel.stop("k"):
                    await anyio.lowlevel.checkpoint()

    anyio.run(act)
    assert said(sessions) == ["a", "[stopped by the user]"]
