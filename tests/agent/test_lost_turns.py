"""A turn that another process takes over ends with an error, and stores and sends nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Reply, Text, Tool
from nacre.messages import ToolCall
from nacre.providers.scripted import Scripted

# A process that is stopped while its model is asked: after it has taken the turn and stored the message.
STOPPED = """
import os, signal, sys, anyio, nacre
from tests.agent.test_lost_turns import Asked, agent
from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel

async def act():
    with nacre.open(sys.argv[1]) as sessions:
        model = Asked(lambda: os.kill(os.getpid(), signal.SIGSTOP))
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            try:
                print((await kernel.deliver(UserMessage(key="k", content="a", id="1"))).content)
            except nacre.LeaseLost as error:
                print("lost:", error)

anyio.run(act)
"""


class Asked(Scripted):
    """A model during whose answer something happens."""

    def __init__(self, meanwhile: Any) -> None:
        super().__init__([["late"], ["again"]], model="m")
        self._meanwhile = meanwhile

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self._meanwhile()
        return await super().complete(context, emit=emit)


def agent(model: Scripted) -> Agent:
    def guard(_: str, __: Any) -> Any:
        async def decide(_: Tool, __: ToolCall) -> str:
            return ""

        return decide

    return Agent(provider=lambda: model, guard=guard)


def said(sessions: nacre.Sessions) -> list[object]:
    return [message.content for message in sessions.get_history("k")]


def test_a_process_that_was_stopped_in_its_turn_is_refused_when_it_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    with nacre.open(tmp_path) as sessions, subprocess.Popen(command, stdout=-1, text=True) as stopped:
        assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
        lease = sessions.hold("k")
        lease.take_over()
        sessions.add_messages("k", [{"role": "assistant", "content": "answered"}], lease=lease)
        stopped.send_signal(signal.SIGCONT)
        printed, _ = stopped.communicate()
        assert printed == "lost: the turn of session 'k' was taken over; nothing was stored\n"
        assert said(sessions) == ["a", "answered"]


@pytest.mark.parametrize("place", ["files", ":memory:"])
def test_a_turn_that_is_lost_ends_and_the_next_message_has_its_own(tmp_path: Path, place: str) -> None:
    async def act() -> None:
        with nacre.open(":memory:" if place == ":memory:" else tmp_path) as sessions:
            thief = sessions.hold("k")
            events = [thief.take_over]
            model = Asked(lambda: events.pop()() if events else None)
            async with Kernel(sessions, lambda _: agent(model)) as kernel:
                with pytest.raises(nacre.LeaseLost):
                    await kernel.deliver(UserMessage(key="k", content="a", id="1"))
                with pytest.raises(nacre.SessionBusy):
                    await kernel.deliver(UserMessage(key="k", content="b", id="2"))
                assert said(sessions) == ["a"]
                sessions.add_messages("k", [{"role": "assistant", "content": "answered"}], lease=thief)
                thief.close()
                reply = await kernel.deliver(UserMessage(key="k", content="b", id="2"))
                assert reply is not None
                assert said(sessions) == ["a", "answered", "b", reply.content]

    anyio.run(act)


def test_a_message_that_comes_in_a_lost_turn_is_not_taken_for_a_repeat() -> None:
    async def act() -> None:
        with nacre.open(":memory:") as sessions:
            sessions.add_message("k", "user", "a")
            model = Asked(lambda: None)
            thief = sessions.hold("k")

            def recall(*_: object) -> str:
                thief.take_over()
                return ""

            lost = agent(model)
            async with Kernel(
                sessions, lambda _: Agent(provider=lost.provider, guard=lost.guard, recall=recall)
            ) as kernel:
                with pytest.raises(nacre.LeaseLost):
                    await kernel.deliver(UserMessage(key="k", content="b", id="2"), emit=emitted.append)
            assert said(sessions) == ["a"]
            assert emitted == []

    emitted: list[Text | object] = []
    anyio.run(act)
