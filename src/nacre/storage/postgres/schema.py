"""The tables of a store: how they are made and upgraded.

Every table begins with `sid`, sixteen bytes of a hash of the session's key: it is in every primary key and in every
statement of append, read, lease, fork and delete, so that a distributed engine can place rows by it.

    sessions    one row per generation: its last number and state, which every append compares and sets
    records     one row per record: the line as a file would have it
    blobs       large payloads, by session and hash
    leases      who has the turn of a session, until when
    forks       which sessions share the records of a generation, up to which number
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

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
    sealed_to text,
    indexed   bigint NOT NULL DEFAULT 0
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
    PRIMARY KEY (sid, uid)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX IF NOT EXISTS sessions_active ON {s}.sessions (sid) WHERE status = 0;
CREATE INDEX IF NOT EXISTS sessions_updated ON {s}.sessions (status, internal, minute);
CREATE INDEX IF NOT EXISTS sessions_created ON {s}.sessions (status, internal, began);
CREATE INDEX IF NOT EXISTS sessions_key ON {s}.sessions (status, internal, left(key, 256));
CREATE INDEX IF NOT EXISTS sessions_cwd ON {s}.sessions (left(cwd, 256)) WHERE cwd <> '';
CREATE INDEX IF NOT EXISTS sessions_pinned ON {s}.sessions (status, minute) WHERE pinned;
CREATE INDEX IF NOT EXISTS sessions_tags ON {s}.sessions USING gin (tags) WHERE tags <> '{{}}';
CREATE INDEX IF NOT EXISTS sessions_changed ON {s}.sessions (changed);
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
CREATE UNIQUE INDEX IF NOT EXISTS records_id ON {s}.records (sid, id) WHERE id IS NOT NULL;
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
CREATE TABLE IF NOT EXISTS {s}.texts (
    sid       uuid NOT NULL,
    uid       uuid NOT NULL,
    n         bigint NOT NULL,
    ts        text NOT NULL,
    role      text NOT NULL,
    tools     text[] NOT NULL,
    body      text NOT NULL,
    words     tsvector NOT NULL,
    stems     tsvector NOT NULL,
    PRIMARY KEY (sid, uid, n)
);
CREATE INDEX IF NOT EXISTS texts_words ON {s}.texts USING gin (words);
CREATE INDEX IF NOT EXISTS texts_stems ON {s}.texts USING gin (stems);
"""


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
            link.execute(
                f"INSERT INTO {address.schema}.store (version) SELECT {VERSION} "  # noqa: S608 - our own names
                f"WHERE NOT EXISTS (SELECT 1 FROM {address.schema}.store)".encode()
            )
        return True


def upgrade(address: Address) -> tuple[int, int]:
    """Bring the tables of a store to the version of this program; returns the version before and now."""
    with _connected(address) as link:
        found = _version(link, address.schema)
        if not found:
            raise StoreError(f"{address.shown} has no tables of nacre: run `nacre store init {quote(address.shown)}`")
        if found > VERSION:
            raise FormatTooNew(
                f"{address.shown} has tables of version {found}, this nacre knows {VERSION}: update nacre"
            )
        return found, VERSION


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
