"""What memory costs with many facts: a start, a turn, a fact erased, against a tenth of the facts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio

import nacre
from benchmarks.rows import Row, at_most, micros
from benchmarks.scene import Scene
from nacre import Message, Sessions
from nacre.memory import Memory
from nacre.memory.store import KEY, MEMORY_PAGE, Line, note_of
from nacre.providers.scripted import Scripted

_THINGS = ("server", "invoice", "garden", "flight", "sister", "engine", "recipe", "guitar", "bridge", "window")
_MANY, _TURNS = 10_000, 4


def facts(scene: Scene) -> Iterator[Row]:
    """CPU time with 10,000 facts; a turn and a question should hardly notice how many there are."""
    few, many = (_costs(scene.room(f"facts-{count}"), count) for count in (_MANY // 10, _MANY))
    bars = {"start and first recall": 15.0, "recall": 8.0, "learn from a turn": 6.0, "erase a fact": 15.0}
    for what, bar in bars.items():
        absolute = f"{micros(few[what])}, {micros(many[what])} CPU"
        yield at_most(f"memory with 10,000 facts against 1,000: {what}", many[what] / few[what], bar, absolute=absolute)


def _costs(room: Path, count: int) -> dict[str, float]:
    with nacre.open(room / "store") as sessions:
        made = [
            Line(
                id=f"f{at:05}",
                page=MEMORY_PAGE,
                text=f"The {_THINGS[at % 10]} of project {at} is kept by team {at * 7 % 1000}.",
                subject=f"project {at}",
            )
            for at in range(count)
        ]
        for at in range(0, count, 100):
            sessions.with_internal_keys().submit(KEY, [note_of(line) for line in made[at : at + 100]]).result()
        Memory(sessions, room / "home").settle()
    with nacre.open(room / "store") as sessions:
        found: dict[str, float] = {}
        said = [{"subject": f"town {at}", "text": f"Town {at} is near Lisbon."} for at in range(_TURNS)]
        model = Scripted([json.dumps({"line": "", "facts": [fact]}) for fact in said])
        memory = Memory(sessions, room / "home", provider=lambda: model, embedding=lambda: None)
        found["start and first recall"] = _cpu(lambda: memory.recall("who looks after project 77?", tokens=200))
        found["recall"] = min(_cpu(lambda: memory.recall("whose is project 78?", tokens=200)) for _ in range(5))
        found["learn from a turn"] = min(_cpu(lambda at=at: _learn(sessions, memory, at)) for at in range(_TURNS))  # type: ignore[misc]
        found["erase a fact"] = _cpu(lambda: memory.erase(["f00077"]))
        memory.close()
        return found


def _learn(sessions: Sessions, memory: Memory, at: int) -> None:
    said = [Message(role="user", content=f"Town {at} is near Lisbon."), Message(role="assistant", content="I see.")]
    sessions.add_messages("k", said)
    if anyio.run(memory.consolidate, "k") != 1:
        raise RuntimeError("the turn was not learned from")


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
