"""What a listing knows of each log, kept for as long as the log's file is unchanged."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from nacre.entries import SessionInfo
from nacre.errors import LogDamaged, StoreError
from nacre.history import live
from nacre.log.names import key_of, stem
from nacre.log.ops import Ops
from nacre.log.place import Place
from nacre.log.plain import path_now
from nacre.log.reader import reading

if TYPE_CHECKING:
    from sqlite3 import Connection

logger = logging.getLogger(__name__)

ACTIVE, ARCHIVED = "sessions", "archive"
SESSION, NOTHING, DELETED = "session", "nothing", "deleted"
_ENDING = ".jsonl"
# The largest number that SQLite takes.
_LARGEST = (1 << 63) - 1


class Seen(NamedTuple):
    """One log as it was when its file had this inode, size and time; `path` is below the store."""

    path: str
    device: int
    inode: int
    size: int
    mtime: int
    key: str = ""
    uid: str = ""
    title: str = ""
    live: int = 0
    created: str = ""
    updated: str = ""
    cold: int = 0
    kind: str = NOTHING


class Look(NamedTuple):
    """The logs of a folder by name: all that are there, those that were not known as they are, those that went."""

    now: list[Seen]
    changed: list[Seen]
    gone: list[str]


_COLUMNS = ", ".join(Seen._fields)
# Going through the whole table takes half as long as looking every row up in the order of its path.
_LOAD = f"SELECT {_COLUMNS} FROM log WHERE +path >= ? AND +path < ?"  # noqa: S608 - our own names
_SAVE = (
    f"INSERT INTO log ({_COLUMNS}) VALUES ({', '.join('?' * len(Seen._fields))}) "  # noqa: S608
    f"ON CONFLICT (path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in Seen._fields[1:])}"
)


def known(connection: Connection, folder: str) -> dict[str, Seen]:
    """What the index knows of a folder's logs; plain rows, made into values only where that is needed."""
    rows = connection.execute(_LOAD, (f"{folder}/", f"{folder}0")).fetchall()
    rows.sort(key=itemgetter(0))
    return {row[0]: row for row in rows}


def look(ops: Ops, root: str, folder: str, rows: dict[str, Seen]) -> Look:
    """Stat every log of a folder, and glance at those that are not as they were known."""
    now: list[Seen] = []
    changed: list[Seen] = []
    for entry in _entries(f"{root}/{folder}"):
        path = f"{folder}/{entry.name}"
        row = rows.get(path)
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        # By place and not by name, and most likely first: this is done for every log there is.
        if row is not None and row[4] == found.st_mtime_ns and row[3] == found.st_size and row[2] == found.st_ino:
            now.append(row)
        elif (seen := _glance(ops, root, path, found)) is not None:
            changed.append(seen)
    if not changed and len(now) == len(rows):
        # The rows are in order already.
        return Look(list(rows.values()), [], [])
    now = sorted(now + changed, key=itemgetter(0))
    there = {row[0] for row in now}
    return Look(now, changed, [path for path in rows if path not in there])


def save(connection: Connection, changed: Iterable[Seen]) -> None:
    connection.executemany(_SAVE, changed)


def infos(logs: Iterable[Seen], *, archived: bool) -> list[SessionInfo]:
    """What a listing says of the logs that hold a session."""
    parsed = datetime.fromisoformat
    return [
        SessionInfo(
            key=key,
            title=title,
            messages=count,
            created=parsed(created),
            updated=parsed(updated),
            bytes=size + cold,
            archived=archived,
        )
        for _, _, _, size, _, key, _, title, count, created, updated, cold, kind in logs
        if kind == SESSION
    ]


def place_of(root: str, path: str) -> Place:
    """The place of a log that is known by its path; its key is in its header."""
    return Place.of_file(root, path.partition("/")[2])


def check(numbers: Iterable[int], times: Iterable[str]) -> None:
    """Raise LogDamaged for what the index cannot hold: a number of more than 63 bits, or no time instead of one."""
    try:
        for time in times:
            datetime.fromisoformat(time)
    except ValueError as error:
        raise LogDamaged(f"a record has an invalid time: {error}") from error
    if any(abs(number) > _LARGEST for number in numbers):
        raise LogDamaged("a record has a number of more than 63 bits")


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error}") from error


def _glance(ops: Ops, root: str, path: str, found: os.stat_result) -> Seen | None:
    """See what a log holds without reading it; None if it is no log, or if that cannot be told."""
    dots = 2 if path.startswith(ARCHIVED) else 1
    if not path.endswith(_ENDING) or path.count(".") != dots or not path.isascii():
        return None
    seen = Seen(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    place = place_of(root, path)
    if place.plain.endswith(path) and path_now(ops, place) != place.plain:
        # What has the plain name beside a log is a second one, or an earlier agent's; the next start takes it in.
        return seen
    try:
        with reading(ops, place) as it:
            if it.past is None:
                return seen._replace(kind=DELETED if it.is_deleted else NOTHING)
            header, state = it.past.header, it.past.state
            title = live.meta(it.past, state).get("title", "") if state.mp else ""
            created = header.created or it.updated
            check((state.live, header.cold), (created, it.updated))
            return seen._replace(
                key=_key(place, header.sid),
                uid=header.uid,
                title=title if isinstance(title, str) else "",
                live=live.count(it.past),
                created=created,
                updated=it.updated,
                cold=header.cold,
                kind=SESSION,
            )
    except (OSError, StoreError) as error:
        logger.warning("a session cannot be listed", extra={"file": place.log, "error": str(error)})
        return None


def _key(place: Place, sid: str) -> str:
    """The true key of a log that was met by its name."""
    key = sid or key_of(place.name)
    if key is None or stem(key) != place.name:
        raise LogDamaged(f"{place.log} does not name its session, or names another")
    return key
