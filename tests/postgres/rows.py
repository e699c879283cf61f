"""The rows of a store in PostgreSQL, read and spoilt without the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import msgspec
import psycopg

from nacre.storage.postgres.address import parse
from nacre.storage.postgres.view import sid_of
from tests.damage.lines import resealed

_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY relname"


class Rows:
    """A connection of its own to the tables of a store; `{s}` in a statement stands for their schema."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        self._schema = address.schema
        self._link = psycopg.connect(address.conninfo, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives; none for one that only changes something."""
        cursor = self._link.execute(statement.format(s=self._schema).encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def change_line(self, key: str, n: int, old: str, new: str) -> None:
        """Let the line of a record have other characters, as a flipped bit or a careless program does."""
        where = "WHERE sid = %s::uuid AND n = %s AND position(%s IN line) > 0 RETURNING n"
        statement = f"UPDATE {{s}}.records SET line = replace(line, %s, %s) {where}"  # noqa: S608 - our own text
        assert self.run(statement, old, new, sid_of(key), n, old), f"record {n} of {key!r} has no {old!r}"

    def reseal(self, key: str, n: int, **fields: object) -> None:
        """Let a record have other fields, with a checksum that is right."""
        ((line,),) = self.run("SELECT line FROM {s}.records WHERE sid = %s::uuid AND n = %s", sid_of(key), n)
        new = resealed(line.encode(), **fields).decode().rstrip("\n")
        self.run("UPDATE {s}.records SET line = %s WHERE sid = %s::uuid AND n = %s", new, sid_of(key), n)

    def drop(self, key: str, *numbers: int) -> None:
        """Remove the rows of records."""
        self.run("DELETE FROM {s}.records WHERE sid = %s::uuid AND n = ANY(%s)", sid_of(key), list(numbers))

    @contextmanager
    def at(self, event: str, table: str, body: str, *, when: str = "BEFORE") -> Iterator[None]:
        """Let something happen at every row that is inserted, updated or deleted; written in PL/pgSQL."""
        self.run(f"CREATE FUNCTION {{s}}.act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
        kind, is_late = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if when == "AFTER" else ("TRIGGER", "")
        on = f"{when} {event} ON {{s}}.{table} {is_late}"
        self.run(f"CREATE {kind} act {on} FOR EACH ROW EXECUTE FUNCTION {{s}}.act()")
        try:
            yield
        finally:
            self.run("DROP FUNCTION {s}.act CASCADE")

    def holding(self, text: str) -> list[str]:
        """The tables that have a text in any row, as it is, as JSON has it, or as bytes."""
        escaped = msgspec.json.encode(text)[1:-1].decode()
        wanted = {one for form in (text, escaped) for one in (form, form.encode().hex(), *_in_a_row(form))}
        found = []
        for (table,) in self._link.execute(_TABLES, (self._schema,)).fetchall():
            query = f"SELECT 1 FROM {{s}}.{table} AS one, unnest(%s::text[]) AS text WHERE strpos(one::text, text) > 0"  # noqa: S608 - the same
            if self.run(query, list(wanted)):
                found.append(str(table))
        return found


def _in_a_row(text: str) -> list[str]:
    """A text as it is in a row that is cast to text, where quotes and backslashes are doubled."""
    return [text.replace("\\", "\\\\").replace('"', '""')]
