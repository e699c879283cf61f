"""How a chat begins: its title is made of whole words, and its key can be read."""

from __future__ import annotations

import re

import nacre
from nacre.runtime.chat_start import new_key, opening_meta, title_of


def test_long_words_make_short_titles() -> None:
    assert title_of("word " * 20) == f"{'word ' * 9}".strip() + "…"
    assert title_of("x" * 100) == "x" * 48 + "…"


def test_a_key_has_the_minute_and_eight_digits_by_chance() -> None:
    assert re.fullmatch(r"chat-\d{8}-\d{4}-[0-9a-f]{8}", new_key())


def test_the_first_message_of_a_chat_gives_its_folder_and_title() -> None:
    with nacre.open(":memory:") as sessions:
        both = {"cwd": "/sea", "title": "hello there"}
        assert opening_meta(sessions, "chat-1", cwd="/sea", text="hello there") == both
        assert opening_meta(sessions, "chat-1", cwd="/sea", text="") == {"cwd": "/sea"}


def test_a_session_of_a_channel_gets_no_folder() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("irc:boats", "user", "ahoy")
        assert opening_meta(sessions, "irc:boats", cwd="/sea", text="more") == {"title": "ahoy"}
