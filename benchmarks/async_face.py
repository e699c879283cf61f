"""Sessions for asyncio: how long the event loop is blocked, and many sessions at once against threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_least, at_most, micros, plain
from benchmarks.scene import Scene, words
from nacre.history.session_state import RULES
from nacre.index import Index
from nacre.storage.file_store import FileStore
from nacre.storage.system import System

_CROWD = 256
_EACH = 10
_TICK = 0.001
_FLUSH = 0.1


class SlowDisk(System):
    """A disk whose every flush of data takes a tenth of a second."""

    def fdatasync(self, fd: int) -> None:
        time.sleep(_FLUSH)
        os.fdatasync(fd)


def lag(scene: Scene) -> Iterator[Row]:
    """How late the event loop comes while many tasks call every kind of method on a slow disk."""
    root = scene.room("async-lag")
    idle = asyncio.run(_lags(root / "idle", rounds=0))
    lags = asyncio.run(_lags(root / "store", rounds=scene.sizes.runs))
    p99 = sorted(lags)[len(lags) * 99 // 100]
    quiet = sorted(idle)[len(idle) * 99 // 100]
    yield at_most(
        f"event loop blocked with {_CROWD} tasks and flushes of 100 ms, p99",
        p99 * 1e3,
        5,
        unit=" ms",
        absolute=f"p50 {micros(measure.p50(lags))}, max {micros(max(lags))}; without any task p99 {micros(quiet)}",
    )


async def _lags(root: Path, *, rounds: int) -> list[float]:
    """How late each tick of the loop came."""
    lags: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + _TICK
            await asyncio.sleep(_TICK)
            lags.append(time.perf_counter() - due)

    def open_slowly() -> nacre.Sessions:
        store = FileStore(str(root), rules=RULES, system=SlowDisk())
        return nacre.Sessions(store, index=lambda: Index(str(root)))

    async with nacre.AsyncSessions(open_slowly) as sessions:
        ticking = asyncio.create_task(tick())
        if rounds:
            await asyncio.gather(*(_use(sessions, number, rounds) for number in range(_CROWD)))
        else:
            await asyncio.sleep(2)
        ticking.cancel()
    return lags


async def _use(sessions: nacre.AsyncSessions, number: int, rounds: int) -> None:
    """Write, and call one of the other methods, again and again."""
    key = f"bench:{number}"
    other = _OTHERS[number % len(_OTHERS)]
    for turn in range(rounds):
        await sessions.add_message(key, "user", words(200))
        await other(sessions, key, f"{key}:{turn}")


async def _first_of(items: AsyncIterator[object]) -> None:
    async for _ in items:
        break


_OTHERS: list[Callable[[nacre.AsyncSessions, str, str], Awaitable[object]]] = [
    lambda sessions, key, _: sessions.get_history(key, last=50),
    lambda sessions, key, _: sessions.snapshot(key),
    lambda sessions, _, __: _first_of(sessions.list(limit=20)),
    lambda sessions, _, __: sessions.search("lazy dog", limit=5),
    lambda sessions, key, _: sessions.verify(key),
    lambda sessions, key, new: sessions.fork(key, new),
    lambda sessions, key, _: sessions.archive(key),
    lambda sessions, key, _: sessions.delete(key),
    lambda sessions, key, _: _first_of(sessions.follow(key)),
    lambda sessions, key, _: sessions.set_summary(key, "So far."),
    lambda sessions, key, _: sessions.pop(key),
    lambda sessions, key, _: sessions.set_meta(key, title="T"),
    lambda sessions, key, _: sessions.truncate_history(key, 1),
    lambda sessions, key, _: sessions.transcript(key),
    lambda sessions, key, _: sessions.save(key),
    lambda sessions, key, _: sessions.submit(key, [{"role": "user", "content": "x"}]),
]


def against_threads(scene: Scene) -> Iterator[Row]:
    """Tasks on as many sessions, against a thread for each and against `asyncio.to_thread`."""
    root = scene.room("async-many")
    keys = [f"bench:{number}" for number in range(_CROWD)]
    tasks = nacre.open_async(root)
    asyncio.run(tasks.__aenter__())
    with nacre.open(root) as sessions, ThreadPoolExecutor(_CROWD) as pool, measure.awake():
        samples = measure.interleave(
            {
                "threads": lambda: _in_threads(sessions, pool, keys),
                "to_thread": lambda: asyncio.run(_to_thread(sessions, keys)),
                "async": lambda: asyncio.run(_in_tasks(tasks, keys)),
            },
            rounds=scene.sizes.runs,
            warm=1,
        )
    asyncio.run(tasks.close())
    rates = {name: f"{_CROWD * _EACH / measure.p50(found):,.0f}/s" for name, found in samples.items()}
    yield at_least(
        f"{_CROWD} tasks on {_CROWD} sessions through open_async against {_CROWD} threads, throughput",
        measure.paired(samples, "threads", "async"),
        2,
        absolute=f"threads {rates['threads']}, open_async {rates['async']}",
    )
    yield plain(
        "the same against asyncio.to_thread",
        f"{measure.paired(samples, 'to_thread', 'async'):.3g}×",
        absolute=rates["to_thread"],
    )


def _in_threads(sessions: nacre.Sessions, pool: ThreadPoolExecutor, keys: list[str]) -> None:
    together = threading.Barrier(len(keys))

    def write(key: str) -> None:
        together.wait()
        for _ in range(_EACH):
            sessions.add_message(key, "user", words(200))

    for done in [pool.submit(write, key) for key in keys]:
        done.result()


async def _to_thread(sessions: nacre.Sessions, keys: list[str]) -> None:
    async def write(key: str) -> None:
        for _ in range(_EACH):
            await asyncio.to_thread(sessions.add_message, key, "user", words(200))

    await asyncio.gather(*map(write, keys))


async def _in_tasks(sessions: nacre.AsyncSessions, keys: list[str]) -> None:
    async def write(key: str) -> None:
        for _ in range(_EACH):
            await sessions.add_message(key, "user", words(200))

    await asyncio.gather(*map(write, keys))
