"""Whose words a session may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nacre
from nacre import Sessions
from nacre.errors import LogDamaged
from nacre.history.session_state import RULES
from nacre.runtime.session_owner import GuestWords, outermost
from nacre.storage.memory_store import MemoryStore
from tests.postgres.opened import create


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with nacre.open(":memory:") as opened:
        opened.add_message("guest:1", "user", "hello")
        opened.add_message("cli:1", "user", "hello")
        yield opened


@pytest.fixture
def has_guest_words(sessions: Sessions) -> GuestWords:
    return GuestWords(sessions, lambda key: key.startswith("guest:"))


def test_a_session_is_judged_by_its_key(has_guest_words: GuestWords) -> None:
    assert [has_guest_words(key) for key in ("guest:1", "guest:new", "cli:1", "cli:new")] == [True, True, False, False]


def test_a_fork_is_a_guests_if_any_of_its_past_is(sessions: Sessions, has_guest_words: GuestWords) -> None:
    sessions.fork("cli:1", "guest:2")
    sessions.add_message("guest:2", "user", "hello")
    sessions.fork("guest:2", "cli:2")
    sessions.fork("cli:2", "cli:3")
    sessions.fork("cli:2", "cli:4", at=2)
    assert [has_guest_words(f"cli:{n}") for n in (2, 3, 4)] == [True, True, False]


def test_a_fork_is_a_guests_in_a_database_too_when_what_it_came_from_is_gone(database: str) -> None:
    with nacre.open(create(database)) as sessions:
        for key in ("guest:1", "cli:1"):
            sessions.add_message(key, "user", "hello")
            sessions.fork(key, f"{key}/fork")
            sessions.fork(f"{key}/fork", f"cli:of {key}")
            sessions.delete(f"{key}/fork")
        sessions.delete("guest:1")
        has_guest_words = GuestWords(sessions, lambda key: key.startswith("guest:"))
        assert [has_guest_words(key) for key in ("cli:of guest:1", "cli:of cli:1")] == [True, False]


def test_a_child_is_judged_as_the_session_that_it_works_for(sessions: Sessions, has_guest_words: GuestWords) -> None:
    sessions.fork("guest:1", "cli:2")
    for parent in ("guest:1", "cli:1", "cli:2"):
        sessions.set_meta(f"{parent}/a", parent=parent)
        sessions.set_meta(f"{parent}/a/b", parent=f"{parent}/a")
    assert [has_guest_words(f"{key}/a/b") for key in ("guest:1", "cli:1", "cli:2")] == [True, False, True]
    assert outermost(sessions, "cli:1/a/b") == "cli:1"


def test_an_archived_generation_counts_too(sessions: Sessions, has_guest_words: GuestWords) -> None:
    sessions.fork("guest:1", "cli:2")
    sessions.archive("cli:2")
    sessions.add_message("cli:2", "user", "a new one")
    assert has_guest_words("cli:2")


def test_it_remembers_no_more_generations_than_it_is_told(sessions: Sessions) -> None:
    keys = [f"cli:{n}" for n in range(2, 12)]
    for key in keys:
        sessions.fork("guest:1", key)
    has_guest_words = GuestWords(sessions, lambda key: key.startswith("guest:"), remembered=4)
    for _ in range(2):
        for key in keys:
            assert has_guest_words(key)
            assert len(has_guest_words.writers) <= 4


def test_what_cannot_be_read_is_taken_for_a_guests() -> None:
    class Unreadable(Sessions):
        def read_generations(self, key: str, get: object) -> Any:
            raise LogDamaged(f"session {key!r} cannot be read")

    with Unreadable(MemoryStore(rules=RULES)) as sessions:
        assert GuestWords(sessions, lambda _: False)("cli:1")
