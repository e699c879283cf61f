"""One writer, one message at a time: how many flushes, and how much beyond the raw write."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import Scene, logs, words

_TRACED = 100
_ROUNDS = 7
_IDS = 20_000


def flushes(scene: Scene) -> Iterator[Row]:
    """Flushes per acknowledged append, seen from outside the process."""
    if not measure.can_trace():
        yield plain("flushes per solo append", "not measured: no strace")
        return
    room = scene.room("flushes")
    counted = measure.flushes(room / "trace", "appends", room / "store", _TRACED)
    if len(counted) != 4:
        yield plain("flushes per solo append", f"not measured: {len(counted)} phases in the trace")
        return
    _, first, solo, closing = counted
    yield Row(
        what=f"flushes per acknowledged solo append (strace, {_TRACED} appends)",
        measured=f"{solo / _TRACED:g}",
        bar="exactly 1",
        met=solo == _TRACED,
        absolute=f"close: {closing} more",
    )
    yield plain("flushes for the first append of a new session (strace)", str(first), absolute="as the rules need")


def solo(scene: Scene) -> Iterator[Row]:
    """A solo append against the raw write and flush of as many bytes, sample by sample."""
    room = scene.room("solo")
    text = words(1_000)
    with nacre.open(room / "store") as sessions:

        def append() -> None:
            sessions.add_message("bench:solo", "user", text)

        append()
        append()
        size = len(logs(room / "store")[0].read_bytes().splitlines(keepends=True)[-1])
        raw = raw_append(room / "raw", size)
        actions = {"raw": raw, "nacre": append}
        each = scene.sizes.samples // _ROUNDS
        with measure.awake():
            measure.interleave(actions, rounds=50)
            rounds = [measure.interleave(actions, rounds=each) for _ in range(_ROUNDS)]
            used = [measure.interleave(actions, rounds=each, clock=time.process_time) for _ in range(_ROUNDS)]
        idle = measure.interleave(actions, rounds=scene.sizes.pairs, warm=5)
    raws, ours = ([measure.p50(samples[name]) for samples in rounds] for name in actions)
    ratios = [one / bare for one, bare in zip(ours, raws, strict=True)]
    unspun = measure.p50(idle["nacre"]) / measure.p50(idle["raw"])
    yield at_most(
        f"solo append of 1 kB against raw write+fdatasync, p50, median of {_ROUNDS} rounds",
        measure.p50(ratios),
        1.35,
        absolute=(
            f"raw {micros(measure.p50(raws))}, nacre {micros(measure.p50(ours))}; {measure.spread(ratios)}; "
            f"without the spinner {shown(unspun)}"
        ),
    )
    raw_cpu, our_cpu = ([statistics.mean(samples[name]) for samples in used] for name in actions)
    beyond = [one - bare for one, bare in zip(our_cpu, raw_cpu, strict=True)]
    yield at_most(
        f"CPU of a solo append beyond the raw one, median of {_ROUNDS} rounds",
        1e6 * measure.p50(beyond),
        50,
        unit=" µs",
        absolute=f"raw {micros(measure.p50(raw_cpu))}, nacre {micros(measure.p50(our_cpu))}",
    )


def ids(scene: Scene) -> Iterator[Row]:
    """What the ids of one busy log weigh, in a process that counts every byte it allocates."""
    room = scene.room("ids")
    without, held = (measure.child("busy_log", room / how, _IDS, how) for how in ("without", "with"))
    yield at_most(
        f"a log with {_IDS:,} appends with ids: most memory beyond its first append, MB",
        held / 1_000_000,
        1.5,
        unit=" MB",
        absolute=f"the same without ids {without / 1_000:,.0f} kB",
    )


def raw_append(path: Path, size: int) -> Callable[[], None]:
    """The least a durable append can be: one write, one fdatasync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    line = b"x" * (size - 1) + b"\n"

    def append() -> None:
        os.write(descriptor, line)
        os.fdatasync(descriptor)

    return append
