"""The address of a store in PostgreSQL: what it means, what is refused, and that its password is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.errors import ConfigError
from nacre.storage.postgres.address import for_agent, has_password, hide_password, parse, passwords_in, with_password

SECRET = "geheim-geheim"  # noqa: S105 - it opens nothing

WITH_PASSWORD = (
    f"postgresql://ada:{SECRET}@127.0.0.1/db",
    f"postgres://ada:{SECRET}@127.0.0.1:5433/db?schema=chats",
    f"postgresql://ada@127.0.0.1/db?password={SECRET}",
    f"postgresql://127.0.0.1/db?schema=chats&sslpassword={SECRET}",
    # Special characters that were not escaped, so that another part looks like the password.
    f"postgresql://ada:a/{SECRET}@127.0.0.1/db",
    f"postgresql://ada:a?{SECRET}@127.0.0.1/db",
    f"postgresql://ada:12?{SECRET}@127.0.0.1/db",
    f"postgresql://ada:a#{SECRET}@127.0.0.1/db",
    f"postgresql://ada:a@{SECRET}@127.0.0.1/db",
    f"postgresql://ada:%zz{SECRET}@127.0.0.1/db",
    f"postgresql://ada:%00{SECRET}@127.0.0.1/db",
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment says where the database is."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_password_is_noticed_and_never_shown(url: str) -> None:
    assert has_password(url)
    assert SECRET not in hide_password(url)
    try:
        found = parse(url).shown
    except ConfigError as error:
        found = str(error)
    assert SECRET not in found


@pytest.mark.parametrize(
    "url",
    ["postgresql://127.0.0.1/db", "postgresql://ada@[::1]:5432/db?schema=x", "postgresql:///db?host=/run&user=a%40b"],
)
def test_an_address_without_a_password_is_shown_as_it_can_be_given_again(url: str) -> None:
    assert not has_password(url)
    assert parse(parse(url).shown) == parse(url)


def test_passwords_are_known_as_written_and_as_sent() -> None:
    assert passwords_in("postgresql://ada:a%40b@h/db?sslpassword=key") == ["a%40b", "a@b", "key"]
    assert passwords_in("postgresql://ada@h/db") == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1/db",
        "postgresql://localhost/db",
        "postgresql:///db",
        "postgresql://[::1]/db",
        "postgresql://%2Frun%2Fpostgresql/db",
        "postgresql:///db?host=/run/postgresql",
    ],
)
def test_a_database_on_this_machine_needs_no_tls(url: str) -> None:
    assert "sslmode" not in parse(url).conninfo


@pytest.mark.parametrize(
    "url",
    ["postgresql://db.example/x", "postgresql://localhost,db.example/x", "postgresql://localhost/x?hostaddr=10.0.0.5"],
)
def test_a_database_elsewhere_is_reached_by_tls(url: str) -> None:
    assert "sslmode=require" in parse(url).conninfo
    separator = "&" if "?" in url else "?"
    assert "sslmode=verify-full" in parse(f"{url}{separator}sslmode=verify-full").conninfo
    with pytest.raises(ConfigError, match="without TLS"):
        parse(f"{url}{separator}sslmode=prefer")


def test_the_environment_may_ask_for_more_than_tls_but_not_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert "sslmode" not in parse("postgresql://db.example/x").conninfo
    monkeypatch.setenv("PGSSLMODE", "disable")
    with pytest.raises(ConfigError, match="without TLS"):
        parse("postgresql://db.example/x")


def test_a_host_from_the_environment_is_reached_by_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert "sslmode=require" in parse("postgresql:///x").conninfo


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_service_file_says_where_the_database_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_variable: bool
) -> None:
    file = tmp_path / "services"
    file.write_text(
        "[here]\nhost=127.0.0.1\n[there]\nhost=db.example\n[sure]\nhost=db.example\nsslmode=verify-full\n"
        "[bare]\nhost=db.example\nsslmode=disable\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))

    def conninfo(service: str) -> str:
        if by_variable:
            monkeypatch.setenv("PGSERVICE", service)
            return parse("postgresql:///x").conninfo
        return parse(f"postgresql:///x?service={service}").conninfo

    assert "sslmode" not in conninfo("here")
    assert "sslmode=require" in conninfo("there")
    # What the file asks for would be weakened by what the address says.
    assert "sslmode" not in conninfo("sure")
    assert "sslmode=require" in conninfo("unknown")
    with pytest.raises(ConfigError, match="without TLS"):
        conninfo("bare")


def test_another_agent_has_a_schema_of_its_own() -> None:
    url = f"postgresql://ada:{SECRET}@127.0.0.1/db?connect_timeout=3"
    assert for_agent(url, "tax-clerk") == f"{url}&schema=nacre_tax_clerk"
    assert parse(for_agent("postgresql://127.0.0.1/db?schema=chats", "clerk")).schema == "chats_clerk"
    with pytest.raises(ConfigError, match="too long"):
        for_agent(f"postgresql://127.0.0.1/db?schema={'a' * 60}", "clerk")


def test_what_is_shown_can_be_given_again_with_the_password_that_is_known() -> None:
    known = f"postgresql://ada:{SECRET}@127.0.0.1/db"
    assert with_password("postgresql://ada@127.0.0.1/db?schema=nacre_clerk", known) == f"{known}?schema=nacre_clerk"
    for other in ("postgresql://ada@127.0.0.1/other", "postgresql://bob@127.0.0.1/db", "postgresql://127.0.0.1:1/db"):
        assert with_password(other, known) == other
    assert with_password("postgresql://ada@127.0.0.1/db", "") == "postgresql://ada@127.0.0.1/db"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://h/db", "not as mysql://"),
        ("postgresql://127.0.0.1/db?schema=Chats", "schema must be a name"),
        ("postgresql://127.0.0.1/db/more", "more after its database"),
        ("postgresql://127.0.0.1/db#part", "more after its database"),
        ("postgresql://[::1/db", "cannot be read"),
    ],
)
def test_what_is_no_address_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(url)


def test_a_folder_has_no_password() -> None:
    assert not has_password("/home/user:name@here")


def test_a_service_file_that_cannot_be_read_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "services"
    file.write_text("[mine\nhost=127.0.0.1\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    # It may be elsewhere.
    assert "sslmode=require" in parse("postgresql:///x?service=mine").conninfo
