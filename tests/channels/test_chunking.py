"""Text for a wire: cut where people would cut it, and never too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.channels.chunking import FENCE_ROOM, clean, close_fences, split, utf8, utf16


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" \n ", []),
        ("short", ["short"]),
        ("exactly 10", ["exactly 10"]),
        ("one two three", ["one two", "three"]),
        ("one\ntwo three", ["one", "two three"]),
        ("one two\n\nthree four", ["one two", "three four"]),
        ("    code\n    more", ["    code", "    more"]),
        ("a\n\nbb cc dd", ["a\n\nbb cc", "dd"]),
        ("withoutanyspaces", ["withoutany", "spaces"]),
    ],
)
def test_text_is_cut_between_paragraphs_lines_and_words(text: str, pieces: list[str]) -> None:
    assert split(text, 10) == pieces


@given(st.text(alphabet="ab \n🦪ü\u0301\u200d", max_size=300), st.integers(min_value=8, max_value=40))
def test_no_piece_is_too_long_and_no_word_is_lost(text: str, most: int) -> None:
    for size in (len, utf8, utf16):
        pieces = split(text, most, size=size)
        assert all(0 < size(piece) <= most for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_character_of_several_is_not_cut() -> None:
    assert split("aaaaaaae\u0301bbbb", 8) == ["aaaaaaa", "e\u0301bbbb"]
    assert split("aaaaaa👩\u200d🚀", 8) == ["aaaaaa", "👩\u200d🚀"]


def test_a_giant_text_is_cut_in_a_moment() -> None:
    assert len(split("word " * 400_000, 4096)) == 489


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    text = "see:\n```python\n" + "\n".join(f"line {number}" for number in range(9)) + "\n```\ndone"
    pieces = close_fences(split(text, 50))
    assert pieces[0].startswith("see:\n```python\n") and pieces[0].endswith("\n```")  # noqa: PT018 - one claim
    assert all(piece.startswith("```python\n") for piece in pieces[1:])
    assert pieces[-1].endswith("```\ndone")
    assert all(len(piece) <= 50 + FENCE_ROOM for piece in pieces)


def test_control_characters_and_halves_of_characters_are_taken_out() -> None:
    assert clean("a\r\nb\rc\td\0\x1b[31m\x7f\x85\ud83d") == "a\nb\nc\td[31m\ufffd"
