"""Bringing the index up to the logs: what is new goes in, what is gone goes out, nothing else is looked at.

The marks of the writers tell which logs have changed. What no mark tells is found too:

- a name that came or went without a mark: the time of the folder is not as it was;
- a log that was changed in place by another program: of a small store every log is compared with what is known, of a
  large one some, others each time; of any store all where the whole list is asked for;
- marks that were lost: all logs are compared if the marks are not those that were read before, or if the machine was
  started again, since marks are not flushed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from nacre.errors import StoreError, describe_error
from nacre.index import catalog, tables
from nacre.index.catalog import DELETED, FOLDERS, SESSION, Look, Stat, inspect, place_of
from nacre.index.intake import Gone, opened
from nacre.index.tables import erase_text, progress_of, scrub, transaction
from nacre.storage.change_marks import Marks, Position, Taken
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System

logger = logging.getLogger(__name__)

_MAX_TRIES = 10
_NAMES_EVERY = 600.0
"""Seconds after which names are compared, though logs of ours that came or went explain that the folder changed."""


class _Known(NamedTuple):
    """What is remembered of the last look.

    The marks that were taken; the start of the machine; the times of the folders, then and when their names were last
    compared; whether sessions were forgotten since.
    """

    marks: Position = Position()
    boot: str = ""
    folders: tuple[int, ...] = ()
    named: tuple[int, ...] = ()
    named_at: float = 0.0
    forgot: bool = False


class CatchUp:
    """Looks at the logs that may have changed, and at `slice_size` others; at all of them if they are no more."""

    def __init__(self, system: System, root: str, *, slice_size: int) -> None:
        self._system = system
        self._root = root
        self._marks = Marks(system, root)
        self._slice_size = slice_size
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._stats: dict[str, dict[str, catalog.Known]] = {}

    def look(self, connection: sqlite3.Connection, *, all_logs: bool = False) -> None:
        """Bring the catalogue up to the logs."""
        known = _load(connection)
        # 1. Before anything is looked at: what changes meanwhile is found next time.
        times = tuple(self._stat(folder)[2] for folder in FOLDERS)
        try:
            taken = self._marks.take(known.marks)
        except OSError as error:
            logger.info("marks cannot be read; all logs are compared", extra={"error": describe_error(error)})
            taken = Taken(set(), Position(), is_whole=False)
        now = _Known(taken.position, _boot(), times, known.named, known.named_at)
        # 2. The paths that were marked; of a deleted session the mark is a pattern, which matches what is known of it.
        pending = {path for path in taken.paths if "*" not in path}
        for pattern in set(taken.paths) - pending:
            pending.update(path for (path,) in connection.execute("SELECT path FROM log WHERE path GLOB ?", (pattern,)))
        pending.update(path for (path,) in connection.execute("SELECT path FROM pending"))
        # 3. All logs, or those that may have changed and some others.
        look = Look([], [], [])
        count = "SELECT count(*) FROM (SELECT 1 FROM log LIMIT ?)"
        is_lost = not taken.is_whole or now.boot != known.boot
        limit = self._slice_size + 1
        if all_logs or is_lost or connection.execute(count, (limit,)).fetchone()[0] < limit:
            self._compare_all(connection, look)
            self._inspect(pending, look)
            if times != known.named:
                now = now._replace(named=times, named_at=self._system.now())
        else:
            self._inspect(pending, look)
            self._inspect(_relatives(connection, look), look)
            if self._are_names_due(connection, known, now, look):
                for folder in FOLDERS:
                    there, rows = set(catalog.names_in(self._root, folder)), catalog.known(connection, folder)
                    self._inspect((f"{folder}/{name}" for name in there ^ rows.keys()), look)
                now = now._replace(named=times, named_at=self._system.now())
            self._compare_some(connection, look)
        # 4. What was found.
        if any(look) or pending or now != known:
            self._stats = {}
            _apply(connection, look, pending, now)

    def run(self, connection: sqlite3.Connection) -> None:
        """Take in every message that is new."""
        for _ in range(_MAX_TRIES):
            self.look(connection)
            logs = connection.execute(
                "SELECT id, path FROM log INDEXED BY log_has_more WHERE has_more AND counts ORDER BY mtime"
            ).fetchall()
            if not logs:
                return
            chunk = tables.Chunk(connection)
            with transaction(connection):
                met_others = [not self._read(connection, chunk, *log) for log in logs]
                chunk.write()
            tables.shrink(connection)
            if not any(met_others):
                return

    def forget(self, connection: sqlite3.Connection, key: str) -> bool:
        """Erase what is known of a session; tells whether nothing of it is left in the database's files."""
        self._stats = {}
        with transaction(connection):
            for (log,) in connection.execute("SELECT id FROM log WHERE key = ?", (key,)).fetchall():
                _erase(connection, log)
            _save(connection, _load(connection)._replace(forgot=True))
        return scrub(connection)

    def begin_in_child(self) -> None:
        """After a fork, in the child."""
        self._marks.begin_in_child()

    def _read(self, connection: sqlite3.Connection, chunk: tables.Chunk, log: int, path: str) -> bool:
        """Take in one log; False if another process was taking in the same.

        One that cannot be read is left out, and said so.
        """
        if connection.execute("SELECT 1 FROM log WHERE id = ? AND path = ?", (log, path)).fetchone() is None:
            return False
        try:
            with opened(self._system, place_of(self._root, path), progress_of(connection, log)) as intake:
                if not intake.goes_on(lambda: tables.count_of(connection, log)):
                    erase_text(connection, log)
                    intake.start_over()
                for found in intake.messages():
                    chunk.add(log, found)
                    if chunk.is_full:
                        # Let others at the index for a moment: one of them may take this log further.
                        chunk.write()
                        progress = intake.progress()
                        tables.save_progress(connection, log, progress)
                        connection.execute("COMMIT")
                        tables.begin(connection)
                        if progress_of(connection, log) != progress:
                            return False
                tables.save_progress(connection, log, intake.progress())
                # What is written from now on is marked, or found otherwise; what a writer was at is read again.
                connection.execute("UPDATE log SET has_more = ? WHERE id = ?", (not intake.is_free, log))
        except Gone:
            return False
        except (OSError, StoreError) as error:
            logger.warning("a session cannot be searched", extra={"file": path, "error": describe_error(error)})
            chunk.write()
            erase_text(connection, log)
        return True

    def _inspect(self, paths: Iterable[str], look: Look) -> None:
        """Look at logs that were not looked at yet."""
        done = {seen.path for seen in look.changed}.union(look.gone)
        for path in paths:
            if path not in done:
                inspect(self._system, self._root, path, look)

    def _compare_all(self, connection: sqlite3.Connection, look: Look) -> None:
        """Compare every log with what is known of it."""
        version = tables.data_version(connection)
        if connection is not self._connection or version != self._version:
            self._connection, self._version, self._stats = connection, version, {}
        for folder in FOLDERS:
            if folder not in self._stats:
                self._stats[folder] = catalog.known(connection, folder)
            catalog.scan(self._system, self._root, folder, self._stats[folder], look)

    def _are_names_due(self, connection: sqlite3.Connection, known: _Known, now: _Known, look: Look) -> bool:
        """Tell whether a name may have come or gone that no mark tells of."""
        if now.folders == known.named:
            return False
        if now.folders != known.folders and not known.forgot:
            # A log that was looked at and has come, gone or been written again explains that its folder has changed.
            inodes = "SELECT inode FROM log WHERE path = ?"
            if not any(connection.execute(inodes, (path,)).fetchone() is not None for path in look.gone) and not any(
                connection.execute(inodes, (seen.path,)).fetchone() != (seen.inode,) for seen in look.changed
            ):
                return True
        return not 0 <= self._system.now() - known.named_at < _NAMES_EVERY

    def _compare_some(self, connection: sqlite3.Connection, look: Look) -> None:
        """Compare some logs with what is known of them, others each time."""
        (last,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM log").fetchone()
        start = int.from_bytes(self._system.random(6), "big") % last
        some = "SELECT path, inode, size, mtime FROM log WHERE id {} ? ORDER BY id LIMIT ?"
        rows = connection.execute(some.format(">="), (start, self._slice_size)).fetchall()
        rows += connection.execute(some.format("<"), (start, self._slice_size - len(rows))).fetchall()
        self._inspect((row[0] for row in rows if self._stat(row[0]) != row[1:]), look)

    def _stat(self, path: str) -> Stat:
        """What is compared of a log, and the time of a folder: when a name last came into it or went."""
        try:
            found = self._system.stat(f"{self._root}/{path}")
        except OSError:
            return (0, 0, 0)
        return found.st_ino, found.st_size, found.st_mtime_ns


def _relatives(connection: sqlite3.Connection, look: Look) -> list[str]:
    """The logs that change together with those that were looked at, without a mark of their own.

    A deletion takes archived generations with it. And a log may have been given another name.
    """
    names = {seen.name for seen in look.changed}.union(place_of("", path).name for path in look.gone)
    found = [path for name in names for (path,) in connection.execute("SELECT path FROM log WHERE name = ?", (name,))]
    for path in look.gone:
        for (key,) in connection.execute("SELECT key FROM log WHERE path = ? AND key != ''", (path,)):
            found.append(SessionPaths.of("", key).path)
    return found


def _apply(connection: sqlite3.Connection, look: Look, pending: Iterable[str], now: _Known) -> None:
    """Save what was found, and up to where marks were taken, as one step.

    Of two that look at once the last to save may have looked first. It then saves the earlier position, too, so that
    the marks after it are taken again.
    """
    with transaction(connection):
        catalog.save(connection, look.changed)
        # Settle which logs count, and whose the text is that was read.
        gone = set(look.gone)
        names = {seen.name for seen in look.changed}.union(place_of("", path).name for path in gone)
        rows = "SELECT id, path, archived, uid, kind, counts FROM log WHERE name = ?"
        idle: list[tuple[int, str]] = []
        for name in names:
            logs = connection.execute(rows, (name,)).fetchall()
            # A log that a crash left under two names counts as the active one; what is being deleted does not count.
            there = [log for log in logs if log[1] not in gone]
            deleted = [place_of("", path).archived for _, path, _, _, kind, _ in there if kind == DELETED]
            by_uid: dict[str, int] = {}
            for number, path, _, uid, kind, _ in sorted(there, key=lambda log: not log[2]):
                generation = place_of("", path).archived if deleted else ""
                is_being_erased = any("" < generation <= (other or generation) for other in deleted)
                if kind == SESSION and not is_being_erased:
                    by_uid[uid or path] = number
            counting = set(by_uid.values())
            for number, path, _, uid, _, counts in logs:
                if path in gone or number not in counting:
                    idle.append((number, uid))
                if counts != (number in counting):
                    connection.execute("UPDATE log SET counts = ? WHERE id = ?", (number in counting, number))
        is_erased = any([_give_up(connection, number, uid) for number, uid in idle])  # noqa: C419 - each of them
        for path in gone:
            for (number,) in connection.execute("SELECT id FROM log WHERE path = ?", (path,)).fetchall():
                _erase(connection, number)
        connection.executemany("DELETE FROM pending WHERE path = ?", ((path,) for path in pending))
        connection.executemany("INSERT OR IGNORE INTO pending VALUES (?)", ((path,) for path in look.unsettled))
        _save(connection, now)
    if is_erased:
        scrub(connection)


def _give_up(connection: sqlite3.Connection, log: int, uid: str) -> bool:
    """Let the text of a log go to the one that it was moved to, or erase it; tells whether there was any to erase."""
    if not progress_of(connection, log).n:
        return False
    other = "SELECT id FROM log WHERE uid = ? AND counts AND id != ?"
    row = connection.execute(other, (uid, log)).fetchone() if uid else None
    if row is None or progress_of(connection, row[0]).n:
        erase_text(connection, log)
        return True
    connection.execute("UPDATE message SET log = ? WHERE log = ?", (row[0], log))
    connection.execute("UPDATE OR REPLACE progress SET log = ? WHERE log = ?", (row[0], log))
    return False


def _erase(connection: sqlite3.Connection, log: int) -> None:
    erase_text(connection, log)
    connection.execute("DELETE FROM tag WHERE log = ?", (log,))
    connection.execute("DELETE FROM log WHERE id = ?", (log,))


def _load(connection: sqlite3.Connection) -> _Known:
    row = connection.execute("SELECT value FROM known WHERE name = 'look'").fetchone()
    return msgspec.json.decode(row[0], type=_Known) if row is not None else _Known()


def _save(connection: sqlite3.Connection, known: _Known) -> None:
    connection.execute("INSERT OR REPLACE INTO known VALUES ('look', ?)", (msgspec.json.encode(known).decode(),))


def _boot() -> str:
    """What tells one start of the machine from another; "" where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - loads nothing
            return file.read().strip()
    except OSError:
        return ""
