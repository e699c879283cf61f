"""The files of earlier agents: documents, lines, nanobot's and zeroclaw's are read, and picoclaw's written."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nacre.entries import AppendMessage, View, message_of
from nacre.errors import InvalidMessage
from nacre.history import session_state
from nacre.legacy.documents import (
    Bad,
    Legacy,
    Unreadable,
    is_other,
    key_from,
    lines_of,
    mapping_of,
    meta_from,
    parse_json,
    read_document,
    read_lines,
    spell_time,
    take_message,
)
from nacre.legacy.message_shapes import moment, to_picoclaw
from nacre.legacy.sources import DATABASE, Source, contents
from nacre.storage.system import System

if TYPE_CHECKING:
    import sqlite3

LINES, META = ".jsonl", ".meta.json"
_MAX_PICOCLAW_LINE = 10 * 1024 * 1024
_PICOCLAW_META = ("aliases", "scope")
_NANOBOT_PRIVATE = ("metadata", "provider_state")
_WAL = "-wal"
_ATTEMPTS = 3
_ZEROCLAW_META = ("sender_id", "channel_id", "room_id", "agent_alias")


def read_source(system: System, source: Source) -> Legacy | None:
    """Read the session in a file; None if it holds none of an earlier agent.

    Raises Unreadable if it should hold one, and OSError.
    """
    if source.is_database:
        return None
    is_certain = source.is_document or bool(source.meta)
    found = contents(system, source.path, unless=None if is_certain else is_other)
    if found is None:
        return None
    data, changed = found
    name = source.original.removesuffix(".archived").removesuffix(".json").removesuffix(".jsonl")
    if source.is_document:
        return read_document(data, name, changed=changed)
    if (legacy := read_nanobot(data, name, changed=changed)) is not None:
        return legacy
    try:
        meta = contents(system, f"{source.folder}/{source.meta}") if source.meta else None
    except FileNotFoundError:
        # It went with an older file of this name.
        meta = None
    legacy = read_lines(data, name, meta=meta[0] if meta is not None else None, changed=changed)
    return replace(legacy, is_archived=source.is_archived) if legacy is not None else None


# ---- nanobot: lines of which the first is metadata, and all others are messages


def read_nanobot(data: bytes, name: str, *, changed: datetime | None) -> Legacy | None:
    """Read the lines of one session; None if the first one that is JSON is not nanobot's metadata."""
    about: Mapping[str, Any] | None = None
    said, bad = list[AppendMessage](), list[Bad]()
    for start, line in lines_of(data):
        value = parse_json(line)
        kind = value.get("_type") if isinstance(value, dict) else None
        if kind == "metadata":
            # There is one; of several the last one counts.
            about = value
        elif isinstance(value, dict) and about is None:
            return None
        elif kind not in _NANOBOT_PRIVATE:
            # The time is under another name than other agents use.
            time = _local_time(value.get("timestamp")) if isinstance(value, dict) else None
            if time is not None and "created_at" not in value:
                value["created_at"] = time.isoformat()
                del value["timestamp"]
            take_message(value, line, start, said=said, bad=bad)
    if about is None:
        return None
    meta = dict(mapping_of(about.get("metadata")))
    text = mapping_of(meta.pop("_last_summary", None)).get("text")
    summary = text if isinstance(text, str) else ""
    title = meta.pop("title", None)
    ours = {"title": title} if isinstance(title, str) and title else {}
    archived = about.get("last_archived", about.get("last_consolidated"))
    return Legacy(
        key=key_from(about.get("key"), _decode_name(name)),
        said=tuple(said),
        # What no summary stands for stays live: it was only copied into notes, which are not migrated.
        dropped=min(archived, len(said)) if summary and type(archived) is int and archived > 0 else 0,
        summary=summary,
        created=_local_time(about.get("created_at")),
        updated=_local_time(about.get("updated_at")),
        changed=changed,
        meta=meta_from({**ours, **({"nanobot": meta} if meta else {})}),
        bad=tuple(bad),
        sha256=sha256(data).hexdigest(),
    )


