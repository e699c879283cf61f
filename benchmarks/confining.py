"""What it costs to confine a program that a tool runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import cast

import anyio

from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain
from benchmarks.scene import Scene
from nacre.agent.ports import Sandbox
from nacre.sandbox import Kind, find

_ROUNDS = 30
_PAUSE = 0.25


def starts(scene: Scene) -> Iterator[Row]:  # noqa: ARG001 - each benchmark is given the scene
    """`true` in a sandbox against `true` alone, with a pause in which the next start is prepared, and without."""
    for kind in ("bwrap", "landlock"):
        # Not below the temporary directory of the scene, which a sandbox may cover with its own.
        with tempfile.TemporaryDirectory(dir=Path.home()) as workspace:
            samples = anyio.run(_compared, workspace, kind)
        if isinstance(samples, str):
            yield plain(f"start of a sandbox ({kind})", samples)
            continue
        absolute = f"{micros(median(samples['plain']))}, {micros(median(samples['paused']))}"
        ratio = median(samples["paused"]) / median(samples["plain"])
        yield at_most(f"start of a sandbox ({kind}) against a plain subprocess", ratio, 3, absolute=absolute)
        ratio = median(samples["at once"]) / median(samples["plain"])
        yield plain(f"the same back to back ({kind})", f"{ratio:.1f}×")


async def _compared(workspace: str, kind: str) -> Mapping[str, list[float]] | str:
    found = await find(workspace, kind=cast("Kind", kind))
    if found.sandbox is None:
        return found.why
    samples: dict[str, list[float]] = {"plain": [], "paused": [], "at once": []}
    for _ in range(_ROUNDS):
        samples["plain"].append(await _alone())
        await anyio.sleep(_PAUSE)
        samples["paused"].append(await _confined(found.sandbox))
        samples["at once"].append(await _confined(found.sandbox))
        await anyio.sleep(_PAUSE)
    return samples


async def _alone() -> float:
    started = measure.now()
    await anyio.run_process(["true"])
    return measure.now() - started


async def _confined(sandbox: Sandbox) -> float:
    started = measure.now()
    await sandbox.run(["true"], timeout=10, max_bytes=1000)
    return measure.now() - started
