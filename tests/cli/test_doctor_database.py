"""nacre doctor on a store in PostgreSQL: what it asks the database, and what it says to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nacre.cli.commands.database_checks import database_checks, inspection_checks
from nacre.cli.commands.diagnostics import Check, check_database
from nacre.opening import inspect_database
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import VERSION, init
from tests.cli.conftest import Nacre
from tests.postgres.pgbouncer import PgBouncer
from tests.postgres.servers import PostgresServer, Standby


def checks(url: str) -> dict[str, Check]:
    """The checks of a database by name; the sessions are not counted."""
    found = database_checks(url, lambda _: Check("store", "ok", "counted"))
    return {check.name: check for check in found}


def of_doctor(nacre: Nacre) -> dict[str, Any]:
    return {check["name"]: check for check in nacre("doctor", "--json").json["checks"]}


def role(postgres: PostgresServer, database: str, *grants: str) -> str:
    """The address of the store for a role of its own with these privileges."""
    name = parse(database).schema.replace("test_", "role_")
    postgres.query(f"CREATE ROLE {name} LOGIN")
    for grant in grants:
        postgres.query(f"GRANT {grant.format(s=parse(database).schema)} TO {name}")
    return database.replace("postgres@", f"{name}@", 1)


def test_doctor_says_how_the_database_is(nacre: Nacre, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    init(parse(database))
    monkeypatch.setenv("NACRE_STORE_URL", database)
    found = of_doctor(nacre)
    assert found["store"]["detail"] == f"{database}: 0 sessions, 0 archived"
    assert found["server"]["detail"].startswith("PostgreSQL ")
    assert {"durability", "standby", "connection", "latency", "clock", "search", "quarantine", "folder"} <= set(found)
    # What is about files is not asked of a database.
    assert not {"permissions", "writing", "leftovers", "index"} & set(found)
    assert found["role"]["status"] == "warn"
    assert "superuser" in found["role"]["detail"]


def test_doctor_fails_if_the_database_is_not_there(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_STORE_URL", "postgresql://127.0.0.1:1/db")
    done = nacre("doctor", "--json")
    (store,) = [check for check in done.json["checks"] if check["name"] == "store"]
    assert (done.code, store["status"]) == (1, "fail")
    assert "cannot be used" in store["detail"]


def test_doctor_names_an_address_that_cannot_be_used(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_STORE_URL", "postgresql://db.example/x?sslmode=disable")
    done = nacre("doctor", "--json")
    assert done.code == 1
    assert "without TLS" in done.json["checks"][-1]["detail"]


def test_tables_that_are_missing_are_named_with_the_command(database: str) -> None:
    store = checks(database)["store"]
    assert (store.status, store.hint) == ("fail", f"nacre store init '{database}'")


def test_tables_of_another_version_are_named(database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    postgres.query(f"UPDATE {parse(database).schema}.store SET version = {VERSION + 1}")  # noqa: S608 - our own name
    assert (checks(database)["store"].status, checks(database)["store"].hint) == ("fail", "update nacre")


def test_a_server_that_does_not_flush_fails(database: str) -> None:
    # The shared server of the tests is such a one.
    found = checks(database)["durability"]
    assert (found.status, "fsync = off" in found.detail) == ("fail", True)


def test_a_role_that_may_not_write_is_named_with_what_it_lacks(database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    url = role(postgres, database, "USAGE ON SCHEMA {s}", "SELECT ON ALL TABLES IN SCHEMA {s}")
    found = checks(url)["role"]
    assert (found.status, "INSERT on blobs" in found.detail) == ("fail", True)
    assert f"GRANT INSERT ON {parse(database).schema}.blobs TO" in found.hint
    # Nor does a daemon start with it.
    assert check_database(url) == found


def test_a_role_without_the_schema_is_told_so(database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    found = checks(role(postgres, database))
    assert (found["role"].status, "USAGE on schema" in found["role"].detail) == ("fail", True)
    assert (found["store"].hint, found["store"].status) == (found["role"].hint, "fail")


def test_a_role_with_the_least_that_is_needed_is_sound(database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    write = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s}"
    url = role(postgres, database, "USAGE ON SCHEMA {s}", write, "USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {s}")
    assert checks(url)["role"].status == "ok"
    # Whether one is connected, it may not know.
    assert inspect_database(url).standbys is None


def test_a_pooler_is_noticed(database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    with PgBouncer(postgres) as bouncer:
        url = f"{bouncer.url()}?schema={parse(database).schema}"
        assert "through a pooler" in checks(url)["connection"].detail
    assert "pooler" not in checks(database)["connection"].detail


def test_a_synchronous_standby_is_noticed_and_missed() -> None:
    with PostgresServer() as server:
        init(parse(server.url()))
        assert "no synchronous standby" in checks(server.url())["standby"].detail
        with Standby(server):
            found = checks(server.url())["standby"]
            assert (found.status, "connected: 1" in found.detail) == ("ok", True)


@pytest.mark.parametrize(
    ("name", "changes", "status", "said"),
    [
        ("clock", {"clock_ahead": 30.0}, "warn", "30 seconds fast"),
        ("clock", {"clock_ahead": -30.0}, "warn", "30 seconds slow"),
        ("latency", {"round_trip": 0.08}, "warn", "80.0 ms"),
        ("server", {"encoding": "LATIN1"}, "fail", "sessions need UTF8"),
        ("server", {"release_number": 120_000}, "fail", "PostgreSQL"),
        ("durability", {"fsync": "on", "page_writes": "on", "commits": "off"}, "ok", "nacre turns"),
        ("durability", {"fsync": "on", "page_writes": "on", "commits": "local", "is_pooled": True}, "fail", "pooler"),
        ("standby", {"standby_names": "b", "standbys": 0}, "fail", "none is connected"),
        ("standby", {"standby_names": "b", "standbys": None}, "ok", "may not see"),
        ("connection", {"is_encrypted": True}, "ok", "with TLS"),
        ("search", {"has_trigrams": True, "is_indexed": True}, "ok", "found by an index"),
        ("search", {"has_trigrams": True, "is_indexed": False, "tables": 1}, "warn", "by reading every text"),
        ("search", {"has_trigrams": False}, "ok", "by reading every text"),
    ],
)
def test_what_is_wrong_with_a_database_is_said(
    database: str, name: str, changes: dict[str, Any], status: str, said: str
) -> None:
    found = inspect_database(database)._replace(**changes)
    (check,) = [check for check in inspection_checks(found) if check.name == name]
    assert (check.status, said in check.detail) == (status, True), check
    assert check.hint or status == "ok"


def test_a_sealed_database_is_named_with_where_its_sessions_went(
    nacre: Nacre, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(parse(database))
    assert nacre("sessions", "copy", database, str(tmp_path / "files"), "--finish").code == 0
    monkeypatch.setenv("NACRE_STORE_URL", database)
    for words in (("doctor",), ("serve", "--check", "--port", "0")):
        done = nacre(*words, "--json")
        (store,) = [check for check in done.json["checks"] if check["name"] == "store"]
        assert (done.code, store["status"]) == (1, "fail"), words
        assert f"its sessions were moved to {tmp_path}/files" in store["detail"]
        assert f"nacre sessions unseal '{database}'" in store["hint"]
    assert nacre("store", "--json").json["sealed_to"] == f"{tmp_path}/files"
