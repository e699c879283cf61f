"""Appending to one session of a database: answers that are lost, others who are quicker, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import nacre
from nacre.codec import encode_text
from nacre.errors import Conflict, DurabilityUnknown, Refused, StoreError
from nacre.records import Transaction
from nacre.storage.postgres.connections import ConnectionLost, Failed, Request, Result, Statement
from nacre.storage.postgres.store import PostgresStore
from nacre.storage.postgres.writer import SessionWriter
from nacre.storage.transaction import PendingCommit, content_of, fingerprint
from tests.postgres.opened import open_store
from tests.postgres.programs import wait_until
from tests.postgres.rows import Rows
from tests.simulated import said, say

BEGIN, COMMIT = Statement(b"", b"BEGIN"), Statement(b"", b"COMMIT")
LOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def store(empty_database: str) -> Iterator[PostgresStore]:
    with closing(open_store(empty_database)) as found:
        yield found


@pytest.fixture
def other(empty_database: str) -> Iterator[nacre.Sessions]:
    """Another process."""
    with nacre.open(empty_database) as found:
        yield found


class Lossy:
    """Sends statements, of which the first ones get no answer: they are not carried out, or only the answer is lost."""

    def __init__(self, store: PostgresStore, *, is_sent: bool, losses: int = 1) -> None:
        self._send, self._is_sent, self.losses = store.connections.send, is_sent, losses

    def __call__(self, requests: Sequence[Request]) -> list[Result | Failed]:
        if not self.losses:
            return self._send(requests)
        self.losses -= 1
        if self._is_sent:
            self._send(requests)
        raise ConnectionLost("the database does not answer")


def message(text: str, *, id: str | None = None) -> PendingCommit:
    operation = encode_text("user", text)
    return PendingCommit(Transaction((operation,), id=id, print=fingerprint([content_of(operation)])))


# An answer that is lost


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_what_had_no_answer_is_stored_once(
    store: PostgresStore, other: nacre.Sessions, is_sent: bool, is_known: bool
) -> None:
    say(other, "a")
    writer = SessionWriter(store.database, "k")
    if is_known:
        writer.read_head()
    commit = message("b")
    writer.commit([commit], Lossy(store, is_sent=is_sent))
    assert (commit.number, said(other)) == (3, ["a", "b"])


def test_a_try_that_is_still_under_way_is_waited_for(store: PostgresStore, other: nacre.Sessions, rows: Rows) -> None:
    say(other, "a")
    link = store.connections.take()

    def begin(requests: Sequence[Request]) -> list[Result | Failed]:
        link.send([(BEGIN, ())])
        link.send(requests)
        raise ConnectionLost("the database does not answer")

    def end() -> None:
        wait_until(lambda: rows.run(LOCKED) == [(1,)], "a second try to wait for the first")
        link.send([(COMMIT, ())])

    writer, commit = SessionWriter(store.database, "k"), message("b")
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(end)
        writer.commit([commit], begin)
        ending.result()
    store.connections.give_back(link)
    assert (commit.number, said(other)) == (3, ["a", "b"])


def test_others_who_wrote_while_an_answer_was_lost_come_first(store: PostgresStore, other: nacre.Sessions) -> None:
    say(other, "a")

    def lose(requests: Sequence[Request]) -> list[Result | Failed]:
        say(other, "in between")
        raise ConnectionLost("the database does not answer")

    writer, commit = SessionWriter(store.database, "k"), message("b")
    writer.commit([commit], lose)
    assert (commit.number, said(other)) == (4, ["a", "in between", "b"])


def test_an_id_that_was_stored_before_is_known_though_the_answer_was_lost(
    store: PostgresStore, other: nacre.Sessions
) -> None:
    other.add_message("k", "user", "a", id="once")
    say(other, "b")
    writer = SessionWriter(store.database, "k")
    writer.read_head()
    commit = message("a", id="once")
    writer.commit([commit], Lossy(store, is_sent=False))
    assert (commit.number, said(other)) == (2, ["a", "b"])


def test_what_can_never_be_found_out_is_unknown(empty_database: str, rows: Rows, other: nacre.Sessions) -> None:
    say(other, "a")
    with closing(open_store(empty_database, patience=0.2)) as store:
        writer = SessionWriter(store.database, "k")
        with rows.at("INSERT", "records", "RAISE 'not now';"), pytest.raises(DurabilityUnknown, match="the same id"):
            writer.commit([message("b")], Lossy(store, is_sent=False))
        again = message("b")
        writer.commit([again], store.pipeline.send)
    assert (again.number, said(other)) == (3, ["a", "b"])


# Others


def test_who_is_never_quick_enough_is_refused_in_the_end(store: PostgresStore, other: nacre.Sessions) -> None:
    say(other, "a")
    writer = SessionWriter(store.database, "k")
    writer.read_head()
    say(other, "b")
    store.connections.patience = 0.0
    with pytest.raises(Refused, match="others write to it all the time"):
        writer.commit([message("c"), message("d")], store.connections.send)
    store.connections.patience = 20.0
    commit = message("c")
    writer.commit([commit], store.connections.send)
    assert (commit.number, said(other)) == (4, ["a", "b", "c"])


def test_a_session_that_was_deleted_elsewhere_is_a_conflict_once(store: PostgresStore, other: nacre.Sessions) -> None:
    say(other, "a")
    writer = SessionWriter(store.database, "k")
    writer.read_head()
    other.delete("k")
    with pytest.raises(Conflict, match="was deleted by another process; nothing was stored"):
        writer.commit([message("b")], store.connections.send)
    writer.commit([message("c")], store.connections.send)
    assert said(other) == ["c"]


def test_a_store_that_was_moved_takes_nothing(empty_database: str, rows: Rows) -> None:
    with nacre.open(empty_database) as sessions:
        say(sessions, "a")
        rows.run("UPDATE {s}.store SET sealed_to = 'postgresql://elsewhere/db'")
        rows.run("UPDATE {s}.sessions SET sealed = true")
        acts: list[Callable[[], object]] = [
            lambda: say(sessions, "b"),
            lambda: say(sessions, "b", key="new"),
            lambda: sessions.archive("k"),
            lambda: sessions.fork("k", "new"),
            lambda: sessions.delete("k"),
        ]
        for act in acts:
            with pytest.raises(Refused, match="were moved to postgresql://elsewhere/db"):
                act()
        assert said(sessions) == ["a"]


# Refusals


def test_an_error_of_the_server_stores_nothing(empty_database: str, rows: Rows) -> None:
    with nacre.open(empty_database) as sessions:
        say(sessions, "a")
        with rows.at("INSERT", "records", "RAISE 'no more rows' USING ERRCODE = '53100';"):
            with pytest.raises(Refused, match="the database is full: no more rows"):
                say(sessions, "b")
            with pytest.raises(Refused, match="the database is full: no more rows"):
                sessions.add_messages("k", [{"role": "user", "content": "b"}] * 2)
        say(sessions, "c")
        assert said(sessions) == ["a", "c"]


def test_a_reason_that_may_pass_is_waited_for(empty_database: str, rows: Rows) -> None:
    with closing(open_store(empty_database, patience=0.1)) as store:
        sessions = nacre.Sessions(store)
        say(sessions, "a")
        with (
            rows.at("INSERT", "records", "RAISE 'try later' USING ERRCODE = '40001';"),
            pytest.raises(Refused, match="session 'k': nothing was stored: try later; try again"),
        ):
            say(sessions, "b")
        assert said(sessions) == ["a"]


# Ids


def test_what_was_stored_under_an_id_is_durable_before_that_is_said(empty_database: str, rows: Rows) -> None:
    with nacre.open(empty_database) as sessions:
        number = sessions.add_message("k", "user", "a", id="once")
        body = "IF NEW.n = OLD.n THEN RAISE 'not now'; END IF; RETURN NEW;"
        with (
            rows.at("UPDATE", "sessions", body),
            pytest.raises(DurabilityUnknown, match="it is stored, but whether it is durable is not known"),
        ):
            sessions.add_message("k", "user", "a", id="once")
        assert sessions.add_message("k", "user", "a", id="once") == number


def test_a_relaxed_store_does_not_wait_for_what_was_stored_under_an_id(empty_database: str) -> None:
    with nacre.open(empty_database, durability="relaxed") as sessions:
        number = sessions.add_message("k", "user", "a", id="once")
        assert sessions.add_message("k", "user", "a", id="once") == number
        sessions.save("k")


def test_an_id_whose_messages_are_damaged_is_known_whatever_its_content_was(empty_database: str, rows: Rows) -> None:
    pair = [{"role": "user", "content": text} for text in ("one", "two")]
    with nacre.open(empty_database) as sessions:
        for key in ("k", "other"):
            sessions.add_messages(key, pair, id="once")
        rows.change_line("k", 2, "one", "onf")
        rows.change_line("other", 3, "two", "tvo")
    with nacre.open(empty_database) as sessions:
        assert sessions.add_messages("k", pair, id="once") == 2
        assert sessions.add_messages("other", pair, id="once") == 3


def test_an_id_of_a_fork_is_that_of_the_session_it_came_from(empty_database: str) -> None:
    with nacre.open(empty_database) as sessions:
        sessions.add_message("k", "user", "a", id="before")
        sessions.fork("k", "fork")
        sessions.fork("fork", "again")
        sessions.add_message("k", "user", "b", id="after")
        assert sessions.add_message("again", "user", "a", id="before") == 2
        with pytest.raises(Conflict):
            sessions.add_message("fork", "user", "another", id="before")
        assert sessions.add_message("fork", "user", "b", id="after") == 4


def test_transactions_with_other_leases_are_stored_one_after_the_other(store: PostgresStore) -> None:
    lease, lost = store.hold("lease"), store.hold("lost")
    lease.take()
    lost.take()
    lost.close()
    transactions = [
        Transaction((encode_text("user", text),), held=held)
        for text, held in (("a", None), ("b", lost), ("c", lease), ("d", lease))
    ]
    commits = [PendingCommit(one) for one in transactions]
    store.commit(SessionWriter(store.database, "k"), commits)
    assert [type(commit.error) for commit in commits] == [type(None), nacre.LeaseLost, type(None), type(None)]
    assert [commit.number for commit in commits if commit.error is None] == [2, 3, 4]
    with pytest.raises(StoreError):
        store.commit(SessionWriter(store.database, "k"), [PendingCommit(transactions[1])])
