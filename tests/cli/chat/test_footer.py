"""The last line of the screen, as wide as there is room."""

from __future__ import annotations

import pytest

pytest.importorskip("prompt_toolkit", reason="the line editor is not installed: pip install 'nacre-sessions[agent]'")

from nacre.cli.chat.editor import footer_text
from nacre.cli.chat.keyboard import clip, clip_start
from nacre.cli.chat.reader import Footer

FOOTER = Footer(model="ollama/gemma4:e4b", used="1.2k/32.0k tokens (3%)", share="3%", title="a title of some length")


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (79, "ollama/gemma4:e4b · 1.2k/32.0k tokens (3%) · a title of some length"),
        (60, "ollama/gemma4:e4b · 1.2k/32.0k tokens (3%) · a title of som…"),
        (39, "gemma4:e4b · 3% · a title of some leng…"),
        (20, "3% · gemma4:e4b"),
    ],
)
def test_it_is_shortened_by_priority(columns: int, wanted: str) -> None:
    assert footer_text(FOOTER, columns) == wanted


def test_wide_characters_take_two_columns() -> None:
    assert clip("世界你好", 5) == "世界…"
    assert clip_start("世界你好", 5) == "…你好"
    assert clip("世界", 4) == "世界"
