"""Killed with SIGKILL before any call to the system, and started again: the turn ends once, and no tool runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Ask, Context, Emit, Event, Guard, Reply, Returned, Tool
from nacre.history.pairing import INTERRUPTED
from nacre.history.session_state import RULES
from nacre.messages import Message, ToolCall
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
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


class Deadly(System):
    """The operating system, until its nth call."""

    def __init__(self, left: int) -> None:
        self._left = left

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def run(root: Path, system: System) -> None:
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

    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        anyio.run(play, sessions)


def killed_at(root: Path, nth: int, run: Callable[[Path, System], None]) -> bool:
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
        if not killed_at(root, nth, run):
            break
        tried += 1
        run(root, System())
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


# ---- reads that run side by side: one is refused, one raises, and they end in another order than they began

RESULTS = {"0": "<0>", "1": "the tool echo failed: ValueError: burnt", "2": "not allowed", "3": "<3>", "4": "<4>"}


class Reading(Strict):
    """A model that reads everything in one answer, and accepts for each call its own result or that there is none."""

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        check(context.messages)
        results = {message.tool_call_id: message.content for message in context.messages if message.role == "tool"}
        if not results:
            calls = tuple(ToolCall(id=f"call_{x}", name="echo", arguments={"x": x}) for x in RESULTS)
            return Reply(message=Message(role="assistant", content="", tool_calls=calls), finish="calls")
        right = all(results[f"call_{x}"] in {text, INTERRUPTED} for x, text in RESULTS.items())
        return Reply(message=Message(role="assistant", content="done" if right else f"wrong: {results}"))


def read(root: Path, system: System) -> None:
    """Read everything, or resume; what was announced as returned is noted beside the store."""

    async def act(x: str) -> str:
        for _ in range(9 - int(x)):
            await anyio.lowlevel.checkpoint()
        if x == "1":
            raise ValueError("burnt")
        return f"<{x}>"

    def guarding(key: str, ask: Ask | None) -> Guard:
        async def allow(tool: Tool, call: ToolCall) -> str:
            return "not allowed" if call.arguments["x"] == "2" else ""

        return allow

    def note(event: Event) -> None:
        if isinstance(event, Returned):
            with (root.parent / "returned").open("a") as file:
                file.write(event.call.arguments["x"])

    async def play(sessions: Sessions) -> None:
        async with Kernel(sessions, lambda _: agent(Reading(), Echo(act=act), guard=guarding)) as kernel:
            if await kernel.resume("k", emit=note) is None:
                await kernel.deliver(words("go", id="m1"), emit=note)

    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        anyio.run(play, sessions)


def test_each_read_of_an_answer_has_its_own_result_and_none_that_was_announced_is_lost(tmp_path: Path) -> None:
    partly = 0
    for nth in range(1, MOST_CALLS, 3):
        root = tmp_path / str(nth) / "store"
        root.parent.mkdir()
        if not killed_at(root, nth, read):
            break
        returned = root.parent / "returned"
        announced = returned.read_text() if returned.exists() else ""
        read(root, System())
        with nacre.open(root) as sessions:
            messages = sessions.get_history("k")
            assert lines(sessions)[-1] == "assistant: done"
            kept = [(m.tool_call_id, m.content) for m in messages if m.role == "tool"]
            assert len(dict(kept)) == len(kept)
            assert set(kept) >= {(f"call_{x}", RESULTS[x]) for x in announced}
        partly += 0 < len(announced) < len(RESULTS)
    else:
        pytest.fail("the child never came to its end")
    assert partly > 3
