"""What every part of a store in PostgreSQL uses: connections, statements, and how sessions are read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from nacre.errors import SessionNotFound
from nacre.records import Rules
from nacre.storage.postgres.connections import Connections, Rows, Run, Statement, Value
from nacre.storage.postgres.statements import Statements
from nacre.storage.postgres.view import Head, PostgresView, head_of, plain_uid, sid_of
from nacre.storage.system import System

Labels = Callable[[Mapping[str, Any], str], tuple[str, str, bool, list[str]]]
"""(meta, key) -> what a list is narrowed by: the text that is searched in, the folder, the pin, the tags."""

_PART = 500


class Database(NamedTuple):
    """A store's connections and statements. `token` marks the records that were written through this store."""

    connections: Connections
    statements: Statements
    rules: Rules
    system: System
    token: int
    labels: Labels

    @property
    def location(self) -> str:
        return self.connections.address.shown

    def view(self, key: str, head: Head, run: Run | None = None) -> PostgresView:
        """The view of a generation, read through a transaction or by itself."""
        read = self.connections.read if run is None else partial(_rows_of, run)
        return PostgresView(read, self.statements, key=key, sid=sid_of(key), head=head)

    def head(self, key: str) -> Head | None:
        """The active generation of a session, or else the newest archived one."""
        rows = self.connections.read(self.statements.head, sid_of(key))
        return head_of(rows[0]) if rows else None

    def heads(self, key: str) -> list[Head]:
        """The generations of a session, oldest first; the active one is the last, whenever it began."""
        return [head_of(row) for row in self.connections.read(self.statements.generations, sid_of(key))]

    def known_heads(self, key: str) -> list[Head]:
        """The same; raises SessionNotFound if there are none."""
        if not (found := self.heads(key)):
            raise SessionNotFound(f"there is no session {key!r}")
        return found

    def each(self, status: int) -> Iterator[tuple[str, Head]]:
        """Every generation of a status, with its key; read in parts."""
        sid = uid = "0" * 32
        while True:
            rows = self.connections.read(self.statements.each, sid, uid, status, _PART)
            for row in rows:
                yield (row[1] or b"").decode(), head_of(row[2:])
            if len(rows) < _PART:
                return
            sid, uid = plain_uid(rows[-1][0]), plain_uid(rows[-1][2])


def _rows_of(run: Run, statement: Statement, *values: Value) -> Rows:
    return run(statement, *values).rows
