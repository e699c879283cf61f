"""A text in pieces: sentences, as many as are bounded, and nothing of the text lost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nacre.index.meaning import MAX_PIECES, MAX_READ, pieces

LONG = "The mill at Hartwell delivers the flour."
OTHER = "Grandfather made clocks in Dresden for years."


def cut(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in pieces(text)]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_has_no_pieces(text: str) -> None:
    assert pieces(text) == []


@pytest.mark.parametrize("between", [" ", "\n", "\n\n", '" ', "  "])
def test_each_sentence_and_each_line_is_a_piece(between: str) -> None:
    first, second = cut(f"{LONG}{between}{OTHER}")
    assert (first.rstrip('"'), second) == (LONG, OTHER)


def test_sentences_need_no_capital_letters_and_lines_no_full_stop() -> None:
    assert cut(f"{LONG} {OTHER}".lower()) == [LONG.lower(), OTHER.lower()]
    assert cut(f"- {LONG[:-1]}\n- {OTHER[:-1]}") == [f"- {LONG[:-1]}", f"- {OTHER[:-1]}"]


def test_sentences_of_a_language_without_spaces_are_pieces() -> None:
    one, two = "我" * 30 + "。", "他" * 30 + "！"  # noqa: RUF001
    assert cut(one + two) == [one, two]


def test_a_line_that_goes_on_in_lower_case_is_no_piece_of_its_own() -> None:
    assert len(pieces("a sentence that somebody has broken\ninto two lines of about the same length")) == 1


def test_what_is_short_goes_with_its_neighbours() -> None:
    assert cut(f"Sure! Why not? {LONG} Thanks.") == ["Sure! Why not? " + LONG + " Thanks."]
    assert cut(f"Hi! {LONG} {OTHER} Bye.") == [f"Hi! {LONG}", f"{OTHER} Bye."]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 9000,
        "word " * 3000,
        "A b. " * 3000,
        "一。" * 3000,
        f"{LONG} " * 300,
        "\n" * 3000 + "a" + "\n" * 3000,
        f"  {LONG}\n\n{OTHER}  ",
    ],
)
def test_pieces_are_few_and_follow_each_other_through_the_text(text: str) -> None:
    found = pieces(text)
    assert len(found) <= MAX_PIECES
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert "".join(text[start:end] for start, end in found).strip() == text[:MAX_READ].strip()
    # The model reads about so much of each.
    assert max((end - start for start, end in found), default=0) <= 2 * MAX_READ / MAX_PIECES + 100
