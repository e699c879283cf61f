"""One append of about 1 kB to the stores people use today, at three lengths of session.

Every store runs in every round, in shuffled order, with the raw append sampled after each of them;
a figure is the median over rounds of a store's time over the raw one of the same round.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import logging
import random
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nacre
from benchmarks import measure
from benchmarks.append import raw_append
from benchmarks.rows import Row, micros, plain, shown
from benchmarks.scene import Scene, progress, words

Append = Callable[[], object]
Build = Callable[[Path, int, contextlib.ExitStack], Append]

_KEY = "bench:peer"
_RAW = "raw write+fdatasync"
_ROUNDS = {10: (12, 5), 1_000: (10, 5), 10_000: (6, 2)}
_QUICK_ROUNDS = {10: (6, 3), 1_000: (4, 3)}


def stores(scene: Scene) -> Iterator[Row]:
    """The raw append, SQLite and nacre."""
    yield from _compare(scene, "stores", {"sqlite3, WAL, synchronous=FULL": sqlite, "nacre": ours})


def peers(scene: Scene) -> Iterator[Row]:
    """The same against other session stores, those that are installed."""
    warnings.simplefilter("ignore")  # what others warn their users of
    logging.disable(logging.WARNING)
    present = {name: build for name, (module, build) in _PEERS.items() if _installed(module)}
    if present:
        yield from _compare(scene, "peers", present)
    for name in (name for name in _PEERS if name not in present):
        yield plain(f"append at any length: {name}", "not installed")


def sqlite(room: Path, count: int, stack: contextlib.ExitStack) -> Append:
    """A table of messages in SQLite, every commit on disk."""
    base = stack.enter_context(contextlib.closing(sqlite3.connect(room / "base.sqlite", isolation_level=None)))
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    base.execute("CREATE INDEX by_session ON messages (session, id)")
    insert = "INSERT INTO messages (session, body) VALUES (?, ?)"
    base.execute("BEGIN")
    base.executemany(insert, ((_KEY, text) for text in _texts(count)))
    base.execute("COMMIT")
    fresh = _fresh_texts()
    return lambda: base.execute(insert, (_KEY, next(fresh)))


def ours(room: Path, count: int, stack: contextlib.ExitStack) -> Append:
    """nacre, as it is by default."""
    sessions = stack.enter_context(nacre.open(room))
    for _, group in itertools.groupby(enumerate(_texts(count)), lambda numbered: numbered[0] // 1_000):
        sessions.add_messages(_KEY, [nacre.Message(role="user", content=text) for _, text in group])
    fresh = _fresh_texts()
    return lambda: sessions.add_message(_KEY, "user", next(fresh))


def openai_agents(room: Path, count: int, stack: contextlib.ExitStack) -> Append:
    """OpenAI Agents SDK: SQLiteSession on a file."""
    agents: Any = importlib.import_module("agents")
    runner = stack.enter_context(asyncio.Runner())
    session = agents.SQLiteSession(_KEY, room / "agents.sqlite")
    stack.callback(session.close)
    runner.run(session.add_items([{"role": "user", "content": text} for text in _texts(count)]))
    fresh = _fresh_texts()
    return lambda: runner.run(session.add_items([{"role": "user", "content": next(fresh)}]))


def langgraph(room: Path, count: int, stack: contextlib.ExitStack) -> Append:
    """LangGraph: a checkpoint of a state that holds the messages, by SqliteSaver."""
    savers: Any = importlib.import_module("langgraph.checkpoint.sqlite")
    base: Any = importlib.import_module("langgraph.checkpoint.base")
    saver = stack.enter_context(savers.SqliteSaver.from_conn_string(str(room / "langgraph.sqlite")))
    saver.setup()
    said = [{"role": "user", "content": text} for text in _texts(count)]
    config = {"configurable": {"thread_id": _KEY, "checkpoint_ns": ""}}
    fresh = _fresh_texts()

    def append() -> None:
        nonlocal config
        said.append({"role": "user", "content": next(fresh)})
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": said}
        config = saver.put(config, checkpoint, {"source": "loop", "step": len(said)}, {"messages": len(said)})

    return append


def nanobot(room: Path, count: int, stack: contextlib.ExitStack) -> Append:  # noqa: ARG001 - one shape for all
    """nanobot: SessionManager.save, as its loop calls it."""
    manager = importlib.import_module("nanobot.session.manager").SessionManager(room)
    session = manager.get_or_create(_KEY)
    for text in _texts(count):
        session.add_message("user", text)
    manager.save(session)
    fresh = _fresh_texts()

    def append() -> None:
        session.add_message("user", next(fresh))
        manager.save(session)

    return append


def agent_framework(room: Path, count: int, stack: contextlib.ExitStack) -> Append:
    """Microsoft Agent Framework: FileHistoryProvider, JSON lines."""
    framework: Any = importlib.import_module("agent_framework")
    runner = stack.enter_context(asyncio.Runner())
    provider = framework.FileHistoryProvider(room)

    def save(texts: Iterator[str]) -> None:
        said = [framework.Message(role="user", contents=[text]) for text in texts]
        runner.run(provider.save_messages(_KEY, said))

    save(_texts(count))
    fresh = _fresh_texts()
    return lambda: save(itertools.islice(fresh, 1))


_PEERS: dict[str, tuple[str, Build]] = {
    "OpenAI Agents SQLiteSession": ("agents", openai_agents),
    "LangGraph SqliteSaver": ("langgraph.checkpoint.sqlite", langgraph),
    "nanobot (does not flush)": ("nanobot.session.manager", nanobot),
    "Microsoft FileHistoryProvider (does not flush)": ("agent_framework", agent_framework),
}


def _compare(scene: Scene, name: str, builds: dict[str, Build]) -> Iterator[Row]:
    rounds = _QUICK_ROUNDS if scene.sizes.long < 1_000_000 else _ROUNDS
    room = scene.room(name)
    found: dict[str, list[tuple[float, float]]] = {who: [] for who in (_RAW, *builds)}
    for count, (turns, each) in rounds.items():
        progress(f"{len(builds)} stores at {count:,} messages")
        for who, figures in _at_length(room / str(count), count, builds, turns=turns, each=each).items():
            found[who].append(figures)
    lengths = " / ".join(f"{count:,}" for count in rounds)
    for who, at_lengths in found.items():
        if who == _RAW and name == "peers":
            continue
        yield plain(
            f"append of 1 kB at {lengths} messages: {who}",
            " / ".join(shown(ratio) for ratio, _ in at_lengths),
            absolute=" / ".join(micros(took) for _, took in at_lengths),
        )


def _at_length(
    room: Path, count: int, builds: dict[str, Build], *, turns: int, each: int
) -> dict[str, tuple[float, float]]:
    """For each store its ratio to the raw append and its time, at one length of session."""
    with contextlib.ExitStack() as stack:
        appends = _build(room, count, builds, stack)
        raw = raw_append(room / "raw", 1_150)
        times: dict[str, list[float]] = {who: [] for who in (_RAW, *builds)}
        with measure.awake():
            for _ in range(turns):
                _round(appends, raw, each, times)
    base = times[_RAW]
    return {
        who: (statistics.median(mine / raw for mine, raw in zip(took, base, strict=True)), measure.p50(took))
        for who, took in times.items()
    }


def _build(room: Path, count: int, builds: dict[str, Build], stack: contextlib.ExitStack) -> dict[str, Append]:
    appends: dict[str, Append] = {}
    for number, (who, build) in enumerate(builds.items()):
        place = room / str(number)
        place.mkdir(parents=True)
        appends[who] = build(place, count, stack)
        appends[who]()
    return appends


def _round(appends: dict[str, Append], raw: Append, each: int, times: dict[str, list[float]]) -> None:
    """One round: its medians are added to each store's list."""
    raws: list[float] = []
    order = list(appends)
    random.shuffle(order)
    for who in order:
        times[who].append(measure.p50([measure.timed(appends[who]) for _ in range(each)]))
        raws += [measure.timed(raw) for _ in range(each)]
    times[_RAW].append(measure.p50(raws))


def _installed(module: str) -> bool:
    """Whether a peer can be imported."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _texts(count: int) -> Iterator[str]:
    """Messages of 1 kB, no two alike: some stores drop repetitions."""
    return map(_text, range(count))


def _fresh_texts() -> Iterator[str]:
    """More of them, without end."""
    return map(_text, itertools.count(10_000_000))


def _text(number: int) -> str:
    return f"{number:08} {words(991)}"
