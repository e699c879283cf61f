"""Words that wait: in order within a session, and no session before its turn."""

from __future__ import annotations

import pytest

from nacre.channels.channel import InboundMessage
from nacre.runtime.gateway.queue import Queue
from nacre.runtime.gateway.rate_limit import RateLimit


def words(text: str, sender: str = "ann") -> InboundMessage:
    return InboundMessage(channel="line", chat="c", sender=sender, id=text, text=text)


def taken(queue: Queue) -> str:
    found = queue.take()
    return found[1].text if found is not None else ""


def test_the_next_words_of_a_session_wait_for_the_answer_to_the_last() -> None:
    queue = Queue()
    queue.add("a", words("one"))
    queue.add("a", words("two"))
    assert (taken(queue), taken(queue)) == ("one", "")
    queue.release("a")
    assert (taken(queue), taken(queue)) == ("two", "")


def test_a_session_with_much_to_say_lets_others_go_between() -> None:
    queue = Queue()
    for text in ("a1", "a2", "b1"):
        queue.add(text[0], words(text))
    assert taken(queue) == "a1"
    queue.release("a")
    assert (taken(queue), taken(queue)) == ("b1", "a2")


def test_words_that_come_while_others_are_answered_wait_too() -> None:
    queue = Queue()
    queue.add("a", words("one"))
    assert taken(queue) == "one"
    queue.add("a", words("two"))
    assert (queue.length("a"), taken(queue)) == (1, "")
    queue.release("a")
    assert (taken(queue), queue.length("a")) == ("two", 0)


def test_a_sender_may_write_so_often_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    rates = RateLimit()
    assert [rates.allow(words("x"), 2) for _ in range(3)] == [True, True, False]
    assert rates.allow(words("x", "bob"), 2)
    now[0] = 61.0
    assert rates.allow(words("x"), 2)


def test_senders_who_are_silent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    rates = RateLimit()
    for number in range(100):
        rates.allow(words("x", str(number)), 2)
    now[0] = 61.0
    rates.allow(words("x"), 2)
    assert len(rates._recent) == 1
