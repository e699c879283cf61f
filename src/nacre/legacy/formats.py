"""The files of earlier agents: documents, lines, nanobot's and zeroclaw's are read, and picoclaw's written."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nacre.codec import message_of
from nacre.errors import InvalidMessage, StoreError
from nacre.history import session_state
from nacre.legacy import documents
from nacre.legacy.detect import open_file
from nacre.legacy.documents import Bad, Legacy, Unreadable, key_from, moment, parse_json, spell_time
from nacre.records import AppendMessage, View
from nacre.storage import quarantine
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import SessionPaths, is_log_name
from nacre.storage.system import System

if TYPE_CHECKING:
    import sqlite3

_OURS = b'{"v":'
_BLOCK = 1024 * 1024
_BEGINNING = 64 * 1024
_CLAIMED = re.compile(r"(.+\.jsonl)\.migrating(\.\d+)?\Z", re.DOTALL)
LINES, META = ".jsonl", ".meta.json"
DATABASE = "sessions.db"
_WORKSPACE = re.compile(r"[0-9a-f]{32}\Z")
_KNOWN = re.compile(
    r"(\..*|migrating\.lock|.*\.migrated(\.\d+)?|.*\.checkpoint\.json|sessions\.db-(wal|shm))\Z", re.DOTALL
)
"""What is next to sessions and is none: hidden files, locks, what was migrated, and parts of a session or database."""


class Source(NamedTuple):
    """A file that may hold a session, what it was called first, and the name of the metadata next to it.

    A database holds several, and keeps its name.
    """

    folder: str
    name: str
    original: str
    meta: str = ""
    is_database: bool = False

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def is_archived(self) -> bool:
        return self.original.endswith(".archived")

    @property
    def is_document(self) -> bool:
        return self.original.endswith(".json")


def sources(system: System, directory: str, *, logs: str = "") -> list[Source]:
    """The files of a directory that may hold sessions: archived ones first, and documents last.

    In the folder `logs` a name that logs have is a log's, unless there is metadata next to it.
    """
    found = [source for _, _, source in _files(system, directory) if source is not None]
    found = [one for one in found if one.folder != logs or not has_log_name(one.name) or one.meta]
    return sorted(found, key=lambda source: (not source.is_archived, source.is_document))


def has_log_name(name: str) -> bool:
    """Tell whether a file has a name that active logs have today."""
    return name.endswith(".jsonl") and is_log_name(name.removesuffix(".jsonl"))


def lone_metas(system: System, directory: str) -> list[tuple[str, str]]:
    """Metadata without a session: folder and name."""
    files, used = list(_files(system, directory)), set[tuple[str, str]]()
    for folder, _, source in files:
        if source is not None and source.meta:
            is_log = False
            with suppress(OSError):
                is_log = contents(system, source.path) is None
            used |= set() if is_log else {(folder, source.meta)}
    return [(folder, name) for folder, name, _ in files if name.endswith(META) and (folder, name) not in used]


def unknown_files(system: System, directory: str, known: Iterable[Source]) -> list[str]:
    """The files of a directory, and of its `sessions`, that nobody knows: not those of `known`, and no log of ours."""
    names = {f"{source.folder}/{name}" for source in known for name in (source.name, source.meta)}
    found = []
    for folder, name, _ in _files(system, directory):
        path = f"{folder}/{name}"
        if path in names or _KNOWN.match(name):
            continue
        is_unknown = True
        with suppress(OSError):
            is_unknown = modes.S_ISREG(system.stat(path).st_mode) and contents(system, path) is not None
        found += [path] if is_unknown else []
    return found


def has_migrated(system: System, directory: str) -> bool:
    """Tell whether files of a directory were migrated before."""
    return any(".migrated" in name for _, name, _ in _files(system, directory))


def contents(
    system: System, path: str, *, unless: Callable[[bytes], bool] | None = None
) -> tuple[bytes, datetime] | None:
    """The bytes of a file and when it was changed; None if it is a log of ours, or no file at all.

    None as well if `unless` says so of its beginning: a large file of another program is not read at every start.
    """
    with open_file(system, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
        found = system.fstat(fd)
        if not modes.S_ISREG(found.st_mode) or system.pread(fd, len(_OURS), 0) == _OURS:
            return None
        if unless is not None and unless(system.pread(fd, _BEGINNING, 0)):
            return None
        data = bytearray()
        while block := system.pread(fd, _BLOCK, len(data)):
            data += block
        return bytes(data), datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC)


def free_path(system: System, path: str) -> str:
    """A path that no file has: the given one, or with a number after it."""
    free, number = path, 1
    while True:
        try:
            system.stat(free)
        except FileNotFoundError:
            return free
        number += 1
        free = f"{path}.{number}"


def _files(system: System, directory: str) -> Iterator[tuple[str, str, Source | None]]:
    """Every file where sessions may be, by folder and name; and what it is if it may hold one."""
    folders = [directory, f"{directory}/sessions"]
    # nanobot has a folder for each of its workspaces.
    workspaces = [(folder, name) for folder in folders for name in _names(system, folder) if _WORKSPACE.match(name)]
    for folder in folders + [f"{folder}/{name}" for folder, name in sorted(workspaces)]:
        names = _names(system, folder)
        yield from ((folder, name, _source(folder, name, names)) for name in sorted(names))


def _source(folder: str, name: str, names: set[str]) -> Source | None:
    claimed = _CLAIMED.match(name)
    original = claimed[1] if claimed is not None else name
    if name == DATABASE:
        return Source(folder, name, name, is_database=True)
    if original.endswith((".json", ".jsonl.archived")) and not original.endswith(META):
        return Source(folder, name, original)
    meta = original.removesuffix(".jsonl") + META
    # Where a file was moved out of the way of a log, the metadata is that file's, and not the log's.
    is_its_own = meta in names and (claimed is not None or f"{name}.migrating" not in names)
    return Source(folder, name, original, meta if is_its_own else "") if original.endswith(".jsonl") else None


def _names(system: System, folder: str) -> set[str]:
    try:
        return set(system.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error}") from error


class _BadLines(Lines):
    """Lines of a file that is in memory, from an offset on."""

    def __init__(self, system: System, bad: Bad) -> None:
        super().__init__(system, -1, bad.start + len(bad.raw))
        self._block, self._block_start = bad.raw, bad.start


def set_aside(system: System, place: SessionPaths, uid: str, bad: Sequence[Bad]) -> None:
    """Append what is bad to a session's quarantine file, durably, unless a run that was killed has done so."""
    if not bad:
        return
    # 1. Kind, offset and checksum of what is in the quarantine file.
    data = b""
    with suppress(FileNotFoundError), open_file(system, place.quarantine(uid), os.O_RDONLY | os.O_NOFOLLOW) as fd:
        data = system.pread(fd, system.fstat(fd).st_size, 0)
    known: set[tuple[Any, ...]] = set()
    for line in data.split(b"\n"):
        # A line of another shape is nothing that was set aside.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError, AttributeError):
            found = msgspec.json.decode(line)
            known.add((found["kind"], found.get("off", 0), found["crc"]))
    # 2. Append what is not.
    for piece in bad:
        held = Piece(piece.start, piece.start + len(piece.raw), piece.raw, None)
        is_new = (piece.reason, piece.start, f"{crc32(piece.raw):08x}") not in known
        # What is there is flushed again: the process that wrote it may have been killed before that.
        lines, pieces = _BadLines(system, piece), [held] if is_new else []
        quarantine.set_aside(system, place, uid, lines, pieces, reason=piece.reason)


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
    found = contents(system, source.path, unless=None if is_certain else documents.is_other)
    if found is None:
        return None
    data, changed = found
    name = source.original.removesuffix(".archived").removesuffix(".json").removesuffix(".jsonl")
    if source.is_document:
        return documents.read_document(data, name, changed=changed)
    if (legacy := read_nanobot(data, name, changed=changed)) is not None:
        return legacy
    meta = None
    # It may have gone with an older file of this name.
    with suppress(FileNotFoundError):
        meta = contents(system, f"{source.folder}/{source.meta}") if source.meta else None
    legacy = documents.read_lines(data, name, meta=meta[0] if meta is not None else None, changed=changed)
    return replace(legacy, is_archived=source.is_archived) if legacy is not None else None


