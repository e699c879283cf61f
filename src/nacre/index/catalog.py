"""Pages of the list of sessions, from the catalogue: what is not shown is not read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from operator import itemgetter
from sqlite3 import Connection
from typing import Any

import msgspec

from nacre.entries import Page, SessionInfo
from nacre.history.labels import labels
from nacre.history.list_page import LARGEST, Wanted, cut, page_of

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
        if wanted.prefix:
            self._narrow_to_prefix(wanted.prefix)
        if wanted.text:
            self._add("(instr(casefold(key), ?) OR instr(casefold(title), ?))", wanted.text, wanted.text)
        if wanted.folder is not None:
            self._narrow_to_folder(wanted.folder.rstrip("/"))
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
        """The rows behind the last page, one more than are wanted."""
        if self._wanted.limit is None and self._wanted.behind is None and not self._is_narrowed:
            return self._all_rows()
        where, values = list(self._where), list(self._values)
        value, (down, up) = _VALUES[self._wanted.order], ("ASC", "DESC") if self._wanted.reverse else ("DESC", "ASC")
        behind = self._wanted.behind
        if behind is not None:
            is_less, is_more = (">", "<") if self._wanted.reverse else ("<", ">")
            tie = f"(key {is_more} ? OR (key = ? AND uid {is_more} ?))"
            if self._wanted.order == "key":
                where += [f"key {is_more}= ?", tie]
                values += [behind.key, behind.key, behind.key, behind.generation]
            else:
                where += [f"{value} {is_less}= ?", f"({value} {is_less} ? OR {tie})"]
                values += [behind.value, behind.value, behind.key, behind.key, behind.generation]
        order = f"key {up}, uid {up}" if value == "key" else f"{value} {down}, key {up}, uid {up}"
        limit = -1 if self._wanted.limit is None else min(self._wanted.limit + 1, LARGEST)
        select = f"SELECT {_COLUMNS} FROM {self._from} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT {limit}"  # noqa: S608 - our own names
        return self._connection.execute(select, values).fetchall()

    def _all_rows(self) -> Sequence[tuple[Any, ...]]:
        """Every row: to go through the whole table and to sort it here takes half as long as to look up each row."""
        select = f"SELECT {_COLUMNS} FROM log NOT INDEXED WHERE {' AND '.join(self._where)}"  # noqa: S608 - our own names
        rows = self._connection.execute(select, self._values).fetchall()
        rows.sort(key=itemgetter(_KEY, _UID))
        rows.sort(key=itemgetter(_PLACES[self._wanted.order]), reverse=self._wanted.order != "key")
        if self._wanted.reverse:
            rows.reverse()
        return rows

    def count(self) -> int:
        """How many there are, on all pages."""
        if not self._is_narrowed:
            total = "SELECT n FROM total WHERE archived = ? AND internal = ?"
            return int(self._connection.execute(total, self._part).fetchone()[0])
        count = f"SELECT count(*) FROM {self._from} WHERE {' AND '.join(self._where)}"  # noqa: S608 - the same
        return int(self._connection.execute(count, self._values).fetchone()[0])

    def _narrow_to_prefix(self, prefix: str) -> None:
        self._add("key >= ? AND substr(key, 1, ?) = ?", prefix, len(prefix), prefix)
        if (end := _successor(prefix)) is not None:
            self._add("key < ?", end)
        few = (
            f"SELECT count(*) FROM (SELECT 1 FROM log INDEXED BY log_by_key WHERE {' AND '.join(self._where)} LIMIT ?)"  # noqa: S608
        )
        (count,) = self._connection.execute(few, (*self._values, _FEW + 1)).fetchone()
        if count <= _FEW:
            self._from = "log INDEXED BY log_by_key"

    def _narrow_to_folder(self, folder: str) -> None:
        self._from = "log INDEXED BY log_cwd"
        # What comes behind "/" is "0".
        self._add("cwd != '' AND (cwd = ? OR (cwd >= ? AND cwd < ?))", folder, f"{folder}/", f"{folder}0")

    def _add(self, condition: str, *values: Any) -> None:
        self._where.append(condition)
        self._values += values


def _successor(prefix: str) -> str | None:
    """The first text behind all that begin with another; None if there is none."""
    prefix = prefix.rstrip(_LAST_CHARACTER)
    if not prefix:
        return None
    code = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if code == 0xD800 else code)  # noqa: PLR2004 - surrogates are no characters


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
