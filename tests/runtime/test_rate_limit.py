"""Exchanges without a pause: counted by answers, whatever the time between them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.channels.channel import Accept, InboundMessage
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import NO_PAUSE, Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.runtime.gateway.rate_limit import LoopLimit
from tests.agent.scene import agent
from tests.runtime.test_gateway import Parrot

ANN = InboundMessage(channel="irc", chat="ann", sender="ann", id="", text="")


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def exchange(loops: LoopLimit, clock: Clock, *, times: int, pause: float) -> int:
    """How many of so many messages are answered, each so long after the answer to the one before."""
    answered = 0
    for _ in range(times):
        clock.now += pause
        if loops.allow(ANN):
            answered += 1
            loops.count_answer(ANN)
    return answered


@pytest.mark.parametrize("delay", [0.0, 1.0, 5.0, 19.0])
def test_a_program_is_answered_so_often_and_no_more_however_slow_it_is(delay: float) -> None:
    clock = Clock()
    loops = LoopLimit(limit=30, clock=clock)
    assert exchange(loops, clock, times=100, pause=delay) == 30


def test_who_pauses_now_and_then_is_always_answered() -> None:
    clock = Clock()
    loops = LoopLimit(limit=30, clock=clock)
    for _ in range(10):
        assert exchange(loops, clock, times=29, pause=3.0) == 29
        clock.now += 25.0


def test_after_a_quiet_minute_all_is_well_again_and_others_never_notice() -> None:
    clock = Clock()
    loops = LoopLimit(limit=3, clock=clock)
    exchange(loops, clock, times=5, pause=1.0)
    assert loops.allow(InboundMessage(channel="irc", chat="bob", sender="bob", id="", text=""))
    clock.now += 59.0
    assert not loops.allow(ANN)
    clock.now += 61.0
    assert loops.allow(ANN)


class Echoing:
    """A channel with a program at its other end, which answers every answer."""

    name = "line"
    is_exact = True
    is_up = True

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.over = anyio.Event()
        self._more = anyio.Event()

    async def run(self, accept: Accept) -> None:
        while True:
            id = str(len(self.sent))
            await accept(InboundMessage(channel="line", chat="c", sender="robot", id=id, text="more?"))
            if NO_PAUSE in self.sent:
                self.over.set()
            await self._more.wait()
            self._more = anyio.Event()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        self.sent.append(text)
        self._more.set()

    async def close(self) -> None:
        """There is nothing to close."""


def test_a_program_that_answers_every_answer_is_told_once_and_left_alone(tmp_path: Path) -> None:
    async def run() -> list[str]:
        line = Echoing()
        with nacre.open(tmp_path / "store") as sessions:
            async with Kernel(sessions, lambda _: agent(Parrot())) as kernel, anyio.create_task_group() as tasks:
                gateway = Gateway(
                    [line],
                    inbox=Inbox(sessions),
                    room=lambda _: Room(sessions, kernel),
                    access=lambda _: Access(per_minute=1000),
                    commands={},
                    loops=LoopLimit(limit=5),
                )
                tasks.start_soon(gateway.run)
                with anyio.fail_after(20):
                    await line.over.wait()
                assert gateway.traffic.refused["line", "loop"] == 2
                gateway.end()
        return line.sent

    assert anyio.run(run) == ["re: more?"] * 5 + [NO_PAUSE]
