"""The tables of a store: how they are made and upgraded.

Every table begins with `sid`, sixteen bytes of a hash of the session's key: it is in every primary key and in every
statement of append, read, lease, fork and delete, so that a distributed engine can place rows by it.

    sessions    one row per generation: its last number and state, which every append compares and sets
    records     one row per record: the line as a file would have it
    blobs       large payloads, by session and hash
    leases      who has the turn of a session, until when
    forks       which sessions share the records of a generation, up to which number
    counts      how many sessions came and went: their sum is how long a list is, without counting its rows
    texts       what is searched of each message; derived when somebody searches, never by an append

An append changes no column of an index, so that PostgreSQL writes no index for it (a "heap-only" update): a list is
sorted by the minute of a time and by how many bits a size has, which change rarely, and then by the value itself. The
writer sets these: PostgreSQL takes 30 µs for each update of a table with generated columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import NamedTuple

import psycopg

from nacre.errors import FormatTooNew, StoreError
from nacre.storage.postgres.address import Address

VERSION = 1
"""The version of the tables that this program reads and writes."""

ACTIVE, ARCHIVED, TRASHED, SHARED = 0, 1, 2, 3
"""What a generation is: written to, put away, in the trash, or erased but for what forks share of it."""

_TABLES = """
CREATE TABLE IF NOT EXISTS {s}.store (
    version   integer NOT NULL,
    sealed_to text
);
CREATE TABLE IF NOT EXISTS {s}.sessions (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    key       text COLLATE "C" NOT NULL,
    status    smallint NOT NULL,
    n         bigint NOT NULL,
    state     text NOT NULL,
    hd        bigint NOT NULL,
    mp        bigint NOT NULL,
    live      bigint NOT NULL,
    first     bigint NOT NULL,
    base      text NOT NULL DEFAULT '',
    forked    boolean NOT NULL DEFAULT false,
    holes     boolean NOT NULL DEFAULT false,
    patched   boolean NOT NULL DEFAULT false,
    sealed    boolean NOT NULL DEFAULT false,
    created   text NOT NULL,
    began     text COLLATE "C" NOT NULL,
    updated   text COLLATE "C" NOT NULL,
    minute    integer NOT NULL,
    changed   integer NOT NULL,
    bytes     bigint NOT NULL,
    indexed   bigint NOT NULL DEFAULT 0,
    internal  boolean NOT NULL,
    cwd       text COLLATE "C" NOT NULL DEFAULT '',
    folded    text NOT NULL DEFAULT '',
    pinned    boolean NOT NULL DEFAULT false,
    tags      text[] NOT NULL DEFAULT '{{}}',
    was       smallint NOT NULL DEFAULT 0,
    removed   text NOT NULL DEFAULT '',
    trash     text NOT NULL DEFAULT '',
    bytes_class smallint NOT NULL,
    live_class smallint NOT NULL,
    PRIMARY KEY (sid, uid)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX IF NOT EXISTS sessions_active ON {s}.sessions (sid) WHERE status = 0;
CREATE INDEX IF NOT EXISTS sessions_updated ON {s}.sessions (status, internal, minute);
CREATE INDEX IF NOT EXISTS sessions_created ON {s}.sessions (status, internal, began);
CREATE INDEX IF NOT EXISTS sessions_key ON {s}.sessions (status, internal, left(key, 256));
CREATE INDEX IF NOT EXISTS sessions_bytes ON {s}.sessions (status, internal, bytes_class);
CREATE INDEX IF NOT EXISTS sessions_messages ON {s}.sessions (status, internal, live_class);
CREATE INDEX IF NOT EXISTS sessions_cwd ON {s}.sessions (left(cwd, 256)) WHERE cwd <> '';
CREATE INDEX IF NOT EXISTS sessions_pinned ON {s}.sessions (status, minute) WHERE pinned;
CREATE INDEX IF NOT EXISTS sessions_tags ON {s}.sessions USING gin (tags) WHERE tags <> '{{}}';
CREATE INDEX IF NOT EXISTS sessions_changed ON {s}.sessions (changed, sid);
CREATE INDEX IF NOT EXISTS sessions_trash ON {s}.sessions (trash) WHERE trash <> '';
CREATE TABLE IF NOT EXISTS {s}.records (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    n         bigint NOT NULL,
    writer    bigint NOT NULL,
    id        text,
    line      text NOT NULL,
    PRIMARY KEY (sid, uid, n)
);
CREATE UNIQUE INDEX IF NOT EXISTS records_id ON {s}.records (sid, id, uid) WHERE id IS NOT NULL;
CREATE TABLE IF NOT EXISTS {s}.blobs (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    hash      bytea NOT NULL,
    n         bigint NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (sid, uid, hash)
);
CREATE TABLE IF NOT EXISTS {s}.leases (
    sid       uuid PRIMARY KEY,
    holder    uuid NOT NULL,
    who       text NOT NULL,
    until     timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.forks (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    fork_sid  uuid NOT NULL,
    fork_uid  uuid NOT NULL,
    upto      bigint NOT NULL,
    PRIMARY KEY (sid, uid, fork_sid, fork_uid)
);
CREATE TABLE IF NOT EXISTS {s}.quarantine (
    sid       uuid NOT NULL,
    e         integer NOT NULL,
    uid       uuid NOT NULL,
    key       text NOT NULL,
    n         bigint NOT NULL,
    upto      bigint NOT NULL,
    kind      text NOT NULL,
    detail    text NOT NULL,
    ts        text NOT NULL,
    data      bytea NOT NULL,
    settled   text NOT NULL DEFAULT '',
    PRIMARY KEY (sid, e)
);
CREATE TABLE IF NOT EXISTS {s}.redactions (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    n         bigint NOT NULL,
    key       text NOT NULL,
    PRIMARY KEY (sid, uid, n)
);
CREATE TABLE IF NOT EXISTS {s}.documents (
    name      text NOT NULL,
    part      bigint NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (name, part)
);
CREATE TABLE IF NOT EXISTS {s}.counts (
    sid       uuid NOT NULL,
    status    smallint NOT NULL,
    internal  boolean NOT NULL,
    change    bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.indexing (
    minute    integer NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.texts (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    n         bigint NOT NULL,
    ts        text COLLATE "C" NOT NULL,
    role      text COLLATE "C" NOT NULL,
    tools     text[] NOT NULL,
    body      text NOT NULL,
    plain     text COLLATE "C" NOT NULL,
    words     tsvector NOT NULL,
    stems     tsvector NOT NULL,
    is_long   boolean NOT NULL,
    repeated  boolean NOT NULL DEFAULT false,
    from_sid  uuid,
    from_uid  uuid,
    PRIMARY KEY (sid, uid, n)
);
CREATE INDEX IF NOT EXISTS texts_words ON {s}.texts USING gin (words);
CREATE INDEX IF NOT EXISTS texts_stems ON {s}.texts USING gin (stems);
CREATE INDEX IF NOT EXISTS texts_ts ON {s}.texts (ts);
CREATE INDEX IF NOT EXISTS texts_shared ON {s}.texts (from_sid, from_uid, n) WHERE from_uid IS NOT NULL;
"""
# Parts of words are found without these, too, by reading all there is.
_TRIGRAMS = """
CREATE INDEX IF NOT EXISTS sessions_parts ON {s}.sessions USING gin (folded {trgm}.gin_trgm_ops);
CREATE INDEX IF NOT EXISTS texts_parts ON {s}.texts USING gin (plain {trgm}.gin_trgm_ops);
"""
TRIGRAMS_THERE = """
SELECT count(*) = 2 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname IN ('sessions_parts', 'texts_parts')
"""
"""Whether a schema has them."""


def creation(schema: str) -> str:
    """The statements that make what is missing of the tables; they may be run again."""
    return f"CREATE SCHEMA IF NOT EXISTS {schema};\n" + _TABLES.format(s=schema)


def init(address: Address) -> bool:
    """Make the tables of a store; False if they were there already. Raises StoreError if it cannot be done."""
    with _connected(address) as link:
        was_there = _version(link, address.schema)
        if was_there:
            return False
        with link.transaction():
            link.execute(creation(address.schema).encode())
            for table, value in (("store (version)", VERSION), ("indexing (minute)", 0)):
                name = f"{address.schema}.{table.partition(' ')[0]}"
                insert = f"INSERT INTO {address.schema}.{table} SELECT {value} WHERE NOT EXISTS (SELECT 1 FROM {name})"  # noqa: S608 - our own names
                link.execute(insert.encode())
            _add_trigrams(link, address.schema)
        return True


class Upgrade(NamedTuple):
    """The version of the tables before an upgrade and now, and whether it added the indexes of parts of words."""

    before: int
    now: int
    added_trigrams: bool


def upgrade(address: Address) -> Upgrade:
    """Bring the tables of a store to the version of this program, and add what the database allows since."""
    with _connected(address) as link:
        found = _version(link, address.schema)
        if not found:
            raise StoreError(f"{address.shown} has no tables of nacre: run `nacre store init {quote(address.shown)}`")
        if found > VERSION:
            raise FormatTooNew(
                f"{address.shown} has tables of version {found}, this nacre knows {VERSION}: update nacre"
            )
        return Upgrade(found, VERSION, _add_trigrams(link, address.schema))


def _add_trigrams(link: psycopg.Connection, schema: str) -> bool:
    """Index parts of words, if the database has `pg_trgm` for it; False if nothing was added."""
    query = (
        "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = %s"
    )
    row = link.execute(query, ("pg_trgm",)).fetchone()
    if row is None or _has_trigrams(link, schema):
        return False
    link.execute(_TRIGRAMS.format(s=schema, trgm=row[0]).encode())
    return True


def _has_trigrams(link: psycopg.Connection, schema: str) -> bool:
    found = link.execute(TRIGRAMS_THERE, (schema,)).fetchone()
    return found is not None and bool(found[0])


@contextmanager
def _connected(address: Address) -> Iterator[psycopg.Connection]:
    try:
        with psycopg.connect(address.conninfo, connect_timeout=10, application_name="nacre", autocommit=True) as link:
            yield link
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise StoreError(f"the database at {address.shown} cannot be used: {text}") from error


def _version(link: psycopg.Connection, schema: str) -> int:
    """The version of the tables; 0 if there are none."""
    found = link.execute("SELECT to_regclass(%s)", (f"{schema}.store",)).fetchone()
    if found is None or found[0] is None:
        return 0
    row = link.execute(f"SELECT version FROM {schema}.store".encode()).fetchone()  # noqa: S608 - the same
    return int(row[0]) if row is not None else 0
