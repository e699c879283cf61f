"""A server that refuses, hangs or is not as it should be: what the caller is told, and that nothing is stored then."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import nacre
from nacre.errors import ConfigError, DurabilityUnknown, FormatTooNew, Refused, StoreError
from tests.postgres.guard import stopped
from tests.postgres.opened import create, open_store, opened, said, through
from tests.postgres.programs import make_folder
from tests.postgres.proxy import Proxy
from tests.postgres.servers import PostgresServer

PATIENT = 60.0
LIMITED = """
CREATE ROLE {role} LOGIN;
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
"""
FAIL = """
CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$;
CREATE {when} ON {schema}.records {deferred} FOR EACH ROW EXECUTE FUNCTION {schema}.fail()
"""


def user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


@pytest.fixture
def url(database: str) -> str:
    return create(database)


@pytest.fixture
def schema(url: str) -> str:
    return url.partition("schema=")[2]


Run = Callable[[str], object]


@pytest.fixture
def run(postgres: PostgresServer) -> Run:
    """Runs a statement as the administrator."""
    return postgres.query


def limits(seconds: float) -> Iterator[float]:
    begun = time.monotonic()
    yield begun
    assert time.monotonic() - begun < seconds


within = contextmanager(limits)


# ---- it refuses


@pytest.mark.parametrize(
    ("when", "deferred"),
    [("TRIGGER fail BEFORE INSERT", ""), ("CONSTRAINT TRIGGER fail AFTER INSERT", "DEFERRABLE INITIALLY DEFERRED")],
    ids=["at the statement", "at the commit"],
)
def test_a_database_that_is_full_stores_nothing_and_says_so(
    when: str, deferred: str, url: str, schema: str, run: Run
) -> None:
    with opened(url, patience=1) as sessions:
        sessions.add_message("k", "user", "a")
        run(FAIL.format(schema=schema, code="53100", when=when, deferred=deferred))
        for act in (
            lambda: sessions.add_message("k", "user", "b"),
            lambda: sessions.add_messages("k", [user("b"), user("c")], id="i"),
            lambda: sessions.add_message("new", "user", "b"),
            lambda: sessions.fork("k", "new"),
        ):
            with pytest.raises(Refused, match=r"nothing was stored: the database is full: could not .*53100"):
                act()
        assert sessions.get_history("k")[0].content == "a"
        run(f"DROP TRIGGER fail ON {schema}.records")
        assert sessions.add_messages("k", [user("b"), user("c")], id="i") == 4
        assert (said(sessions, "k"), sessions.exists("new")) == (["a", "b", "c"], False)


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A file system of its own for a server; skipped where nobody may mount one."""
    folder = make_folder("disk")
    options = f"size={size},uid={pwd.getpwnam('nobody').pw_uid},mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "nacre", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk; a full database is also simulated by a trigger")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_loses_nothing_that_was_acknowledged() -> None:
    with small_disk("48m") as disk, PostgresServer() as server:
        server.query(f"CREATE TABLESPACE small LOCATION '{disk}'")
        server.query("CREATE DATABASE small TABLESPACE small TEMPLATE template0")
        url = create(f"{server.url('small')}?schema=small")
        acknowledged: list[str] = []
        with opened(url, patience=1) as sessions:

            def fill() -> None:
                while True:
                    # Random, so that no page is compressed.
                    text = os.urandom(20_000).hex()
                    sessions.add_message("k", "user", text)
                    acknowledged.append(text)

            with pytest.raises(Refused, match=r"nothing was stored: the database is full: could not .*No space left"):
                fill()
            assert acknowledged
            assert said(sessions, "k") == acknowledged
            assert sessions.verify("k").ok
            with pytest.raises(Refused, match="full"):
                sessions.add_message("k", "user", os.urandom(20_000).hex())
            # Somebody makes room.
            server.kill()
            subprocess.run(["mount", "-o", "remount,size=96m", str(disk)], check=True)
            server.start()
            acknowledged.append("b")
            sessions.add_message("k", "user", "b")
            assert said(sessions, "k") == acknowledged


