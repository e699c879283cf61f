"""How things are measured: interleaved samples, a CPU kept awake, flushes counted from outside.

The price of a flush changes tenfold with what else the machine does, so that nothing is compared
across phases: every contender runs in every round, in turning order, and figures are ratios.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent

# Runs only when nothing else wants the CPU, and ends with its parent.
_SPIN = """
import os
if hasattr(os, "SCHED_IDLE"):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
else:
    os.nice(19)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


now = time.perf_counter


def timed(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds one call takes, by a clock."""
    started = clock()
    action()
    return clock() - started


def interleave(
    actions: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm: int = 0,
    before: Callable[[str], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time every action once per round, each round beginning with another one.

    `before` is called with the action's name ahead of each sample and is not timed.
    `clock` may also be one of CPU time.
    """
    names = list(actions)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if before is not None:
                before(name)
            took = timed(actions[name], clock)
            if turn >= warm:
                samples[name].append(took)
    return samples


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def paired(samples: Mapping[str, Sequence[float]], name: str, against: str) -> float:
    """The median over rounds of one action's time over the other's in the same round."""
    pairs = zip(samples[name], samples[against], strict=True)
    return statistics.median(one / other for one, other in pairs)


def spread(values: Sequence[float]) -> str:
    """The smallest and largest of several ratios, for the reader to judge the noise by."""
    return f"runs {min(values):.2f}-{max(values):.2f}"


@contextmanager
def awake() -> Iterator[None]:
    """Keep a CPU from going idle: a flush on an idle guest waits for the next timer tick.

    That wait would hide what is measured: both sides of a ratio would be one tick.
    """
    spinner = subprocess.Popen([sys.executable, "-S", "-c", _SPIN])  # noqa: S603 - our own text
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def child(task: str, *arguments: object, prefix: Sequence[str] = ()) -> Any:
    """Run a task of `benchmarks.child` in a fresh process; what it printed, decoded."""
    command = [*prefix, sys.executable, "-m", "benchmarks.child", task, *map(str, arguments)]
    done = subprocess.run(  # noqa: S603 - our own module
        command, cwd=PROJECT, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout or "null")


def mark() -> None:
    """Make a system call that shows in a trace: the border between two phases."""
    os.getppid()


def can_trace() -> bool:
    """Whether strace is there and may be used."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    tried = subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, check=False)  # noqa: S603
    return tried.returncode == 0


def tracing_flushes(trace: Path) -> list[str]:
    """What to put before a command, so that its flushes and marks are written to a file."""
    calls = "trace=fsync,fdatasync,sync_file_range,syncfs,sync,getppid"
    return ["strace", "-f", "-e", calls, "-o", str(trace)]


def flushes(trace: Path, task: str, *arguments: object) -> list[int]:
    """Run a child task under strace; how often it flushed before, between and after its marks."""
    child(task, *arguments, prefix=tracing_flushes(trace))
    return count_by_phase(trace.read_text())


def count_by_phase(trace: str) -> list[int]:
    """Flushes between marks; a call that strace shows in two halves counts once."""
    phases = [0]
    for line in trace.splitlines():
        call = line.split(maxsplit=1)[-1]
        if call.startswith("getppid("):
            phases.append(0)
        elif call.startswith(("fsync(", "fdatasync(", "syncfs(", "sync(", "sync_file_range(")):
            phases[-1] += 1
    return phases