def _local_time(value: Any) -> datetime | None:
    """A time that was written without its zone, which was that of the computer."""
    try:
        return moment(datetime.fromisoformat(value).astimezone().isoformat()) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def _decode_name(name: str) -> str:
    """The key in a file's name: since 2026 the name is the key in base64, before it was the key itself, sanitised."""
    try:
        key = base64.b64decode(name + "=" * (-len(name) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return name
    is_encoded = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=") == name
    return key if is_encoded and ":" in key and key.isprintable() else name


# ---- zeroclaw: a SQLite database, read from a copy, so that it is not changed


def read_database(system: System, path: str) -> Iterator[Legacy]:
    """Every session of a database; none if it is not zeroclaw's. Raises Unreadable, and OSError."""
    import sqlite3  # noqa: PLC0415 - few have such a database

    data = _read_consistent(system, path)
    if data is None:
        return
    with TemporaryDirectory() as folder:
        for suffix, copy in zip(("", _WAL), data, strict=True):
            if copy:
                Path(folder, f"{DATABASE}{suffix}").write_bytes(copy)
        try:
            with closing(sqlite3.connect(Path(folder, DATABASE))) as database:
                database.row_factory = sqlite3.Row
                columns = {row["name"] for row in database.execute("PRAGMA table_info(sessions)")}
                if {"session_key", "role", "content", "created_at"} <= columns:
                    yield from _read_tables(database)
        except sqlite3.Error as error:
            raise Unreadable(f"SQLite cannot read it: {error}") from error


def _read_consistent(system: System, path: str) -> tuple[bytes, bytes] | None:
    """The database and its write-ahead log, as they were at one moment; None if it is no database."""

    def state(name: str) -> tuple[int, int] | None:
        try:
            stat = system.stat(name)
        except FileNotFoundError:
            return None
        return (stat.st_size, stat.st_mtime_ns)

    for _ in range(_ATTEMPTS):
        before = (state(path), state(path + _WAL))
        found = contents(system, path)
        if found is None or not found[0].startswith(b"SQLite format 3\0"):
            return None
        ahead = contents(system, path + _WAL) if before[1] is not None else None
        if before == (state(path), state(path + _WAL)):
            return found[0], ahead[0] if ahead is not None else b""
    raise Unreadable("it is being written; stop the agent that uses it first")


def _read_tables(database: sqlite3.Connection) -> Iterator[Legacy]:
    has_metadata = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'session_metadata'").fetchone()
    rows = database.execute("SELECT * FROM session_metadata") if has_metadata else ()
    abouts = {str(row["session_key"]): dict(row) for row in rows}
    keys = {str(row[0]): None for row in database.execute("SELECT session_key FROM sessions ORDER BY id")}
    for key in {**keys, **dict.fromkeys(abouts)}:
        stored, about = [], abouts.get(key, {})
        said, bad = list[AppendMessage](), list[Bad]()
        for row in database.execute("SELECT * FROM sessions WHERE session_key = ? ORDER BY id", (key,)):
            message = {field: row[field] for field in ("role", "content", "created_at")}
            take_message(message, json.dumps(message).encode(), row["id"], said=said, bad=bad)
            stored.append([*message.values()])
        title = about.get("name")
        meta = {"title": title} if isinstance(title, str) and title else {}
        meta |= {column: about[column] for column in _ZEROCLAW_META if about.get(column)}
        yield Legacy(
            key=key_from(key, key),
            said=tuple(said),
            created=moment(about.get("created_at")),
            updated=moment(about.get("last_activity")),
            meta=meta_from(meta) if stored else {},
            bad=tuple(bad),
            sha256=sha256(json.dumps(stored).encode()).hexdigest(),
        )


# ---- picoclaw: one message per line, and a file of metadata next to them


class Exported(NamedTuple):
    """The two files of a session, and how many messages are in them."""

    lines: bytes
    meta: bytes
    messages: int


def file_of(key: str) -> str:
    """The name, without its ending, that picoclaw gives the files of a session; several keys may have one name."""
    return key.translate(str.maketrans(":/\\", "___"))


def export(view: View, key: str, *, dropped: bool = False) -> Exported:
    """Spell a session as picoclaw reads it: its live messages and its summary.

    With `dropped`, messages that are no longer live come before them, and the metadata says that they are to be
    skipped. Raises InvalidMessage if one is longer than picoclaw can read, since it would then read none at all.
    """
    records = list(session_state.newest(view))[::-1]
    alive = {record.n for record in records}
    before = [record for record in view.all() if record.t == "msg" and record.n not in alive] if dropped else []
    lines: list[bytes] = []
    for record in (*before, *records):
        lines.append(msgspec.json.encode(to_picoclaw(message_of(record, view))) + b"\n")
        if len(lines[-1]) > _MAX_PICOCLAW_LINE:
            raise InvalidMessage(f"record {record.n} is longer than picoclaw can read ({_MAX_PICOCLAW_LINE} bytes)")
    about = session_state.meta(view, view.state)
    times = [spell_time(moment(record.ts)) for record in view.all()]
    meta: dict[str, Any] = {"key": key, "summary": session_state.summary(view, view.state)}
    meta |= {"skip": len(before), "count": len(lines)}
    # It cannot read metadata in which a time is none, and does without.
    meta |= {name: time for name, time in (("created_at", times[0]), ("updated_at", times[-1])) if time}
    meta |= {name: about[name] for name in _PICOCLAW_META if name in about}
    data = msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n"
    return Exported(b"".join(lines), data, len(lines))
