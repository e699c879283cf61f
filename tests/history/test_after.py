"""Where to go back to for what was said up to a record."""

from __future__ import annotations

import pytest

import nacre
from nacre.history.session_state import after
from nacre.messages import Message
from nacre.records import AppendRecord


@pytest.mark.parametrize(("n", "to"), [(2, 2), (3, 4), (4, 4), (5, 5), (6, 6), (99, 99)])
def test_it_is_behind_what_was_stored_along_and_no_other_message(place: str, n: int, to: int) -> None:
    said = Message(role="user", content="x")
    with nacre.open(place) as sessions:
        sessions.add_full_message("k", said)
        sessions.submit("k", [said, AppendRecord("use", {})]).result()
        sessions.submit("k", [said, said]).result()
        assert sessions.read("k", lambda view: after(view, n)) == to
