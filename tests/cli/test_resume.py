"""Which sessions can be resumed, and which one -c continues."""

from __future__ import annotations

import time
from pathlib import Path

from nacre.cli.chat.resume import candidates, newest_here
from tests.cli.conftest import Nacre

HERE = Path("/work/here")


def chat(store: Nacre, key: str, words: str, *, cwd: str = "", **meta: object) -> None:
    with store.sessions() as sessions:
        if cwd or meta:
            sessions.set_meta(key, {"cwd": cwd or None, **meta})
        sessions.add_message(key, "user", words)
    # Times are in milliseconds, and what is newer must be so by one.
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        pass


def test_candidates_have_folder_and_first_words_newest_first(nacre: Nacre) -> None:
    chat(nacre, "chat-1", "  one\ntwo  " + "x" * 300, cwd=str(HERE), title="A title")
    chat(nacre, "chat-2", "elsewhere", cwd="/work/there")
    chat(nacre, "telegram::1", "from a phone")
    with nacre.sessions() as sessions:
        found = candidates(sessions, folder=HERE)
    assert [(one.key, one.title, one.cwd, one.is_here) for one in found] == [
        ("telegram::1", "", "", False),
        ("chat-2", "", "/work/there", False),
        ("chat-1", "A title", str(HERE), True),
    ]
    assert found[2].first_words.startswith("one two")
    assert len(found[2].first_words) == 200


def test_sessions_in_which_nobody_talks_are_no_candidates(nacre: Nacre) -> None:
    chat(nacre, "chat-1", "hello", cwd=str(HERE))
    chat(nacre, "chat-1/call", "do this", cwd=str(HERE), parent="chat-1")
    chat(nacre, "schedule::morning::", "hello", cwd=str(HERE))
    with nacre.sessions() as sessions:
        sessions.with_internal_keys().add_message("nacre:x", "user", "hello")
        assert [one.key for one in candidates(sessions, folder=HERE)] == ["chat-1"]
        assert newest_here(sessions, HERE) == "chat-1"


def test_only_as_many_as_asked_for_are_read(nacre: Nacre) -> None:
    for number in range(4):
        chat(nacre, f"chat-{number}", "hello", cwd="/work/there")
    with nacre.sessions() as sessions:
        assert len(candidates(sessions, limit=3)) == 3
        assert newest_here(sessions, HERE) is None
        assert newest_here(sessions, Path("/work/there")) == "chat-3"


def test_a_session_whose_meta_is_strange_is_no_chat_of_a_folder(nacre: Nacre) -> None:
    chat(nacre, "chat-1", "hello")
    with nacre.sessions() as sessions:
        sessions.set_meta("chat-1", cwd=["not", "a", "path"])
        (found,) = candidates(sessions, folder=HERE)
    assert (found.cwd, found.is_here) == ("", False)
