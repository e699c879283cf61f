"""One writer, one message at a time: how many flushes, and how much beyond the raw write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import Scene, logs, words

_TRACED = 100


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
        with measure.awake():
            samples = measure.interleave({"raw": raw, "nacre": append}, rounds=scene.sizes.samples, warm=50)
        idle = measure.interleave({"raw": raw, "nacre": append}, rounds=scene.sizes.pairs, warm=5)
    yield at_most(
        "solo append of 1 kB against raw write+fdatasync, p50",
        measure.p50(samples["nacre"]) / measure.p50(samples["raw"]),
        1.3,
        absolute=_absolute(samples, idle),
    )


def raw_append(path: Path, size: int) -> Callable[[], None]:
    """The least a durable append can be: one write, one fdatasync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    line = b"x" * (size - 1) + b"\n"

    def append() -> None:
        os.write(descriptor, line)
        os.fdatasync(descriptor)

    return append


def _absolute(samples: dict[str, list[float]], idle: dict[str, list[float]]) -> str:
    raw, ours = measure.p50(samples["raw"]), measure.p50(samples["nacre"])
    unspun = measure.p50(idle["nacre"]) / measure.p50(idle["raw"])
    return f"raw {micros(raw)}, nacre {micros(ours)}; without the spinner {shown(unspun)}"
