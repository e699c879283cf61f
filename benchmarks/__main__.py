"""Run the benchmarks: `python -m benchmarks [--quick] [--only NAME] [--no-peers]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import (
    append,
    async_face,
    confining,
    crowd,
    database_turns,
    embedded,
    folder,
    gateway,
    load,
    peers,
    postgres,
    remembering,
    report,
    scale,
    search,
    sharing,
    start,
    turns,
    web,
    workers,
)
from benchmarks.rows import Row
from benchmarks.scene import QUICK, Scene, Sizes

BENCHMARKS: dict[str, Callable[[Scene], Iterable[Row]]] = {
    "flushes": append.flushes,
    "solo": append.solo,
    "ids": append.ids,
    "threads": crowd.threads,
    "tasks": crowd.tasks,
    "sessions": crowd.sessions_at_once,
    "async lag": async_face.lag,
    "async": async_face.against_threads,
    "flat": scale.flat,
    "cold": scale.cold,
    "rewinds": scale.rewinds,
    "whole pages": scale.whole_pages,
    "bytes": scale.record_bytes,
    "load": load.full,
    "list": load.listing,
    "search": search.searching,
    "index": search.building,
    "index list": search.listing,
    "folder": folder.many,
    "memory": load.memory,
    "facts": remembering.facts,
    "forks": sharing.forks,
    "images": sharing.images,
    "turns": turns.turns,
    "reads": turns.reads,
    "contexts": turns.contexts,
    "actors": turns.actors,
    "embedded": embedded.embedded,
    "sandbox": confining.starts,
    "senders": gateway.senders,
    "seen": gateway.senders_memory,
    "starts": gateway.starts,
    "completions": web.completions,
    "workers": workers.throughput,
    "worker senders": workers.senders,
    "import": start.importing,
    "command": start.command_line,
    "postgres append": postgres.append,
    "postgres sessions": postgres.crowd,
    "postgres fairness": postgres.fairness,
    "postgres depth": postgres.depth,
    "postgres turns": database_turns.turns,
    "stores": peers.stores,
    "peers": peers.peers,
    "peer turns": peers.turns,
    "postgres peers": postgres.peers,
}
_PEERS = ("peers", "peer turns", "postgres peers")


def main() -> int:
    """Run what was asked for; a complete run also writes RESULTS.md."""
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    chosen = _chosen(options)
    with tempfile.TemporaryDirectory(prefix="nacre-bench-") as root:
        rows = _run(chosen, Scene(Path(root), sizes))
    print(report.text(rows))  # noqa: T201 - the command's answer
    if not options.quick and chosen == list(BENCHMARKS):
        report.RESULTS.write_text(report.markdown(rows), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What nacre costs, as ratios.")
    parser.add_argument("--quick", action="store_true", help="smaller sessions, fewer samples; RESULTS.md is left")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="one group (may be given again)")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="other stores and agents, where installed"
    )
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[str]:
    names = options.only or list(BENCHMARKS)
    return [name for name in names if options.peers or name not in _PEERS]


def _run(names: list[str], scene: Scene) -> list[Row]:
    rows: list[Row] = []
    for number, name in enumerate(names, 1):
        started = time.monotonic()
        _say(f"[{number}/{len(names)}] {name}")
        rows += BENCHMARKS[name](scene)
        _say(f"  {time.monotonic() - started:.0f} s")
    return rows


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command's progress


if __name__ == "__main__":
    raise SystemExit(main())
