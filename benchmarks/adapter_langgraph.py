"""NacreSaver next to LangGraph's SqliteSaver: CPU of a checkpoint and of reading the newest one, and bytes on disk.

`python benchmarks/adapter_langgraph.py [DIRECTORY]`, in an environment with the extra `langgraph` and the package
langgraph-checkpoint-sqlite; the directory must be on a real disk, so that both flush. It prints JSON: ms of CPU, the
median of the rounds, bytes, and ratios, and fails if one of the ratios that have a bar is below it. `--messages N`
makes the threads whose bytes are counted shorter.

The CPU is that of a thread with 10,000 messages of 300 bytes. Bytes are those of messages of 1,000 bytes: with one
`put` for each, as a graph with one step for each stores them (which is `put_writes` and `put`), and as a conversation
whose every request is one run of a graph; each as it was written, and after `save` has moved what is not live to the
cold file.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver

DEPTH = 10_000
ROUNDS = 12
TEXT = "word " * 60
SIZE = 1_000
PUT_FASTER = "put, times faster than SqliteSaver"
GET_FASTER = "get_tuple, times faster than SqliteSaver"
CONFIG: Any = {"configurable": {"thread_id": "deep", "checkpoint_ns": ""}}


# ---- CPU


def message(n: int, text: str = TEXT) -> BaseMessage:
    kind = AIMessage if n % 2 else HumanMessage
    return kind(f"{n} {text}", id=f"m{n}")


class Writer:
    """A thread that grows by one message with each checkpoint, as a graph with one channel has it."""

    def __init__(self, saver: BaseCheckpointSaver[Any], messages: list[BaseMessage]) -> None:
        self.saver, self.messages, self.config, self.step = saver, messages, CONFIG, 0
        self.put()

    def put(self) -> None:
        self.step += 1
        checkpoint: Checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=self.step))
        checkpoint["channel_values"] = {"messages": self.messages}
        checkpoint["channel_versions"] = {"messages": self.step}
        metadata: Any = {"source": "loop", "step": self.step}
        self.config = self.saver.put(self.config, checkpoint, metadata, {"messages": self.step})

    def grow(self) -> None:
        self.messages = [*self.messages, message(len(self.messages))]
        self.put()


def measure(operations: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, float]:
    """The CPU of each operation in ms; they take turns in a changing order, so that a busy machine strikes all."""
    found: dict[str, list[float]] = {name: [] for name in operations}
    for number in range(ROUNDS):
        names = list(operations)
        at = number % len(names)
        for name in names[at:] + names[:at]:
            operation, count = operations[name]
            begun = time.process_time()
            for _ in range(count):
                operation()
            found[name].append((time.process_time() - begun) / count * 1e3)
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def measure_cpu(directory: Path) -> dict[str, Any]:
    with nacre.open(directory / "nacre") as sessions, sqlite(directory / "sqlite.db") as theirs:
        ours = NacreSaver(sessions)
        writers = {
            name: Writer(saver, [message(n) for n in range(DEPTH)])
            for name, saver in (("SqliteSaver", theirs), ("NacreSaver", ours))
        }
        put = measure({name: (writer.grow, 20 if name == "NacreSaver" else 1) for name, writer in writers.items()})
        get = measure(
            {
                "SqliteSaver": (lambda: theirs.get_tuple(CONFIG), 1),
                "NacreSaver": (lambda: ours.get_tuple(CONFIG), 20),
                "NacreSaver, made anew": (lambda: NacreSaver(sessions).get_tuple(CONFIG), 1),
            }
        )
        found, expected = (saver.get_tuple(CONFIG) for saver in (NacreSaver(sessions), theirs))
        if found is None or expected is None or len(found.checkpoint["channel_values"]["messages"]) < DEPTH:
            raise SystemExit("the thread is not what was stored")
    get |= measure({"NacreSaver, in a store opened anew": (lambda: reopen(directory / "nacre"), 1)})
    return {
        "put with one new message, 10,000 deep, ms": put,
        "get_tuple of the newest checkpoint, 10,000 messages, ms": get,
        PUT_FASTER: round(put["SqliteSaver"] / put["NacreSaver"], 1),
        GET_FASTER: {name: round(get["SqliteSaver"] / it, 1) for name, it in get.items() if name != "SqliteSaver"},
    }


def find_missed(found: dict[str, Any]) -> list[str]:
    """The bars that were not reached; there is none for the first read after the store was opened."""
    times = {"put": (found[PUT_FASTER], 50)}
    times |= {f"get_tuple, {name}": (found[GET_FASTER][name], 5) for name in ("NacreSaver", "NacreSaver, made anew")}
    return [f"{what}: {reached} times faster, not {bar}" for what, (reached, bar) in times.items() if reached < bar]


def reopen(place: Path) -> None:
    with nacre.open(place) as sessions:
        NacreSaver(sessions).get_tuple(CONFIG)


def time_reopen(place: Path) -> float:
    begun = time.process_time()
    reopen(place)
    return round((time.process_time() - begun) * 1e3, 1)


@contextmanager
def sqlite(path: Path) -> Iterator[SqliteSaver]:
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    try:
        yield saver
    finally:
        connection.close()


# ---- bytes


class Texts:
    """Texts of so many bytes, none like another; `total` is how much was given out."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        self.total = 0

    def __call__(self) -> str:
        self.total += SIZE
        return "".join(self._random.choices(string.ascii_letters + " ", k=SIZE))


