"""The stores and agents that people use today, beside ours: an append of 1 kB, and a turn without tools.

Each runs in a process of its own, with the Python of its own environment below .venv/peers, which `make bench` makes.
All of them act in every round, in shuffled order, and are compared within the round.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks import measure
from benchmarks.append import raw_append
from benchmarks.rows import Row, at_least, micros, plain, shown
from benchmarks.scene import Scene, progress

_ENVIRONMENTS = measure.PROJECT / ".venv" / "peers"
_RAW = "raw write+fdatasync"
_HISTORY = 50
_NEARER = 4.0


class Peer(NamedTuple):
    """A contender of benchmarks.contenders, and the environment below .venv/peers that it needs; "" is ours."""

    label: str
    name: str
    environment: str = ""
    is_durable: bool = True
    is_slow: bool = False


_BASELINES = (Peer("sqlite3, WAL, synchronous=FULL", "sqlite"), Peer("nacre", "nacre"))
STORES = (
    Peer("OpenAI Agents SQLiteSession", "openai-agents", "openai-agents"),
    Peer("LangGraph SqliteSaver", "langgraph", "langgraph"),
    Peer("nanobot (does not flush)", "nanobot", "nanobot", is_durable=False),
    Peer("Microsoft FileHistoryProvider (does not flush)", "agent-framework", "agent-framework", is_durable=False),
)
_OURS = Peer("nacre's kernel", "nacre")
AGENTS = (
    Peer("pydantic-ai, stores nothing", "pydantic-ai", "pydantic-ai", is_durable=False),
    Peer("OpenAI Agents with SQLiteSession", "openai-agents", "openai-agents"),
    Peer("pydantic-ai, its JSON written over a file and flushed", "pydantic-ai-file", "pydantic-ai"),
    Peer("LangGraph with AsyncSqliteSaver", "langgraph", "langgraph"),
    Peer("nanobot, does not flush", "nanobot", "nanobot", is_durable=False, is_slow=True),
)
_NOT_THE_SAME = (
    "not the same work: nacre and LangGraph are given no prompt, the others one of two words; "
    "pydantic-ai's file is not safe while it is written; nanobot builds prompt, tools and skills in each turn"
)


class Acted(NamedTuple):
    """The seconds of each time, and the CPU seconds of all of them."""

    seconds: list[float]
    cpu: float


class Contender:
    """A process of benchmarks.contenders, or of another such module; `failure` says why it cannot act, "" if it can."""

    def __init__(  # noqa: PLR0913 - where it is, and what it does
        self,
        kind: str,
        peer: Peer,
        room: Path,
        size: int,
        *,
        prefix: Sequence[str] = (),
        module: str = "benchmarks.contenders",
    ) -> None:
        room.mkdir(parents=True, exist_ok=True)
        python = Path(sys.executable) if not peer.environment else _ENVIRONMENTS / peer.environment / "bin" / "python"
        self.failure = "" if python.exists() else "not installed"
        self._process: subprocess.Popen[str] | None = None
        if python.exists():
            clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NACRE"))}
            command = [*prefix, str(python), "-m", module, kind, peer.name, str(room), str(size)]
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                cwd=measure.PROJECT,
                env=clean | {"HOME": str(room)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def wait(self) -> None:
        """Wait until it is built."""
        if self._process is not None:
            answer = self._answer()
            self.failure = "" if answer == "ready" else str(answer or "not measured: it ended")

    def act(self, times: int) -> Acted:
        assert self._process is not None  # noqa: S101 - nobody asks one that failed
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not isinstance(answer, dict):
            raise TypeError(f"a contender ended: {self._process.args!r}")
        return Acted(answer["seconds"], answer["cpu"])

    def _answer(self) -> object:
        assert self._process is not None  # noqa: S101 - see above
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        return json.loads(self._process.stdout.readline() or "null")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()


def stores(scene: Scene) -> Iterator[Row]:
    """The raw append, SQLite and nacre."""
    yield from _compare_appends(scene, "stores", _BASELINES)


def peers(scene: Scene) -> Iterator[Row]:
    """The same against other session stores, those that are installed."""
    yield from _compare_appends(scene, "peers", STORES)


def turns(scene: Scene) -> Iterator[Row]:
    """The CPU time of a turn of other agents against ours, all with a model that answers at once."""
    rounds, each = (3, 10) if scene.is_quick else (7, 20)
    room = scene.room("peer turns")
    with ExitStack() as stack:
        built = {
            peer: stack.enter_context(Contender("turn", peer, room / peer.name, _HISTORY)) for peer in (_OURS, *AGENTS)
        }
        ready = wait_for_all(built)
        acted: dict[Peer, list[Acted]] = {peer: [] for peer in ready}
        with measure.awake():
            for turn in range(rounds + 1):
                for peer in random.sample(list(ready), len(ready)):
                    took = ready[peer].act(max(1, each // 10) if peer.is_slow else each)
                    if turn:
                        acted[peer].append(took)
    cpu = {peer: [one.cpu / len(one.seconds) for one in each] for peer, each in acted.items()}
    ratios = {
        peer: measure.p50([theirs / ours for theirs, ours in zip(took, cpu[_OURS], strict=True)])
        for peer, took in cpu.items()
    }
    durable = [peer for peer in ratios if peer.is_durable and peer is not _OURS]
    what = f"CPU of a turn, fake model, {_HISTORY} messages of history"
    if durable:
        nearest = min(durable, key=lambda peer: ratios[peer])
        title = f"{what}: the nearest durable agent ({nearest.label}) against nacre's kernel"
        yield at_least(title, ratios[nearest], _NEARER, absolute=_NOT_THE_SAME)
    for peer, contender in built.items():
        if contender.failure:
            yield plain(f"{what}: {peer.label}", contender.failure)
            continue
        wall = measure.p50([seconds for one in acted[peer] for seconds in one.seconds])
        flushes = "" if scene.is_quick else f"; {_count_flushes(room, peer)}"
        absolute = f"CPU {micros(measure.p50(cpu[peer]))}, wall {micros(wall)}{flushes}"
        yield plain(f"{what}: {peer.label}", shown(ratios[peer]), absolute=absolute)


def _count_flushes(room: Path, peer: Peer) -> str:
    """How often it flushes in a turn, counted from outside."""
    if not measure.can_trace():
        return "flushes not counted: no strace"
    trace, turns = room / f"{peer.name}.trace", 5
    with Contender(
        "turn", peer, room / f"{peer.name} traced", _HISTORY, prefix=measure.tracing_flushes(trace)
    ) as contender:
        contender.wait()
        if contender.failure:
            return f"flushes {contender.failure}"
        contender.act(1)
        contender.act(turns)
    phases = measure.count_by_phase(trace.read_text())
    if len(phases) != 5:
        return f"flushes not counted: {len(phases)} phases in the trace"
    return f"flushes a turn: {phases[3] / turns:g}"


def _compare_appends(scene: Scene, name: str, contenders: Sequence[Peer]) -> Iterator[Row]:
    rounds = {10: (6, 3), 1_000: (4, 3)} if scene.is_quick else {10: (12, 5), 1_000: (10, 5), 10_000: (6, 2)}
    room = scene.room(name)
    found: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, str] = {}
    for size, (turns, each) in rounds.items():
        progress(f"{len(contenders)} stores at {size:,} messages")
        with ExitStack() as stack:
            built = {
                peer: stack.enter_context(Contender("append", peer, room / str(size) / peer.name, size))
                for peer in contenders
            }
            ready = wait_for_all(built)
            failed |= {peer.label: contender.failure for peer, contender in built.items() if contender.failure}
            figures = _measure_appends(ready, room / str(size) / "raw", turns=turns, each=each)
        for who, figure in figures.items():
            found.setdefault(who, []).append(figure)
    lengths = " / ".join(f"{size:,}" for size in rounds)
    for who, at_lengths in found.items():
        if who in failed or (who == _RAW and name == "peers"):
            continue
        yield plain(
            f"append of 1 kB at {lengths} messages: {who}",
            " / ".join(shown(ratio) for ratio, _ in at_lengths),
            absolute=" / ".join(micros(took) for _, took in at_lengths),
        )
    for who, why in failed.items():
        yield plain(f"append at any length: {who}", why)


def wait_for_all(built: Mapping[Peer, Contender]) -> dict[Peer, Contender]:
    """Those that are ready; they are built side by side."""
    for contender in built.values():
        contender.wait()
    return {peer: contender for peer, contender in built.items() if not contender.failure}


def _measure_appends(
    ready: Mapping[Peer, Contender], path: Path, *, turns: int, each: int
) -> dict[str, tuple[float, float]]:
    """For each store its ratio to the raw append and its time, at one length of session."""
    raw = raw_append(path, 1_150)
    times: dict[str, list[float]] = {_RAW: [], **{peer.label: [] for peer in ready}}
    with measure.awake():
        for _ in range(turns):
            raws = [measure.timed(raw) for _ in range(each)]
            for peer in random.sample(list(ready), len(ready)):
                times[peer.label].append(measure.p50(ready[peer].act(each).seconds))
                raws += [measure.timed(raw) for _ in range(each)]
            times[_RAW].append(measure.p50(raws))
    return {who: (measure.paired(times, who, _RAW), measure.p50(took)) for who, took in times.items()}
