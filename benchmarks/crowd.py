"""Many writers at once: threads and tasks on one session, and many sessions side by side."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self
from unittest.mock import patch

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_least, plain, shown
from benchmarks.scene import Scene, words
from nacre.storage.system import System

_KEY = "bench:crowd"
_ALONE = 400
_MANY = 64
_TURNS = 10


class Flushes:
    """Counts the flushes of data while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        flush = System.fdatasync

        def counted(fd: int) -> None:
            self.count += 1
            flush(fd)

        self._patch = patch.object(System, "fdatasync", staticmethod(counted))
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def threads(scene: Scene) -> Iterator[Row]:
    """Throughput of many threads on one session against one, and records per flush."""
    for crowd, each in ((64, 60), (256, 30)):
        room = scene.room(f"threads-{crowd}")
        with nacre.open(room) as sessions, ThreadPoolExecutor(crowd) as pool, measure.awake():
            rates = _against_one(
                scene,
                alone=partial(_append_alone, sessions, _ALONE),
                together=partial(_append_in_threads, pool, sessions, crowd, each),
                records=crowd * each,
            )
        yield from _crowd_rows(f"{crowd} threads on one session", rates, faster=5, packed=20)


def tasks(scene: Scene) -> Iterator[Row]:
    """Throughput of many asyncio tasks through `submit` on one session against one."""
    crowd, each = 256, 40
    with nacre.open(scene.room("tasks")) as sessions, measure.awake():
        rates = _against_one(
            scene,
            alone=lambda: asyncio.run(_submit_in_tasks(sessions, 1, _ALONE)),
            together=lambda: asyncio.run(_submit_in_tasks(sessions, crowd, each)),
            records=crowd * each,
        )
    yield from _crowd_rows(f"{crowd} asyncio tasks on one session through submit", rates, faster=20)


def sessions_at_once(scene: Scene) -> Iterator[Row]:
    """Many sessions written side by side against one after another."""
    room = scene.room("many")
    keys = [f"bench:{number}" for number in range(_MANY)]
    with nacre.open(room / "store") as sessions, measure.awake():
        for key in keys:
            sessions.add_message(key, "user", "hello")
        with ThreadPoolExecutor(16) as some, ThreadPoolExecutor(_MANY) as many:
            samples = measure.interleave(
                {
                    "one": lambda: _one_after_another(sessions, keys),
                    "16 threads": lambda: _side_by_side(some, sessions, keys),
                    f"{_MANY} threads": lambda: _side_by_side(many, sessions, keys),
                    "submit": lambda: _submitted(sessions, keys),
                },
                rounds=scene.sizes.runs,
                warm=1,
            )
        raw = _raw_many(scene, room / "raw")
    alone = _MANY * _TURNS / measure.p50(samples["one"])
    for name in ("16 threads", f"{_MANY} threads", "submit"):
        yield at_least(
            f"{_MANY} sessions at once ({name}) against one after another, median of {scene.sizes.runs}",
            measure.paired(samples, "one", name),
            1.5,
            absolute=f"{alone:,.0f}/s, {_MANY * _TURNS / measure.p50(samples[name]):,.0f}/s; raw files {raw}",
        )


class _Rates:
    """Paired throughputs of several rounds."""

    def __init__(self) -> None:
        self.alone: list[float] = []
        self.together: list[float] = []
        self.packed: list[float] = []

    def ratios(self) -> list[float]:
        return [many / one for one, many in zip(self.alone, self.together, strict=True)]


def _against_one(
    scene: Scene,
    *,
    alone: Callable[[], object],
    together: Callable[[], object],
    records: int,
) -> _Rates:
    rates = _Rates()
    together()
    for _ in range(2 * scene.sizes.runs - 1):
        rates.alone.append(_ALONE / measure.timed(alone))
        with Flushes() as flushes:
            rates.together.append(records / measure.timed(together))
        rates.packed.append(records / flushes.count)
    return rates


def _crowd_rows(what: str, rates: _Rates, *, faster: float, packed: float | None = None) -> Iterator[Row]:
    ratios = rates.ratios()
    one, many = measure.p50(rates.alone), measure.p50(rates.together)
    yield at_least(
        f"{what} against one, throughput",
        measure.p50(ratios),
        faster,
        absolute=f"{one:,.0f}/s, {many:,.0f}/s; {measure.spread(ratios)}",
    )
    per_flush = measure.p50(rates.packed)
    if packed is None:
        yield plain(f"{what}: records per flush", shown(per_flush, ""))
    else:
        yield at_least(f"{what}: records per flush", per_flush, packed, unit="")


def _append_alone(sessions: nacre.Sessions, count: int) -> None:
    text = words(1_000)
    for _ in range(count):
        sessions.add_message(_KEY, "user", text)


def _append_in_threads(pool: ThreadPoolExecutor, sessions: nacre.Sessions, crowd: int, each: int) -> None:
    together = threading.Barrier(crowd)

    def write() -> None:
        together.wait()
        _append_alone(sessions, each)

    for done in [pool.submit(write) for _ in range(crowd)]:
        done.result()


async def _submit_in_tasks(sessions: nacre.Sessions, crowd: int, each: int) -> None:
    said = [nacre.Message(role="user", content=words(1_000))]

    async def write() -> None:
        for _ in range(each):
            await sessions.submit(_KEY, said)

    await asyncio.gather(*(write() for _ in range(crowd)))


def _write_turns(sessions: nacre.Sessions, key: str) -> None:
    for _ in range(_TURNS):
        sessions.add_message(key, "user", "hello")


def _one_after_another(sessions: nacre.Sessions, keys: list[str]) -> None:
    for key in keys:
        _write_turns(sessions, key)


def _side_by_side(pool: ThreadPoolExecutor, sessions: nacre.Sessions, keys: list[str]) -> None:
    for _ in pool.map(partial(_write_turns, sessions), keys):
        pass


def _submitted(sessions: nacre.Sessions, keys: list[str]) -> None:
    """One record in flight per session, so that none shares a flush with its own kind."""
    said = [nacre.Message(role="user", content="hello")]
    for _ in range(_TURNS):
        for stored in [sessions.submit(key, said) for key in keys]:
            stored.result()


def _raw_many(scene: Scene, room: Path) -> str:
    """What the file system itself gains from flushing many files side by side."""
    room.mkdir()
    files = [os.open(room / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND) for number in range(_MANY)]

    def append(file: int) -> None:
        for _ in range(_TURNS):
            os.write(file, b"x" * 200)
            os.fdatasync(file)

    with ThreadPoolExecutor(16) as pool:
        samples = measure.interleave(
            {"one": lambda: list(map(append, files)), "many": lambda: list(pool.map(append, files))},
            rounds=scene.sizes.runs,
            warm=1,
        )
    for file in files:
        os.close(file)
    return shown(measure.paired(samples, "one", "many"))