def put_each(saver: BaseCheckpointSaver[Any], texts: Texts, count: int) -> None:
    writer = Writer(saver, [])
    for n in range(count):
        writer.messages = [*writer.messages, AIMessage(texts(), id=f"m{n}")]
        writer.put()


def run_steps(saver: BaseCheckpointSaver[Any], texts: Texts, count: int) -> None:
    """One run of a graph that has one step for each message."""
    state: Any = MessagesState
    graph = StateGraph(state)
    graph.add_node("say", lambda _: {"messages": [AIMessage(texts())]})
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda it: END if len(it["messages"]) >= count else "say")
    graph.compile(checkpointer=saver).invoke(
        {"messages": [HumanMessage(texts())]}, {**CONFIG, "recursion_limit": count}
    )


def run_requests(saver: BaseCheckpointSaver[Any], texts: Texts, count: int) -> None:
    """A conversation: each request is a run of a graph that replies once."""
    state: Any = MessagesState
    graph = StateGraph(state)
    graph.add_node("say", lambda _: {"messages": [AIMessage(texts())]})
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    compiled = graph.compile(checkpointer=saver)
    for _ in range(count // 2):
        compiled.invoke({"messages": [HumanMessage(texts())]}, CONFIG)


WAYS: dict[str, Callable[[BaseCheckpointSaver[Any], Texts, int], None]] = {
    "put alone": put_each,
    "a graph, one step for each message": run_steps,
    "a graph, one run for each request and its reply": run_requests,
}


def measure_bytes(directory: Path, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, (name, store) in enumerate(WAYS.items()):
        place, texts = directory / f"bytes-{number}", Texts()
        with nacre.open(place) as sessions:
            store(NacreSaver(sessions), texts, count)
        found[name] = round(disk(place) / texts.total, 2)
        found[f"{name}: ms of CPU to open it and read the newest checkpoint"] = time_reopen(place)
        with nacre.open(place) as sessions:
            sessions.save(CONFIG["configurable"]["thread_id"])
        found[f"{name}, saved"] = round(disk(place) / texts.total, 2)
        found[f"{name}, saved: ms of CPU to open it and read the newest checkpoint"] = time_reopen(place)
        # The same again with SqliteSaver takes 50 GB at 10,000 messages: a tenth of the messages says enough.
        path, texts = directory / f"bytes-{number}.db", Texts()
        with sqlite(path) as saver:
            store(saver, texts, count // 10)
        found[f"{name}: SqliteSaver, {count // 10:,} messages"] = round(path.stat().st_size / texts.total, 1)
        path.unlink()
    return {f"bytes on disk for each byte of {count:,} messages of 1 kB": found}


def disk(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("directory", nargs="?", help="where the stores are made, in a temporary folder")
    parser.add_argument("--messages", type=int, default=10_000, help="messages of the threads whose bytes are counted")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        found = measure_cpu(Path(directory))
        if given.messages:
            found |= measure_bytes(Path(directory), given.messages)
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if missed := find_missed(found):
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
