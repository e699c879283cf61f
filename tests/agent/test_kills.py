"""Killed with SIGKILL before any call to the system, and started again: the turn ends once, and no tool runs twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Reply
from nacre.entries import Message, ToolCall
from nacre.history.live import RULES
from nacre.log.ops import Ops
from nacre.sessions import Sessions
from nacre.store.files import Files
from tests.agent.scene import Echo, agent, lines, words
from tests.history.bodies import check

MOST_CALLS = 400


class Strict:
    """A model that calls one tool, then two in one answer, and takes only what every provider takes."""

    model = "strict"

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        check(context.messages)
        done = sum(message.role == "tool" for message in context.messages)
        if done >= 3:
            return Reply(message=Message(role="assistant", content="done"))
        numbers = range(done, done + 2) if done else [0]
        calls = tuple(ToolCall(id=f"call_{n}", name="echo", arguments={"x": str(n)}) for n in numbers)
        return Reply(message=Message(role="assistant", content="", tool_calls=calls), finish="calls")

    async def close(self) -> None:
        """There is nothing to close."""


class Deadly(Ops):
    """The operating system, until its nth call."""

    def __init__(self, left: int) -> None:
        self._left = left

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def run(root: Path, ops: Ops) -> None:
    """Say something, or go on with what was said before."""
    ran = root.parent / "ran"

    async def act(x: str) -> str:
        with ran.open("a") as file:
            file.write(x)
        return x

    async def play(sessions: Sessions) -> None:
        async with Kernel(sessions, lambda _: agent(Strict(), Echo(act=act))) as kernel:
            if await kernel.resume("k") is None:
                await kernel.deliver(words("go", id="m1"))

    with Sessions(Files(str(root), rules=RULES, ops=ops)) as sessions:
        anyio.run(play, sessions)


def killed_at(root: Path, nth: int) -> bool:
    """Run in a child that is killed at its nth call; False if it came to its end before."""
    child = os.fork()
    if not child:
        try:
            run(root, Deadly(nth))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_the_turn_ends_once_and_no_tool_runs_twice(tmp_path: Path) -> None:
    tried = 0
    for nth in range(1, MOST_CALLS):
        root = tmp_path / str(nth) / "store"
        root.parent.mkdir()
        if not killed_at(root, nth):
            break
        tried += 1
        run(root, Ops())
        with nacre.open(root) as sessions:
            texts = lines(sessions)
            assert texts.count("user: go") == texts.count("assistant: done") == 1
            assert texts[-1] == "assistant: done"
            assert sessions.verify().ok
        ran = (root.parent / "ran").read_text()
        assert len(ran) == len(set(ran)), f"killed at call {nth}: {ran} ran"
    else:
        pytest.fail("the child never came to its end")
    assert tried > 50
