"""PgBouncer in transaction mode between a store and its server: every transaction may run on another connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

import nacre
from nacre.errors import ConfigError
from nacre.testing.contract import REOPEN_CONTRACT, STORE_CONTRACT, Check, name
from tests.postgres.emptied import EmptiedStore
from tests.postgres.opened import create, open_store, opened, said, through
from tests.postgres.pgbouncer import PgBouncer
from tests.postgres.programs import wait_until
from tests.postgres.servers import PostgresServer

PATIENT = 60


@pytest.fixture(scope="module")
def pooled() -> Iterator[tuple[PostgresServer, PgBouncer]]:
    """A server that commits as one should, and a pooler that has fewer connections to it than a store may use."""
    server = PostgresServer({"synchronous_commit": "on"}, fast=True)
    with server, PgBouncer(server, pool_size=6) as pooler:
        yield server, pooler


@pytest.fixture(scope="module")
def emptied(pooled: tuple[PostgresServer, PgBouncer]) -> Iterator[EmptiedStore]:
    with EmptiedStore(f"{pooled[0].url()}?schema=emptied") as store:
        yield store


@pytest.fixture
def url(emptied: EmptiedStore, pooled: tuple[PostgresServer, PgBouncer]) -> str:
    """An empty store, through the pooler."""
    return through(emptied.empty(), pooled[1].port)


@pytest.mark.parametrize("check", [*STORE_CONTRACT, *REOPEN_CONTRACT], ids=name)
def test_a_store_keeps_the_contract(check: Check, url: str) -> None:
    check(lambda: nacre.open(url))


def test_nothing_is_set_or_prepared_that_the_next_client_would_meet(pooled: tuple[PostgresServer, PgBouncer]) -> None:
    server, _ = pooled
    url = create(f"{server.url()}?schema=unset")
    with PgBouncer(server, pool_size=1) as pooler:
        with closing(open_store(through(url, pooler.port))) as store:
            assert store.connections.is_pooled
        with opened(through(url, pooler.port)) as sessions:
            sessions.add_message("k", "user", "a")
            sessions.archive("k")
        with psycopg.connect(pooler.url(), autocommit=True, prepare_threshold=None) as link:
            assert link.execute("SHOW lock_timeout").fetchone() == ("0",)
            assert link.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_a_follower_sees_what_others_write(url: str) -> None:
    seen: list[object] = []
    with opened(url) as sessions, opened(url) as others:
        others.add_message("k", "user", "0")

        def follow() -> None:
            for entry in sessions.follow("k", after=1):
                seen.append(entry.data["content"])
                if len(seen) == 3:
                    return

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        for text in ("1", "2"):
            wait_until(lambda: len(seen) == int(text), "the message before")  # noqa: B023 - called at once
            others.add_message("k", "user", text)
        follower.join(PATIENT)
        assert seen == ["0", "1", "2"]


def test_many_writers_share_few_connections(url: str) -> None:
    stores = [opened(url, patience=PATIENT) for _ in range(3)]

    def write(n: int) -> None:
        for at in range(10):
            store = stores[(n + at) % 3]
            text = f"{n}-{at}"
            store.add_messages("shared", [nacre.Message(role="user", content=text)], id=text)
            store.add_message(f"own-{n}", "user", text)

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(write, range(24)))
    found = said(stores[0], "shared")
    assert len(found) == len(set(found)) == 240
    assert all(said(stores[0], f"own-{n}") == [f"{n}-{at}" for at in range(10)] for n in range(24))
    for store in stores:
        store.close()


def test_a_turn_has_one_holder_through_a_pooler(url: str) -> None:
    with opened(url) as one, opened(url) as two:
        turn, other = one.hold("k"), two.hold("k")
        turn.take()
        with pytest.raises(nacre.SessionBusy):
            other.take()
        one.append("k", "x.note", 1, lease=turn)
        other.take_over()
        with pytest.raises(nacre.LeaseLost):
            one.append("k", "x.note", 2, lease=turn)
        other.close()


def test_a_pooler_that_is_restarted_is_waited_for(pooled: tuple[PostgresServer, PgBouncer]) -> None:
    server, _ = pooled
    url = create(f"{server.url()}?schema=restarted")
    first = PgBouncer(server)
    with opened(through(url, start(first)), patience=PATIENT) as sessions:
        sessions.add_message("k", "user", "a")
        first.close()
        second = PgBouncer(server)
        second.port = first.port
        with second:
            sessions.add_message("k", "user", "b")
            assert said(sessions, "k") == ["a", "b"]


def start(pooler: PgBouncer) -> int:
    pooler.start()
    return pooler.port


def test_a_server_whose_commits_are_not_durable_is_refused(postgres: PostgresServer, database: str) -> None:
    with PgBouncer(postgres) as pooler, pytest.raises(ConfigError, match=r"synchronous_commit is off.* ALTER ROLE"):
        opened(through(create(database), pooler.port))
