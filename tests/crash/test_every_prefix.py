"""Wherever a log is cut, what the model is shown of it is taken by every provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings

import nacre
from nacre.errors import Conflict
from nacre.history import session_state
from nacre.messages import Message, ToolCall
from nacre.records import MemoryView, Operation, Record, RecordStamp, State
from nacre.sessions import Sessions
from tests.histories import logs
from tests.history import bodies

CHUNKS = 8
FEW, MANY = 2_000, 100_000
TIME = "2026-11-15T18:00:00.000Z"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_made_up_logs_cut_at_every_record(chunk: int, *, campaign: bool) -> None:
    tried = 0

    @seed(chunk)
    @settings(
        max_examples=(MANY if campaign else FEW) // CHUNKS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(logs())
    def check(operations: list[Operation]) -> None:
        nonlocal tried
        tried += 1
        view = MemoryView([Record(v=1, n=1, t="open", ts=TIME, st=State())])
        for operation in operations:
            if grow(view, operation):
                bodies.check_past(view)

    check()
    assert tried >= (MANY if campaign else FEW) // CHUNKS


def grow(view: MemoryView, operation: Operation) -> bool:
    """Let a wish become a record, as it would be read back; not if the log would refuse it."""
    try:
        record = session_state.apply(operation, RecordStamp(n=view.n + 1, ts=TIME), view.state, view)
    except Conflict:
        return False
    if record is not None:
        view.add(msgspec.json.decode(msgspec.json.encode(record), type=Record))
    return record is not None


# Logs of a real store


def asks(*ids: str) -> Message:
    return Message(role="assistant", tool_calls=tuple(ToolCall(id=id, name="shell", arguments={}) for id in ids))


def result(id: str) -> Message:
    return Message(role="tool", tool_call_id=id, name="shell", content=f"of {id}")


def tool_turns(sessions: Sessions) -> None:
    for n in range(4):
        sessions.add_message("s", "user", f"question {n}")
        sessions.add_messages("s", [asks(f"a{n}", f"b{n}")])
        sessions.append("s", "tool", {"call": f"a{n}"})
        sessions.add_messages("s", [result(f"b{n}"), result(f"a{n}")])
        sessions.add_full_message("s", asks(f"c{n}"))
        sessions.add_message("s", "user", "and hurry")
        sessions.add_full_message("s", result(f"c{n}"))
        sessions.add_message("s", "assistant", "done \n")


def interrupted_turns(sessions: Sessions) -> None:
    for n in range(4):
        sessions.add_message("s", "user", "try")
        sessions.add_full_message("s", asks("same", "same", ""))
        sessions.add_messages("s", [result("same") for _ in range(n)])
        sessions.add_message("s", "assistant", "")


def steps_back(sessions: Sessions) -> None:
    tool_turns(sessions)
    last = sessions.add_message("s", "user", "once more")
    for to in range(2, last, 9):
        sessions.rewind("s", to)
        sessions.pop("s")
        sessions.add_message("s", "assistant", "from here")
    sessions.rewind("s", last)
    sessions.clear("s")
    sessions.add_full_message("s", result("b1"))
    sessions.rewind("s", last)


def cuts(sessions: Sessions) -> None:
    tool_turns(sessions)
    for keep in range(20, -1, -1):
        sessions.truncate_history("s", keep)
    sessions.set_history("s", [asks("x"), result("y"), Message(role="system", content="note")])


def summaries(sessions: Sessions) -> None:
    tool_turns(sessions)
    numbers = [stored.n for stored in sessions.transcript("s")]
    for n in numbers[1:16:3]:
        sessions.set_summary("s", f"what was said up to {n}", upto=n)
        sessions.add_message("s", "user", "go on")
    sessions.set_summary("s", "all", upto=sessions.add_full_message("s", asks("z")))
    sessions.add_full_message("s", result("z"))


def compactions(sessions: Sessions) -> None:
    summaries(sessions)
    sessions.truncate_history("s", 3)
    sessions.save("s")
    tool_turns(sessions)
    sessions.rewind("s", sessions.transcript("s")[7].n)


def forks(sessions: Sessions) -> None:
    tool_turns(sessions)
    for stored in sessions.transcript("s")[1:12:4]:
        sessions.fork("s", f"s{stored.n}", at=stored.n)
        sessions.add_message(f"s{stored.n}", "user", "another way")
        sessions.add_full_message(f"s{stored.n}", asks("d"))


@pytest.mark.parametrize(
    "write", [tool_turns, interrupted_turns, steps_back, cuts, summaries, compactions, forks], ids=lambda f: f.__name__
)
def test_a_log_of_a_store_cut_at_every_record(root: Path, write: Callable[[Sessions], None]) -> None:
    with nacre.open(root) as sessions:
        write(sessions)
        keys = [info.key for info in sessions.list()]
        pasts = [sessions._store.read(key, records) for key in keys]
    assert pasts
    for found in pasts:
        view = MemoryView(())
        for record in found or ():
            view.add(record)
            bodies.check_past(view)
        assert view.n > 5


def records(view: Any) -> list[Record]:
    return list(view.all())
