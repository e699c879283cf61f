"""A server that dies under its writers: restarted, or replaced by its synchronous standby."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import psycopg
import pytest

import nacre
from nacre.errors import DurabilityUnknown, StoreError
from tests.postgres.guard import stopped
from tests.postgres.opened import create, opened, said
from tests.postgres.programs import HOST, wait_until
from tests.postgres.servers import PostgresServer, Standby

WRITERS = 4
PATIENT = 120.0
ANY_OUTCOME = pytest.mark.parametrize("call", ["pg_cancel_backend", "pg_terminate_backend"])


def user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


class Writers:
    """Threads that write numbered messages with ids, each to a session of its own and to one that all share.

    Whoever is told that something is refused or unknown tries it again with the same id, for ever.
    """

    def __init__(self, url: str, *, patience: float) -> None:
        self.stores = [opened(url, patience=patience) for _ in range(2)]
        self.acknowledged: list[dict[str, tuple[str, int]]] = [{} for _ in range(WRITERS)]
        self.failures: list[StoreError] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,), daemon=True) for n in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for store in self.stores:
            store.close()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENT)
        assert not any(thread.is_alive() for thread in self._threads), "a writer hangs"

    def go_on(self, most: int = 20) -> None:
        """Wait until each has stored some more."""
        before = [len(done) for done in self.acknowledged]
        wait_until(
            lambda: all(len(done) >= was + most for done, was in zip(self.acknowledged, before, strict=True)),
            "that all writers go on",
        )

    def check(self, url: str) -> int:
        """Fail unless all that was acknowledged is there once, under its number; returns how much that is."""
        with opened(url) as sessions:
            found = {key: sessions.transcript(key) for key in ["shared", *(f"own-{n}" for n in range(WRITERS))]}
            assert sessions.verify().ok
        for stored in found.values():
            texts = [one.message.content for one in stored]
            assert len(set(texts)) == len(texts)
        places = {(key, one.message.content): one.n for key, stored in found.items() for one in stored}
        for done in self.acknowledged:
            for text, (key, number) in done.items():
                assert places.get((key, text)) == number, (key, text)
        # One that is under way when the writers are stopped is stored, too: they end after an answer.
        total = sum(len(done) for done in self.acknowledged)
        assert len(places) == total
        return total

    def _write(self, n: int) -> None:
        sessions, at = self.stores[n % len(self.stores)], 0
        while not self._is_over.is_set():
            text, key = f"{n}-{at}", "shared" if at % 4 == 0 else f"own-{n}"
            try:
                self.acknowledged[n][text] = (key, sessions.add_messages(key, [user(text)], id=text))
                at += 1
            except StoreError as error:
                self.failures.append(error)


# ---- a server that is killed and restarted


def test_a_server_that_is_killed_and_restarted_loses_nothing(server: PostgresServer, campaign: bool) -> None:
    url = create(f"{server.url()}?schema=kills")
    with Writers(url, patience=PATIENT) as writers:
        for _ in range(100 if campaign else 5):
            writers.go_on()
            server.kill()
            server.start()
        writers.go_on()
        writers.stop()
        assert writers.failures == []
        assert writers.check(url) >= WRITERS * 20


def test_who_gives_up_early_resolves_what_is_unknown_by_its_id(server: PostgresServer, campaign: bool) -> None:
    url = create(f"{server.url()}?schema=kills")
    with Writers(url, patience=0.2) as writers:
        for _ in range(30 if campaign else 2):
            writers.go_on()
            server.kill()
            wait_until(lambda: len(writers.failures) >= WRITERS, "that all writers give up")
            server.start()
            writers.failures.clear()
        writers.go_on()
        writers.stop()
        writers.check(url)


# ---- a standby that takes over


class Cluster:
    """A primary and its synchronous standby, at two ports that stay the same whoever is which."""

    def __init__(self) -> None:
        self._servers = ExitStack()
        self.primary: PostgresServer = self._servers.enter_context(PostgresServer())
        self.standby = self._servers.enter_context(Standby(self.primary))
        hosts = f"{HOST}:{self.primary.port},{HOST}:{self.standby.port}"
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&schema=failover"

    def fail_over(self) -> None:
        """Kill the primary, and let the standby be it; there is no standby then."""
        self.primary.kill()
        self.standby.promote()

    def add_standby(self) -> None:
        """Put a new standby into the place of the server that was killed."""
        dead, self.primary = self.primary, self.standby
        dead.close()
        self.standby = Standby(self.primary)
        self.standby.port = dead.port
        self._servers.enter_context(self.standby)

    def close(self) -> None:
        self._servers.close()

    @contextmanager
    def stopped_standby(self) -> Iterator[None]:
        """Stop the standby: commits wait for it."""
        with stopped(self.standby.data):
            yield


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    try:
        create(found.url)
        yield found
    finally:
        found.close()


def test_a_failover_loses_nothing_and_writers_go_on_by_themselves(cluster: Cluster, campaign: bool) -> None:
    failovers = 20 if campaign else 1
    with opened(cluster.url, patience=PATIENT) as holder, Writers(cluster.url, patience=PATIENT) as writers:
        turn, other = holder.hold("turn"), holder.hold("turn")
        turn.take()
        for number in range(failovers):
            writers.go_on()
            cluster.fail_over()
            writers.go_on()
            # Its row was on the standby before it was taken.
            holder.append("turn", "x.note", number, lease=turn)
            with pytest.raises(nacre.SessionBusy):
                other.take()
            if number + 1 < failovers:
                cluster.add_standby()
        writers.stop()
        assert writers.failures == []
        assert writers.check(cluster.url) >= WRITERS * 40 * failovers
        assert [entry.data for entry in holder.records("turn", "x.note")] == list(range(failovers))


@contextmanager
def interfering(server: PostgresServer, call: str) -> Iterator[None]:
    """Cancel each wait for the standby, as soon as there is one."""
    is_over = threading.Event()
    statement = f"SELECT {call}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"  # noqa: S608 - our own name

    def interfere() -> None:
        with psycopg.connect(server.url(), autocommit=True) as link:
            while not is_over.wait(0.01):
                link.execute(statement.encode())

    thread = threading.Thread(target=interfere)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@ANY_OUTCOME
def test_a_cancelled_wait_for_the_standby_is_not_success(cluster: Cluster, call: str) -> None:
    with opened(cluster.url, patience=1) as sessions:
        sessions.add_message("k", "user", "a")
        turn = sessions.hold("other")
        with cluster.stopped_standby(), interfering(cluster.primary, call):
            with pytest.raises(DurabilityUnknown, match="retry with the same id"):
                sessions.add_messages("k", [user("b")], id="i")
            # Nor is the retry, which finds it.
            with pytest.raises(DurabilityUnknown, match="retry with the same id"):
                sessions.add_messages("k", [user("b")], id="i")
            with pytest.raises(DurabilityUnknown, match="not known"):
                sessions.archive("k")
            # A turn that the standby does not know of would be nobody's after a failover.
            with pytest.raises(StoreError):
                turn.take()
        if sessions.status("k") == "archived":
            sessions.unarchive("k")
        assert sessions.add_messages("k", [user("b")], id="i") == 3
        turn.take()
        cluster.fail_over()
        with opened(cluster.url, patience=PATIENT) as others:
            assert said(others, "k") == ["a", "b"]
            with pytest.raises(nacre.SessionBusy):
                others.hold("other").take()


def test_a_standby_that_is_silent_for_too_long_makes_it_unknown(cluster: Cluster) -> None:
    with opened(cluster.url, patience=1, timeout=1) as sessions:
        sessions.add_message("k", "user", "a")
        with cluster.stopped_standby(), pytest.raises(DurabilityUnknown, match="retry with the same id"):
            sessions.add_messages("k", [user("b")], id="i")
        assert sessions.add_messages("k", [user("b")], id="i") == 3
        assert said(sessions, "k") == ["a", "b"]
