"""nacre store: which store it is, and how a database is prepared for one."""

from __future__ import annotations

import pytest

from nacre.storage.postgres import schema
from nacre.storage.postgres.address import parse
from tests.cli.conftest import Nacre
from tests.postgres.servers import PostgresServer

SECRET = "geheim-geheim"  # noqa: S105 - it opens nothing


def test_the_store_is_named_with_who_says_so(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nacre("store").out == f"store   {nacre.root}  (NACRE_HOME)\n"
    monkeypatch.setenv("NACRE_STORE_URL", f"postgresql://ada:{SECRET}@127.0.0.1/db")
    done = nacre("store", "--json")
    assert done.json == {
        "schema_version": 1,
        "ok": True,
        "store": "postgresql://ada@127.0.0.1/db",
        "source": "NACRE_STORE_URL",
        "folder": str(nacre.root),
    }
    assert nacre("store", "--store", "/elsewhere").out == "store   /elsewhere  (--store)\n"


def test_init_makes_the_tables_once(nacre: Nacre, database: str) -> None:
    first = nacre("store", "init", database, "--json")
    assert (first.code, first.json["created"], first.json["store"]) == (0, True, database)
    nacre.run("--store", database, "sessions", "list")
    second = nacre("store", "init", database)
    assert (second.code, second.out) == (0, f"{database}: was ready already; nothing was changed\n")


def test_init_needs_no_address_if_one_is_configured(
    nacre: Nacre, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_STORE_URL", database)
    assert nacre("store", "init").code == 0
    assert nacre("sessions", "list", "--json").json["items"] == []


def test_init_for_another_agent_makes_its_schema(nacre: Nacre, database: str, postgres: PostgresServer) -> None:
    assert nacre("--agent", "clerk", "store", "init", database).code == 0
    name = f"{parse(database).schema}_clerk"
    assert postgres.query(f"SELECT 1 FROM pg_namespace WHERE nspname = '{name}'") == [["1"]]  # noqa: S608 - our own name
    assert nacre("--agent", "clerk", "--store", database, "sessions", "list").code == 0
    postgres.query(f"DROP SCHEMA {name} CASCADE")


def test_a_folder_needs_no_tables(nacre: Nacre) -> None:
    for verb in ("init", "upgrade"):
        done = nacre("store", verb)
        assert (done.code, "postgresql://HOST/NAME" in done.err) == (2, True)


def test_a_database_without_tables_names_the_command_that_makes_them(nacre: Nacre, database: str) -> None:
    done = nacre("--store", database, "sessions", "list")
    assert (done.code, done.out) == (1, "")
    command = f"nacre store init '{database}'"
    assert f"`{command}`" in done.err
    assert nacre("store", "init", database).code == 0
    assert nacre("--store", database, "sessions", "list").code == 0


def test_upgrade_says_what_it_did(nacre: Nacre, database: str) -> None:
    done = nacre("store", "upgrade", database)
    assert (done.code, "nacre store init" in done.err) == (1, True)
    schema.init(parse(database))
    done = nacre("store", "upgrade", database, "--json")
    assert (done.code, done.json["from_version"], done.json["to_version"]) == (0, schema.VERSION, schema.VERSION)


def test_tables_of_a_later_version_are_not_touched(nacre: Nacre, database: str, postgres: PostgresServer) -> None:
    schema.init(parse(database))
    postgres.query(f"UPDATE {parse(database).schema}.store SET version = {schema.VERSION + 1}")  # noqa: S608 - the same
    for words in (("store", "upgrade"), ("sessions", "list")):
        done = nacre("--store", database, *words)
        assert (done.code, "update nacre" in done.err) == (8, True)


@pytest.mark.parametrize("verb", ["init", "upgrade"])
def test_a_password_on_the_command_line_is_refused(nacre: Nacre, verb: str) -> None:
    done = nacre("store", verb, f"postgresql://ada:{SECRET}@127.0.0.1/db")
    assert (done.code, SECRET in done.out + done.err) == (2, False)
    assert "PGPASSWORD" in done.err


def test_a_password_cannot_be_written_into_the_configuration(nacre: Nacre) -> None:
    done = nacre("config", "set", "store.url", f"postgresql://ada:{SECRET}@127.0.0.1/db")
    assert (done.code, SECRET in done.out + done.err) == (2, False)
    assert nacre("config", "set", "store.url", "postgresql://ada@127.0.0.1/db").code == 0
    assert nacre("store").out.splitlines()[0].startswith("store   postgresql://ada@127.0.0.1/db  (store.url in ")


def test_a_unit_has_the_address_of_the_environment_without_its_password(
    nacre: Nacre, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "NACRE_STORE_URL" not in nacre("serve", "--unit").out
    monkeypatch.setenv("NACRE_STORE_URL", f"postgresql://ada:{SECRET}@127.0.0.1/db")
    unit = nacre("serve", "--unit").out
    assert SECRET not in unit
    assert "--store postgresql://ada@127.0.0.1/db" in unit
    assert "# The same address with its password, if it has one, belongs into this file: NACRE_STORE_URL=" in unit
