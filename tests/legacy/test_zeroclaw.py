"""The SQLite store of zeroclaw is imported, and not changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import Migration, migrate
from nacre.legacy.documents import Unreadable
from nacre.legacy.formats import read_database
from nacre.storage.file_store import FileStore
from nacre.storage.system import System

ALICE, BOB = "telegram_default_42_alice", "matrix_default__room_example_org__bob_example_org"


@contextmanager
def zeroclaw(folder: Path, *, journal: str = "wal", is_old: bool = False) -> Iterator[sqlite3.Connection]:
    """A database as zeroclaw makes it; open, as if it ran."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "sessions.db", isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute(
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, session_key TEXT NOT NULL,"
            " role TEXT NOT NULL, content TEXT NOT NULL, created_at TEXT NOT NULL)"
        )
        later = "" if is_old else ", state TEXT, agent_alias TEXT, channel_id TEXT, room_id TEXT, sender_id TEXT"
        database.execute(
            "CREATE TABLE session_metadata (session_key TEXT PRIMARY KEY, created_at TEXT NOT NULL,"
            f" last_activity TEXT NOT NULL, message_count INTEGER NOT NULL DEFAULT 0, name TEXT{later})"
        )
        yield database


def say(database: sqlite3.Connection, key: str, *texts: str) -> None:
    for at, text in enumerate(texts):
        role = "user" if at % 2 == 0 else "assistant"
        row = (key, role, text, f"2026-06-01T10:00:0{at}+00:00")
        database.execute("INSERT INTO sessions (session_key, role, content, created_at) VALUES (?, ?, ?, ?)", row)


def describe(database: sqlite3.Connection, key: str, **fields: str) -> None:
    row = (key, "2026-06-01T09:00:00Z", "2026-06-02T00:00:00Z", fields["name"])
    database.execute(
        "INSERT INTO session_metadata (session_key, created_at, last_activity, name) VALUES (?,?,?,?)", row
    )
    if "sender_id" in fields:
        database.execute("UPDATE session_metadata SET sender_id = ?", (fields["sender_id"],))


def opened(tmp_path: Path, *, dry_run: bool = False) -> tuple[nacre.Sessions, Migration]:
    store = FileStore(str(tmp_path / "store"), rules=RULES)
    return nacre.Sessions(store), migrate(store, tmp_path / "zeroclaw", dry_run=dry_run)


def outcomes(found: Migration) -> list[tuple[str, str, int]]:
    return [(migrated.key, migrated.outcome, migrated.messages) for migrated in found.report]


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    return [message.content for message in sessions.get_history(key)]


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("place", ["", "sessions"])
def test_every_session_of_a_database_is_migrated_while_it_is_open(
    tmp_path: Path, place: str, journal: str, is_old: bool
) -> None:
    folder = tmp_path / "zeroclaw" / place
    with zeroclaw(folder, journal=journal, is_old=is_old) as database:
        say(database, ALICE, "a", "b")
        describe(database, ALICE, name="Tax", **({} if is_old else {"sender_id": "alice"}))
        say(database, BOB, "c")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        sessions, found = opened(tmp_path)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert outcomes(found) == [(ALICE, "migrated", 2), (BOB, "migrated", 1)]
    assert (found.ok, found.unknown) == (True, ())
    assert (said(sessions, ALICE), said(sessions, BOB)) == (["a", "b"], ["c"])
    info = next(info for info in sessions.list() if info.key == ALICE)
    assert (info.title, info.created, info.updated) == (
        "Tax",
        datetime(2026, 6, 1, 9, tzinfo=UTC),
        datetime(2026, 6, 2, tzinfo=UTC),
    )
    assert sessions.get_meta(ALICE).get("sender_id") == (None if is_old else "alice")


def test_it_comes_once_and_what_was_said_since_is_appended(tmp_path: Path) -> None:
    with zeroclaw(tmp_path / "zeroclaw") as database:
        say(database, ALICE, "a", "b")
        assert outcomes(opened(tmp_path, dry_run=True)[1]) == [(ALICE, "migrated", 2)]
        assert outcomes(opened(tmp_path)[1]) == [(ALICE, "migrated", 2)]
        assert outcomes(opened(tmp_path)[1]) == [(ALICE, "finished", 2)]
        say(database, ALICE, "c")
        sessions, found = opened(tmp_path)
    assert outcomes(found) == [(ALICE, "appended", 1)]
    assert said(sessions, ALICE) == ["a", "b", "c"]


def test_a_session_that_was_cleared_is_empty(tmp_path: Path) -> None:
    with zeroclaw(tmp_path / "zeroclaw") as database:
        describe(database, ALICE, name="Tax")
    sessions, found = opened(tmp_path)
    assert outcomes(found) == [(ALICE, "empty", 0)]
    assert not sessions.exists(ALICE)


def test_what_is_no_message_is_set_aside(tmp_path: Path) -> None:
    with zeroclaw(tmp_path / "zeroclaw") as database:
        say(database, ALICE, "a", "b")
        database.execute("UPDATE sessions SET role = '' WHERE content = 'b'")
    sessions, found = opened(tmp_path)
    assert [migrated.set_aside for migrated in found.report] == [1]
    assert said(sessions, ALICE) == ["a"]


def test_a_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "zeroclaw").mkdir()
    with closing(sqlite3.connect(tmp_path / "zeroclaw" / "sessions.db")) as database:
        database.execute("CREATE TABLE sessions (id, title)")
    _, found = opened(tmp_path)
    assert (found.report, found.is_known) == ((), False)
    assert found.unknown == (f"{tmp_path}/zeroclaw/sessions.db",)


@pytest.mark.parametrize("data", [b"", b"not a database"])
def test_a_file_that_is_no_database_has_no_sessions(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sessions.db").write_bytes(data)
    assert list(read_database(System(), f"{tmp_path}/sessions.db")) == []


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "zeroclaw").mkdir()
    (tmp_path / "zeroclaw" / "sessions.db").write_bytes(b"SQLite format 3\0" + b"x" * 4000)
    _, found = opened(tmp_path)
    assert [(migrated.outcome, "SQLite cannot read it" in migrated.detail) for migrated in found.report] == [
        ("unreadable", True)
    ]


def test_a_database_that_is_written_all_the_time_is_not_read_half(tmp_path: Path) -> None:
    with zeroclaw(tmp_path, journal="delete"):
        pass

    class Busy(System):
        def stat(self, path: str) -> object:  # type: ignore[override]
            (tmp_path / "sessions.db").write_bytes((tmp_path / "sessions.db").read_bytes() + b"x")
            return super().stat(path)

    with pytest.raises(Unreadable, match="it is being written"):
        list(read_database(Busy(), f"{tmp_path}/sessions.db"))
