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
from benchmarks.rows import Row, at_most, micros, plain, shown
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
_BEGIN = 1.0
_THINKING = 0.02


class Crowd:
    """A channel on which many write at once, each the next words when the last were answered.

    They begin within a second; from then on all of them wait for an answer at any time. Each message has a `text`, and
    a number from `begin` on.
    """

    name = "crowd"
    is_exact = True
    is_up = True

    def __init__(self, senders: int, each: int, *, first: int = 0, begin: int = 0, text: str = "") -> None:
        self.accepted: list[float] = []
        self.answers: dict[str, list[str]] = {}
        self._senders = range(first, first + senders)
        self._numbers = range(begin, begin + each)
        self._text = text
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
        for turn in self._numbers:
            self._got[sender] = anyio.Event()
            started = time.perf_counter()
            await accept(_words(sender, turn, self._text))
            self.accepted.append(time.perf_counter() - started)
            await self._got[sender].wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:  # noqa: ARG002 - a channel's shape
        self.answers.setdefault(to.sender, []).append(to.id)
        self._got[to.sender].set()

    async def close(self) -> None:
        """There is nothing to close."""


def senders(scene: Scene) -> Iterator[Row]:
    """A thousand senders at once against one."""
    each = 2 if scene.is_quick else 5
    file = scene.room("a flush") / "file"
    flushes = _flushes(file)
    alone = anyio.run(_serve, scene.room("one sender"), 1, 200)
    many = anyio.run(_serve, scene.room("many senders"), _SENDERS, each)
    slow_alone = anyio.run(_serve, scene.room("one sender, slow model"), 1, 50, _THINKING)
    slow_many = anyio.run(_serve, scene.room("many senders, slow model"), _SENDERS, each, _THINKING)
    flush = median([*flushes, *_flushes(file)])
    yield at_most(f"{_SENDERS:,} senders at once: words lost or out of order", many.wrong, 0, unit="")
    yield at_most("CPU of a message with one sender, ms", 1e3 * alone.cpu, 1.2, unit=" ms")
    yield at_most(f"CPU of a message with {_SENDERS:,} senders at once, ms", 1e3 * many.cpu, 1.3, unit=" ms")
    absolute = f"{micros(flush)}, {micros(many.p99)}; median {micros(median(many.accepted))}"
    yield at_most("p99 of accept-to-durable against one flush", many.p99 / flush, 45, absolute=absolute)
    rates = f"{alone.rate:,.0f}/s, {many.rate:,.0f}/s; less as one sender gets faster"
    yield plain("throughput against one sender", shown(many.rate / alone.rate), absolute=rates)
    thinking = f"with a model that takes {_THINKING * 1000:.0f} ms"
    calm = slow_many.p99
    yield plain(f"{thinking}: p99 of accept-to-durable against one flush", shown(calm / flush), absolute=micros(calm))
    rates = f"{slow_alone.rate:,.0f}/s, {slow_many.rate:,.0f}/s"
    ratio = shown(slow_many.rate / slow_alone.rate)
    yield plain(f"{thinking}: throughput against one sender", ratio, absolute=rates)


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
                await serve_crowd(sessions, kernel, Crowd(seen - active, 1))
                while len(kernel):  # noqa: ASYNC110 - it has no event for that
                    await anyio.sleep(0.05)
                await serve_crowd(sessions, kernel, Crowd(active, 1, first=seen))
                return _resident()

    return anyio.run(run)


class _Served(Struct, frozen=True, kw_only=True):
    """Messages answered in a second, CPU seconds of each, how long each took to be durable, and how many went wrong."""

    rate: float
    cpu: float
    accepted: Sequence[float]
    wrong: int

    @property
    def p99(self) -> float:
        return quantiles(self.accepted, n=100)[98]


async def _serve(store: Path, count: int, each: int, thinking: float = 0) -> _Served:
    crowd = Crowd(count, each)
    with nacre.open(store) as sessions:
        pacer = StepPacer()
        async with Kernel(sessions, lambda _: _thoughtful(each, thinking), pace=pacer.step) as kernel:
            started, used = time.perf_counter(), time.process_time()
            await serve_crowd(sessions, kernel, crowd, pacer)
            took, used = time.perf_counter() - started, time.process_time() - used
        wrong = sum(_wrong(sessions, crowd, f"sender{number}", each) for number in range(count))
    total = count * each
    return _Served(rate=total / took, cpu=used / total, accepted=crowd.accepted, wrong=wrong)


def _thoughtful(count: int, seconds: float) -> Agent:
    """An agent whose model takes its time."""
    return answering(count) if not seconds else answering(count, pause=Pause(_Sleep(seconds)))


class _Sleep(Struct, frozen=True):
    seconds: float

    async def wait(self) -> None:
        await anyio.sleep(self.seconds)


async def serve_crowd(sessions: Sessions, kernel: Kernel, crowd: Crowd, pacer: StepPacer | None = None) -> None:
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


def _words(sender: str, turn: int, text: str = "") -> InboundMessage:
    return InboundMessage(channel="crowd", chat=sender, sender=sender, id=str(turn), text=f"words {turn}{text}")


def _start(store: Path) -> None:
    """Open a store, read the inbox, and answer one message."""

    async def run() -> None:
        with nacre.open(store) as sessions:
            async with Kernel(sessions, lambda _: answering(1)) as kernel:
                await serve_crowd(sessions, kernel, Crowd(0, 0))

    anyio.run(run)


def _flushes(path: Path) -> list[float]:
    """The times of bare flushes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with measure.awake():
            return [measure.timed(partial(_write, fd)) for _ in range(200)]
    finally:
        os.close(fd)


def _write(fd: int) -> None:
    os.write(fd, b"x" * 300)
    os.fdatasync(fd)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
