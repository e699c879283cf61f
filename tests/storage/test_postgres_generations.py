"""Whole generations in a database: archived, forked, deleted, in the trash; and reading while that happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import nacre
from nacre.errors import DurabilityUnknown, Refused, SessionNotFound, StoreError
from nacre.messages import Redaction
from nacre.records import View
from nacre.storage.postgres.store import PostgresStore
from nacre.storage.postgres.view import sid_of
from tests.postgres.opened import open_store, opened
from tests.postgres.rows import Rows
from tests.simulated import said, say

LARGE = "a payload that is long " * 4_000


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def sessions(empty_database: str) -> Iterator[nacre.Sessions]:
    with nacre.open(empty_database) as found:
        yield found


@pytest.fixture
def store(empty_database: str) -> Iterator[PostgresStore]:
    with closing(open_store(empty_database)) as found:
        yield found


# Forks


def test_a_chain_of_forks_is_read_back_and_forth_whoever_is_deleted(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, *map(str, range(100)), key="0")
    for number in range(1, 4):
        sessions.fork(str(number - 1), str(number))
        say(sessions, *(f"{number}.{one}" for one in range(100)), key=str(number))
    expected = [*map(str, range(100)), *(f"{number}.{one}" for number in (1, 2, 3) for one in range(100))]
    for deleted in ("0", "2", "1"):
        assert (said(sessions, "3"), len(sessions.transcript("3"))) == (expected, 400)
        assert [message.content for message in sessions.get_history("3", last=150)] == expected[-150:]
        sessions.delete(deleted)
        assert sessions.verify().ok
    assert said(sessions, "3") == expected
    sessions.delete("3")
    for table in ("sessions", "records", "forks", "blobs"):
        assert rows.run(f"SELECT count(*) FROM {{s}}.{table}") == [(0,)]  # noqa: S608 - our own names


def test_a_deleted_session_keeps_only_what_its_forks_share(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "a", LARGE, "b", f"later {LARGE}", "c")
    sessions.fork("k", "early", at=3)
    sessions.fork("k", "late", at=4)
    sessions.delete("k")
    left = "SELECT max(n) FROM {s}.records WHERE sid = %s::uuid"
    assert rows.run(left, sid_of("k")) == [(4,)]
    assert rows.run("SELECT n FROM {s}.blobs") == [(3,)]
    sessions.delete("late")
    assert (rows.run(left, sid_of("k")), said(sessions, "early")) == ([(3,)], ["a", LARGE])
    assert sessions.verify().ok


def test_a_fork_of_a_fork_at_what_it_shares_is_one_of_the_first(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "a", "b", "c")
    sessions.fork("k", "one")
    say(sessions, "own", key="one")
    sessions.fork("one", "two", at=3)
    sessions.delete("one")
    assert said(sessions, "two") == ["a", "b"]
    assert rows.run("SELECT count(*) FROM {s}.sessions WHERE sid = %s::uuid", sid_of("one")) == [(0,)]


def test_an_active_session_that_was_forked_is_not_trimmed_with_its_forks(sessions: nacre.Sessions) -> None:
    say(sessions, "a", "b")
    sessions.fork("k", "fork")
    sessions.delete("fork")
    assert said(sessions) == ["a", "b"]


def test_a_fork_has_the_labels_of_where_it_began(sessions: nacre.Sessions) -> None:
    say(sessions, "a")
    sessions.set_meta("k", title="Early", tags=["t"])
    number = sessions.add_message("k", "user", "b")
    sessions.set_meta("k", title="Late")
    sessions.fork("k", "fork", at=number)
    found = sessions.page(tags=["t"], limit=None).items
    assert {(info.key, info.title) for info in found} == {("fork", "Early"), ("k", "Late")}


# The trash


def test_what_is_not_in_the_trash_is_not_found(sessions: nacre.Sessions) -> None:
    acts: list[Callable[[str], object]] = [sessions.restore_from_trash, sessions.erase_from_trash]
    for act in acts:
        for id in ("", "nothing"):
            with pytest.raises(SessionNotFound, match="in the trash"):
                act(id)
    with pytest.raises(SessionNotFound, match="to move to the trash"):
        sessions.move_to_trash("k")


def test_one_of_two_in_the_trash_is_erased(store: PostgresStore) -> None:
    sessions = nacre.Sessions(store)
    for text in "ab":
        say(sessions, text)
        sessions.move_to_trash("k")
    newest, oldest = sessions.list_trash()
    assert not store.erase_from_trash(newest.id)
    assert store.erase_from_trash(oldest.id)
    assert sessions.list_trash() == []


# Reading


def test_a_session_that_is_deleted_while_it_is_read_is_read_as_it_is_then(
    store: PostgresStore, sessions: nacre.Sessions
) -> None:
    say(sessions, "a", "b")
    acts: list[Callable[[], object]] = [lambda: sessions.delete("k"), lambda: say(sessions, "new")]

    def read(view: View) -> list[Any]:
        while acts:
            acts.pop(0)()
        return [view.whole(record).m for record in view.all() if record.t == "msg"]

    assert len(store.read("k", read) or ()) == 1
    acts.append(lambda: sessions.delete("k"))
    assert store.read("k", read) is None


def test_a_generation_that_is_deleted_while_all_are_read_is_not_among_them(
    store: PostgresStore, sessions: nacre.Sessions
) -> None:
    for text in "ab":
        say(sessions, text)
        sessions.archive("k")
    acts: list[Callable[[], object]] = [lambda: sessions.delete("k"), lambda: say(sessions, "new")]

    def read(found: Any) -> int:
        while acts:
            acts.pop(0)()
        return len(list(found.view.all()))

    assert store.generations("k", read) == [2]
    uid = store.generations("k", lambda found: str(found.uid))[0]
    acts.append(lambda: sessions.delete("k"))
    assert store.read_generation("k", uid, lambda view: read(type("Found", (), {"view": view}))) is None
    assert store.read_generation("k", uid, lambda view: view.n) is None


def test_a_session_that_is_deleted_while_its_damage_is_set_aside_is_gone(
    store: PostgresStore, sessions: nacre.Sessions, rows: Rows
) -> None:
    say(sessions, "one", "two", "three")
    rows.drop("k", 3)
    with rows.at("INSERT", "quarantine", "DELETE FROM {s}.sessions; RETURN NEW;"):
        assert store.read("k", lambda view: len(list(view.all()))) is None


def test_a_follower_is_given_what_is_whole(store: PostgresStore, sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, *map(str, range(5)))
    rows.drop("k", 5, 6)
    found = store.later("k", 0, "", 256)
    assert ([record.n for record in found.records], found.upto, found.is_last) == ([1, 2, 3, 4], 6, True)
    assert store.later("none", 7, "uid", 256).upto == 7
    assert list(store.read("k", lambda view: list(view.moved(1))) or ()) == []


def test_a_long_session_is_read_in_parts_that_do_not_stay_in_memory(store: PostgresStore) -> None:
    sessions = nacre.Sessions(store)
    for _ in range(3):
        sessions.add_messages("k", [{"role": "user", "content": "x"}] * 6_000)

    def read(view: View) -> tuple[int, int, int]:
        forth = sum(1 for _ in view.all())
        back = sum(1 for _ in view.back(view.n))
        return forth, back, sum(1 for _ in view.back(128))

    assert store.read("k", read) == (18_001, 18_001, 128)


# The rest


def test_a_move_whose_commit_had_no_answer_is_unknown(store: PostgresStore, rows: Rows) -> None:
    sessions = nacre.Sessions(store)
    say(sessions, "a")
    end = "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL;"
    with (
        rows.at("UPDATE", "sessions", end, when="AFTER"),
        pytest.raises(DurabilityUnknown, match="session 'k': whether it was done is not known"),
    ):
        sessions.archive("k")
    assert sessions.status("k") == "active"
    sessions.archive("k")
    assert sessions.status("k") == "archived"


def test_a_store_says_what_it_has_done(store: PostgresStore) -> None:
    say(nacre.Sessions(store), "a", "b")
    assert (store.load.batches, store.load.round_trips > 2) == (2, True)
    assert (store.is_durable, store.is_shared) == (True, True)
    assert store.remove_leftovers(dry_run=False) == []
    assert store.key_of_file("any") is None
    assert (store.has_other_logs(["k"]), store.has_other_logs([])) == (False, True)


def test_copies_that_are_left_keep_a_redaction_begun(store: PostgresStore) -> None:
    sessions = nacre.Sessions(store)
    say(sessions, "a")

    def fail(_: Redaction) -> None:
        raise StoreError("not now")

    with pytest.raises(StoreError, match="not now"):
        sessions.redact("k", 2, erase_copies=fail)
    (begun,) = store.begun_redactions()
    store.end_redaction(begun.redaction, are_copies_left=True)
    assert len(store.begun_redactions()) == 1
    store.resume_redaction(begun.redaction)
    store.end_redaction(begun.redaction)
    store.end_redaction(begun.redaction)
    assert store.begun_redactions() == []


def test_a_handler_whose_own_thread_is_in_the_store_is_refused(store: PostgresStore) -> None:
    sessions = nacre.Sessions(store)
    # A signal may strike while a thread holds the lock of the store.
    with store._owner, store._lock, pytest.raises(Refused, match="in the middle of another write"):
        say(sessions, "a")
    say(sessions, "b")
    assert said(sessions) == ["b"]


def test_a_store_that_knows_very_many_sessions_forgets_them(empty_database: str) -> None:
    with opened(empty_database, max_known=2) as sessions:
        for number in range(5):
            say(sessions, "a", key=str(number))
        say(sessions, "b", key="0")
        assert said(sessions, "0") == ["a", "b"]
