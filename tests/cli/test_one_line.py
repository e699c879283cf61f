"""What is printed is safe, and as wide as it says."""

from __future__ import annotations

import json

import pytest

from nacre.cli.one_line import chop, clean, clean_json, cut, pad, several, width


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b2J", "\\x9b2J"),
        ("\x7f", "\\x7f"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("plain", "plain"),
        ("Österreich 数据 👩‍💻", "Österreich 数据 👩‍💻"),
    ],
)
def test_what_would_command_a_terminal_is_made_visible(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_lines_of_a_long_text_stay_lines() -> None:
    assert clean("a\n\tb\x1bc", lines=True) == "a\n\tb\\x1bc"


@pytest.mark.parametrize("hostile", ["\x7f", "\x9b", "\u202e", "\u2028", "\U000e0041"])
def test_json_says_the_same_without_the_characters(hostile: str) -> None:
    text = json.dumps(f"a{hostile}b", ensure_ascii=False)
    assert hostile not in clean_json(text)
    assert json.loads(clean_json(text)) == f"a{hostile}b"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("数据", 4), ("e\u0301", 1), ("한국어", 6), ("\uff46\uff55", 4), ("", 0)]
)
def test_width_counts_columns(text: str, columns: int) -> None:
    assert width(text) == columns
    assert width(pad(text, 10)) == 10


@pytest.mark.parametrize("columns", range(1, 12))
def test_what_is_cut_or_wrapped_fits(columns: int) -> None:
    text = "a数据 b库 连接"
    assert width(cut(text, columns)) <= columns
    if columns > 1:
        assert all(width(line) <= columns for line in chop(text, columns))
        assert "".join(chop(text, columns)) == text


def test_one_is_not_several() -> None:
    assert [several(count, "session") for count in (0, 1, 12000)] == ["0 sessions", "1 session", "12,000 sessions"]
