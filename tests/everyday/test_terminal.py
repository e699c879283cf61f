"""`nacre chat` in a real terminal, through an emulator: what a person sees, at any size."""

from __future__ import annotations

import pytest

from tests.everyday.conftest import Person
from tests.everyday.terminal import Screen

WIDTHS = (40, 58, 80, 200)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_conversation_fits_the_screen_at_any_width(person: Person, columns: int) -> None:
    with Screen(person, "chat", columns=columns) as screen:
        screen.until("gemma4:e4b")
        screen.say("hello 世界")
        screen.until("You said: hello 世界")
        assert screen.leave() == 0
