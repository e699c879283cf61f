"""Text that is safe to print, and as wide as a terminal shows it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from wcwidth import wcswidth

from nacre.amounts import count, size
from nacre.render.text import ago, clip, cuts, one_line, pad, visible, width, wrap

NOW = datetime(2026, 11, 15, 18, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 del\x7f nul\x00", "bell\\x07 del\\x7f nul\\x00"),
        ("c1\x9b31m", "c1\\x9b31m"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("half\ud800", "half\\ud800"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("back\rover", "back\\x0dover"),
    ],
)
def test_control_characters_are_shown_as_their_numbers(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("漢字", 4),
        ("e\u0301", 1),
        ("ｱ", 1),
        ("🙂", 2),
        ("", 0),
        ("❤\ufe0f", 2),
        ("❤", 1),
        ("👨\u200d👩\u200d👧", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("1\ufe0f\u20e3", 2),
        ("\u1112\u1161\u11ab", 2),
        ("क्षि", 2),
    ],
)
def test_width_is_in_columns(text: str, columns: int) -> None:
    assert width(text) == columns == wcswidth(text)


SEQUENCES = ["👨\u200d👩\u200d👧", "❤\ufe0f", "🇩🇪", "👍🏽", "\u1112\u1161\u11ab", "क्षि", "e\u0301"]


@pytest.mark.parametrize("part", SEQUENCES)
@pytest.mark.parametrize("columns", [2, 3, 7, 40])
def test_what_is_shown_as_one_is_never_cut(part: str, columns: int) -> None:
    lines = list(wrap(part * 30, columns))
    assert max(map(wcswidth, lines)) <= columns
    assert all(line == part * (len(line) // len(part)) for line in [*lines, clip(part * 30, columns, mark="")])


def test_a_text_of_sequences_that_fits_is_not_clipped() -> None:
    family = "👨\u200d👩\u200d👧"
    assert clip(family, 2) == family
    assert clip(f"{family} {family}", 4) == f"{family} …"


@pytest.mark.parametrize("part", SEQUENCES)
def test_without_wcwidth_no_line_is_too_wide(part: str) -> None:
    program = f"""
import sys
sys.modules["wcwidth"] = None
from nacre.render.text import width, wrap
for line in wrap({part!r} * 30, 10):
    assert width(line) <= 10
    print(line.encode().hex())
"""
    found = subprocess.check_output([sys.executable, "-c", program], text=True)
    lines = [bytes.fromhex(line).decode() for line in found.split()]
    assert "".join(lines) == part * 30
    assert max(map(wcswidth, lines)) <= 10


def test_wrapping_cuts_at_blanks() -> None:
    assert list(wrap("one two three", 7)) == ["one two", "three"]


def test_wrapping_cuts_between_wide_characters() -> None:
    assert list(wrap("漢字漢字a", 5)) == ["漢字", "漢字a"]


def test_wrapping_keeps_indentation() -> None:
    assert list(wrap("    indented code", 12)) == ["    indented", "code"]


def test_a_word_that_is_too_long_is_cut_anywhere() -> None:
    assert list(wrap("abcdefgh", 3)) == ["abc", "def", "gh"]


@pytest.mark.parametrize("text", ["x" * 10_000, "漢" * 10_000, "e\u0301" * 5_000, " " * 10_000, "a b " * 2_500])
@pytest.mark.parametrize("columns", [1, 2, 7, 80])
def test_no_line_is_wider_than_asked_for(text: str, columns: int) -> None:
    lines = [text[start:end] for start, end in cuts(text, columns)]
    assert max(map(width, lines)) <= max(columns, 2)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_clipping_never_cuts_a_wide_character_in_half() -> None:
    assert clip("漢字漢字", 6) == "漢字…"
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "ab…"
    assert clip("abcd", 0) == ""


def test_padding_counts_columns() -> None:
    assert pad("漢", 4) == "漢  "
    assert pad("7", 3, right=True) == "  7"


def test_one_line_is_the_first_that_says_something() -> None:
    assert one_line("\n\n  first\x1b\nsecond") == "first\\x1b"


@pytest.mark.parametrize(
    ("number", "short"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (999_960, "1.0M"), (4 * 10**18, "4000.0P")],
)
def test_counts_are_short(number: int, short: str) -> None:
    assert count(number) == short


def test_sizes_have_units() -> None:
    assert (size(31), size(2100), size(5_000_000)) == ("31 B", "2.1 kB", "5.0 MB")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=2), "2 d ago"),
        (timedelta(days=40), "2026-10-06 18:00"),
        (timedelta(days=-1), "2026-11-16 18:00"),
    ],
)
def test_moments_are_told_by_how_long_ago_they_were(before: timedelta, words: str) -> None:
    assert ago(NOW - before, NOW) == words