def test_a_role_that_may_only_read_is_told_what_it_needs(postgres: PostgresServer, url: str, schema: str) -> None:
    role = f"reader_{schema}"
    with opened(url) as sessions:
        sessions.add_message("k", "user", "a")
    postgres.query(LIMITED.format(schema=schema, role=role))
    try:
        with opened(f"{postgres.url(user=role)}?schema={schema}", patience=1) as sessions:
            assert said(sessions, "k") == ["a"]
            for act in (lambda: sessions.add_message("k", "user", "b"), lambda: sessions.delete("k")):
                with pytest.raises(StoreError, match=r"permission denied for table .*says what the role needs"):
                    act()
            assert said(sessions, "k") == ["a"]
    finally:
        postgres.query(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_tables_that_are_not_there_are_named_with_the_command_that_makes_them(url: str, schema: str, run: Run) -> None:
    with pytest.raises(StoreError, match="run `nacre store init"):
        opened(url.replace(schema, "nobody_made_it"))
    with opened(url, patience=1) as sessions:
        sessions.add_message("k", "user", "a")
        run(f"DROP TABLE {schema}.records")
        for act in (lambda: sessions.add_message("k", "user", "b"), lambda: sessions.transcript("k")):
            with pytest.raises(StoreError, match=r"has no tables of nacre in schema .* run `nacre store init"):
                act()


def test_tables_of_a_later_version_are_left_alone(url: str, schema: str, run: Run) -> None:
    run(f"UPDATE {schema}.store SET version = 99")  # noqa: S608 - our own name
    with pytest.raises(FormatTooNew, match=r"version 99.*update nacre"):
        opened(url)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused_at_the_start(
    encoding: str, postgres: PostgresServer, schema: str
) -> None:
    name = f"{schema}_{encoding.lower()}"
    postgres.query(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    try:
        with pytest.raises(ConfigError, match=f"must be UTF8, not {encoding}"):
            opened(f"{postgres.url(name)}?schema={schema}")
    finally:
        postgres.query(f"DROP DATABASE {name} WITH (FORCE)")


# ---- it is set up differently


@pytest.fixture
def set_up(postgres: PostgresServer, url: str, schema: str) -> Iterator[Callable[..., str]]:
    """The address of the store for a role with settings of its own."""
    role = f"odd_{schema}"

    def make(**settings: str) -> str:
        postgres.query(f"CREATE ROLE {role} LOGIN SUPERUSER")
        for name, value in settings.items():
            postgres.query(f"ALTER ROLE {role} SET {name} = '{value}'")
        return f"{postgres.url(user=role)}?schema={schema}"

    yield make
    postgres.query(f"DROP ROLE IF EXISTS {role}")


def test_a_session_that_may_only_read_is_refused_at_the_start(set_up: Callable[..., str]) -> None:
    with pytest.raises(StoreError, match=r"cannot be used: .*read-only"):
        opened(set_up(default_transaction_read_only="on"))


def test_a_server_that_turns_read_only_stores_nothing_and_is_waited_for(url: str, run: Run) -> None:
    with opened(url, patience=0.5) as sessions:
        sessions.add_message("k", "user", "a")
        try:
            run("ALTER SYSTEM SET default_transaction_read_only = on")
            run("SELECT pg_reload_conf()")

            def write() -> None:
                # Each connection hears of it when it likes.
                while True:
                    sessions.add_message("other", "user", "b")

            with pytest.raises(Refused, match=r"nothing was stored: .*read-only"):
                write()
            assert said(sessions, "k") == ["a"]
        finally:
            run("ALTER SYSTEM RESET default_transaction_read_only")
            run("SELECT pg_reload_conf()")


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_serialization_failures_are_tried_again(isolation: str, set_up: Callable[..., str]) -> None:
    url = set_up(default_transaction_isolation=isolation)
    stores = [opened(url, patience=PATIENT) for _ in range(3)]

    def write(n: int) -> None:
        for at in range(10):
            stores[n % 3].add_messages("k", [user(f"{n}-{at}")], id=f"{n}-{at}")
            stores[n % 3].set_meta(f"own-{n}", {"at": at})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    found = said(stores[0], "k")
    assert len(found) == len(set(found)) == 60
    for n in range(6):
        assert [text for text in found if str(text).startswith(f"{n}-")] == [f"{n}-{at}" for at in range(10)]
    for store in stores:
        store.close()


def test_a_statement_timeout_refuses_what_takes_too_long(set_up: Callable[..., str], schema: str, run: Run) -> None:
    with opened(set_up(statement_timeout="300ms"), patience=1) as sessions:
        sessions.add_message("k", "user", "a")
        run(
            f"CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;"
            f"CREATE TRIGGER slow BEFORE INSERT ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.slow()"
        )
        with within(PATIENT), pytest.raises(Refused, match=r"nothing was stored: .*statement timeout"):
            sessions.add_message("k", "user", "b")
        assert said(sessions, "k") == ["a"]


def test_a_program_that_stops_in_a_transaction_does_not_keep_its_locks(url: str) -> None:
    with closing(open_store(url, patience=PATIENT, timeout=1)) as store, opened(url, patience=PATIENT) as others:
        others.add_message("k", "user", "a")
        stops: list[int] = []

        def stop(*_: object) -> list[int]:
            # Between two statements, with the row locked: as long as it takes until another one can write.
            if not stops:
                stops.append(others.add_message("k", "user", "b"))
            return []

        redaction = store.redact("k", 2, uid="", find_copies=stop, has_copies=False)
        assert (stops, redaction.erased) == ([3], (2,))
        assert said(others, "k")[-1] == "b"


def test_an_idle_transaction_that_was_ended_is_done_again(url: str, run: Run) -> None:
    with closing(open_store(url, patience=PATIENT)) as store, opened(url) as others:
        others.add_message("k", "user", "a")
        ends: list[object] = []

        def end(*_: object) -> list[int]:
            if not ends:
                idle = "pid <> pg_backend_pid() AND state = 'idle in transaction'"
                ends.append(run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {idle}"))  # noqa: S608
            return []

        assert store.redact("k", 2, uid="", find_copies=end, has_copies=False).erased == (2,)
        assert ends == [[["t"]]]
        assert [entry.kind for entry in others.records("k")].count("mark") == 1


# ---- it hangs


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_does_not_answer_is_given_up(when: str, url: str, proxy: Proxy) -> None:
    proxy.uncounted = b"notify"
    with opened(through(url, proxy.port), patience=1, timeout=1) as sessions, opened(url) as direct:
        sessions.add_message("k", "user", "a")
        sessions.append("k", "x.note", 1)
        proxy.reset()
        (proxy.stall_before if when == "before" else proxy.stall_after)(1)
        with within(PATIENT), pytest.raises(DurabilityUnknown, match="retry with the same id"):
            sessions.add_messages("k", [user("b")], id="i")
        with within(PATIENT), pytest.raises(StoreError):
            sessions.get_history("k")
        with within(PATIENT), pytest.raises(StoreError, match="cannot be used"):
            opened(through(url, proxy.port), patience=1, timeout=1)
        proxy.resume()
        assert sessions.add_messages("k", [user("b")], id="i") == 4
        assert said(direct, "k") == ["a", "b"]


def test_a_server_whose_processes_are_stopped_is_given_up_and_used_again(server: PostgresServer) -> None:
    url = create(f"{server.url()}?schema=stopped")
    with opened(url, patience=1, timeout=1) as sessions:
        sessions.add_message("k", "user", "a")
        with stopped(server.data):
            with within(PATIENT), pytest.raises(DurabilityUnknown):
                sessions.add_messages("k", [user("b")], id="i")
            with within(PATIENT), pytest.raises(StoreError):
                sessions.archive("k")
        assert sessions.add_messages("k", [user("b")], id="i") == 3
        assert said(sessions, "k") == ["a", "b"]


def test_closing_a_store_whose_server_is_gone_does_not_hang(server: PostgresServer) -> None:
    url = create(f"{server.url()}?schema=gone")
    sessions = opened(url, patience=1, timeout=1)
    turns = [sessions.hold(f"k{n}") for n in range(20)]
    for turn in turns:
        turn.take()
    sessions.add_message("k", "user", "a")
    server.kill()
    with within(20):
        sessions.close()
    server.start()
    with opened(url) as others:
        assert said(others, "k") == ["a"]


def test_a_relaxed_store_that_was_closed_is_flushed() -> None:
    # The server's own writer would flush it after a while.
    with PostgresServer({"wal_writer_delay": "10s", "wal_writer_flush_after": 0}) as server:
        url = create(f"{server.url()}?schema=relaxed")
        with opened(url, relaxed=True) as sessions:
            sessions.add_message("k", "user", "a")
        server.kill()
        server.start()
        with opened(url) as sessions:
            assert said(sessions, "k") == ["a"]


def test_a_connection_that_is_ended_by_an_administrator_is_replaced(url: str, run: Run) -> None:
    with opened(url, patience=PATIENT) as sessions:
        for n in range(5):
            sessions.add_message("k", "user", str(n))
            run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nacre'")
        assert said(sessions, "k") == [str(n) for n in range(5)]
