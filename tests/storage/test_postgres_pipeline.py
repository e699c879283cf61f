"""Statements of several callers in one round trip: who sends them, and whose mistake is whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nacre.storage.postgres.address import parse
from nacre.storage.postgres.connections import ConnectionLost, Connections, Failed, Request, Result, Statement
from nacre.storage.postgres.pipeline import Pipeline
from tests.postgres.programs import wait_until
from tests.postgres.rows import Rows

LOCK = Statement(b"lock", b"SELECT pg_advisory_xact_lock($1::bigint)")
TWICE = Statement(b"twice", b"SELECT $1::integer * 2")
WRONG = Statement(b"wrong", b"SELECT 1 / ($1::integer - $1::integer)")
END = Statement(b"", b"SELECT pg_terminate_backend(pg_backend_pid()) WHERE $1::integer > 0")
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
MOST = 5
"""A caller that sends for itself, and four threads."""

Found = list[Result | Failed]
Send = Callable[[Request], Future[Found]]


@pytest.fixture
def connections(empty_database: str) -> Iterator[Connections]:
    found = Connections(parse(empty_database), patience=30)
    yield found
    found.close()


@pytest.fixture
def pipeline(connections: Connections) -> Iterator[Pipeline]:
    found = Pipeline(connections)
    yield found
    found.close()


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def send(pipeline: Pipeline) -> Iterator[Send]:
    with ThreadPoolExecutor(16) as pool:
        yield lambda request: pool.submit(pipeline.send, [request])


def values(found: Future[Found]) -> list[object]:
    return [one if isinstance(one, Failed) else one.rows[0][0] for one in found.result(30)]


def fill(rows: Rows, send: Send) -> list[Future[Found]]:
    """Let everybody who can send wait for a lock, so that those who come now wait for each other."""
    rows.run("SELECT pg_advisory_lock(n) FROM generate_series(1, %s) AS n", MOST)
    busy = []
    for number in range(1, MOST + 1):
        busy.append(send((LOCK, (number,))))
        wait_until(lambda number=number: rows.run(WAITING) == [(number,)], "a statement to wait for its lock")  # type: ignore[misc]
    return busy


def gather(rows: Rows, send: Send, pipeline: Pipeline, *requests: Request) -> list[Future[Found]]:
    """Send statements of several callers together; returns what comes of each."""
    busy = fill(rows, send)
    waiting = []
    for number, request in enumerate(requests, 1):
        waiting.append(send(request))
        wait_until(lambda count=number: len(pipeline._waiting) == count, "a caller to wait")  # type: ignore[misc]
    # The one that sends for itself is done first, and calls somebody for those who wait.
    for lock, one in enumerate(busy, 1):
        rows.run("SELECT pg_advisory_unlock(%s)", lock)
        one.result(30)
    for one in waiting:
        one.exception(30)
    return waiting


def test_one_caller_sends_for_itself(pipeline: Pipeline) -> None:
    for number in range(3):
        assert [one.rows for one in pipeline.send([(TWICE, (number,))]) if not isinstance(one, Failed)] == [
            [[b"%d" % (2 * number)]]
        ]
    assert pipeline.round_trips == 3


def test_those_who_wait_share_a_round_trip(pipeline: Pipeline, rows: Rows, send: Send) -> None:
    found = gather(rows, send, pipeline, *((TWICE, (number,)) for number in (3, 1, 2)))
    assert [values(one) for one in found] == [[b"6"], [b"2"], [b"4"]]
    assert pipeline.round_trips == MOST + 1


def test_a_mistake_is_that_of_its_caller_alone(pipeline: Pipeline, rows: Rows, send: Send) -> None:
    wrong, right, ending = gather(rows, send, pipeline, (WRONG, (1,)), (TWICE, (2,)), (END, (3,)))
    (failed,) = wrong.result(30)
    assert isinstance(failed, Failed)
    assert values(right) == [b"4"]
    assert isinstance(ending.exception(30), ConnectionLost)


def test_a_connection_that_breaks_is_lost_for_all_who_shared_it(pipeline: Pipeline, rows: Rows, send: Send) -> None:
    found = gather(rows, send, pipeline, (TWICE, (1,)), (END, (2,)))
    assert [type(one.exception(30)) for one in found] == [ConnectionLost, ConnectionLost]
    assert values(send((TWICE, (4,)))) == [b"8"]


def test_a_caller_whose_statement_waits_keeps_no_other_waiting(rows: Rows, send: Send) -> None:
    rows.run("SELECT pg_advisory_lock(1)")
    slow = send((LOCK, (1,)))
    wait_until(lambda: rows.run(WAITING) == [(1,)], "a statement to wait for its lock")
    assert values(send((TWICE, (1,)))) == [b"2"]
    rows.run("SELECT pg_advisory_unlock_all()")
    slow.result(30)


def test_a_kept_connection_that_has_ended_is_not_used(connections: Connections, rows: Rows) -> None:
    pipeline, pid = Pipeline(connections), Statement(b"", b"SELECT pg_backend_pid(), $1::text")
    found = pipeline.send([(pid, ("",))])[0]
    assert isinstance(found, Result)
    first = int(found.rows[0][0] or b"0")
    rows.run("SELECT pg_terminate_backend(%s)", first)
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: rows.run(alive, first) == [(0,)], "the connection to end")
    assert not isinstance(pipeline.send([(pid, ("",))])[0], Failed)
    pipeline.close()


def test_a_small_pool_keeps_its_connections_for_those_who_read(empty_database: str) -> None:
    connections = Connections(parse(empty_database), size=1)
    pipeline = Pipeline(connections)
    pipeline.send([(TWICE, (1,))])
    assert connections.read(TWICE, 2) == [[b"4"]]
    pipeline.close()
    connections.close()
