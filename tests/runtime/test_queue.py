"""Words that wait: in order within a session, and no session before its turn."""

from __future__ import annotations

import pytest

from nacre.channels.channel import InboundMessage
from nacre.runtime.gateway.queue import Lines
from nacre.runtime.gateway.rate_limit import Rates


def words(text: str, sender: str = "ann") -> InboundMessage:
    return InboundMessage(channel="line", chat="c", sender=sender, id=text, text=text)


def taken(lines: Lines) -> str:
    found = lines.take()
    return found[1].text if found is not None else ""


def test_the_next_words_of_a_session_wait_for_the_answer_to_the_last() -> None:
    lines = Lines()
    lines.add("a", words("one"))
    lines.add("a", words("two"))
    assert (taken(lines), taken(lines)) == ("one", "")
    lines.answered("a")
    assert (taken(lines), taken(lines)) == ("two", "")


def test_a_session_with_much_to_say_lets_others_go_between() -> None:
    lines = Lines()
    for text in ("a1", "a2", "b1"):
        lines.add(text[0], words(text))
    assert taken(lines) == "a1"
    lines.answered("a")
    assert (taken(lines), taken(lines)) == ("b1", "a2")


def test_words_that_come_while_others_are_answered_wait_too() -> None:
    lines = Lines()
    lines.add("a", words("one"))
    assert taken(lines) == "one"
    lines.add("a", words("two"))
    assert (lines.length("a"), taken(lines)) == (1, "")
    lines.answered("a")
    assert (taken(lines), lines.length("a")) == ("two", 0)


def test_a_sender_may_write_so_often_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    rates = Rates()
    assert [rates.allow(words("x"), 2) for _ in range(3)] == [True, True, False]
    assert rates.allow(words("x", "bob"), 2)
    now[0] = 61.0
    assert rates.allow(words("x"), 2)


def test_senders_who_are_silent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    rates = Rates()
    for number in range(100):
        rates.allow(words("x", str(number)), 2)
    now[0] = 61.0
    rates.allow(words("x"), 2)
    assert len(rates._recent) == 1
