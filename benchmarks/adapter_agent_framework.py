"""NacreHistoryProvider next to Microsoft's FileHistoryProvider: CPU of storing a turn after 10,000 messages.

`python benchmarks/adapter_agent_framework.py [DIRECTORY]`, in an environment with the extra `agent-framework`; the
directory must be on a real disk. Theirs does not flush what it writes, ours does. It prints JSON: µs of CPU, the median
of the rounds, and ratios.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from agent_framework import FileHistoryProvider, Message

import nacre
from nacre.integrations.agent_framework import NacreHistoryProvider

ROUNDS = 5
TEXT = "word " * 60
DEPTHS = (1_000, 10_000)
numbers = count()


def turn() -> list[Message]:
    """A question and its answer, which were never given before."""
    return [Message(role, [f"{next(numbers)} {TEXT}"]) for role in ("user", "assistant")]


async def measure(operation: Callable[[], Awaitable[Any]], times: int) -> float:
    """The CPU of an operation in µs."""
    begun = time.process_time()
    for _ in range(times):
        await operation()
    return (time.process_time() - begun) / times * 1e6


async def run(directory: Path) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    with nacre.open(directory / "nacre") as sessions:
        ours, theirs = NacreHistoryProvider(sessions), FileHistoryProvider(directory / "files")
        recent = NacreHistoryProvider(sessions, last=50)
        for depth in DEPTHS:
            key = str(depth)
            before = [message for _ in range(depth // 2) for message in turn()]
            await ours.save_messages(key, before)
            await theirs.save_messages(key, before)
            values: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for name, operation, times in (
                    ("FileHistoryProvider, a turn", lambda: theirs.save_messages(key, turn()), 2),  # noqa: B023 - awaited here
                    ("NacreHistoryProvider, a turn", lambda: ours.save_messages(key, turn()), 50),  # noqa: B023
                    ("NacreHistoryProvider, the last 50", lambda: recent.get_messages(key), 50),  # noqa: B023
                ):
                    values.setdefault(name, []).append(await measure(operation, times))
            found[key] = {name: round(statistics.median(each), 1) for name, each in values.items()}
    shallow, deep = (found[str(depth)] for depth in DEPTHS)
    return {
        **{f"{depth:,} messages deep, µs": found[str(depth)] for depth in DEPTHS},
        "a turn after 10,000, times faster than FileHistoryProvider": round(
            deep["FileHistoryProvider, a turn"] / deep["NacreHistoryProvider, a turn"], 1
        ),
        "10,000 deep to 1,000 deep": {name: round(deep[name] / shallow[name], 2) for name in deep},
    }


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as directory:
        sys.stdout.write(json.dumps(asyncio.run(run(Path(directory))), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
