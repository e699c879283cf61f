"""What an append, a read and a message on disk cost in some stores of one environment; started by `__main__`.

`python -m benchmarks.comparison.cost DIRECTORY MODULE:FACTORY…` prints JSON. The stores take turns, so that a busy
machine strikes all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nacre.testing.conformance.child import load_factory

SESSION = "cost"
TEXT = "word " * 200
DEPTHS = (100, 1_000)
SAMPLES = 15


def measure(directory: Path, factories: list[str]) -> dict[str, dict[str, float]]:
    """By store: µs of CPU of an append at each depth and of reading everything, and bytes on disk of a message."""
    rooms = [directory / str(number) for number in range(len(factories))]
    for room in rooms:
        room.mkdir()
    stores = [load_factory(name)(room) for name, room in zip(factories, rooms, strict=True)]
    found: list[dict[str, float]] = [{} for _ in factories]
    count = 0
    for depth in DEPTHS:
        for store in stores:
            for number in range(count, depth):
                store.append(SESSION, f"{number} {TEXT}", f"fill-{number}")
        samples: list[list[float]] = [[] for _ in stores]
        for number in range(SAMPLES):
            for store, taken in zip(stores, samples, strict=True):
                name = f"{depth}-{number}"
                taken.append(cpu(lambda store=store, name=name: store.append(SESSION, f"{name} {TEXT}", name)))  # type: ignore[misc]
        count = depth + SAMPLES
        for its, taken in zip(found, samples, strict=True):
            its[f"append at {depth}"] = statistics.median(taken)
    reads: list[list[float]] = [[] for _ in stores]
    for _ in range(5):
        for store, taken in zip(stores, reads, strict=True):
            taken.append(cpu(lambda store=store: store.read(SESSION)))  # type: ignore[misc]
    for its, taken, store, room in zip(found, reads, stores, rooms, strict=True):
        its["read"] = statistics.median(taken)
        its["messages"] = len(store.read(SESSION))
        store.close()
        its["bytes"] = sum(path.stat().st_blocks * 512 for path in room.rglob("*") if path.is_file())
    return dict(zip(factories, found, strict=True))


def cpu(action: Callable[[], Any]) -> float:
    """µs of CPU that a call takes, in all threads of this process."""
    begun = time.process_time()
    action()
    return (time.process_time() - begun) * 1e6


def flush(directory: Path, factory: str) -> None:
    """Append between two marks, for strace to count the flushes between them."""
    store = load_factory(factory)(directory)
    for number in range(10):
        store.append(SESSION, f"{number} {TEXT}", f"warm-{number}")
    os.getppid()
    for number in range(10):
        store.append(SESSION, f"{number} {TEXT}", f"counted-{number}")
    os.getppid()
    store.close()


if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))
    if sys.argv[1] == "flush":
        flush(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.stdout.write(json.dumps(measure(Path(sys.argv[1]), sys.argv[2:])) + "\n")
