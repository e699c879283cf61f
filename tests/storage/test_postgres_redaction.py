"""Erasing one message from a database: no row has it, forks keep theirs, and a hole stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nacre
from nacre.errors import Conflict, SessionNotFound, StoreError
from nacre.messages import Redaction
from tests.postgres.rows import Rows
from tests.simulated import said, say

SECRET = 'the launch code is "00000000"\tand the door is blue'  # noqa: S105 - said by somebody
LARGE = f"{SECRET} " * 2_000


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def sessions(empty_database: str) -> Iterator[nacre.Sessions]:
    with nacre.open(empty_database) as opened:
        yield opened


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_no_row_has_what_was_erased(sessions: nacre.Sessions, rows: Rows, text: str) -> None:
    say(sessions, "before", text, "after")
    assert [hit.n for hit in sessions.search("launch code")] == [3]
    assert "records" in rows.holding(SECRET) or "blobs" in rows.holding(SECRET)
    found = sessions.redact("k", 3)
    assert (found.erased, found.payloads, found.forks) == ((3,), int(text == LARGE), ())
    assert (rows.holding(SECRET), said(sessions)) == ([], ["before", "", "after"])
    assert sessions.search("launch code") == []
    assert rows.holding(SECRET) == []
    assert sessions.verify().ok


def test_the_hole_is_seen_by_those_who_read_on(empty_database: str, sessions: nacre.Sessions) -> None:
    say(sessions, "before", SECRET)
    with nacre.open(empty_database) as other:
        seen = other.snapshot("k").version
        assert sessions.redact("k", 3).n == 3
        assert not other.is_at("k", seen)
        assert said(other) == ["before", ""]
        assert other.add_message("k", "user", "next") == 5


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_a_fork_keeps_what_is_erased_in_its_parent(sessions: nacre.Sessions, rows: Rows, text: str) -> None:
    say(sessions, "a", text, "b")
    sessions.fork("k", "fork")
    say(sessions, "own", key="fork")
    assert sessions.redact("k", 3).forks == ("fork",)
    assert (said(sessions), said(sessions, "fork")) == (["a", "", "b"], ["a", text, "b", "own"])
    assert [message.content for message in sessions.get_history("fork", last=3)] == [text, "b", "own"]
    assert sessions.redact("fork", 3).forks == ()
    assert (rows.holding(SECRET), said(sessions, "fork")) == ([], ["a", "", "b", "own"])
    assert sessions.verify().ok


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_a_parent_keeps_what_is_erased_in_its_fork(sessions: nacre.Sessions, rows: Rows, text: str) -> None:
    say(sessions, "a", text, "b")
    sessions.fork("k", "fork")
    assert sessions.redact("fork", 3).forks == ("k",)
    assert (said(sessions), said(sessions, "fork")) == (["a", text, "b"], ["a", "", "b"])
    assert sessions.redact("k", 3).forks == ()
    assert rows.holding(SECRET) == []
    assert sessions.verify().ok


@pytest.mark.parametrize("at", [None, 4])
@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_a_fork_of_a_fork_begins_with_what_the_fork_has(
    sessions: nacre.Sessions, rows: Rows, text: str, at: int | None
) -> None:
    say(sessions, "a", text, "b")
    sessions.fork("k", "one")
    sessions.fork("k", "two")
    sessions.redact("two", 3)
    sessions.redact("k", 3)
    for key in ("one", "two"):
        say(sessions, "own", key=key)
        sessions.fork(key, f"fork of {key}", at=at)
    rest = ["own"] if at is None else []
    assert said(sessions, "fork of one") == ["a", text, "b", *rest]
    assert said(sessions, "fork of two") == ["a", "", "b", *rest]
    sessions.delete("one")
    assert said(sessions, "fork of one") == ["a", text, "b", *rest]
    assert sessions.verify().ok
    assert sessions.redact("fork of one", 3).forks == ()
    assert rows.holding(SECRET) == []


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_what_is_left_of_a_deleted_parent_goes_when_the_last_fork_erases_it(
    sessions: nacre.Sessions, rows: Rows, text: str
) -> None:
    say(sessions, "a", text, "b")
    sessions.fork("k", "one")
    sessions.fork("one", "two")
    sessions.delete("k")
    assert sessions.redact("one", 3).forks == ("two",)
    assert said(sessions, "two") == ["a", text, "b"]
    assert sessions.redact("two", 3).forks == ()
    assert rows.holding(SECRET) == []
    assert sessions.verify().ok


def test_every_sharer_of_a_record_is_named_wherever_it_is(sessions: nacre.Sessions) -> None:
    say(sessions, SECRET, key="first")
    sessions.fork("first", "second")
    sessions.fork("second", "third")
    sessions.archive("second")
    sessions.fork("third", "fourth")
    assert sessions.redact("third", 2).forks == ("first", "fourth", "second")
    sessions.delete("second")
    assert sessions.redact("fourth", 2).forks == ("first",)


def test_a_fork_at_an_earlier_record_is_not_concerned(sessions: nacre.Sessions) -> None:
    say(sessions, "a", "b", SECRET)
    sessions.fork("k", "fork", at=3)
    assert sessions.redact("k", 4).forks == ()
    assert said(sessions, "fork") == ["a", "b"]


def test_a_message_of_an_archived_generation_is_erased(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, SECRET)
    sessions.archive("k")
    say(sessions, "new")
    generation = sessions.transcript("k")[0].generation
    with pytest.raises(SessionNotFound, match="with the generation"):
        sessions.redact("k", 2, generation="0" * 32)
    assert sessions.redact("k", 2, generation=generation).generation == generation
    assert rows.holding(SECRET) == []
    assert said(sessions) == ["new"]


def test_a_message_in_the_trash_is_erased_there(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, SECRET)
    sessions.move_to_trash("k")
    sessions.redact("k", 2)
    assert rows.holding(SECRET) == []
    sessions.restore_from_trash(sessions.list_trash()[0].id)
    assert said(sessions) == [""]


def test_damaged_bytes_of_it_in_quarantine_are_erased_and_others_stay(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, SECRET, "another message that stays", "c")
    ((secret,), (other,)) = rows.run("SELECT line FROM {s}.records WHERE n IN (2, 3) ORDER BY n")
    rows.run("UPDATE {s}.records SET line = %s WHERE n = 4", secret)
    rows.change_line("k", 3, "stays", "stayz")
    sessions.repair("k")
    found = sessions.redact("k", 2)
    assert (found.quarantined, rows.holding(SECRET)) == (1, [])
    assert rows.holding("another message that stayz") == ["quarantine"]
    assert other


def test_what_cannot_be_erased_is_refused(sessions: nacre.Sessions) -> None:
    say(sessions, "a")
    for wrong in (1, 9):
        with pytest.raises(Conflict, match=f"no message {wrong} whose content can be erased"):
            sessions.redact("k", wrong)
    with pytest.raises(SessionNotFound, match="there is no session 'none'"):
        sessions.redact("none", 2)


def test_copies_that_others_have_are_erased_before_it_is_over(empty_database: str) -> None:
    def fail(_: Redaction) -> None:
        raise StoreError("not now")

    erased: list[tuple[str, int]] = []
    with nacre.open(empty_database) as sessions:
        say(sessions, SECRET)
        with pytest.raises(StoreError, match="not now"):
            sessions.redact("k", 2, erase_copies=fail)
        assert said(sessions) == [""]
    with nacre.open(empty_database) as sessions:
        sessions.finish_redactions(lambda redaction: erased.append((redaction.key, redaction.n)))
        sessions.finish_redactions(lambda redaction: erased.append((redaction.key, redaction.n)))
    assert erased == [("k", 2)]


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_what_one_fork_has_erased_goes_when_the_other_forks_of_a_deleted_parent_are_deleted(
    sessions: nacre.Sessions, rows: Rows, text: str
) -> None:
    say(sessions, "a", text, "b")
    for key in ("one", "two", "three"):
        sessions.fork("k", key)
    sessions.delete("k")
    sessions.redact("one", 3)
    sessions.delete("two")
    assert said(sessions, "three") == ["a", text, "b"]
    sessions.delete("three")
    assert (rows.holding(SECRET), said(sessions, "one")) == ([], ["a", "", "b"])
    assert sessions.verify().ok
    sessions.delete("one")
    assert rows.run("SELECT count(*) FROM {s}.records") == [(0,)]


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_a_deleted_fork_keeps_nothing_of_its_own_of_what_was_erased_in_its_parent(
    sessions: nacre.Sessions, rows: Rows, text: str
) -> None:
    say(sessions, "a", text, "b")
    sessions.fork("k", "one")
    sessions.redact("k", 3)
    sessions.add_message("one", "user", text)
    sessions.fork("one", "two")
    sessions.redact("two", 3)
    sessions.delete("one")
    assert said(sessions, "two") == ["a", "", "b", text]
    assert sessions.verify().ok
    sessions.redact("two", 6)
    assert (rows.holding(SECRET), said(sessions, "two")) == ([], ["a", "", "b", ""])


def test_a_retry_under_the_id_of_what_a_fork_has_erased_stores_nothing(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", SECRET, id="once")
    sessions.fork("k", "fork")
    sessions.delete("k")
    sessions.redact("fork", 2)
    assert sessions.add_message("fork", "user", SECRET, id="once") == 2
    assert said(sessions, "fork") == [""]
