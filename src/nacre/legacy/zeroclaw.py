"""Sessions in the SQLite database of zeroclaw: read from a copy, so that the database is not changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nacre.legacy.documents import Legacy, Unreadable, key_from, meta_from, said_of
from nacre.legacy.messages import moment
from nacre.legacy.sources import DATABASE, contents
from nacre.log.ops import Ops

_WAL = "-wal"
_TRIES = 3
_TITLE = "name"
_COLUMNS = ("sender_id", "channel_id", "room_id", "agent_alias")


def read_database(ops: Ops, path: str) -> Iterator[Legacy]:
    """Every session of a database; none if it is not zeroclaw's. Raises Unreadable, and OSError."""
    data = _settled(ops, path)
    if data is None:
        return
    with TemporaryDirectory() as folder:
        for suffix, copy in zip(("", _WAL), data, strict=True):
            if copy:
                Path(folder, f"{DATABASE}{suffix}").write_bytes(copy)
        try:
            with closing(sqlite3.connect(Path(folder, DATABASE))) as database:
                database.row_factory = sqlite3.Row
                if _is_zeroclaws(database):
                    yield from _sessions(database)
        except sqlite3.Error as error:
            raise Unreadable(f"SQLite cannot read it: {error}") from error


def _settled(ops: Ops, path: str) -> tuple[bytes, bytes] | None:
    """The database and what is written ahead of it, as they were at one moment; None if it is no database."""
    for _ in range(_TRIES):
        before = _states(ops, path)
        found = contents(ops, path)
        if found is None or not found[0].startswith(b"SQLite format 3\0"):
            return None
        ahead = contents(ops, path + _WAL) if before[1] is not None else None
        if before == _states(ops, path):
            return found[0], ahead[0] if ahead is not None else b""
    raise Unreadable("it is being written; stop the agent that uses it first")


def _states(ops: Ops, path: str) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for name in (path, path + _WAL):
        try:
            stat = ops.stat(name)
            found.append((stat.st_size, stat.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _is_zeroclaws(database: sqlite3.Connection) -> bool:
    columns = {row["name"] for row in database.execute("PRAGMA table_info(sessions)")}
    return {"session_key", "role", "content", "created_at"} <= columns


def _sessions(database: sqlite3.Connection) -> Iterator[Legacy]:
    has_metadata = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'session_metadata'").fetchone()
    rows = database.execute("SELECT * FROM session_metadata") if has_metadata else ()
    about = {str(row["session_key"]): dict(row) for row in rows}
    keys = {str(row[0]): None for row in database.execute("SELECT session_key FROM sessions ORDER BY id")}
    for key in {**keys, **dict.fromkeys(about)}:
        rows = database.execute("SELECT * FROM sessions WHERE session_key = ? ORDER BY id", (key,))
        yield _legacy(key, [dict(row) for row in rows], about.get(key, {}))


def _legacy(key: str, rows: list[dict[str, Any]], about: dict[str, Any]) -> Legacy:
    said, bad = [], []
    for row in rows:
        message = {field: row[field] for field in ("role", "content", "created_at")}
        line = json.dumps(message).encode()
        found, wrong = said_of(message, line, row["id"])
        said += found
        bad += wrong
    title = about.get(_TITLE)
    meta = {"title": title} if isinstance(title, str) and title else {}
    meta |= {column: about[column] for column in _COLUMNS if about.get(column)}
    digest = sha256(json.dumps([[row["role"], row["content"], row["created_at"]] for row in rows]).encode())
    return Legacy(
        key=key_from(key, key),
        said=tuple(said),
        created=moment(about.get("created_at")),
        updated=moment(about.get("last_activity")),
        meta=meta_from(meta) if rows else {},
        bad=tuple(bad),
        sha256=digest.hexdigest(),
    )
