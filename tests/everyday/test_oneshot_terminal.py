"""`nacre chat PROMPT` in a real terminal: drawn while it comes, and clear about how it ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.everyday.conftest import Person
from tests.everyday.model import Model, Piece, Refusal, Reply, Request
from tests.everyday.terminal import Screen


def test_an_answer_is_drawn_while_it_comes(person: Person, model: Model) -> None:
    is_seen = threading.Event()

    def pieces() -> Iterator[Piece]:
        yield "The first "
        yield "words of a **long"
        is_seen.wait(60)
        yield " paragraph**, and its end.\n\nAnother one."

    model.answer = lambda _: pieces()
    try:
        with Screen(person, "chat", "--trust", "hello", at=person.folder("project")) as screen:
            screen.until("The first words of a")
            screen.until("answering")
            is_seen.set()
            screen.until("Resume with: nacre chat -r chat-")
            assert screen.words.count("The first words") == 1
            assert "The first words of a long paragraph, and its end. Another one. Resume" in screen.words
            assert screen.code() == 0
    finally:
        is_seen.set()


def test_an_answer_longer_than_the_window_is_drawn_once(person: Person, model: Model) -> None:
    words = [f"word{n} " for n in range(300)]
    model.answer = lambda _: words
    with Screen(person, "chat", "--trust", "hello", columns=60, rows=10, at=person.folder("project")) as screen:
        screen.until("Resume with:")
        assert " ".join(screen.scrollback.split()).count("word150 ") == 1
        assert screen.code() == 0


def test_a_failed_answer_says_that_the_message_is_stored(person: Person, model: Model) -> None:
    may_fail = threading.Event()

    def answer(_: Request) -> Reply:
        may_fail.wait(60)
        return Refusal(500, "out of memory")

    model.answer = answer
    try:
        with Screen(person, "chat", "--trust", "hello", columns=120, at=person.folder("project")) as screen:
            screen.until("thinking")
            may_fail.set()
            screen.until("your message is stored; nacre chat -r chat-")
            assert "thinking" not in screen.text
            assert any(line.startswith("nacre: ") and "out of memory" in line for line in screen.lines)
            assert screen.code() == 1
    finally:
        may_fail.set()
