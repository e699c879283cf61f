"""Other spellings of what is searched for."""

from __future__ import annotations

from collections.abc import Iterable

from nacre.index.query import Term, parse, tolerant


class Words:
    """A vocabulary of one word, which remembers how often it was asked."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.asked = 0

    def count(self, words: Iterable[str]) -> dict[str, int]:
        counted = {word: int(word == self._word) for word in words}
        self.asked += len(counted)
        return counted

    def has(self, word: str) -> bool:
        return word == self._word


def test_a_word_that_is_nowhere_is_taken_for_one_that_is_a_letter_away() -> None:
    assert tolerant(Words("pelican"), parse("pelikan", now=0)).wanted == (Term("pelikan", either=(Term("pelican"),)),)


def test_a_word_that_nobody_types_is_not_spelled_in_every_other_way() -> None:
    words, query = Words("pelican"), parse("x" * 4096, now=0)
    assert tolerant(words, query) == query
    assert words.asked == 0


def test_of_many_words_that_are_nowhere_the_first_are_spelled_in_other_ways() -> None:
    words = Words("harbour")
    unknown = [f"{'b' * 12}{chr(97 + n % 26) * (n + 1)}" for n in range(90)]
    wanted = tolerant(words, parse(" ".join([*unknown[:6], "harbout", *unknown[6:]]), now=0)).wanted
    assert wanted[6].either == (Term("harbour"),)
    assert words.asked < 20_000
