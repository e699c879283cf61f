"""Answers that may have been sent: which they are is known as long as it matters."""

from __future__ import annotations

import pytest

from nacre.channels.channel import Doubtful, Doubts, Gone


def lose(doubts: Doubts, id: str, error: Exception) -> None:
    with pytest.raises(type(error)), doubts.about(id):
        raise error


def test_what_was_sent_or_has_nobody_to_take_it_is_in_doubt_no_more() -> None:
    doubts = Doubts()
    for id in ("a", "b", "c"):
        lose(doubts, id, Doubtful())
    with doubts.about("a"):
        pass
    lose(doubts, "b", Gone())
    assert [id in doubts for id in ("a", "b", "c")] == [False, False, True]


def test_answers_that_are_never_sent_do_not_fill_the_memory() -> None:
    doubts = Doubts()
    for number in range(2000):
        lose(doubts, str(number), Doubtful())
    assert ("0" in doubts, "1999" in doubts, len(doubts._ids)) == (False, True, 1000)
