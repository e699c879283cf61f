"""One store in PostgreSQL for many tests, emptied between them: to make its tables takes longer than most of them."""

from __future__ import annotations

from typing import Self

import psycopg

from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init

# ruff: noqa: S608 - made of our own names
_KEPT = ("store", "indexing")
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY relname"


class EmptiedStore:
    """The address of a store whose tables are made once; `empty` erases every row."""

    def __init__(self, url: str) -> None:
        self.url = url
        address = parse(url)
        init(address)
        self._link = psycopg.connect(address.conninfo, autocommit=True)
        schema = address.schema
        tables = [name for (name,) in self._link.execute(_TABLES, (schema,)) if name not in _KEPT]
        erase = [f"DELETE FROM {schema}.{name}" for name in tables]
        reset = [f"UPDATE {schema}.store SET sealed_to = NULL", f"UPDATE {schema}.indexing SET minute = 0"]
        self._statement = "; ".join([*erase, *reset]).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def empty(self) -> str:
        """Erase every row; returns the address."""
        self._link.execute(self._statement)
        return self.url
