"""Rows in and out of the tables that are searched, in transactions that others do not have to wait long for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nacre.index.database import ERASES_WORDS, pack
from nacre.index.intake import Found, Progress
from nacre.index.search_text import grams_of, words_of

SPOKEN = ("user", "assistant")
"""The roles whose messages get a vector; what tools and systems say has none."""
_CHUNK = 2 * 1024 * 1024
# A file with a larger share of empty pages is made smaller.
_MAX_EMPTY = 1 / 32
# Writing the tables again takes the words of erased messages out of the file; in a large index it takes too long.
_MAX_REWRITTEN = 20_000
_FIELDS = ", ".join(Progress._fields)
_LOAD = f"SELECT {_FIELDS} FROM progress WHERE log = ?"  # noqa: S608 - our own names
_SAVE = f"INSERT OR REPLACE INTO progress (log, {_FIELDS}) VALUES (?{', ?' * len(Progress._fields)})"  # noqa: S608

# A message that was stored again, as when a summary is undone, is found once: where it was stored last.
# Those of one moment may be many, as when a day is all that is known of when they were said: they are sorted.
_HIDE_REPEATED = """
UPDATE message SET shared = -1 WHERE id IN (SELECT id FROM (
    SELECT id, row_number() OVER (PARTITION BY role, body ORDER BY n DESC) AS place
    FROM message WHERE ts = ? AND log = ?) WHERE place > 1)"""


class Chunk:
    """Messages of any number of logs that go into the index together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[int, int, int, int, str, str, str | bytes, int]] = []
        self._bodies: list[tuple[int, str]] = []
        self._repeating: set[tuple[int, int]] = set()
        self._size = 0
        self._next = 0

    @property
    def is_full(self) -> bool:
        return self._size > _CHUNK

    def add(self, log: int, found: Found) -> None:
        if not self._next:
            self._next = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM message").fetchone()[0]
        shared = 0
        if found.origin:
            # The number that stands for a session of which others have messages.
            self._connection.execute("INSERT OR IGNORE INTO origin (uid) VALUES (?)", (found.origin,))
            (shared,) = self._connection.execute("SELECT id FROM origin WHERE uid = ?", (found.origin,)).fetchone()
        number = self._next + len(self._rows)
        self._rows.append((number, log, *found[:4], pack(found.body), shared))
        self._bodies.append((number, found.body))
        if found.may_repeat:
            self._repeating.add((found.ts, log))
        self._size += len(found.body)

    def write(self) -> None:
        """Put what was added into the tables."""
        run = self._connection.executemany
        run("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
        for table, layout in (("words", words_of), ("grams", grams_of)):
            insert = f"INSERT INTO {table} (rowid, body) VALUES (?, ?)"  # noqa: S608 - our own names
            run(insert, ((number, layout(body)) for number, body in self._bodies))
        run(_HIDE_REPEATED, self._repeating)
        if wants_vectors(self._connection):
            run("INSERT INTO waiting VALUES (?)", ((row[0],) for row in self._rows if row[4] in SPOKEN))
        self._rows, self._bodies, self._repeating, self._size, self._next = [], [], set(), 0, 0


def progress_of(connection: sqlite3.Connection, log: int) -> Progress:
    row = connection.execute(_LOAD, (log,)).fetchone()
    return Progress(*row) if row is not None else Progress()


def save_progress(connection: sqlite3.Connection, log: int, progress: Progress) -> None:
    connection.execute(_SAVE, (log, *progress))


def wants_vectors(connection: sqlite3.Connection) -> bool:
    """Tell whether vectors were ever asked for, so that new messages wait for one."""
    return connection.execute("SELECT 1 FROM known WHERE name = 'vectors'").fetchone() is not None


def count_of(connection: sqlite3.Connection, log: int) -> int:
    """How many messages of a log are in the index."""
    return int(connection.execute("SELECT count(*) FROM message WHERE log = ?", (log,)).fetchone()[0])


def erase_text(connection: sqlite3.Connection, log: int) -> None:
    """Erase the messages of a log; what a listing says of it stays."""
    for statement in (
        "INSERT INTO words (words, rowid, body) SELECT 'delete', id, words_of(body) FROM message WHERE log = ?",
        "INSERT INTO grams (grams, rowid, body) SELECT 'delete', id, grams_of(body) FROM message WHERE log = ?",
        "DELETE FROM message WHERE log = ?",
        "DELETE FROM progress WHERE log = ?",
    ):
        connection.execute(statement, (log,))


def scrub(connection: sqlite3.Connection) -> bool:
    """After something was erased, leave nothing of it in the database's files; tells whether that was possible."""
    is_erased = ERASES_WORDS
    if not ERASES_WORDS and connection.execute("SELECT count(*) FROM message").fetchone()[0] <= _MAX_REWRITTEN:
        connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        connection.execute("INSERT INTO grams (grams) VALUES ('optimize')")
        is_erased = True
    # While another process reads, its pages stay in the journal.
    (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return is_erased and not is_busy


def shrink(connection: sqlite3.Connection) -> None:
    """Give back the room that merging the tables has left empty, if that is much."""
    (empty,), (pages,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count"))
    if empty > pages * _MAX_EMPTY:
        # `execute` would take one step, which is one page. Where another process writes, it can wait.
        with suppress(sqlite3.OperationalError):
            connection.executescript("PRAGMA incremental_vacuum")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Change the index as one step."""
    begin(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have taken the unfinished step back itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def begin(connection: sqlite3.Connection) -> None:
    """Begin to write; another process may keep us waiting for as long as it gets on."""
    while True:
        version = data_version(connection)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            if data_version(connection) == version:
                raise
        else:
            return


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has changed the database."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
