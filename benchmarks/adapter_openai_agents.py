"""NacreSession next to the SDK's SQLiteSession in a file: CPU of an append, and of reading the last 50 items.

`python benchmarks/adapter_openai_agents.py [DIRECTORY]`, in an environment with the extra `openai-agents`; the
directory must be on a real disk, so that both flush. It prints JSON: µs of CPU, the median of the rounds, and ratios.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession

import nacre
from nacre.integrations.openai_agents import NacreSession

ROUNDS = 30
TEXT = "word " * 60
Operation = Callable[[], Awaitable[Any]]


def item(n: int) -> Any:
    return {"role": "assistant" if n % 2 else "user", "content": f"{n} {TEXT}"}


async def measure(operations: dict[str, Operation], count: int) -> dict[str, float]:
    """The CPU of each operation in µs; they take turns in a changing order, so that a busy machine strikes all."""
    found: dict[str, list[float]] = {name: [] for name in operations}
    for number in range(ROUNDS):
        names = list(operations)
        at = number % len(names)
        for name in names[at:] + names[:at]:
            operation = operations[name]
            await operation()
            begun = time.process_time()
            for _ in range(count):
                await operation()
            found[name].append((time.process_time() - begun) / count * 1e6)
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


async def measure_first(directory: Path, key: str) -> dict[str, float]:
    """The CPU of the first read after a store was opened, in µs."""
    found: dict[str, list[float]] = {"SQLiteSession": [], "NacreSession": []}
    for _ in range(ROUNDS):
        sqlite = SQLiteSession(key, directory / "sqlite.db")
        with nacre.open(directory / "nacre") as sessions:
            for session in (sqlite, NacreSession(key, sessions)):
                begun = time.process_time()
                await session.get_items(limit=50)
                found[type(session).__name__].append((time.process_time() - begun) * 1e6)
        sqlite.close()
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


async def run(directory: Path) -> dict[str, Any]:
    with nacre.open(directory / "nacre") as sessions:
        awaited = nacre.AsyncSessions.of(sessions)
        for depth in (1_000, 10_000, 100_000):
            for start in range(0, depth, 10_000):
                items = [item(n) for n in range(start, min(start + 10_000, depth))]
                await NacreSession(str(depth), sessions).add_items(items)
                sqlite = SQLiteSession(str(depth), directory / "sqlite.db")
                await sqlite.add_items(items)
                sqlite.close()
        deep = SQLiteSession("10000", directory / "sqlite.db")
        ours, ours_awaited = NacreSession("10000", sessions), NacreSession("10000", awaited)
        append = await measure(
            {
                "SQLiteSession": lambda: deep.add_items([item(1)]),
                "NacreSession": lambda: ours.add_items([item(1)]),
                "NacreSession, AsyncSessions": lambda: ours_awaited.add_items([item(1)]),
                "nacre without the adapter and its thread": lambda: asyncio.sleep(
                    0, sessions.add_full_message("10000", item(1))
                ),
            },
            40,
        )
        deep.close()
        last: dict[str, dict[str, float]] = {}
        for depth in (1_000, 100_000):
            key = str(depth)
            theirs = SQLiteSession(key, directory / "sqlite.db")
            warm, warm_awaited = NacreSession(key, sessions), NacreSession(key, awaited)
            await warm.add_items([item(1)])
            last[key] = await measure(
                {
                    "SQLiteSession": lambda it=theirs: it.get_items(limit=50),  # type: ignore[misc]
                    "NacreSession": lambda it=warm: it.get_items(limit=50),  # type: ignore[misc]
                    "NacreSession, AsyncSessions": lambda it=warm_awaited: it.get_items(limit=50),  # type: ignore[misc]
                    "NacreSession, made anew": lambda key=key: NacreSession(key, sessions).get_items(limit=50),  # type: ignore[misc]
                },
                40,
            )
            theirs.close()
    first = await measure_first(directory, "100000")
    reads = last["100000"]
    names = ("NacreSession", "NacreSession, AsyncSessions", "NacreSession, made anew")
    return {
        "append of one item, 10,000 deep, µs": append,
        "last 50 of 1,000, µs": last["1000"],
        "last 50 of 100,000, µs": reads,
        "last 50 of 100,000, the first time after the store was opened, µs": first,
        "append, times faster than SQLiteSession": {
            name: round(append["SQLiteSession"] / append[name], 2) for name in names[:2]
        },
        "last 50 of 100,000, times the CPU of SQLiteSession": {
            name: round(reads[name] / reads["SQLiteSession"], 2) for name in names
        },
        "the first time after the store was opened, times the CPU of SQLiteSession": round(
            first["NacreSession"] / first["SQLiteSession"], 2
        ),
        "last 50, 100,000 deep to 1,000 deep": {name: round(reads[name] / last["1000"][name], 2) for name in names},
    }


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as directory:
        sys.stdout.write(json.dumps(asyncio.run(run(Path(directory))), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
