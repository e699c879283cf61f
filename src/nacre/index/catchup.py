"""Bringing the index up to the logs: what is new goes in, what is gone goes out, nothing else is read."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable

from nacre.entries import SessionInfo
from nacre.errors import StoreError
from nacre.index import listing
from nacre.index.database import is_away
from nacre.index.intake import Gone, Intake, Progress, opened
from nacre.index.listing import ACTIVE, ARCHIVED, DELETED, SESSION, Look, Seen, place_of
from nacre.index.tables import (
    Chunk,
    begin,
    count_of,
    data_version,
    erase_text,
    progress_of,
    rollback,
    save_progress,
    scrub,
    transaction,
)
from nacre.log.ops import Ops
from nacre.log.place import Place

logger = logging.getLogger(__name__)

_MOST_TRIES = 10
_BEHIND = """
SELECT log.id, log.path FROM log LEFT JOIN progress ON progress.log = log.id
WHERE log.kind = 'session' AND (
    progress.log IS NULL OR progress.mtime != log.mtime OR progress.size != log.size
    OR progress.inode != log.inode OR progress.uid != log.uid)
ORDER BY log.mtime
"""


class CatchUp:
    """What one process remembers of an index between two looks at the logs."""

    def __init__(self, ops: Ops, root: str) -> None:
        self._ops = ops
        self._root = root
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._known: dict[str, dict[str, Seen]] = {}
        self._is_settled = False

    def infos(self, connection: sqlite3.Connection, *, archived: bool) -> list[SessionInfo]:
        """The active or the archived sessions, after a look at their files."""
        active = self._look(connection, ACTIVE)
        if not archived:
            self._keep(connection, active.changed)
            return listing.infos(active.now, archived=False)
        moved = self._look(connection, ARCHIVED)
        self._keep(connection, active.changed + moved.changed)
        # What a move that was cut short left in the archive is the active log's.
        taken = {log[6] for log in active.now}
        return listing.infos((log for log in moved.now if log[6] not in taken), archived=True)

    def _keep(self, connection: sqlite3.Connection, changed: list[Seen]) -> None:
        """Remember how the logs are now, unless others are at the index."""
        if not changed:
            return
        self._forget_known()
        try:
            with transaction(connection):
                listing.save(connection, changed)
        except sqlite3.Error as error:
            if not is_away(error):
                raise
            logger.info("a listing could not be cached", extra={"error": str(error)})

    def run(self, connection: sqlite3.Connection) -> None:
        """Take in every message that is new."""
        for _ in range(_MOST_TRIES):
            active, archived = self._look(connection, ACTIVE), self._look(connection, ARCHIVED)
            changed, gone = active.changed + archived.changed, active.gone + archived.gone
            if self._is_settled and not changed and not gone:
                return
            self._forget_known()
            counting = _counting(active.now, archived.now)
            _sort_out(connection, changed, gone, counting)
            reading = _Pass(connection, self._ops, self._root)
            reading.run(set(counting.values()))
            if not reading.met_another:
                self._is_settled = reading.is_settled
                return

    def forget(self, connection: sqlite3.Connection, key: str) -> None:
        """Erase what is known of a session."""
        self._forget_known()
        with transaction(connection):
            logs = connection.execute("SELECT id FROM log WHERE key = ?", (key,)).fetchall()
            for (log,) in logs:
                erase_text(connection, log)
                connection.execute("DELETE FROM log WHERE id = ?", (log,))
        scrub(connection)

    def _look(self, connection: sqlite3.Connection, folder: str) -> Look:
        version = data_version(connection)
        if connection is not self._connection or version != self._version:
            self._forget_known()
            self._connection, self._version = connection, version
        if folder not in self._known:
            self._known[folder] = listing.known(connection, folder)
        return listing.look(self._ops, self._root, folder, self._known[folder])

    def _forget_known(self) -> None:
        self._known, self._is_settled = {}, False


class _Pass:
    """One pass over the logs that have something new.

    `met_another` if another process was taking in the same; not `is_settled` if some log was being written,
    or could not be read, and has to be looked at again.
    """

    def __init__(self, connection: sqlite3.Connection, ops: Ops, root: str) -> None:
        self._connection = connection
        self._ops = ops
        self._root = root
        self._chunk = Chunk(connection)
        self.met_another = False
        self.is_settled = True

    def run(self, counting: set[str]) -> None:
        behind = [(log, path) for log, path in self._connection.execute(_BEHIND) if path in counting]
        if not behind:
            return
        begin(self._connection)
        try:
            for log, path in behind:
                self._read(log, path)
            self._chunk.write()
            self._connection.execute("COMMIT")
        except BaseException:
            rollback(self._connection)
            raise

    def _read(self, log: int, path: str) -> None:
        """Take in one log; one that cannot be read is left out, and said so."""
        if self._connection.execute("SELECT 1 FROM log WHERE id = ? AND path = ?", (log, path)).fetchone() is None:
            self.met_another = True
            return
        try:
            with opened(self._ops, place_of(self._root, path), progress_of(self._connection, log)) as intake:
                self._take(log, intake)
        except Gone:
            self.met_another = True
        except (OSError, StoreError) as error:
            logger.warning("a session cannot be searched", extra={"file": path, "error": str(error)})
            self._chunk.write()
            erase_text(self._connection, log)
            self.is_settled = False

    def _take(self, log: int, intake: Intake) -> None:
        if not intake.goes_on(lambda: count_of(self._connection, log)):
            erase_text(self._connection, log)
            intake.start_over()
        for found in intake.messages():
            self._chunk.add(log, found)
            if self._chunk.is_full and not self._goes_on_behind(log, intake.progress()):
                return
        save_progress(self._connection, log, intake.progress())
        self.is_settled = self.is_settled and intake.is_settled

    def _goes_on_behind(self, log: int, progress: Progress) -> bool:
        """Let others at the index for a moment; False if one of them has taken this log further."""
        self._chunk.write()
        save_progress(self._connection, log, progress)
        self._connection.execute("COMMIT")
        begin(self._connection)
        if progress_of(self._connection, log) == progress:
            return True
        self.met_another = True
        return False


def _counting(active: Iterable[Seen], archived: Iterable[Seen]) -> dict[str, str]:
    """The paths of the logs that count, by generation.

    A log that a crash left under two names counts as the active one; what a deletion has begun to erase does not.
    """
    deleted = [place_of("", log[0]) for log in (*active, *archived) if log[12] == DELETED]
    counting: dict[str, str] = {}
    for log in (*archived, *active):
        if log[12] == SESSION and not _is_being_erased(log[0], deleted):
            counting[log[6] or log[0]] = log[0]
    return counting


def _is_being_erased(path: str, deleted: list[Place]) -> bool:
    """Tell whether a log is an archived generation of a session that was deleted since."""
    if not deleted:
        return False
    place = place_of("", path)
    later = (other for other in deleted if other.name == place.name)
    return any("" < place.archived <= (other.archived or place.archived) for other in later)


def _sort_out(connection: sqlite3.Connection, changed: list[Seen], gone: list[str], counting: dict[str, str]) -> None:
    """Note how the logs are now; one that was moved keeps what was read of it, what is of no log is erased."""
    there = set(counting.values())
    is_erased = False
    with transaction(connection):
        listing.save(connection, changed)
        texts = connection.execute("SELECT id, path, progress.uid FROM log JOIN progress ON log = id").fetchall()
        for log, path, uid in texts:
            if path not in there and not _moved(connection, log, counting.get(uid)):
                erase_text(connection, log)
                is_erased = True
        connection.executemany("DELETE FROM log WHERE path = ?", ((path,) for path in gone))
    if is_erased:
        scrub(connection)


def _moved(connection: sqlite3.Connection, log: int, path: str | None) -> bool:
    """Give the text of a log to the one that it was moved to; False if that has its own, or there is none."""
    row = connection.execute("SELECT id FROM log WHERE path = ?", (path,)).fetchone()
    if row is None or progress_of(connection, row[0]).n:
        return False
    connection.execute("UPDATE message SET log = ? WHERE log = ?", (row[0], log))
    connection.execute("UPDATE OR REPLACE progress SET log = ? WHERE log = ?", (row[0], log))
    return True
