"""The index's database: made, thrown away and made again, on disk, or in memory where the disk is not available."""

# Paths are text, as SQLite and the store take them.
# ruff: noqa: PTH102, PTH103, PTH104, PTH110, PTH116, PTH120
from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from nacre.codec import EPOCH, is_time
from nacre.errors import StoreError, describe_error
from nacre.index.search_text import grams_of, words_of
from nacre.index.snippet import holds
from nacre.index.warm import FILE, VERSION, is_own

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT = 1000
_SHORT_TIMEOUT = 50
# `counts` is 0 for what a list does not show: an empty log, one of several names of a log, what is being deleted.
# `vector` has a row for each piece of a message; `waiting` has the messages without any, once vectors are wanted.
# `tally` has how many rows these two have: to count them takes the longer the more there are.
# `shared` is the origin of what a fork shares; -1 for a message that was stored again later in the same log.
# `has_more` is 1 while a log may have messages that cannot be searched yet.
_SCHEMA = f"""
CREATE TABLE log (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, name TEXT NOT NULL, archived INTEGER NOT NULL,
    device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
    key TEXT NOT NULL, internal INTEGER NOT NULL, uid TEXT NOT NULL, title TEXT NOT NULL, live INTEGER NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, cold INTEGER NOT NULL, bytes INTEGER NOT NULL, kind TEXT NOT NULL,
    pinned INTEGER NOT NULL, cwd TEXT NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL, last TEXT NOT NULL,
    state TEXT NOT NULL, meta TEXT NOT NULL, counts INTEGER NOT NULL, has_more INTEGER NOT NULL);
CREATE INDEX log_name ON log (name);
CREATE INDEX log_uid ON log (uid);
CREATE INDEX log_has_more ON log (mtime) WHERE has_more;
CREATE INDEX log_pinned ON log (pinned) WHERE pinned;
CREATE INDEX log_cwd ON log (cwd) WHERE cwd != '';
CREATE INDEX log_key ON log (key);
CREATE INDEX log_by_updated ON log (archived, internal, updated DESC, key) WHERE counts;
CREATE INDEX log_by_created ON log (archived, internal, created DESC, key) WHERE counts;
CREATE INDEX log_by_bytes ON log (archived, internal, bytes DESC, key) WHERE counts;
CREATE INDEX log_by_messages ON log (archived, internal, live DESC, key) WHERE counts;
CREATE INDEX log_by_key ON log (archived, internal, key) WHERE counts;
CREATE TABLE tag (
    tag TEXT NOT NULL, log INTEGER NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (tag, log)) WITHOUT ROWID;
CREATE INDEX tag_log ON tag (log);
CREATE TABLE total (archived INTEGER, internal INTEGER, n INTEGER NOT NULL, PRIMARY KEY (archived, internal));
INSERT INTO total VALUES (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0);
CREATE TRIGGER log_in AFTER INSERT ON log WHEN new.counts BEGIN
    UPDATE total SET n = n + 1 WHERE archived = new.archived AND internal = new.internal; END;
CREATE TRIGGER log_out AFTER DELETE ON log WHEN old.counts BEGIN
    UPDATE total SET n = n - 1 WHERE archived = old.archived AND internal = old.internal; END;
CREATE TRIGGER log_changed AFTER UPDATE OF counts, internal ON log
    WHEN (old.counts, old.internal) != (new.counts, new.internal) BEGIN
    UPDATE total SET n = n - old.counts WHERE archived = old.archived AND internal = old.internal;
    UPDATE total SET n = n + new.counts WHERE archived = new.archived AND internal = new.internal; END;
CREATE TABLE known (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE pending (path TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE progress (
    log INTEGER PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL,
    mtime INTEGER NOT NULL, uid TEXT NOT NULL, offset INTEGER NOT NULL, n INTEGER NOT NULL, crc TEXT NOT NULL,
    cold INTEGER NOT NULL, calls TEXT NOT NULL);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, n INTEGER NOT NULL, ts INTEGER NOT NULL, role TEXT NOT NULL,
    tool TEXT NOT NULL, body NOT NULL, shared INTEGER NOT NULL);
CREATE TABLE vector (
    message INTEGER NOT NULL, piece INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (message, piece)) WITHOUT ROWID;
CREATE TABLE waiting (id INTEGER PRIMARY KEY);
CREATE TABLE tally (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO tally VALUES ('vector', 0), ('waiting', 0);
CREATE TRIGGER vector_in AFTER INSERT ON vector BEGIN UPDATE tally SET n = n + 1 WHERE name = 'vector'; END;
CREATE TRIGGER vector_out AFTER DELETE ON vector BEGIN UPDATE tally SET n = n - 1 WHERE name = 'vector'; END;
CREATE TRIGGER waiting_in AFTER INSERT ON waiting BEGIN UPDATE tally SET n = n + 1 WHERE name = 'waiting'; END;
CREATE TRIGGER waiting_out AFTER DELETE ON waiting BEGIN UPDATE tally SET n = n - 1 WHERE name = 'waiting'; END;
CREATE TRIGGER message_out AFTER DELETE ON message BEGIN
    DELETE FROM vector WHERE message = old.id;
    DELETE FROM waiting WHERE id = old.id; END;
CREATE TABLE origin (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE);
CREATE INDEX message_log ON message (log);
CREATE INDEX message_shared ON message (shared, n) WHERE shared > 0;
CREATE INDEX message_ts ON message (ts, log);
CREATE VIRTUAL TABLE words USING fts5 (body, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE grams USING fts5 (body, content='', tokenize='trigram', detail=none, columnsize=0);
CREATE VIRTUAL TABLE stems USING fts5vocab (words, row);
CREATE VIRTUAL TABLE terms USING fts5vocab (grams, row);
PRAGMA user_version = {VERSION};
"""  # noqa: S608 - our own names
# Sixteen parts of a table are merged at once, not four: each word is written again less often.
_MERGED = 16
ERASES_WORDS = sqlite3.sqlite_version_info >= (3, 42)
"""Whether a word that is erased leaves the file at once, not when the table is next merged."""
_SETTINGS = [
    f"INSERT INTO {table} ({table}, rank) VALUES ('{name}', {value})"  # noqa: S608 - our own names
    for name, value in (("automerge", _MERGED), ("secure-delete", 1))
    for table in ("words", "grams")
    if ERASES_WORDS or name != "secure-delete"
]
_UNAVAILABLE = frozenset(
    getattr(sqlite3, f"SQLITE_{reason}")
    for reason in ("BUSY", "CANTOPEN", "FULL", "IOERR", "LOCKED", "NOMEM", "PERM", "READONLY")
)


