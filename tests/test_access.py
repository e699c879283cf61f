"""What adapters share: one `AsyncSessions` for each `Sessions`, and changes that are tried again, but end."""

from __future__ import annotations

import gc
import weakref

import pytest

import nacre
from nacre.integrations.access import awaited, change


def test_two_that_come_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    make = nacre.AsyncSessions.of
    found: list[nacre.AsyncSessions] = []

    def make_late(sessions: nacre.Sessions) -> nacre.AsyncSessions:
        mine = make(sessions)
        if not found:
            # As another thread, which is done before this one.
            monkeypatch.setattr(nacre.AsyncSessions, "of", staticmethod(make))
            found.append(awaited(sessions))
        return mine

    monkeypatch.setattr(nacre.AsyncSessions, "of", staticmethod(make_late))
    with nacre.open(":memory:") as sessions:
        assert awaited(sessions) is found[0]
        assert awaited(sessions) is found[0]


def test_nothing_public_is_added_to_the_sessions() -> None:
    with nacre.open(":memory:") as sessions:
        awaited(sessions)
        assert [name for name in vars(sessions) if not name.startswith("_")] == []


def test_both_are_forgotten_together() -> None:
    sessions = nacre.open(":memory:")
    kept = weakref.ref(sessions), weakref.ref(awaited(sessions))
    sessions.close()
    del sessions
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_a_change_ends_if_nobody_has_changed_anything() -> None:
    tries: list[int] = []

    def refuse() -> None:
        tries.append(1)
        raise nacre.Conflict("never")

    with nacre.open(":memory:") as sessions, pytest.raises(nacre.Conflict, match="never"):
        change(sessions, "k", refuse)
    assert len(tries) == 4


@pytest.mark.parametrize("key", ["k", "k/further"])
def test_a_change_is_tried_again_as_long_as_others_change_something(key: str) -> None:
    tries: list[int] = []

    with nacre.open(":memory:") as sessions:

        def write_late() -> str:
            tries.append(1)
            if len(tries) == 100:
                return "done"
            sessions.add_message(key, "user", "somebody else's")
            raise nacre.Conflict("not as it was")

        assert change(sessions, "k", write_late, "k/further") == "done"


def test_an_archived_session_is_another_one() -> None:
    states = iter(["archive", "unarchive"] * 10)

    with nacre.open(":memory:") as sessions:
        sessions.add_message("k", "user", "hello")

        def write_late() -> str:
            state = next(states, None)
            if state is None:
                return "done"
            getattr(sessions, state)("k")
            raise nacre.Conflict("not as it was")

        assert change(sessions, "k", write_late) == "done"
