"""What the catalogue knows of each log, kept for as long as the log's file is unchanged."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nacre.entries import parse_time
from nacre.errors import LogDamaged, StoreError, describe_error
from nacre.history import session_state
from nacre.history.list_page import LARGEST, sortable
from nacre.history.overview import overview, when_updated
from nacre.keys import is_internal
from nacre.storage.file_names import key_of, stem
from nacre.storage.paths import Place, open_log
from nacre.storage.plain_names import path_now
from nacre.storage.reader import Reading, reading
from nacre.storage.system import Ops

if TYPE_CHECKING:
    from sqlite3 import Connection

logger = logging.getLogger(__name__)

ACTIVE, ARCHIVED = "sessions", "archive"
FOLDERS = (ACTIVE, ARCHIVED)
SESSION, NOTHING, DELETED = "session", "nothing", "deleted"
_ENDING = ".jsonl"

Stat = tuple[int, int, int]
"""Inode, size and time of a log's file."""
Known = tuple[str, int, int, int]
"""The name of a log's file, and what it was like."""


class Seen(NamedTuple):
    """One log as it was when its file had this inode, size and time; `path` is below the store."""

    path: str
    name: str
    archived: bool
    device: int
    inode: int
    size: int
    mtime: int
    key: str = ""
    internal: bool = False
    uid: str = ""
    title: str = ""
    live: int = 0
    created: str = ""
    updated: str = ""
    cold: int = 0
    bytes: int = 0
    kind: str = NOTHING
    pinned: bool = False
    cwd: str = ""
    role: str = ""
    model: str = ""
    last: str = ""
    state: str = ""
    meta: str = "{}"
    counts: bool = False
    behind: bool = False
    tags: tuple[str, ...] = ()


class Look(NamedTuple):
    """What a look at the logs found: those that are not as they were known, those that went, those to look at again."""

    changed: list[Seen]
    gone: list[str]
    unsettled: list[str]


