"""What can be learned of a database without changing it: for people who ask whether a store in it can work well."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from nacre.errors import StoreError
from nacre.storage.postgres.address import Address
from nacre.storage.postgres.schema import TRIGRAMS_THERE, VERSION

_ROUND_TRIPS = 5
_SOON = 2
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_BOOKS = ("store",)
"""Tables from which nothing is deleted."""

_SERVER = """
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
    current_setting('server_encoding'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), pg_backend_pid(), extract(epoch FROM clock_timestamp())::float8,
    current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
    EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm'), current_setting('fsync'),
    current_setting('full_page_writes')
"""
_TABLES = """
SELECT c.relname::text, array_agg(p.name) FILTER (WHERE NOT has_table_privilege(c.oid, p.name))
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace CROSS JOIN unnest(%s::text[]) AS p(name)
WHERE s.nspname = %s AND c.relkind IN ('r', 'p') GROUP BY c.relname
"""
_STANDBYS = """
SELECT CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
    THEN count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) END
FROM pg_stat_replication
"""


class Inspection(NamedTuple):
    """What a database says of itself; texts are as PostgreSQL has them.

    `tables` is the version of nacre's tables, 0 if there are none, and `known` the one that this program works with.
    `sealed_to` says where the sessions were moved, if they were. `has_trigrams` is for the extension pg_trgm, and
    `is_indexed` for the indexes that need it. `lacking` has what the role may not do with the tables, as "DELETE on
    records". `round_trip` and `clock_ahead` are in seconds; `standbys` is how many synchronous standbys there are, None
    if the role may not know.
    """

    shown: str
    schema: str
    release: str
    release_number: int
    encoding: str
    commits: str
    fsync: str
    page_writes: str
    standby_names: str
    standbys: int | None
    is_pooled: bool
    role: str
    is_superuser: bool
    has_trigrams: bool
    is_indexed: bool
    may_create: bool
    tables: int
    sealed_to: str
    known: int
    lacking: tuple[str, ...]
    is_encrypted: bool
    round_trip: float
    clock_ahead: float


def inspect(address: Address) -> Inspection:
    """Ask a database for all of it; raises StoreError if it cannot be reached."""
    settings: dict[str, Any] = {"connect_timeout": 10, "application_name": "nacre", "autocommit": True}
    try:
        with psycopg.connect(address.conninfo, **settings, prepare_threshold=None) as link:
            return _inspect(link, address)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise StoreError(f"the database at {address.shown} cannot be used: {text}") from error


def read_seal(address: Address) -> str:
    """Where the sessions of a store were moved; "" if they were not. Raises StoreError if it cannot be known soon."""
    try:
        with psycopg.connect(address.conninfo, connect_timeout=_SOON, application_name="nacre") as link:
            (found,) = _row(link, f"SELECT coalesce(max(sealed_to), '') FROM {address.schema}.store")  # noqa: S608 - checked by `parse`
            return str(found)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise StoreError(f"the database at {address.shown} cannot be used: {text}") from error


def _inspect(link: psycopg.Connection[Any], address: Address) -> Inspection:
    # The fastest of some round trips: others are of a machine that was busy.
    spans = []
    for _ in range(_ROUND_TRIPS):
        began = time.monotonic()
        link.execute("SELECT 1")
        spans.append(time.monotonic() - began)
    before = time.time()
    (number, release, encoding, commits, names, pid, clock, role, is_super, has_trigrams, fsync, page_writes) = _row(
        link, _SERVER
    )
    now = (before + time.time()) / 2
    standbys: int | None = None
    with suppress(psycopg.Error):
        (standbys,) = _row(link, _STANDBYS)
    (may_create,) = _row(link, "SELECT has_database_privilege(current_database(), 'CREATE')")
    (may_use,) = _row(
        link,
        "SELECT coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s), true)",
        address.schema,
    )
    (is_indexed,) = _row(link, TRIGRAMS_THERE, address.schema)
    lacking = [] if may_use else [f"USAGE on schema {address.schema}"]
    rows = link.execute(_TABLES, (list(_NEEDED), address.schema)).fetchall()
    for table, missing in sorted(rows):
        lacking += [f"{one} on {table}" for one in missing or () if not (table in _BOOKS and one == "DELETE")]
    version, sealed_to = 0, ""
    if may_use and any(table == "store" for table, _ in rows) and "SELECT on store" not in lacking:
        about = f"SELECT coalesce(max(version), 0), coalesce(max(sealed_to), '') FROM {address.schema}.store"  # noqa: S608 - checked by `parse`
        version, sealed_to = _row(link, about)
    return Inspection(
        shown=address.shown,
        schema=address.schema,
        release=release,
        release_number=number,
        encoding=encoding,
        commits=commits,
        fsync=fsync,
        page_writes=page_writes,
        standby_names=names,
        standbys=standbys,
        is_pooled=pid != link.info.backend_pid,
        role=role,
        is_superuser=is_super,
        has_trigrams=has_trigrams,
        is_indexed=is_indexed,
        may_create=may_create,
        tables=version,
        sealed_to=sealed_to,
        known=VERSION,
        lacking=tuple(lacking),
        is_encrypted=link.pgconn.ssl_in_use,
        round_trip=min(spans),
        clock_ahead=clock - now,
    )


def _row(link: psycopg.Connection[Any], query: str, *values: object) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = link.execute(query.encode(), values or None).fetchone()
    return found or ()
