"""Turns in a database: rows that are renewed, lost, taken over and given back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import nacre
from nacre.errors import LeaseLost, SessionBusy
from nacre.storage.postgres.leases import PostgresLease
from nacre.storage.postgres.view import sid_of
from tests.postgres.opened import open_store, opened, through
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres.rows import Rows
from tests.postgres.servers import PostgresServer
from tests.simulated import said, say

LOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
OTHER = "00000000-0000-0000-0000-00000000abcd"


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def sessions(empty_database: str) -> Iterator[nacre.Sessions]:
    with nacre.open(empty_database) as opened:
        yield opened


def give_to_other(rows: Rows, *, who: str = "elsewhere 7") -> None:
    """Let another machine be the holder of every turn."""
    rows.run("UPDATE {s}.leases SET holder = %s::uuid, who = %s", OTHER, who)


def test_a_turn_is_renewed_while_its_holder_lives(empty_database: str, rows: Rows) -> None:
    until = "SELECT until FROM {s}.leases"
    with opened(empty_database, lease_seconds=0.3) as sessions:
        lease, other = sessions.hold("k"), sessions.hold("other")
        lease.take()
        other.take()
        (first, _) = rows.run(until)
        other.close()
        wait_until(lambda: rows.run(until) > [first], "the turn to be renewed")
        lease.check()
    assert rows.run(until) == []


def test_a_turn_that_somebody_else_has_is_lost(empty_database: str, rows: Rows) -> None:
    with opened(empty_database, lease_seconds=0.3) as sessions:
        lease = sessions.hold("k")
        lease.take()
        give_to_other(rows)
        wait_until(lambda: is_lost(lease), "the loss to be noticed")
        with pytest.raises(LeaseLost, match="the turn of session 'k' was taken over"):
            lease.check()
        # Giving it back does not take it from the other.
        lease.close()
        assert rows.run("SELECT who FROM {s}.leases") == [("elsewhere 7",)]


def is_lost(lease: object) -> bool:
    assert isinstance(lease, PostgresLease)
    return lease.is_lost


def test_a_turn_that_may_have_expired_is_asked_for(empty_database: str, rows: Rows) -> None:
    with closing(open_store(empty_database)) as store:
        lease = store.hold("k")
        assert isinstance(lease, PostgresLease)
        lease.take()
        lease.certain_until = 0.0
        lease.check()
        assert lease.certain_until > 0.0
        store.leases.renew([])
        lease.certain_until = 0.0
        give_to_other(rows)
        with pytest.raises(LeaseLost):
            lease.check()


def test_a_database_that_cannot_renew_is_logged_and_tried_again(
    empty_database: str, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(empty_database, lease_seconds=0.3) as sessions:
        lease = sessions.hold("k")
        lease.take()
        rows.run("ALTER TABLE {s}.leases RENAME TO elsewhere")
        try:
            wait_until(lambda: "turns could not be renewed" in caplog.messages, "a warning")
            assert sessions.hold("k").holder() == 0
        finally:
            rows.run("ALTER TABLE {s}.elsewhere RENAME TO leases")
        rows.run("UPDATE {s}.leases SET until = now() - interval '1 hour'")
        wait_until(lambda: rows.run("SELECT until > now() FROM {s}.leases") == [(True,)], "the turn to be renewed")


def test_one_process_has_a_turn_once(sessions: nacre.Sessions) -> None:
    lease = sessions.hold("k")
    lease.take()
    for other in (lease, sessions.hold("k")):
        with pytest.raises(SessionBusy, match="in use by this process"):
            other.take()


def test_the_holder_is_named_by_its_process_if_that_is_here(sessions: nacre.Sessions, rows: Rows) -> None:
    lease = sessions.hold("k")
    assert lease.holder() == 0
    lease.take()
    give_to_other(rows)
    assert lease.holder() == -1
    with pytest.raises(SessionBusy, match=r"another process \(elsewhere 7\)"):
        sessions.hold("k").take()
    rows.run("UPDATE {s}.leases SET until = now() - interval '1 second'")
    assert lease.holder() == 0


def test_an_expired_turn_is_taken_with_a_greater_fence(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "a")
    lost = sessions.hold("k")
    lost.take()
    rows.run("UPDATE {s}.leases SET until = now() - interval '1 second'")
    lease = sessions.hold("k")
    lease.take()
    assert (lost.number, lease.number) == (0, 3)
    with pytest.raises(LeaseLost):
        sessions.add_messages("k", [{"role": "user", "content": "late"}], lease=lost)
    sessions.add_messages("k", [{"role": "user", "content": "b"}], lease=lease)
    assert said(sessions) == ["a", "b"]


def test_a_claim_whose_answer_was_lost_is_the_claimants(
    postgres: PostgresServer, empty_database: str, rows: Rows
) -> None:
    with Proxy(postgres.port) as proxy, closing(open_store(through(empty_database, proxy.port))) as store:
        first, lease = store.hold("first"), store.hold("k")
        first.take()
        proxy.reset()
        proxy.cut_after(1)
        lease.take()
        assert proxy.faults == 1
        lease.check()
        # It took it from itself, which is not known: so it stored a fence.
        assert lease.number == 2
        assert rows.run("SELECT count(*) FROM {s}.leases") == [(2,)]


@pytest.mark.parametrize("strike", ["DELETE FROM {s}.leases", f"UPDATE {{s}}.leases SET holder = '{OTHER}'"])  # noqa: S608 - our own text
def test_a_turn_that_another_takes_over_at_the_same_moment_is_the_others(
    sessions: nacre.Sessions, rows: Rows, strike: str
) -> None:
    say(sessions, "a")
    with rows.at("INSERT", "records", f"{strike}; RETURN NEW;"), pytest.raises(SessionBusy):
        sessions.hold("k").take_over()


def test_two_who_take_an_expired_turn_do_not_both_have_it(sessions: nacre.Sessions, rows: Rows) -> None:
    rows.run("INSERT INTO {s}.leases VALUES (%s::uuid, %s::uuid, 'gone 1', now() - interval '1 s')", sid_of("k"), OTHER)
    with rows.at("UPDATE", "leases", "RETURN NULL;"), pytest.raises(SessionBusy, match="somebody else"):
        sessions.hold("k").take()


def test_a_turn_that_was_given_back_while_it_was_asked_for_is_busy_once(sessions: nacre.Sessions, rows: Rows) -> None:
    with rows.at("INSERT", "leases", "RETURN NULL;"), pytest.raises(SessionBusy, match="somebody else"):
        sessions.hold("k").take()
    sessions.hold("k").take()


def test_a_statement_that_the_server_refuses_takes_no_turn(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "a")
    lease = sessions.hold("k")
    rows.run("ALTER TABLE {s}.leases RENAME TO elsewhere")
    try:
        for act in (lease.take, lease.take_over):
            with pytest.raises(nacre.StoreError, match="nacre store init"):
                act()
    finally:
        rows.run("ALTER TABLE {s}.elsewhere RENAME TO leases")
    assert lease.number is None


def test_journals_and_documents_are_kept_while_their_lease_is(sessions: nacre.Sessions, rows: Rows) -> None:
    journal = sessions.journal("task")
    with pytest.raises(nacre.StoreError, match="the journal is not open"):
        journal.add(b"one")
    with journal:
        journal.add(b"one")
        journal.add(b"two")
        with pytest.raises(SessionBusy), sessions.journal("task"):
            pass
    assert journal.last() == b"two"
    lease = sessions.hold("k")
    lease.take()
    its = sessions.with_internal_keys(held=lease)
    its.document("feed").write(b"mine")
    give_to_other(rows)
    with pytest.raises(LeaseLost):
        its.document("feed").write(b"not mine")
    assert sessions.document("feed").read() == b"mine"


def test_who_cannot_store_a_fence_does_not_keep_the_turn(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "a")
    lease = sessions.hold("k")
    with rows.at("INSERT", "records", "RAISE 'not now';"), pytest.raises(nacre.Refused, match="not now"):
        lease.take_over()
    assert (lease.number, rows.run("SELECT count(*) FROM {s}.leases")) == (None, [(0,)])
    lease.take()


def test_a_turn_that_was_given_back_and_taken_again_while_it_was_renewed_is_not_lost(
    empty_database: str, rows: Rows
) -> None:
    with closing(open_store(empty_database)) as store, ThreadPoolExecutor(1) as pool:
        lease = store.hold("k")
        assert isinstance(lease, PostgresLease)
        lease.take()
        rows.run("BEGIN")
        rows.run("DELETE FROM {s}.leases")
        renewing = pool.submit(store.leases.renew, [lease])
        wait_until(lambda: rows.run(LOCKED) == [(1,)], "the renewal to wait for the row")
        lease.holder_id = "another one"
        rows.run("COMMIT")
        renewing.result()
        assert not lease.is_lost
