"""NacreSessionService next to ADK's SqliteSessionService: CPU of an append, 10,000 events deep, and of the last 50.

`python benchmarks/adapter_adk.py [DIRECTORY]`, in an environment with the extra `adk`; the directory must be on a real
disk, so that both flush. It prints JSON: µs of CPU of all threads, the median of the rounds, and ratios.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import nacre
from nacre.integrations.adk import NacreSessionService

DEPTH = 10_000
ROUNDS = 9
COUNT = 50
TEXT = "word " * 60
WHO: Any = {"app_name": "app", "user_id": "ann"}
LAST = GetSessionConfig(num_recent_events=50)
Operation = Callable[[], Awaitable[Any]]


def event(n: int, state: dict[str, Any] | None = None) -> Event:
    role, author = ("model", "agent") if n % 2 else ("user", "user")
    content = types.Content(role=role, parts=[types.Part(text=f"{n} {TEXT}")])
    return Event(
        id=Event.new_id(),
        author=author,
        invocation_id=f"i{n // 2}",
        content=content,
        actions=EventActions(state_delta=state or {}),
    )


async def measure(operations: dict[str, Operation]) -> dict[str, float]:
    """The CPU of each operation in µs; they take turns, so that a busy machine strikes all of them."""
    found: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(ROUNDS):
        for name, operation in operations.items():
            await operation()
            begun = time.process_time()
            for _ in range(COUNT):
                await operation()
            found[name].append((time.process_time() - begun) / COUNT * 1e6)
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


async def fill_sqlite(service: SqliteSessionService, path: Path) -> Session:
    """Make a session with the depth at once: event by event it would take minutes."""
    await service.create_session(**WHO, session_id="deep")
    rows = [(it.id, *WHO.values(), "deep", it.invocation_id, it.timestamp, it) for it in map(event, range(DEPTH))]
    with sqlite3.connect(path) as database:
        lines = [(*row[:-1], row[-1].model_dump_json(exclude_none=True)) for row in rows]
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
        database.execute("UPDATE sessions SET update_time = ?", (rows[-1][5],))
    database.close()
    return await loaded(service)


async def fill_nacre(service: NacreSessionService) -> Session:
    session = await service.create_session(**WHO, session_id="deep")
    for n in range(DEPTH):
        await service.append_event(session, event(n))
    return await loaded(service)


async def loaded(service: BaseSessionService) -> Session:
    session = await service.get_session(**WHO, session_id="deep")
    if session is None or len(session.events) != DEPTH:
        raise SystemExit("the session has not the depth")
    return session


async def run(directory: Path) -> dict[str, Any]:
    sqlite = SqliteSessionService(str(directory / "sqlite.db"))
    theirs = await fill_sqlite(sqlite, directory / "sqlite.db")
    with nacre.open(directory / "nacre") as sessions:
        service = NacreSessionService(sessions)
        awaited = NacreSessionService(nacre.AsyncSessions.of(sessions))
        # One object for both: each of two would be stale after an append of the other.
        ours = await fill_nacre(service)
        append = await measure(
            {
                "SqliteSessionService": lambda: sqlite.append_event(theirs, event(1)),
                "NacreSessionService": lambda: service.append_event(ours, event(1)),
                "NacreSessionService, AsyncSessions": lambda: awaited.append_event(ours, event(1)),
            }
        )
        shared = await measure(
            {
                "SqliteSessionService": lambda: sqlite.append_event(theirs, event(1, {"a": 1, "user:a": 1})),
                "NacreSessionService": lambda: service.append_event(ours, event(1, {"a": 1, "user:a": 1})),
            }
        )
        last = await measure(
            {
                "SqliteSessionService": lambda: sqlite.get_session(**WHO, session_id="deep", config=LAST),
                "NacreSessionService": lambda: service.get_session(**WHO, session_id="deep", config=LAST),
            }
        )
    parts = {"append": append, "append with state of the session and the user": shared, "last 50": last}
    return {
        "CPU, 10,000 events deep, µs": parts,
        "times faster than SqliteSessionService": {
            part: {name: round(found["SqliteSessionService"] / own, 2) for name, own in found.items()}
            for part, found in parts.items()
        },
    }


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as directory:
        sys.stdout.write(json.dumps(asyncio.run(run(Path(directory))), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
