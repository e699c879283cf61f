"""Connections to a database: how they are begun, kept, given up, and what comes of a statement in each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import nacre
from nacre.errors import ConfigError, DurabilityUnknown, Refused, StoreError
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.connections import (
    ConnectionLost,
    Connections,
    Failed,
    NotReplicated,
    Run,
    Statement,
    explain,
)
from tests.postgres.opened import opened, through
from tests.postgres.pgbouncer import PgBouncer
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres.rows import Rows
from tests.postgres.servers import PostgresServer

ONE = Statement(b"one", b"SELECT 1")
TWICE = Statement(b"twice", b"SELECT $1::integer * 2")
WRONG = Statement(b"wrong", b"SELECT 1 / $1::integer")
PID = Statement(b"pid", b"SELECT pg_backend_pid()")
WARNED = Statement(b"", b"DO $$ BEGIN RAISE WARNING 'the wait was cancelled' USING ERRCODE = '01000'; END $$")
NOTED = Statement(b"", b"DO $$ BEGIN RAISE NOTICE 'by the way'; END $$")
END = Statement(b"", b"SELECT pg_terminate_backend(pg_backend_pid())")
BUSY = Statement(b"", b"DO $$ BEGIN RAISE EXCEPTION 'try later' USING ERRCODE = '40001'; END $$")


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as found:
        yield found


@pytest.fixture
def connect(empty_database: str) -> Iterator[Callable[..., Connections]]:
    """Makes pools of connections that give up soon, and closes them afterwards."""
    made: list[Connections] = []

    def make(url: str = empty_database, **options: object) -> Connections:
        made.append(Connections(parse(url), **{"patience": 0.5, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


Connect = Callable[..., Connections]


def pid(connections: Connections) -> int:
    return int(connections.read(PID)[0][0] or b"0")


# Beginning


def test_a_new_connection_is_as_durable_as_it_is_asked_to_be(connect: Connect) -> None:
    shown = Statement(b"shown", b"SELECT current_setting('synchronous_commit')")
    assert connect().read(shown)[0] == [b"on"]
    assert connect(relaxed=True).read(shown)[0] == [b"off"]


def test_a_setting_that_the_server_refuses_is_said_at_the_start(connect: Connect) -> None:
    with pytest.raises(StoreError, match="cannot be used: invalid value for parameter"):
        connect(timeout=1e9).connect()


def test_commits_through_a_pooler_must_be_durable_by_the_settings_of_the_server(
    postgres: PostgresServer, empty_database: str
) -> None:
    with PgBouncer(postgres) as pooler:
        url = through(empty_database, pooler.port)
        with pytest.raises(ConfigError, match="commits through the pooler would not be durable"):
            nacre.open(url)
        with opened(url, relaxed=True) as sessions:
            sessions.add_message("k", "user", "a")
            entries = sessions.follow("k", after=2)
            with nacre.open(empty_database) as other:
                other.add_message("k", "user", "b")
            # Nobody is told of it through a pooler: it is looked for.
            assert next(entries).n == 3
            entries.close()


# Statements


def test_statements_that_are_sent_together_are_one_transaction(connect: Connect) -> None:
    connections = connect()
    two, four = connections.send([(TWICE, (1,)), (TWICE, (2,))])
    assert [one.rows for one in (two, four) if not isinstance(one, Failed)] == [[[b"2"]], [[b"4"]]]
    found = connections.send([(TWICE, (1,)), (WRONG, (0,)), (TWICE, (2,))])
    assert [one.code for one in found if isinstance(one, Failed)] == ["22012"] * 3


def test_a_commit_that_comes_to_nothing_fails_every_statement_of_it(empty_database: str, connect: Connect) -> None:
    add, connections = Statement(b"add", b"INSERT INTO emptied.documents VALUES ('x', 1, '')"), connect()
    with Rows(empty_database) as rows, rows.at("INSERT", "documents", "RAISE 'at its end';", when="AFTER"):
        assert [str(one) for one in connections.send([(add, ()), (ONE, ())])] == ["at its end"] * 2
    assert connections.read(ONE) == [[b"1"]]


@pytest.mark.parametrize("others", [[], [(ONE, ())]])
def test_a_connection_that_ends_in_the_middle_of_a_statement_is_lost(
    connect: Connect, others: list[tuple[Statement, tuple[()]]]
) -> None:
    connections = connect()
    with pytest.raises(ConnectionLost):
        connections.send([*others, (END, ()), *others])
    assert connections.read(ONE) == [[b"1"]]


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_cut_is_lost_and_another_one_is_used(
    connect: Connect, proxy: Proxy, empty_database: str, when: str, requests: int
) -> None:
    connections = connect(through(empty_database, proxy.port))
    statements = [(TWICE, (number,)) for number in range(requests)]
    connections.send(statements)
    (proxy.cut_before if when == "before" else proxy.cut_after)(proxy.requests + 1)
    with pytest.raises(ConnectionLost, match="the database does not answer"):
        connections.send(statements)
    assert len(connections.send(statements)) == requests


def test_what_the_server_warns_of_tells_a_commit_that_no_standby_has(connect: Connect) -> None:
    connections = connect()
    assert connections.send([(NOTED, ())])
    with pytest.raises(NotReplicated, match="the wait for its standby was cancelled"):
        connections.send([(WARNED, ())])
    assert connections.send([(ONE, ())])


def test_a_statement_that_only_reads_is_tried_again(connect: Connect, proxy: Proxy, empty_database: str) -> None:
    connections = connect(through(empty_database, proxy.port), patience=30)
    connections.read(ONE)
    proxy.cut_before(proxy.requests + 1)
    assert connections.read(ONE) == [[b"1"]]
    assert connections.write(ONE).rows == [[b"1"]]


def test_a_reason_that_does_not_pass_in_time_is_an_error(connect: Connect) -> None:
    connections = connect(patience=0.02)
    with pytest.raises(StoreError, match=r"schema=emptied: nothing was stored: try later; try again"):
        connections.read(BUSY)


def test_a_connection_that_breaks_again_and_again_is_an_error(connect: Connect) -> None:
    def fail() -> None:
        raise ConnectionLost("the database does not answer")

    with pytest.raises(StoreError, match=r"schema=emptied: the database does not answer"):
        connect(patience=0.02).retry(fail)


def test_a_connection_on_which_an_answer_was_left_is_not_believed(connect: Connect) -> None:
    connections = connect()
    with connections.link() as link:
        link.send([(ONE, ()), (TWICE, (1,))])
        link.pgconn.enter_pipeline_mode()
        link.pgconn.send_query_params(b"SELECT 'of somebody else'", None)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                link.send([(ONE, ()), (TWICE, (1,))])
        link.close()
    assert connections.read(ONE) == [[b"1"]]


# The pool


def test_a_connection_that_ended_while_nobody_used_it_is_not_used(connect: Connect, empty_database: str) -> None:
    connections = connect()
    first = pid(connections)
    with Rows(empty_database) as rows:
        rows.run("SELECT pg_terminate_backend(%s)", first)
        # It has gone from this list once its end was sent.
        alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: rows.run(alive, first) == [(0,)], "the connection to end")
    assert pid(connections) != first


def test_who_finds_no_connection_is_refused_and_told_that_all_are_in_use(connect: Connect) -> None:
    connections = connect(size=1, patience=0.1)
    with (
        connections.link(),
        pytest.raises(Refused, match=r"within 0.1 seconds, nothing was stored: .*all 1 are"),
    ):
        connections.send([(ONE, ())])
    assert connections.read(ONE) == [[b"1"]]


def test_a_server_that_is_down_is_named_at_once_until_it_is_back(
    connect: Connect, proxy: Proxy, empty_database: str
) -> None:
    connections = connect(through(empty_database, proxy.port), patience=0.2)
    connections.read(ONE)
    proxy.refuse()
    proxy.disconnect()
    for _ in range(2):
        with pytest.raises(Refused, match="cannot be reached, nothing was stored: "):
            connections.send([(ONE, ())])
    proxy.accept()
    # The pool tries again by itself, and by and by.
    wait_until(lambda: is_answered(connections), "the pool to connect")
    assert connections.load(7).batches == 7


def is_answered(connections: Connections) -> bool:
    try:
        return bool(connections.send([(ONE, ())]))
    except StoreError:
        return False


def test_a_closed_pool_says_so(connect: Connect) -> None:
    connections = connect()
    connections.close()
    with pytest.raises(StoreError, match="the store is closed"):
        connections.send([(ONE, ())])


def test_a_connection_on_which_an_answer_is_under_way_is_not_used_again(connect: Connect) -> None:
    connections = connect()
    for first, is_closed in ((Statement(b"", b"BEGIN"), True), (ONE, False)):
        link = connections.take()
        link.send([(first, ())])
        connections.give_back(link, is_sound=False)
        assert link.closed == is_closed


def test_a_server_that_is_silent_is_given_up(connect: Connect, proxy: Proxy, empty_database: str) -> None:
    connections = connect(through(empty_database, proxy.port), timeout=0.4)
    for statements in ([(ONE, ())], [(ONE, ()), (TWICE, (1,))]):
        connections.send(statements)
        proxy.stall()
        with pytest.raises(ConnectionLost):
            connections.send(statements)
        proxy.resume()
        assert connections.send(statements)


# Transactions


def test_a_transaction_is_done_again_for_a_passing_reason(connect: Connect) -> None:
    tries: list[int] = []

    def work(run: Run) -> int:
        tries.append(1)
        run(BUSY if len(tries) < 3 else ONE)
        return len(tries)

    assert connect(patience=30).in_transaction(work) == 3


def test_a_transaction_of_a_relaxed_store_can_be_durable(connect: Connect) -> None:
    shown = Statement(b"shown", b"SELECT current_setting('synchronous_commit')")
    connections = connect(relaxed=True)
    assert connections.in_transaction(lambda run: run(shown).rows[0], is_durable=True) == [b"on"]
    assert connections.in_transaction(lambda run: run(shown).rows[0]) == [b"off"]


def test_an_error_within_a_transaction_undoes_it(connect: Connect, empty_database: str) -> None:
    def work(run: Run) -> None:
        run(Statement(b"", b"INSERT INTO emptied.documents VALUES ('x', 1, '')"))
        raise KeyError

    connections = connect()
    with pytest.raises(KeyError):
        connections.in_transaction(work)
    with pytest.raises(Refused, match="invalid input syntax"):
        connections.in_transaction(lambda run: run(Statement(b"", b"SELECT 'x'::integer")))
    with Rows(empty_database) as rows:
        assert rows.run("SELECT count(*) FROM {s}.documents") == [(0,)]


def test_a_transaction_whose_connection_is_lost_is_done_again(
    connect: Connect, proxy: Proxy, empty_database: str
) -> None:
    connections = connect(through(empty_database, proxy.port), patience=30)
    tries: list[int] = []

    def work(run: Run) -> int:
        tries.append(1)
        if len(tries) == 1:
            proxy.disconnect()
        run(ONE)
        return len(tries)

    assert connections.in_transaction(work) == 2


def test_a_commit_without_an_answer_is_unknown(connect: Connect, proxy: Proxy, empty_database: str) -> None:
    connections = connect(through(empty_database, proxy.port))
    # Statements are prepared by requests of their own, once.
    connections.in_transaction(lambda run: run(ONE))

    def work(run: Run) -> None:
        run(ONE)
        proxy.cut_after(proxy.requests + 1)

    with pytest.raises(DurabilityUnknown, match="whether it was done is not known"):
        connections.in_transaction(work)


def test_rows_are_locked_until_what_is_sent_with_them_is_committed(connect: Connect, empty_database: str) -> None:
    lock = Statement(b"", b"SELECT name FROM emptied.documents FOR UPDATE")
    erase = Statement(b"", b"DELETE FROM emptied.documents")
    connections = connect()
    with Rows(empty_database) as rows:
        rows.run("INSERT INTO {s}.documents VALUES ('x', 1, '')")
        with connections.locked(lock) as locked:
            assert (locked.rows, locked.read(ONE)) == ([[b"x"]], [[b"1"]])
            (found,) = locked.send([(erase, ())])
        assert not isinstance(found, Failed)
        assert rows.run("SELECT count(*) FROM {s}.documents") == [(0,)]


def test_locks_are_given_back_whatever_happens(connect: Connect, proxy: Proxy, empty_database: str) -> None:
    connections = connect(through(empty_database, proxy.port))
    with pytest.raises(ZeroDivisionError), connections.locked(ONE):
        raise ZeroDivisionError
    with pytest.raises(Failed, match="division by zero"), connections.locked(WRONG, 0):
        pass
    with connections.locked(ONE) as locked:
        proxy.disconnect()
        with pytest.raises(ConnectionLost):
            locked.send([(ONE, ())])
    assert connections.read(ONE) == [[b"1"]]


# What errors mean


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("42P01", StoreError, "run `nacre store init"),
        ("22012", nacre.LeaseLost, "another process has the lease by now"),
        ("42501", StoreError, "says what the role needs"),
        ("53100", Refused, "the database is full: it"),
        ("22P02", Refused, r"nothing was stored: it \(SQLSTATE 22P02\)"),
    ],
)
def test_an_error_of_the_server_says_what_to_do(code: str, kind: type[StoreError], text: str) -> None:
    with pytest.raises(kind, match=text):
        raise explain(Failed("it", code), parse("postgresql://127.0.0.1/db"))


def test_threads_share_the_connections(connect: Connect) -> None:
    connections = connect(size=2, patience=30)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: connections.read(TWICE, number)[0][0], range(64)))
    assert found == [b"%d" % (2 * number) for number in range(64)]


def test_a_text_that_libpq_would_cut_is_refused(connect: Connect) -> None:
    with pytest.raises(nacre.InvalidArgument, match="cannot hold a text with NUL in it"):
        connect().read(Statement(b"", b"SELECT $1::text"), "a\0b")
