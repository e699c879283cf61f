"""Reading: a whole session, many sessions, and the end of one that does not fit into memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import LONG, Scene, logs
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore

_MEGABYTE = 1 << 20

# The high-water mark of this process alone: ru_maxrss survives exec, and would show the parent's.
_PEAK = """
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(line.split()[1])
"""

_READ_LAST = f"""
import sys
import nacre
with nacre.open(sys.argv[1]) as sessions:
    assert len(sessions.get_history(sys.argv[2], last=50)) == 50
{_PEAK}"""


def full(scene: Scene) -> Iterator[Row]:
    """A verified load into messages against decoding the same lines into dictionaries."""
    what = f"full verified load of {scene.sizes.loaded:,} messages of 1 kB against orjson.loads"
    try:
        import orjson  # noqa: F401, PLC0415 - only the child needs it
    except ImportError:
        yield plain(what, "not measured: orjson is not installed")
        return
    store = scene.loaded
    samples = measure.child("load", store, logs(store)[0], LONG, scene.sizes.runs + 2)
    ours, decoded, read = (samples[name] for name in ("nacre", "orjson", "orjson, reading"))
    best = min(ours) / min(decoded)
    with_reading = measure.p50(ours) / measure.p50(read)
    yield at_most(
        f"{what} of its lines, median of {len(ours)}, GC on",
        measure.p50(ours) / measure.p50(decoded),
        1.6,
        absolute=(
            f"{micros(measure.p50(decoded))}, {micros(measure.p50(ours))}; best {shown(best)}; "
            f"if orjson reads its lines from the file {shown(with_reading)}"
        ),
    )


def listing(scene: Scene) -> Iterator[Row]:
    """All sessions, from their logs alone, against the bare directory."""
    folder = scene.listed / "sessions"
    with _without_index(scene.listed) as held:
        samples = measure.interleave(
            {
                "scandir": lambda: _scan(folder),
                "fresh": lambda: _list_afresh(scene.listed),
                "held": lambda: _list(held),
            },
            rounds=scene.sizes.runs,
            warm=1,
        )
    bare = measure.p50(samples["scandir"])
    for name, how in (("fresh", "store just opened"), ("held", "listed before")):
        yield at_most(
            f"list {scene.sizes.listed:,} sessions ({how}) without the index against scandir + stat, warm",
            measure.p50(samples[name]) / bare,
            10,
            absolute=f"{micros(bare)}, {micros(measure.p50(samples[name]))}",
        )


def memory(scene: Scene) -> Iterator[Row]:
    """The most memory a process has while it reads the end of a very long session."""
    bare = min(_peak(_PEAK) for _ in range(3))
    reading = max(_peak(_READ_LAST, str(scene.giant), LONG) for _ in range(3))
    importing = max(_peak(f"import nacre\n{_PEAK}") for _ in range(3))
    size = logs(scene.giant)[0].stat().st_size / _MEGABYTE
    yield at_most(
        f"memory to read the last 50 of a session of {size:,.0f} MB, over the interpreter",
        (reading - bare) / _MEGABYTE,
        16,
        unit=" MB",
        absolute=(
            f"interpreter {bare / _MEGABYTE:.1f} MB, with the import {importing / _MEGABYTE:.1f} MB, "
            f"having read {reading / _MEGABYTE:.1f} MB"
        ),
    )


def _scan(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size > 0 for entry in entries)


def _list(sessions: nacre.Sessions) -> int:
    return sum(info.messages > 0 for info in sessions.list())


def _list_afresh(store: Path) -> int:
    with _without_index(store) as sessions:
        return _list(sessions)


def _without_index(store: Path) -> nacre.Sessions:
    return nacre.Sessions(FileStore(str(store), rules=RULES))


def _peak(program: str, *arguments: str) -> int:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=measure.PROJECT, capture_output=True, check=True, text=True)  # noqa: S603
    return int(done.stdout) * 1024
