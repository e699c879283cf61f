"""Pages of the list of sessions, from the catalogue: what is not shown is not read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import product
from operator import itemgetter
from sqlite3 import Connection
from typing import Any, NamedTuple

import msgspec

from nacre.codec import parse_time, sortable
from nacre.errors import LogDamaged, StoreError, describe_error
from nacre.history import session_state
from nacre.history.list_page import LARGEST, Wanted, cut, page_of
from nacre.history.overview import labels, overview, when_updated
from nacre.keys import is_internal
from nacre.messages import Page, SessionInfo
from nacre.storage.paths import SessionPaths, key_of, open_log, stem
from nacre.storage.plain_names import path_now
from nacre.storage.system import System
from nacre.storage.view import Reading, reading

_COLUMNS = "log.key, title, live, created, updated, bytes, archived, uid, meta, pinned, cwd, role, model, last, state"
_VALUES = {"updated": "updated", "created": "created", "bytes": "bytes", "messages": "live", "key": "key"}
_PLACES = {"key": 0, "messages": 2, "created": 3, "updated": 4, "bytes": 5}
_KEY, _UID = 0, 7
# Of so many sessions whose keys begin alike the wanted ones are sorted out; of more, they are met soon enough.
_FEW = 1000
_LAST_CHARACTER = "\U0010ffff"


def page(connection: Connection, wanted: Wanted) -> Page:
    """The part of the list that is wanted."""
    archived = {"active": (0,), "archived": (1,), "all": (0, 1)}[wanted.which]
    parts = list(product(archived, (0, 1) if wanted.internal else (0,)))
    selects = [_Select(connection, wanted, *part) for part in parts]
    found = [_info(row) for select in selects for row in select.rows()]
    total = sum(select.count() for select in selects)
    if len(parts) > 1:
        # Each part is in order; together they are to be, too.
        found = page_of(found, wanted._replace(limit=None)).items
    return cut(found, wanted, total=total)


class _Select:
    """One query: the sessions of one folder, either people's or nacre's own."""

    def __init__(self, connection: Connection, wanted: Wanted, archived: int, internal: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._part = (archived, internal)
        self._where = ["counts", "archived = ?", "internal = ?"]
        self._values: list[Any] = [archived, internal]
        self._from = f"log INDEXED BY log_by_{wanted.order}"
        if prefix := wanted.prefix:
            self._add("key >= ? AND substr(key, 1, ?) = ?", prefix, len(prefix), prefix)
            if begin := prefix.rstrip(_LAST_CHARACTER):
                # The first text after all that begin with the prefix; surrogates are no characters.
                code = ord(begin[-1]) + 1
                self._add("key < ?", begin[:-1] + chr(0xE000 if code == 0xD800 else code))  # noqa: PLR2004
            few = f"SELECT 1 FROM log INDEXED BY log_by_key WHERE {' AND '.join(self._where)} LIMIT ?"  # noqa: S608
            count = f"SELECT count(*) FROM ({few})"  # noqa: S608
            if connection.execute(count, (*self._values, _FEW + 1)).fetchone()[0] <= _FEW:
                self._from = "log INDEXED BY log_by_key"
        if wanted.text:
            self._add("(instr(casefold(key), ?) OR instr(casefold(title), ?))", wanted.text, wanted.text)
        if wanted.folder is not None:
            self._from = "log INDEXED BY log_cwd"
            folder = wanted.folder.rstrip("/")
            # What comes after "/" is "0".
            self._add("cwd != '' AND (cwd = ? OR (cwd >= ? AND cwd < ?))", folder, f"{folder}/", f"{folder}0")
        if wanted.pinned:
            self._from = "log INDEXED BY log_pinned"
            self._add("pinned")
        if wanted.tags:
            # The order of the tables is ours to say: SQLite cannot know how few sessions have a tag.
            self._from = "tag CROSS JOIN log ON log.id = tag.log"
            self._add("tag.tag = ?", wanted.tags[0])
        for tag in wanted.tags[1:]:
            self._add("EXISTS (SELECT 1 FROM tag AS other WHERE other.tag = ? AND other.log = log.id)", tag)
        self._is_narrowed = len(self._where) > 3  # noqa: PLR2004 - what every query has

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """The rows after the last page, one more than are wanted."""
        if self._wanted.limit is None and self._wanted.after is None and not self._is_narrowed:
            # Going through the whole table and sorting it here takes half as long as looking up each row.
            select = f"SELECT {_COLUMNS} FROM log NOT INDEXED WHERE {' AND '.join(self._where)}"  # noqa: S608 - our own names
            rows = self._connection.execute(select, self._values).fetchall()
            rows.sort(key=itemgetter(_KEY, _UID))
            rows.sort(key=itemgetter(_PLACES[self._wanted.order]), reverse=self._wanted.order != "key")
            return rows[::-1] if self._wanted.reverse else rows
        where, values = list(self._where), list(self._values)
        value, (down, up) = _VALUES[self._wanted.order], ("ASC", "DESC") if self._wanted.reverse else ("DESC", "ASC")
        after = self._wanted.after
        if after is not None:
            is_less, is_more = (">", "<") if self._wanted.reverse else ("<", ">")
            tie = f"(key {is_more} ? OR (key = ? AND uid {is_more} ?))"
            if self._wanted.order == "key":
                where += [f"key {is_more}= ?", tie]
                values += [after.key, after.key, after.key, after.generation]
            else:
                where += [f"{value} {is_less}= ?", f"({value} {is_less} ? OR {tie})"]
                values += [after.value, after.value, after.key, after.key, after.generation]
        order = f"key {up}, uid {up}" if value == "key" else f"{value} {down}, key {up}, uid {up}"
        limit = -1 if self._wanted.limit is None else min(self._wanted.limit + 1, LARGEST)
        select = f"SELECT {_COLUMNS} FROM {self._from} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT {limit}"  # noqa: S608 - our own names
        return self._connection.execute(select, values).fetchall()

    def count(self) -> int:
        """How many there are, on all pages."""
        if not self._is_narrowed:
            total = "SELECT n FROM total WHERE archived = ? AND internal = ?"
            return int(self._connection.execute(total, self._part).fetchone()[0])
        count = f"SELECT count(*) FROM {self._from} WHERE {' AND '.join(self._where)}"  # noqa: S608 - the same
        return int(self._connection.execute(count, self._values).fetchone()[0])

    def _add(self, condition: str, *values: Any) -> None:
        self._where.append(condition)
        self._values += values


def _info(row: tuple[Any, ...]) -> SessionInfo:
    key, title, live, created, updated, size, archived, uid, meta, pinned, cwd, role, model, last, state = row
    fields = _decode(meta) if meta != "{}" else {}
    return SessionInfo(
        key=key,
        title=title,
        messages=live,
        created=_parsed(created),
        updated=_parsed(updated),
        bytes=size,
        archived=bool(archived),
        generation=uid,
        meta=fields,
        tags=labels(fields).tags if "tags" in fields else (),
        pinned=bool(pinned),
        cwd=cwd,
        role=role,
        model=model,
        last=last,
        state=state,
    )


_parsed = datetime.fromisoformat
_decode = msgspec.json.Decoder(dict[str, Any]).decode


# ---- What the catalogue knows of each log, kept for as long as the log's file is unchanged


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
    has_more: bool = False
    tags: tuple[str, ...] = ()


class Look(NamedTuple):
    """What a look at the logs found: those that are not as they were known, those that went, those to look at again."""

    changed: list[Seen]
    gone: list[str]
    unsettled: list[str]


_FIELDS = Seen._fields[:-1]
_SAVE = (
    f"INSERT INTO log ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))}) "  # noqa: S608 - our own names
    f"ON CONFLICT (path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _FIELDS[1:])}"
)
_encode = msgspec.json.Encoder().encode


def known(connection: Connection, folder: str) -> dict[str, Known]:
    """How the logs of a folder were when they were last looked at, by the names of their files."""
    select = "SELECT substr(path, ?), inode, size, mtime FROM log NOT INDEXED WHERE archived = ?"
    return {row[0]: row for row in connection.execute(select, (len(folder) + 2, folder == ARCHIVED))}


def scan(system: System, root: str, folder: str, rows: dict[str, Known], look: Look) -> None:
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
        inspect(system, root, f"{folder}/{entry.name}", look)
    if there < len(rows):
        look.gone.extend(f"{folder}/{name}" for name in rows.keys() - set(names_in(root, folder)))


def names_in(root: str, folder: str) -> list[str]:
    """The names of all files in a folder."""
    return [entry.name for entry in _entries(f"{root}/{folder}")]


def inspect(system: System, root: str, path: str, look: Look) -> None:
    """Look at one log, at a moment at which no writer is at it; while one is, it has to be looked at again."""
    dots = 2 if path.startswith(ARCHIVED) else 1
    if not path.endswith(_ENDING) or path.count(".") != dots or not path.isascii():
        return
    place = place_of(root, path)
    opened = _Opened(system, place, f"{root}/{path}")
    try:
        if path != place.path and path_now(system, place) != place.plain:
            # What has the plain name next to a log is a second one, or an earlier agent's; the next start takes it in.
            look.changed.append(_file(path, place, system.stat(place.plain)))
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

    def __init__(self, system: System, place: SessionPaths, log: str) -> None:
        super().__init__(system, place)
        self._log = log
        self.file: os.stat_result | None = None
        self.is_free = False

    def _open(self) -> os.stat_result:
        fd, self.file = open_log(self._system, self._log, os.O_RDONLY)
        try:
            self.is_free, self.file = stat_when_free(self._system, fd)
            named = self._system.stat(self._log)
        except BaseException:
            self.file = None
            self._system.close(fd)
            raise
        if (named.st_dev, named.st_ino) != (self.file.st_dev, self.file.st_ino):
            # It was written again meanwhile, by somebody who may still be at it.
            self.is_free = False
        self._fd = fd
        return self.file


def stat_when_free(system: System, fd: int) -> tuple[bool, os.stat_result]:
    """The log's file at a moment at which no writer is at it; False if there is one."""
    try:
        # Other readers are not in the way: what they read is the same.
        is_free = system.share(fd)
    except OSError:
        # Some file systems have no locks.
        is_free = False
    try:
        return is_free, system.fstat(fd)
    finally:
        if is_free:
            system.unlock(fd)


