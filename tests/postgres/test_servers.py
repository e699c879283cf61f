"""The servers, the pool and the proxy that the tests of PostgreSQL stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from tests.postgres.guard import processes_in
from tests.postgres.pgbouncer import PgBouncer
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres.servers import PostgresServer, Standby

ROOT = Path(__file__).parents[2]


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url, autocommit=True, connect_timeout=30)


def numbers(url: str) -> list[object]:
    """The rows of the table `n`, whose name each test of this file uses in a database of its own."""
    with connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM n ORDER BY n")]


@pytest.fixture
def own(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    """The name of a new database with the table `n` on the shared server."""
    name = str(request.node.name)[:60]
    with connect(postgres.create_database(name)) as connection:
        connection.execute("CREATE TABLE n (n int)")
    return name


# ---- servers


def test_rows_that_were_committed_survive_a_crash(server: PostgresServer) -> None:
    with connect(server.url()) as connection:
        connection.execute("CREATE TABLE n (n int)")
        connection.execute("INSERT INTO n VALUES (1)")
        server.kill()
        assert not server.is_up()
        assert processes_in(server.folder) == []
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.start()
    assert "was not properly shut down" in server.dump_log()
    assert numbers(server.url()) == [1]


def test_a_server_that_is_restarted_keeps_its_port_and_its_rows(server: PostgresServer) -> None:
    url = server.create_database("kept")
    server.query("CREATE TABLE n AS SELECT 1 AS n", database="kept")
    server.restart()
    assert numbers(url) == [1]
    assert "was not properly shut down" not in server.dump_log()


def test_a_server_whose_port_is_taken_takes_another() -> None:
    with PostgresServer(fast=True) as first, PostgresServer(fast=True) as second:
        third = PostgresServer(fast=True)
        third.port = first.port
        with third:
            assert len({first.port, second.port, third.port}) == 3
            assert third.query("SELECT 1") == [["1"]]


def test_settings_can_be_changed_while_it_is_up() -> None:
    with PostgresServer({"work_mem": "3MB"}, fast=True) as server:
        assert server.query("SHOW work_mem") == [["3MB"]]
        server.configure({"work_mem": "5MB"})
        assert server.query("SHOW work_mem") == [["5MB"]]


def test_with_a_password_only_those_who_know_it_are_let_in() -> None:
    with PostgresServer(fast=True, password="p@ss/word") as server:  # noqa: S106 - of a server that lives for a test
        assert server.query("SELECT 1") == [["1"]]
        with pytest.raises(psycopg.OperationalError, match="password"):
            connect(server.url().replace("word", "other"))


def test_a_database_may_order_text_by_a_language(postgres: PostgresServer) -> None:
    url = postgres.create_database("english", icu_locale="en-US")
    with connect(url) as connection:
        assert connection.execute("SELECT 'a' < 'B'").fetchone() == (True,)
    assert postgres.query("SELECT 'a' < 'B'") == [["f"]]


def test_a_promoted_standby_has_every_row_that_was_committed() -> None:
    with PostgresServer() as primary, Standby(primary) as standby:
        with connect(primary.url()) as connection:
            connection.execute("CREATE TABLE n (n int)")
            for n in range(20):
                connection.execute("INSERT INTO n VALUES (%s)", [n])
        primary.kill()
        standby.promote()
        assert numbers(standby.url()) == list(range(20))
        standby.query("INSERT INTO n VALUES (20)")


def test_a_primary_does_not_wait_for_a_standby_that_was_removed() -> None:
    with PostgresServer() as primary:
        with Standby(primary):
            assert primary.query("SELECT sync_state FROM pg_stat_replication") == [["sync"]]
        primary.query("CREATE TABLE n (n int)")


def test_nothing_is_left_when_the_test_process_is_killed() -> None:
    program = (
        "import sys; from tests.postgres.servers import PostgresServer\n"
        "server = PostgresServer(fast=True); server.start()\n"
        "print(server.folder, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert processes_in(folder) != []
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not folder.parent.exists(), "the end of the guard")
    assert processes_in(folder) == []


# ---- PgBouncer


def test_pgbouncer_gives_each_transaction_a_connection(postgres: PostgresServer) -> None:
    with PgBouncer(postgres, pool_size=1) as pool, connect(pool.url()) as one, connect(pool.url()) as two:
        [first] = one.execute("SELECT pg_backend_pid()").fetchall()
        assert two.execute("SELECT pg_backend_pid()").fetchall() == [first]


def test_pgbouncer_logs_in_to_a_server_with_a_password() -> None:
    server = PostgresServer(fast=True, password="secret")  # noqa: S106 - as above
    with server, PgBouncer(server) as pool, connect(pool.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


# ---- the proxy


def test_the_proxy_counts_round_trips_and_statements(postgres: PostgresServer, proxy: Proxy) -> None:
    with connect(postgres.url(port=proxy.port)) as connection:
        connection.execute("SELECT 1")
        connection.execute("SELECT %s::int", [1])
        with connection.pipeline():
            for _ in range(3):
                connection.execute("SELECT %s::int", [1])
    assert (proxy.logins, proxy.requests, proxy.statements) == (1, 3, 5)


def test_a_request_that_is_cut_before_the_server_does_nothing(postgres: PostgresServer, proxy: Proxy, own: str) -> None:
    with connect(postgres.url(own, port=proxy.port)) as connection:
        proxy.cut_before(2)
        connection.execute("INSERT INTO n VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO n VALUES (2)")
    assert (proxy.requests, proxy.faults) == (2, 1)
    assert numbers(postgres.url(own)) == [1]


def test_a_request_that_is_cut_after_the_server_is_done_though_nobody_hears_it(
    postgres: PostgresServer, proxy: Proxy, own: str
) -> None:
    with connect(postgres.url(own, port=proxy.port)) as connection:
        proxy.cut_after(2)
        connection.execute("INSERT INTO n VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO n VALUES (2)")
    assert proxy.faults == 1
    assert numbers(postgres.url(own)) == [1, 2]


@pytest.mark.parametrize(("fault", "rows"), [("before", []), ("after", [1, 2])])
def test_a_copy_is_one_request(
    postgres: PostgresServer, proxy: Proxy, own: str, fault: str, rows: list[object]
) -> None:
    def copy() -> None:
        with connect(postgres.url(own, port=proxy.port)) as connection:
            connection.execute("SELECT 1")
            with connection.cursor().copy("COPY n FROM STDIN") as lines:
                lines.write("1\n2\n")
            connection.execute("SELECT %s", ["a"])

    copy()
    assert (proxy.requests, numbers(postgres.url(own))) == (3, [1, 2])
    postgres.query("TRUNCATE n", database=own)
    proxy.reset()
    {"before": proxy.cut_before, "after": proxy.cut_after}[fault](2)
    with pytest.raises(psycopg.OperationalError):
        copy()
    assert (proxy.faults, numbers(postgres.url(own))) == (1, rows)


def test_requests_are_counted_over_all_connections(postgres: PostgresServer, proxy: Proxy) -> None:
    url = postgres.url(port=proxy.port)
    with connect(url) as one, connect(url) as two:
        proxy.cut_before(2)
        one.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            two.execute("SELECT 1")
        one.execute("SELECT 1")
    assert (proxy.logins, proxy.requests) == (2, 3)


@pytest.mark.parametrize(("fault", "rows"), [("before", []), ("after", [1])])
def test_what_is_stalled_goes_on_after_resume(
    postgres: PostgresServer, proxy: Proxy, own: str, fault: str, rows: list[object]
) -> None:
    {"before": proxy.stall_before, "after": proxy.stall_after}[fault](1)
    with connect(postgres.url(own, port=proxy.port)) as connection:
        insert = threading.Thread(target=connection.execute, args=("INSERT INTO n VALUES (1)",))
        insert.start()
        wait_until(lambda: proxy.faults == 1, "the fault")
        assert (insert.is_alive(), numbers(postgres.url(own))) == (True, rows)
        proxy.resume()
        insert.join()
    assert numbers(postgres.url(own)) == [1]


def test_a_new_connection_to_a_stalled_proxy_gets_no_answer(postgres: PostgresServer, proxy: Proxy) -> None:
    proxy.stall()
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(postgres.url(port=proxy.port), connect_timeout=2)


def test_connections_can_be_refused_and_those_that_are_open_closed(postgres: PostgresServer, proxy: Proxy) -> None:
    url = postgres.url(port=proxy.port)
    with connect(url) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            connect(url)
        connection.execute("SELECT 1")
        proxy.disconnect()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    proxy.accept()
    connect(url).close()


def test_a_statement_is_cancelled_through_the_proxy(postgres: PostgresServer, proxy: Proxy) -> None:
    command = [str(postgres.bin / "psql"), "-X", "-c", "SELECT pg_sleep(60)", postgres.url(port=proxy.port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as client:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        wait_until(lambda: postgres.query(asleep) == [["1"]], "the sleep")
        client.send_signal(signal.SIGINT)
        _, said = client.communicate()
    assert "canceling statement due to user request" in said
    assert proxy.logins == 1


# ---- the fixture for stores


def test_each_test_has_the_name_of_a_schema_that_is_not_there_yet(postgres: PostgresServer, database: str) -> None:
    address, schema = database.split("?schema=")
    assert address == postgres.url()
    assert [schema] not in postgres.query("SELECT nspname FROM pg_namespace")
