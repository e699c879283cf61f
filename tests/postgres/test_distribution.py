"""What a distributed engine needs: the statements about one session touch only the place where its rows are.

The tables are partitioned by `sid` here, as Citus, YugabyteDB, CockroachDB or Aurora Limitless would place their rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import nacre
from nacre.history import alias_table
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import creation, init
from nacre.storage.postgres.statements import TEXTS, Statements
from nacre.storage.postgres.view import sid_of
from tests.postgres.opened import opened
from tests.postgres.programs import wait_until
from tests.postgres.servers import PostgresServer

PLACES = 4
# What docs/scale.md says of them is compared below.
ABOUT_NO_SESSION = {
    "add_part",
    "advance_indexing",
    "documents",
    "erase_document",
    "indexing",
    "last_part",
    "lock_store",
    "notify",
    "seal_store",
    "set_document",
    "sizes",
    "store",
    "touch_store",
    "unseal_store",
}
ABOUT_ALL_SESSIONS = {
    "all_quarantined",
    "counts",
    "each",
    "in_trash",
    "redactions",
    "release_all",
    "renew",
    "set_sealed",
    "sum_counts",
    "trash",
    "unindexed",
}
ABOUT_TWO_SESSIONS = {"copy_blob", "copy_patch_blobs", "copy_patches"}
EXCEPTIONS = ABOUT_NO_SESSION | ABOUT_ALL_SESSIONS | ABOUT_TWO_SESSIONS


def partitioned(schema: str) -> str:
    """The statements that make the tables, with every table that begins with `sid` in several places."""
    made = []
    for statement in creation(schema).split(";\n"):
        found = re.match(r"CREATE TABLE IF NOT EXISTS (\S+) \(\s+sid ", statement.strip())
        if not found:
            made.append(statement)
            continue
        # Storage parameters belong to the partitions.
        body, _, storage = statement.rstrip().removesuffix(")").partition("\n) WITH (")
        made.append(f"{body}\n) PARTITION BY HASH (sid)")
        for place in range(PLACES):
            of = f"FOR VALUES WITH (MODULUS {PLACES}, REMAINDER {place})"
            options = f" WITH ({storage})" if storage else ""
            made.append(f"CREATE TABLE {found[1]}_{place} PARTITION OF {found[1]} {of}{options}")
    return ";\n".join(made)


@pytest.fixture
def distributed(database: str) -> str:
    """A store whose tables are in several places."""
    distribute(database)
    return database


def distribute(url: str) -> None:
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as link:
        link.execute(partitioned(address.schema).encode())
    init(address)


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(parse(url).conninfo, autocommit=True, prepare_threshold=None) as link:
        yield link


def place_of(link: psycopg.Connection[tuple[object, ...]], schema: str, sid: str) -> int:
    fits = "SELECT satisfies_hash_partition(%s::regclass, %s, %s, %s::uuid)"
    found = (link.execute(fits, (f"{schema}.sessions", PLACES, place, sid)).fetchone() for place in range(PLACES))
    return [row is not None and row[0] for row in found].index(True)


def keys_in(url: str, place: int, count: int) -> list[str]:
    """Keys of sessions whose rows belong to one place."""
    with connected(url) as link:
        keys = (f"cli:{number}" for number in range(1000))
        fitting = (key for key in keys if place_of(link, parse(url).schema, sid_of(key)) == place)
        return [next(fitting) for _ in range(count)]


def places_of(url: str, keys: Iterable[str]) -> set[int]:
    with connected(url) as link:
        return {place_of(link, parse(url).schema, sid_of(key)) for key in keys}


# ---- what is run


def test_the_work_on_a_session_touches_only_its_place() -> None:
    # A server whose connections are all our own.
    with PostgresServer() as server:
        url = f"{server.url()}?schema=places"
        distribute(url)
        key, fork, other = keys_in(url, 2, 3)
        # To make indexes is to read, too.
        before = activity(server)
        with opened(url) as sessions:
            use(sessions, key, fork, other)
        after = activity(server)
        places = places_of(url, alias_table.TABLES)
    touched = {name for name, count in after.items() if count != before[name]}
    used = {"blobs", "counts", "forks", "leases", "quarantine", "records", "redactions", "sessions", "texts"}
    # A new key might be another name of a session, which one table for all of them knows.
    elsewhere = {f"sessions_{place}" for place in places}
    assert touched - elsewhere == {f"{table}_2" for table in used} - elsewhere


def use(sessions: nacre.Sessions, key: str, fork: str, other: str) -> None:
    """Append, read, take turns, fork, archive, redact, verify and delete."""
    for number in range(3):
        sessions.add_message(key, "user", f"hello {number}", id=f"id {number}")
    sessions.add_message(key, "user", "hello 0", id="id 0")
    sessions.add_messages(key, [{"role": "user", "content": "x" * 300_000}, {"role": "assistant", "content": "yes"}])
    sessions.set_meta(key, title="Greetings")
    sessions.set_summary(key, "They greet each other.")
    sessions.get_history(key)
    sessions.transcript(key)
    sessions.snapshot(key)
    list(sessions.records(key))
    lease = sessions.hold(key)
    lease.take()
    sessions.add_message(key, "user", "in a turn")
    lease.close()
    lease.take_over()
    lease.close()
    sessions.redact(key, 3)
    sessions.fork(key, fork)
    sessions.fork(fork, other)
    sessions.pop(fork)
    sessions.get_history(other)
    sessions.archive(other)
    sessions.add_message(other, "user", "again")
    sessions.delete(other)
    sessions.verify(key)
    sessions.repair(key)
    sessions.delete(key)
    sessions.get_history(fork)
    sessions.delete(fork)


def activity(postgres: PostgresServer) -> dict[str, str]:
    """How often each partition was read from or written to. A connection tells when it ends."""
    clients = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: not postgres.query(clients), "the end of all connections")
    rows = postgres.query(
        "SELECT relname, coalesce(seq_scan, 0) + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd + n_tup_del "
        "FROM pg_stat_user_tables WHERE relname ~ '_[0-9]$'"
    )
    return {row[0]: row[1] for row in rows}


# ---- what is planned


def places_in_plan(link: psycopg.Connection[tuple[object, ...]], url: str, name: str) -> set[str]:
    """The places that a statement touches, when every value that may be a session is one of another place."""
    schema = parse(url).schema
    statement = getattr(Statements(schema), name)
    link.execute("DEALLOCATE ALL")
    link.execute(b"PREPARE tried AS " + statement.text)
    row = link.execute("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'tried'").fetchone()
    types = row[0] if row is not None else []
    assert isinstance(types, list)
    sids = iter(sids_of_places(link, schema))
    # Numbers grow, so that no range is empty.
    values = [f"'{next(sids)}'" if kind == "uuid" else VALUES[kind].format(at) for at, kind in enumerate(types)]
    link.execute("SET plan_cache_mode = force_custom_plan")
    call = f"tried({', '.join(values)})" if values else "tried"
    found = link.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {call}".encode()).fetchone()
    text = json.dumps(found[0]) if found is not None else ""
    return set(re.findall(r'"Relation Name": "[a-z]+_([0-9])"', text)) | inserted_places(statement.text.decode())


def inserted_places(text: str) -> set[str]:
    """Where a statement inserts rows, if it does: a plan names the whole table, and the row decides."""
    rows = re.findall(r"INSERT INTO \w+\.\w+ \(sid, [^)]*\) (?:VALUES \(|SELECT )(\$\d|sid\b)", text)
    # The first uuid of a statement is of the first place; a `sid` that was read is where it was read.
    return {str(int(row[1:]) - 1) for row in rows if row != "sid"}


def sids_of_places(link: psycopg.Connection[tuple[object, ...]], schema: str) -> list[str]:
    """One sid of each place, in their order."""
    found: dict[int, str] = {}
    for number in range(100):
        sid = f"{number:032x}"
        found.setdefault(place_of(link, schema, sid), sid)
    return [found[place] for place in range(PLACES)]


VALUES = {
    "bigint": "{}",
    "bigint[]": "'{{7}}'",
    "boolean": "true",
    "boolean[]": "'{{true}}'",
    "bytea": "'x'",
    "double precision": "1",
    "integer": "{}",
    "smallint": "1",
    "text": "'00'",
    "text[]": "'{{x}}'",
    "uuid[]": "'{{00000000000000000000000000000000}}'",
}


def test_a_statement_touches_the_place_of_the_session_that_it_names(distributed: str) -> None:
    with connected(distributed) as link:
        found = {name: places_in_plan(link, distributed, name) for name in TEXTS}
    assert {name for name in found if not found[name]} == ABOUT_NO_SESSION
    assert {name for name in found if len(found[name]) == PLACES} == ABOUT_ALL_SESSIONS
    assert {name for name in found if len(found[name]) == 2} == ABOUT_TWO_SESSIONS
    assert {name for name in found if found[name] == {"0"}} == set(TEXTS) - EXCEPTIONS


def test_the_documentation_names_the_exceptions() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    named = {
        word
        for line in page.splitlines()
        if line.startswith("| statements about ")
        for word in re.findall(r"`([a-z_]+)`", line)
    }
    assert named == EXCEPTIONS
