"""The tables of a store in PostgreSQL: made once, upgraded, and refused if they are not what this program knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import nacre
from nacre.errors import ConfigError, FormatTooNew, StoreError
from nacre.storage.postgres.address import Address, parse
from nacre.storage.postgres.inspection import inspect, read_seal
from nacre.storage.postgres.schema import VERSION, init, upgrade
from nacre.storage.postgres.statements import Statements
from tests.postgres.rows import Rows
from tests.postgres.servers import PostgresServer


@pytest.fixture
def rows(database: str) -> Iterator[Rows]:
    init(parse(database))
    with Rows(database) as found:
        yield found


def test_tables_are_made_once_and_keep_what_is_in_them(database: str) -> None:
    assert init(parse(database))
    with nacre.open(database) as sessions:
        sessions.add_message("k", "user", "a")
    assert not init(parse(database))
    assert upgrade(parse(database)) == (VERSION, VERSION, False)
    with nacre.open(database) as sessions:
        assert len(sessions.get_history("k")) == 1


def test_a_database_without_tables_says_how_to_make_them(database: str) -> None:
    with pytest.raises(StoreError, match=r"no tables of nacre in schema 'test_.* run `nacre store init 'postgresql"):
        nacre.open(database)
    with pytest.raises(StoreError, match="has no tables of nacre: run `nacre store init 'postgresql"):
        upgrade(parse(database))


def test_tables_that_were_not_finished_are_finished(database: str, rows: Rows) -> None:
    rows.run("DELETE FROM {s}.store")
    with pytest.raises(StoreError, match="tables of version 0: run `nacre store upgrade"):
        nacre.open(database)
    assert init(parse(database))
    nacre.open(database).close()


def test_tables_of_a_later_version_are_left_alone(database: str, rows: Rows) -> None:
    rows.run("UPDATE {s}.store SET version = 99")
    for act in (nacre.open, lambda url: upgrade(parse(url))):
        with pytest.raises(FormatTooNew, match=f"tables of version 99, this nacre knows {VERSION}: update nacre"):
            act(database)


@pytest.mark.parametrize("act", [init, upgrade, inspect, lambda address: nacre.open(address.shown)])
def test_a_server_that_is_not_there_is_named(act: Callable[[Address], object]) -> None:
    with pytest.raises(StoreError, match=r"the database at postgresql://127\.0\.0\.1:1/db cannot be used: "):
        act(parse("postgresql://127.0.0.1:1/db"))


def test_parts_of_words_are_indexed_where_the_database_can(postgres: PostgresServer) -> None:
    indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = 'nacre' AND indexname LIKE '%_parts' ORDER BY 1"
    url = postgres.create_database("trigrams")
    try:
        init(parse(url))
        assert postgres.query(indexes, database="trigrams") == []
        postgres.query("CREATE SCHEMA more; CREATE EXTENSION pg_trgm SCHEMA more", database="trigrams")
        before = inspect(parse(url))
        assert (before.has_trigrams, before.is_indexed) == (True, False)
        assert [upgrade(parse(url)).added_trigrams for _ in range(2)] == [True, False]
        assert postgres.query(indexes, database="trigrams") == [["sessions_parts"], ["texts_parts"]]
        assert inspect(parse(url)).is_indexed
    finally:
        postgres.query("DROP DATABASE trigrams WITH (FORCE)")


def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    postgres.query("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        init(parse(postgres.url("latin")))
        with pytest.raises(ConfigError, match="must be UTF8, not LATIN1: create another one"):
            nacre.open(postgres.url("latin"))
    finally:
        postgres.query("DROP DATABASE latin WITH (FORCE)")


def test_a_statement_that_there_is_not_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        Statements("nacre").nothing_like_it  # noqa: B018


# Looking at a database


def test_a_database_says_what_it_is(database: str, rows: Rows) -> None:
    found = inspect(parse(database))
    assert (found.encoding, found.commits, found.fsync, found.is_superuser, found.may_create) == (
        "UTF8",
        "off",
        "off",
        True,
        True,
    )
    assert (found.tables, found.known, found.lacking, found.standbys) == (VERSION, VERSION, (), 0)
    assert (found.is_pooled, found.is_encrypted) == (False, False)
    assert found.release_number >= 130000
    assert found.release.startswith(str(found.release_number // 10000))
    assert rows.run("SELECT count(*) FROM {s}.sessions") == [(0,)]


def test_what_a_role_may_not_do_is_named(postgres: PostgresServer, database: str, rows: Rows) -> None:
    schema = parse(database).schema
    assert inspect(parse(f"{database}_none")).tables == 0
    postgres.query("CREATE ROLE reader LOGIN")
    try:
        address = parse(database.replace("postgres@", "reader@", 1))
        assert (inspect(address).lacking[0], inspect(address).tables) == (f"USAGE on schema {schema}", 0)
        postgres.query(f"GRANT USAGE ON SCHEMA {schema} TO reader")
        assert inspect(address).tables == 0
        postgres.query(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO reader")
        postgres.query(f"REVOKE DELETE ON {schema}.store, {schema}.records FROM reader")
        found = inspect(address)
        assert (found.role, found.is_superuser, found.may_create, found.standbys) == ("reader", False, False, None)
        assert (found.tables, found.lacking) == (VERSION, ("DELETE on records",))
        with nacre.open(database.replace("postgres@", "reader@", 1)) as sessions:
            sessions.add_message("k", "user", "a")
            with pytest.raises(StoreError, match=r"permission denied .*says what the role needs"):
                sessions.delete("k")
    finally:
        postgres.query("DROP OWNED BY reader; DROP ROLE reader")


def test_an_inspection_does_without_what_a_role_may_not_ask(postgres: PostgresServer, database: str) -> None:
    postgres.query("CREATE ROLE asker LOGIN; REVOKE SELECT ON pg_stat_replication FROM public")
    try:
        assert inspect(parse(database.replace("postgres@", "asker@", 1))).standbys is None
    finally:
        postgres.query("GRANT SELECT ON pg_stat_replication TO public; DROP ROLE asker")


def test_where_a_store_was_moved_is_read_without_opening_it(database: str, rows: Rows) -> None:
    assert read_seal(parse(database)) == ""
    rows.run("UPDATE {s}.store SET sealed_to = 'elsewhere'")
    assert read_seal(parse(database)) == "elsewhere"
    with pytest.raises(StoreError, match="cannot be used"):
        read_seal(parse("postgresql://127.0.0.1:1/db"))