# ---- nanobot: lines of which the first is metadata, and all others are messages


def read_nanobot(data: bytes, name: str, *, changed: datetime | None) -> Legacy | None:
    """Read the lines of one session; None if the first one that is JSON is not nanobot's metadata."""
    about: Mapping[str, Any] | None = None
    said, bad = list[AppendMessage](), list[Bad]()
    for start, line in documents.lines_of(data):
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
            documents.take_message(value, line, start, said=said, bad=bad)
    if about is None:
        return None
    meta = dict(documents.mapping_of(about.get("metadata")))
    text = documents.mapping_of(meta.pop("_last_summary", None)).get("text")
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
        meta=documents.meta_from({**ours, **({"nanobot": meta} if meta else {})}),
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
    from pathlib import Path  # noqa: PLC0415 - the same
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - the same

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
            documents.take_message(message, json.dumps(message).encode(), row["id"], said=said, bad=bad)
            stored.append([*message.values()])
        title = about.get("name")
        meta = {"title": title} if isinstance(title, str) and title else {}
        meta |= {column: about[column] for column in _ZEROCLAW_META if about.get(column)}
        yield Legacy(
            key=key_from(key, key),
            said=tuple(said),
            created=moment(about.get("created_at")),
            updated=moment(about.get("last_activity")),
            meta=documents.meta_from(meta) if stored else {},
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
        lines.append(msgspec.json.encode(documents.to_picoclaw(message_of(record, view))) + b"\n")
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
