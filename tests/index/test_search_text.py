"""What of a message can be searched."""

from __future__ import annotations

from nacre import Message, ToolCall
from nacre.index.search_text import body_of, words_of
from tests.growth import assert_linear


def test_content_reasoning_and_calls_are_searched() -> None:
    call = ToolCall(id="c1", name="shell", arguments={"cmd": "ls"})
    message = Message(role="assistant", content="Looking.", reasoning="I wonder", tool_calls=[call])  # type: ignore[arg-type]
    assert body_of(message) == 'Looking.\nI wonder\nshell\n{"cmd":"ls"}'


def test_the_agents_own_searches_are_not_searched() -> None:
    search = ToolCall(id="c1", name="search_sessions", arguments={"query": "badger passphrase"})
    shell = ToolCall(id="c2", name="shell", arguments={"cmd": "ls"})
    message = Message(role="assistant", content="Looking.", tool_calls=[search, shell])  # type: ignore[arg-type]
    assert body_of(message) == 'Looking.\nshell\n{"cmd":"ls"}'
    assert body_of(Message(role="tool", tool_call_id="c1", name="search_sessions", content="badger")) == ""


def test_of_parts_only_what_people_read_is_searched() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    message = Message(role="user", content=[{"type": "text", "text": "see"}, picture, {"content": ["this"]}])
    assert body_of(message) == "see\nthis"


def test_a_message_without_text_has_an_empty_body() -> None:
    assert body_of(Message(role="assistant")) == ""


def test_nul_is_a_space() -> None:
    assert body_of(Message(role="user", content="a\0b")) == "a b"


def test_words_beside_chinese_are_words() -> None:
    assert words_of("使用Python编程").split() == ["\ue000", "python", "\ue000"]


def test_a_word_without_end_beside_an_accent_is_gone_through_once() -> None:
    assert_linear(lambda text: words_of(f"é {text}"), "a" * 40_000)