class OtherVersion(Exception):
    """The database is of another version of nacre."""


class Database:
    """One index in one directory, which may be deleted, damaged or locked by others at any moment."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/{FILE}"
        self._disk: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._memory: sqlite3.Connection | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the index; it is done again if what was found there cannot be worked on.

        What is broken is made again; where the disk is not available, the work is done in memory. A StoreError is
        the work's own word that it cannot be done, on this index or another.
        """
        for _ in range(2):
            try:
                found = work(self._on_disk())
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - in a damaged database our own values may be anything
                about = {"index": self._path, "error": describe_error(error)}
                if is_away(error):
                    logger.info("the index is not available", extra=about)
                    break
                if isinstance(error, OtherVersion):
                    logger.info("the index is of another version and is rebuilt", extra={"index": self._path})
                else:
                    logger.warning("a broken index is rebuilt", extra=about)
                # Throw it away, unless another process has done so already.
                identity = self._identity
                self._close_disk()
                if identity == _identity(self._path):
                    _remove(self._folder)
            else:
                self._leave_memory()
                return found
        try:
            if self._memory is None:
                self._memory = connect(":memory:")
            return work(self._memory)
        except sqlite3.Error as error:
            needs = f"no index can be created with SQLite {sqlite3.sqlite_version}; it needs 3.34 with FTS5"
            raise StoreError(f"{needs}: {error}") from error

    def try_run(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do some work wherever there is an index; what cannot be done is left to the next reader."""
        connections = [self._memory] if self._memory is not None else []
        try:
            if os.path.exists(self._path):
                connections.append(self._on_disk())
            for connection in connections:
                work(connection)
        except Exception as error:  # noqa: BLE001 - the same
            logger.info("the index was not changed", extra={"index": self._path, "error": describe_error(error)})

    def erase(self, work: Callable[[sqlite3.Connection], bool]) -> None:
        """Do some work that erases something, wherever there is an index; where it is left undone, delete the index.

        Also what an earlier deletion that was cut short left of one. Raises StoreError if something stays.
        """
        if self._memory is not None:
            work(self._memory)
        is_done = False
        if os.path.exists(self._path):
            try:
                is_done = work(self._on_disk())
            except Exception as error:  # noqa: BLE001 - in a damaged database our own values may be anything
                logger.info("the index is deleted", extra={"index": self._path, "error": describe_error(error)})
        if not is_done:
            self._close_disk()
            _remove(self._folder)
        rest = _others(self._folder) + ([] if is_done else [self._folder])
        for folder in rest:
            shutil.rmtree(folder, ignore_errors=True)
        if any(map(os.path.lexists, rest)):
            raise StoreError(f"the index at {self._folder} still has what was erased, and cannot be deleted")

    def close(self) -> None:
        """Close it; the next call opens it again."""
        self._close_disk()
        self._leave_memory()

    def begin_in_child(self) -> None:
        """A connection must not be used across a fork, nor closed: the parent's locks would go."""
        _inherited.append((self._disk, self._memory))
        self._disk = self._memory = None

    # ---- on disk

    def _on_disk(self) -> sqlite3.Connection:
        if self._disk is not None and self._identity != _identity(self._path):
            # Deleted, or made again by another process: what we hold is no longer what others see.
            self._close_disk()
        if self._disk is None:
            if not os.path.exists(self._path):
                # A journal that was left behind must never be taken for the new database's.
                _remove(self._folder)
            # The index has a directory of its own, private to its user.
            os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            if not is_own(self._folder):
                raise PermissionError(f"{self._folder} is not a directory of this user")
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._identity = _identity(self._path)
            self._disk = connect(self._path)
        self._disk.execute(f"PRAGMA busy_timeout = {_TIMEOUT if self._memory is None else _SHORT_TIMEOUT}")
        return self._disk

    def _close_disk(self) -> None:
        if self._disk is not None:
            with suppress(sqlite3.Error):
                self._disk.close()
        self._disk = None

    # ---- in memory

    def _leave_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = None


_inherited: list[object] = []
"""Connections of a parent process, kept from being closed by the garbage collector."""


def connect(path: str) -> sqlite3.Connection:
    """Open a database, and make the tables if it has none; ":memory:" is a new one with nothing in it."""
    connection = sqlite3.connect(path, timeout=_TIMEOUT / 1000, isolation_level=None, check_same_thread=False)
    try:
        connection.create_function("unpack_head", 2, unpack_head, deterministic=True)
        connection.create_function("words_of", 1, lambda kept: words_of(unpack(kept)), deterministic=True)
        connection.create_function("grams_of", 1, lambda kept: grams_of(unpack(kept)), deterministic=True)
        connection.create_function("holds", 2, lambda kept, wanted: holds(unpack(kept), wanted), deterministic=True)
        connection.create_function("casefold", 1, str.casefold, deterministic=True)
        for pragma in ("synchronous = NORMAL", "cache_size = -32768", "temp_store = MEMORY", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and not _has_tables(connection):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have been quicker.
                if not _has_tables(connection):
                    for statement in re.split(r";\n(?! )", _SCHEMA) + _SETTINGS:
                        connection.execute(statement)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        elif version != VERSION:
            raise OtherVersion(f"the index has version {version}")  # noqa: TRY301 - the connection is closed first
    except BaseException:
        connection.close()
        raise
    return connection


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def is_away(error: BaseException) -> bool:
    """True if the database is only out of reach, not broken: locked, read-only, full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _UNAVAILABLE
    return isinstance(error, OSError)


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _others(folder: str) -> list[str]:
    """What deletions of an index that were cut short have left of it."""
    with suppress(FileNotFoundError), os.scandir(os.path.dirname(folder)) as entries:
        return [entry.path for entry in entries if entry.path.startswith(f"{folder}.")]
    return []


def _remove(folder: str) -> None:
    """Take the index away whole: its files belong together, and another process may be making them again."""
    aside = f"{folder}.{os.getpid()}.{os.urandom(4).hex()}"
    with suppress(FileNotFoundError):
        os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)


# ---- a text and a time as they are kept


# Shorter texts hardly get smaller.
_MIN_SHORTENED = 96
# A window of 8 KiB: with a larger one most of the time goes into making it ready.
_LEVEL, _WINDOW, _MEMORY = 6, -13, 6
_MILLISECOND = timedelta(milliseconds=1)


def pack(body: str) -> str | bytes:
    """A text as it is kept: as it is, or deflated if that is shorter."""
    raw = body.encode()
    if len(raw) < _MIN_SHORTENED:
        return body
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    packed = packer.compress(raw) + packer.flush()
    return packed if len(packed) < len(raw) else body


def unpack(kept: str | bytes) -> str:
    """The text that was kept."""
    return kept if isinstance(kept, str) else zlib.decompress(kept, _WINDOW).decode()


def unpack_head(kept: str | bytes, limit: int) -> str:
    """The beginning of the text that was kept."""
    if isinstance(kept, str):
        return kept[:limit]
    # No character has more than four bytes; the last one may be cut in two.
    return zlib.decompressobj(_WINDOW).decompress(kept, 4 * limit).decode(errors="ignore")[:limit]


def pack_time(text: str) -> int:
    """The time of a record in milliseconds since 1970; 0 for one that is none."""
    return (datetime.fromisoformat(text) - EPOCH) // _MILLISECOND if is_time(text) else 0


def pack_moment(moment: datetime) -> int:
    """A time in milliseconds since 1970; one without a zone counts as UTC."""
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND


def unpack_time(kept: int) -> datetime:
    """The time that was kept, in UTC."""
    return EPOCH + kept * _MILLISECOND