_COLUMNS = Seen._fields[:-1]
_SAVE = (
    f"INSERT INTO log ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "  # noqa: S608 - our own names
    f"ON CONFLICT (path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)
_encode = msgspec.json.Encoder().encode


def known(connection: Connection, folder: str) -> dict[str, Known]:
    """How the logs of a folder were when they were last looked at, by the names of their files."""
    select = "SELECT substr(path, ?), inode, size, mtime FROM log NOT INDEXED WHERE archived = ?"
    rows = connection.execute(select, (len(folder) + 2, folder == ARCHIVED))
    return {row[0]: row for row in rows}


def scan(ops: Ops, root: str, folder: str, rows: dict[str, Known], look: Look) -> None:
    """Stat every log of a folder, and look at those that are not as they were known."""
    there = 0
    for entry in _entries(f"{root}/{folder}"):
        row = rows.get(entry.name)
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if row is not None:
            there += 1
            # By place and not by name, and most likely first: this is done for every log there is.
            if row[3] == found.st_mtime_ns and row[2] == found.st_size and row[1] == found.st_ino:
                continue
        inspect(ops, root, f"{folder}/{entry.name}", look)
    if there < len(rows):
        look.gone.extend(f"{folder}/{name}" for name in rows.keys() - set(names_in(root, folder)))


def names_in(root: str, folder: str) -> list[str]:
    """The names of all files in a folder."""
    return [entry.name for entry in _entries(f"{root}/{folder}")]


def inspect(ops: Ops, root: str, path: str, look: Look) -> None:
    """Look at one log, at a moment at which no writer is at it; while one is, it has to be looked at again."""
    if not _is_log(path):
        return
    place = place_of(root, path)
    opened = _Opened(ops, place, f"{root}/{path}")
    try:
        if path != place.path and path_now(ops, place) != place.plain:
            # What has the plain name beside a log is a second one, or an earlier agent's; the next start takes it in.
            look.changed.append(_file(path, place, ops.stat(place.plain)))
            return
        with opened as found:
            if opened.file is None:
                look.gone.append(path)
                return
            look.changed.append(_seen(path, place, found, opened.file))
            if not opened.is_free:
                look.unsettled.append(path)
    except FileNotFoundError:
        look.gone.append(path)
    except (OSError, StoreError) as error:
        logger.warning("a session cannot be listed", extra={"file": path, "error": describe_error(error)})
        look.gone.append(path)
        look.unsettled.append(path)


class _Opened(reading):
    """A log as it was at one moment; `is_free` if no writer was at it then, `file` is None if it is gone."""

    __slots__ = ("_log", "file", "is_free")

    def __init__(self, ops: Ops, place: Place, log: str) -> None:
        super().__init__(ops, place)
        self._log = log
        self.file: os.stat_result | None = None
        self.is_free = False

    def _open(self) -> int:
        fd, self.file = open_log(self._ops, self._log, os.O_RDONLY)
        try:
            self.is_free, self.file = let_go(self._ops, fd)
            named = self._ops.stat(self._log)
        except BaseException:
            self.file = None
            self._ops.close(fd)
            raise
        if (named.st_dev, named.st_ino) != (self.file.st_dev, self.file.st_ino):
            # It was written anew meanwhile, by somebody who may still be at it.
            self.is_free = False
        self._fd = fd
        return self.file.st_size


def let_go(ops: Ops, fd: int) -> tuple[bool, os.stat_result]:
    """The log's file at a moment at which no writer is at it; False if there is one."""
    try:
        # Other readers are not in the way: what they read is the same.
        is_free = ops.share(fd)
    except OSError:
        # Some file systems have no locks.
        is_free = False
    try:
        return is_free, ops.fstat(fd)
    finally:
        if is_free:
            ops.unlock(fd)


def save(connection: Connection, changed: Iterable[Seen]) -> None:
    """Note how logs are now."""
    changed = list(changed)
    connection.executemany(_SAVE, (seen[:-1] for seen in changed))
    connection.executemany(
        "DELETE FROM tag WHERE log = (SELECT id FROM log WHERE path = ?)", ((it.path,) for it in changed)
    )
    connection.executemany(
        "INSERT OR IGNORE INTO tag SELECT ?, id, ? FROM log WHERE path = ?",
        ((tag, place, seen.path) for seen in changed for place, tag in enumerate(seen.tags)),
    )


def place_of(root: str, path: str) -> Place:
    """The place of a log that is known by its path; its key is in its header."""
    return Place.of_file(root, path.partition("/")[2])


def check(numbers: Iterable[int]) -> None:
    """Raise LogDamaged for what the index cannot hold: a number of more than 63 bits."""
    if max(map(abs, numbers)) > LARGEST:
        raise LogDamaged("a record has a number of more than 63 bits")


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error}") from error


def _is_log(path: str) -> bool:
    dots = 2 if path.startswith(ARCHIVED) else 1
    return path.endswith(_ENDING) and path.count(".") == dots and path.isascii()


def _file(path: str, place: Place, file: os.stat_result) -> Seen:
    """A file whose content is not known, or is none."""
    return Seen(path, place.name, bool(place.archived), file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)


def _seen(path: str, place: Place, found: Reading, file: os.stat_result) -> Seen:
    """What a log holds, read without reading all of it."""
    seen = _file(path, place, file)
    if found.view is None:
        return seen._replace(kind=DELETED if found.is_deleted else NOTHING)
    header, state = found.view.header, found.view.state
    created = header.created or found.updated
    check((state.live, header.cold))
    key, it = _key(place, header.sid), overview(found.view)
    return seen._replace(
        key=key,
        internal=is_internal(key),
        uid=header.uid,
        title=it.title,
        live=session_state.count(found.view),
        created=sortable(parse_time(created)),
        updated=sortable(parse_time(when_updated(found.view, found.updated))),
        cold=header.cold,
        bytes=file.st_size + header.cold,
        kind=SESSION,
        pinned=it.pinned,
        cwd=it.cwd,
        role=it.role,
        model=it.model,
        last=it.last,
        state=it.state,
        meta=_encode(it.meta).decode() if it.meta else "{}",
        tags=it.tags,
        counts=True,
        behind=True,
    )


def _key(place: Place, sid: str) -> str:
    """The true key of a log that was met by its name."""
    key = sid or key_of(place.name)
    if key is None or stem(key) != place.name:
        raise LogDamaged(f"{place.log} does not name its session, or names another")
    return key
