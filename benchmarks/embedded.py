"""The first answer of the embedded model, on cores that others use and on idle ones."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from benchmarks.rows import Row, at_most, plain
from benchmarks.scene import Scene
from nacre.agent.ports import Context, Spec
from nacre.messages import Message
from nacre.providers.embedded import ALL_CORES, AUTOMATIC, Embedded, Settings
from nacre.providers.weights import is_installed

_ROUNDS = 3
_TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def embedded(_: Scene) -> Iterator[Row]:
    """The default number of threads against one per core, alternating, each in a process of its own."""
    if not is_installed():
        yield plain("first answer of the embedded model", "not installed")
        return
    with _busy_cores():
        default, all_cores = _alternate()
    what = f"first answer of the embedded model on {os.cpu_count()} busy cores, default against one thread per core"
    yield at_most(what, default / all_cores, 0.5, absolute=f"{all_cores:.1f} s, {default:.1f} s")
    default, all_cores = _alternate()
    yield plain("the same on idle cores", f"{default / all_cores:.2f}×", absolute=f"{all_cores:.1f} s, {default:.1f} s")


def _alternate() -> tuple[float, float]:
    """The median seconds until the first answer, with the default number of threads and with one per core."""
    samples: dict[int, list[float]] = {AUTOMATIC: [], ALL_CORES: []}
    for _ in range(_ROUNDS):
        for threads, taken in samples.items():
            command = [sys.executable, "-m", "benchmarks.embedded", str(threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
            taken.append(float(done.stdout))
    return statistics.median(samples[AUTOMATIC]), statistics.median(samples[ALL_CORES])


@contextmanager
def _busy_cores() -> Iterator[None]:
    """Keep every core busy with a process that does nothing else."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]  # noqa: S603 - our own words
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


async def answer(threads: int) -> float:
    """Seconds from nothing loaded to the end of a short answer, with a prompt like that of the agent."""
    model = Embedded(Settings(threads=threads, max_tokens=16))
    tools = [Spec(name=f"tool_{n}", description="Reads a file and gives its text.", parameters=_TOOL) for n in range(8)]
    words = [Message(role="user", content="Hello! Who are you?")]
    context = Context(system="You are a helpful agent. " * 30, messages=words, tools=tools)
    started = time.perf_counter()
    await model.complete(context, emit=lambda _: None)
    taken = time.perf_counter() - started
    await model.close()
    return taken


if __name__ == "__main__":
    sys.stdout.write(f"{anyio.run(answer, int(sys.argv[1]))}\n")
