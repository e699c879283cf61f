"""Stores in PostgreSQL that give up soon, and what is in them as a plain list."""

from __future__ import annotations

from typing import Any

import nacre
from nacre.history.session_state import RULES
from nacre.index.postgres_index import PostgresIndex, labels
from nacre.sessions import Sessions
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.storage.postgres.store import PostgresStore


def create(url: str) -> str:
    """Make the tables of a store; returns its address."""
    init(parse(url))
    return url


def opened(url: str, **options: Any) -> Sessions:
    """Sessions with options that `nacre.open` does not have: `patience`, `timeout`, `size`, `lease_seconds`."""
    store = open_store(url, **options)
    return Sessions(store, index=lambda: PostgresIndex(store))


def open_store(url: str, **options: Any) -> PostgresStore:
    """The store itself, for what callers of sessions cannot reach."""
    return PostgresStore(parse(url), rules=RULES, labels=labels, **options)


def through(url: str, port: int) -> str:
    """The same store, reached at another port of loopback."""
    server, _, rest = url.partition("://")[2].partition("/")
    host = server.rpartition(":")[0]
    return f"postgresql://{host}:{port}/{rest}"


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    """Everything that was ever said in a session, in its order."""
    return [stored.message.content for stored in sessions.transcript(key)]


def numbers(sessions: nacre.Sessions, key: str) -> list[int]:
    return [entry.n for entry in sessions.records(key)]