def save(connection: Connection, changed: Iterable[Seen]) -> None:
    """Note how logs are now."""
    changed = list(changed)
    connection.executemany(_SAVE, (seen[:-1] for seen in changed))
    erase = "DELETE FROM tag WHERE log = (SELECT id FROM log WHERE path = ?)"
    connection.executemany(erase, ((seen.path,) for seen in changed))
    tags = ((tag, place, seen.path) for seen in changed for place, tag in enumerate(seen.tags))
    connection.executemany("INSERT OR IGNORE INTO tag SELECT ?, id, ? FROM log WHERE path = ?", tags)


def place_of(root: str, path: str) -> SessionPaths:
    """The place of a log that is known by its path; its key is in its header."""
    return SessionPaths.of_file(root, path.partition("/")[2])


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


def _file(path: str, place: SessionPaths, file: os.stat_result) -> Seen:
    """A file whose content is not known, or is none."""
    return Seen(path, place.name, bool(place.archived), file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)


def _seen(path: str, place: SessionPaths, found: Reading, file: os.stat_result) -> Seen:
    """What a log holds, read without reading all of it."""
    seen = _file(path, place, file)
    if found.view is None:
        return seen._replace(kind=DELETED if found.is_deleted else NOTHING)
    header, state = found.view.header, found.view.state
    created = header.created or found.updated
    check((state.live, header.cold))
    # The true key of a log that was met by its name.
    key = header.sid or key_of(place.name)
    if key is None or stem(key) != place.name:
        raise LogDamaged(f"{place.log} does not name its session, or names another")
    shown = overview(found.view)._asdict()
    return seen._replace(
        **shown | {"meta": _encode(shown["meta"]).decode()},
        key=key,
        internal=is_internal(key),
        uid=header.uid,
        live=session_state.count(found.view),
        created=sortable(parse_time(created)),
        updated=sortable(parse_time(when_updated(found.view, found.updated))),
        cold=header.cold,
        bytes=file.st_size + header.cold,
        kind=SESSION,
        counts=True,
        has_more=True,
    )
