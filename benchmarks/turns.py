"""What the agent adds to the flushes that it needs, and what many live sessions weigh."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import LONG, SHORT, Scene, converse
from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.live_session import LiveSession
from nacre.agent.ports import Guard
from nacre.providers.scripted import Call, Pause, Scripted
from nacre.sessions import Sessions
from nacre.tools.functions import tool

_ACTORS = 1_000
_HISTORY = 50
_KEY = "k"
_ANSWER = "The weather is fine."
_READS, _READ_SECONDS = 5, 0.5


def turns(scene: Scene) -> Iterator[Row]:
    """A turn without tools, against the flushes of what it stores."""
    if measure.can_trace():
        counted = measure.flushes(scene.room("turn flushes") / "trace", "turn", scene.root / "turn flushes" / "store")
        yield at_most("flushes of a turn without tools", counted[1], 3, unit="")
    else:
        yield plain("flushes of a turn without tools", "not measured: no strace")
    samples = anyio.run(_turns, scene)
    ratio = measure.paired(samples, "turn", "flushes")
    absolute = f"{micros(measure.p50(samples['flushes']))}, {micros(measure.p50(samples['turn']))}"
    yield at_most("a turn without tools against its two flushes alone", ratio, 2.7, absolute=absolute)
    yield at_most("CPU of a turn without tools, p50", 1e6 * measure.p50(samples["cpu"]), 600, unit=" µs")
    handed = "to another thread and back, by how often one wakes the event loop"
    yield plain("thread hand-overs of a turn without tools", shown(measure.p50(samples["handed"]), ""), absolute=handed)
    switched = shown(measure.p50(samples["switched"]), "")
    yield plain("voluntary context switches of a turn without tools", switched, absolute="of all threads, by getrusage")


def reads(scene: Scene) -> Iterator[Row]:
    """Five calls of one answer that only read and take half a second each, with all that the turn stores."""
    with nacre.open(scene.room("reads")) as sessions:
        taken = anyio.run(_reads, sessions)
    yield at_most(f"{_READS} reads of {_READ_SECONDS} s in one answer", taken, 0.8, unit=" s")


async def _reads(sessions: Sessions) -> float:
    @tool(effect="read")
    async def look(x: int) -> str:
        """Look."""
        await anyio.sleep(_READ_SECONDS)
        return str(x)

    model = Scripted([[Call("look", {"x": number}) for number in range(_READS)], _ANSWER])
    agent = Agent(provider=lambda: model, tools={"look": look}, guard=_allowing)
    async with Kernel(sessions, lambda _: agent) as kernel:
        return await _timed(kernel)


def contexts(scene: Scene) -> Iterator[Row]:
    """What a model is shown of a long session against of a short one, from a store that has just been opened."""
    samples = measure.interleave(
        {key: partial(_shown, scene.long, key) for key in (SHORT, LONG)}, rounds=scene.sizes.pairs // 10, warm=1
    )
    ratio = measure.p50(samples[LONG]) / measure.p50(samples[SHORT])
    what = f"context build at {scene.sizes.long:,} messages against {scene.sizes.short:,}"
    absolute = f"{micros(measure.p50(samples[SHORT]))}, {micros(measure.p50(samples[LONG]))}"
    yield at_most(what, ratio, 2, absolute=absolute)


def _shown(store: Path, key: str) -> None:
    with nacre.open(store) as sessions:
        conversation = LiveSession(sessions, key)
        anyio.run(conversation.read)
        conversation.window(32_000, summary=12_000)


def actors(scene: Scene) -> Iterator[Row]:
    """What a thousand sessions with a live actor weigh beyond one, in a process of their own."""
    room = scene.room("actors")
    with nacre.open(room, durability="relaxed") as sessions:
        for number in range(_ACTORS):
            converse(sessions, f"{_KEY}{number}", _HISTORY)
    one, many = (measure.child("actors", room, count) for count in (1, _ACTORS))
    what = f"{_ACTORS:,} live actors beyond one, with sessions of {_HISTORY} messages of 200 bytes, MB"
    yield at_most(what, (many - one) / 1_000_000, 80, unit=" MB")


async def _turns(scene: Scene) -> Mapping[str, list[float]]:
    """What each turn takes in a session of fifty messages, and beside each what its two flushes take alone."""
    warm, rounds = 10, scene.sizes.pairs
    samples: dict[str, list[float]] = {name: [] for name in ("turn", "flushes", "cpu", "handed", "switched")}
    woken = _count_wakes()
    with nacre.open(scene.room("turns")) as sessions, measure.awake():
        converse(sessions, _KEY, _HISTORY)
        raw = os.open(scene.root / "turns" / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        async with Kernel(sessions, lambda _: answering(rounds + warm)) as kernel:
            for turn in range(rounds + warm):
                wakes, switches, cpu = woken(), _switches(), time.process_time()
                taken = await _timed(kernel)
                cpu, switches, wakes = time.process_time() - cpu, _switches() - switches, woken() - wakes
                bare = measure.timed(partial(_flush, raw, (190, 330)))
                if turn >= warm:
                    for name, value in zip(samples, (taken, bare, cpu, 2 * wakes, switches), strict=True):
                        samples[name].append(value)
        os.close(raw)
    return samples


def _count_wakes() -> Callable[[], int]:
    """How often another thread has called the running event loop so far."""
    loop = asyncio.get_running_loop()
    wake, count = loop.call_soon_threadsafe, 0

    def counted(*arguments: Any, **named: Any) -> asyncio.Handle:
        nonlocal count
        count += 1
        return wake(*arguments, **named)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
    return lambda: count


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


async def _timed(kernel: Kernel) -> float:
    started = time.perf_counter()
    await kernel.deliver(UserMessage(key=_KEY, content="How is the weather?"))
    return time.perf_counter() - started


def _flush(fd: int, sizes: Sequence[int]) -> None:
    for size in sizes:
        os.write(fd, b"x" * size)
        os.fdatasync(fd)


def answering(count: int, *, pause: Pause | None = None, answer: str = _ANSWER) -> Agent:
    """An agent that gives the same answer so many times."""
    provider = Scripted([answer if pause is None else [pause, answer]] * count)
    return Agent(provider=lambda: provider, guard=_allowing)


def _allowing(*_: Any) -> Guard:
    async def allow(*_: Any) -> str:
        return ""

    return allow


async def talk(sessions: Sessions, keys: list[str]) -> Kernel:
    """Have one turn in each of many sessions; the actors stay."""
    kernel = await Kernel(sessions, lambda _: answering(1)).__aenter__()
    for key in keys:
        await kernel.deliver(UserMessage(key=key, content="hello"))
    return kernel


def weigh(store: Path, count: int) -> int:
    """Bytes that a process holds with so many live actors."""

    async def run() -> int:
        with nacre.open(store) as sessions:
            kernel = await talk(sessions, [f"{_KEY}{number}" for number in range(count)])
            held = _resident()
            await kernel.__aexit__(None, None, None)
            return held

    return anyio.run(run)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
