"""The gateway with many senders: how soon words are durable, how many are answered, what it weighs, how it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import anyio
import anyio.lowlevel
from msgspec import Struct

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_least, at_most, micros, plain, shown
from benchmarks.scene import Scene
from benchmarks.turns import answering
from nacre.agent.actor import Agent
from nacre.agent.kernel import Kernel
from nacre.channels.channel import Accept, InboundMessage, key_of
from nacre.providers.scripted import Pause
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.runtime.gateway.queue import StepPacer
from nacre.runtime.gateway.rate_limit import LoopLimit
from nacre.sessions import Sessions

_SENDERS = 1_000
_EACH = 5
_BEGIN = 1.0
_THINKING = 0.02


class Crowd:
    """A channel on which many write at once, each the next words when the last were answered.

    They begin within a second; from then on all of them wait for an answer at any time.
    """

    name = "crowd"
    is_exact = True
    is_up = True

    def __init__(self, senders: int, each: int, *, first: int = 0) -> None:
        self.accepted: list[float] = []
        self.answers: dict[str, list[str]] = {}
        self._senders = range(first, first + senders)
        self._each = each
        self._got: dict[str, anyio.Event] = {}
        self.done = anyio.Event()

    async def run(self, accept: Accept) -> None:
        async with anyio.create_task_group() as tasks:
            for number in self._senders:
                tasks.start_soon(self._talk, accept, number)
        self.done.set()

    async def _talk(self, accept: Accept, number: int) -> None:
        sender = f"sender{number}"
        if len(self._senders) > 1:
            await anyio.sleep(_BEGIN * (number - self._senders.start) / len(self._senders))
        for turn in range(self._each):
            self._got[sender] = anyio.Event()
            started = time.perf_counter()
            await accept(_words(sender, turn))
            self.accepted.append(time.perf_counter() - started)
            await self._got[sender].wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:  # noqa: ARG002 - a channel's shape
        self.answers.setdefault(to.sender, []).append(to.id)
        self._got[to.sender].set()

    async def close(self) -> None:
        """There is nothing to close."""


def senders(scene: Scene) -> Iterator[Row]:
    """A thousand senders at once against one."""
    alone, _, _ = anyio.run(_served, scene.room("one sender"), 1, 200)
    many, accepted, lost = anyio.run(_served, scene.room("many senders"), _SENDERS, _EACH)
    slow_alone, _, _ = anyio.run(_served, scene.room("one sender, slow model"), 1, 50, _THINKING)
    slow_many, calm, _ = anyio.run(_served, scene.room("many senders, slow model"), _SENDERS, _EACH, _THINKING)
    flush = _flush(scene.room("a flush") / "file")
    p99 = quantiles(accepted, n=100)[98]
    yield at_most(f"{_SENDERS:,} senders at once: words lost or out of order", lost, 0, unit="")
    absolute = f"{micros(flush)}, {micros(p99)}; median {micros(median(accepted))}"
    yield at_most("p99 of accept-to-durable against one flush", p99 / flush, 10, absolute=absolute)
    yield at_least("throughput against one sender", many / alone, 5, absolute=f"{alone:,.0f}/s, {many:,.0f}/s")
    thinking = f"with a model that takes {_THINKING * 1000:.0f} ms"
    p99 = quantiles(calm, n=100)[98]
    yield plain(f"{thinking}: p99 of accept-to-durable", shown(p99 / flush), absolute=micros(p99))
    rates = f"{slow_alone:,.0f}/s, {slow_many:,.0f}/s"
    yield plain(f"{thinking}: throughput against one sender", shown(slow_many / slow_alone), absolute=rates)


def senders_memory(scene: Scene) -> Iterator[Row]:
    """What a daemon weighs that has seen ten thousand senders, of whom a hundred are active."""
    held = measure.child("senders", scene.room("seen") / "store", 10_000, 100)
    yield at_most("memory with 10,000 senders seen, 100 active, MB", held / 1_000_000, 150, unit=" MB")


def starts(scene: Scene) -> Iterator[Row]:
    """The first answer of a daemon over many sessions on disk against over none."""
    empty, full = scene.room("nobody yet"), scene.crowded
    samples = measure.interleave({"empty": lambda: _start(empty), "full": lambda: _start(full)}, rounds=15, warm=1)
    ratio = measure.p50(samples["full"]) / measure.p50(samples["empty"])
    absolute = f"{micros(measure.p50(samples['empty']))}, {micros(measure.p50(samples['full']))}"
    yield at_most(
        f"start with {scene.sizes.crowded:,} sessions on disk against with none", ratio, 1.5, absolute=absolute
    )


def weigh(store: Path, seen: int, active: int) -> int:
    """Bytes that a process holds after so many senders were answered, and so many actors are left."""

    async def run() -> int:
        with nacre.open(store) as sessions:
            async with Kernel(sessions, lambda _: answering(1), idle=0.2) as kernel:
                await _through(sessions, kernel, Crowd(seen - active, 1))
                while len(kernel):  # noqa: ASYNC110 - it has no event for that
                    await anyio.sleep(0.05)
                await _through(sessions, kernel, Crowd(active, 1, first=seen))
                return _resident()

    return anyio.run(run)


async def _served(store: Path, count: int, each: int, thinking: float = 0) -> tuple[float, Sequence[float], int]:
    """Words answered in a second, how long each waited to be durable, and how many were lost or out of order."""
    crowd = Crowd(count, each)
    with nacre.open(store) as sessions:
        pacer = StepPacer()
        async with Kernel(sessions, lambda _: _thoughtful(each, thinking), pace=pacer.step) as kernel:
            started = time.perf_counter()
            await _through(sessions, kernel, crowd, pacer)
            took = time.perf_counter() - started
        lost = sum(_wrong(sessions, crowd, f"sender{number}", each) for number in range(count))
    return count * each / took, crowd.accepted, lost


def _thoughtful(count: int, seconds: float) -> Agent:
    """An agent whose model takes its time."""
    return answering(count) if not seconds else answering(count, pause=Pause(_Sleep(seconds)))


class _Sleep(Struct, frozen=True):
    seconds: float

    async def wait(self) -> None:
        await anyio.sleep(self.seconds)


async def _through(sessions: Sessions, kernel: Kernel, crowd: Crowd, pacer: StepPacer | None = None) -> None:
    gateway = Gateway(
        [crowd],
        inbox=Inbox(sessions),
        room=lambda _: Room(sessions, kernel),
        access=lambda _: Access(per_minute=10_000),
        commands={},
        pacer=pacer,
        # These senders never pause; for a gateway they would be programs that answer each other.
        loops=LoopLimit(limit=1_000_000),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.run)
        await crowd.done.wait()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


def _wrong(sessions: Sessions, crowd: Crowd, sender: str, each: int) -> int:
    wanted = [str(turn) for turn in range(each)]
    stored = [
        str(message.content) for message in sessions.get_history(key_of(_words(sender, 0))) if message.role == "user"
    ]
    return (crowd.answers.get(sender) != wanted) + (stored != [f"words {turn}" for turn in range(each)])


def _words(sender: str, turn: int) -> InboundMessage:
    return InboundMessage(channel="crowd", chat=sender, sender=sender, id=str(turn), text=f"words {turn}")


def _start(store: Path) -> None:
    """Open a store, read the inbox, and answer one message."""

    async def run() -> None:
        with nacre.open(store) as sessions:
            async with Kernel(sessions, lambda _: answering(1)) as kernel:
                await _through(sessions, kernel, Crowd(0, 0))

    anyio.run(run)


def _flush(path: Path) -> float:
    """The median time of a bare flush."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return median(measure.timed(partial(_write, fd)) for _ in range(200))
    finally:
        os.close(fd)


def _write(fd: int) -> None:
    os.write(fd, b"x" * 300)
    os.fdatasync(fd)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
