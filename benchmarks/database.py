"""A PostgreSQL server of a benchmark's own: durable as it is by default, on loopback, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import nacre
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from tests.postgres.servers import PostgresServer

# As for a small server: what is read is in memory, and checkpoints do not fall into every round.
_SETTINGS: dict[str, str | int] = {"shared_buffers": "256MB", "max_wal_size": "4GB", "max_connections": 200}


@contextmanager
def server(**settings: str | int) -> Iterator[PostgresServer]:
    """A server that flushes every commit."""
    with PostgresServer({**_SETTINGS, **settings}, name="bench") as found:
        yield found


def store_in(found: PostgresServer, name: str) -> str:
    """The address of a new store in a database of its own."""
    url = found.create_database(name)
    init(parse(url))
    return url


@contextmanager
def sessions_in(found: PostgresServer, name: str) -> Iterator[nacre.Sessions]:
    """The sessions of a new store."""
    with nacre.open(store_in(found, name)) as sessions:
        yield sessions
