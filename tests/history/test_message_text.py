"""The first text of a session, and a text with its middle cut."""

from __future__ import annotations

import pytest

import nacre
from nacre.history.message_text import cut_middle, first_text
from nacre.history.tokens import count
from nacre.messages import Message
from nacre.sessions import Sessions


def test_the_first_text_is_the_first_user_message_without_its_files() -> None:
    file = {"type": "text", "text": '<file name="a.txt">a</file>'}
    with nacre.open(":memory:") as sessions:
        sessions.add_message("k", "assistant", "Welcome.")
        assert _first(sessions, "k") == ""
        sessions.add_full_message("k", Message(role="user", content=[file, {"type": "text", "text": "alpha"}]))
        sessions.add_message("k", "user", "beta")
        assert _first(sessions, "k") == "alpha"


def _first(sessions: Sessions, key: str) -> str | None:
    return sessions._store.read(key, first_text)


def test_what_fits_stays_as_it_is() -> None:
    assert cut_middle("a b c", 3) == "a b c"


@pytest.mark.parametrize("tokens", [30, 100, 1000])
@pytest.mark.parametrize("text", ["word " * 4000, "1234567890" * 500, "x" * 3000 + "漢字" * 3000])
def test_the_beginning_and_the_end_stay(text: str, tokens: int) -> None:
    cut = cut_middle(text, tokens)
    assert count(cut) <= tokens
    assert (cut[0], cut[-1]) == (text[0], text[-1])
    assert f"[{len(text)} characters, of which the middle is not shown]" in cut


def test_the_note_alone_is_left_where_nothing_else_fits() -> None:
    assert cut_middle("word " * 50, 1).strip() == "[250 characters, of which the middle is not shown]"
