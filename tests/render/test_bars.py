"""Numbers as bars."""

from __future__ import annotations

import pytest

from nacre.render.text import bars, width


def test_the_longest_bar_takes_what_is_left() -> None:
    assert list(bars([("mon", 80), ("tue", 25), ("wed", 1), ("thu", 0)], 20)) == [
        "mon  ███████████  80",
        "tue  ███▍         25",
        "wed  ▏             1",
        "thu                0",
    ]


def test_without_block_characters_there_is_ascii() -> None:
    found = list(bars([("漢字" * 20, 12_345), ("b", 1)], 40, is_ascii=True))
    assert found == ["漢字漢字漢字漢字漢.  ############  12.3k", "b                    #                 1"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_are_as_wide_as_asked_for(columns: int) -> None:
    rows = [("漢字" * 30, 10**9), ("short", 7), ("x" * 300, 0)]
    assert {width(line) for line in bars(rows, columns)} == {columns}


def test_nothing_has_no_bars() -> None:
    assert list(bars([], 80)) == []
    assert list(bars([("a", 0)], 20)) == ["a" + " " * 18 + "0"]
