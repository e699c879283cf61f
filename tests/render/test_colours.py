"""Which theme is used, and what its colours are."""

from __future__ import annotations

import pytest

from nacre.render.colours import choose_theme, sgr_for


@pytest.mark.parametrize(
    ("wanted", "environ", "theme"),
    [
        ("auto", {}, "dark"),
        ("auto", {"COLORFGBG": "15;0"}, "dark"),
        ("auto", {"COLORFGBG": "0;15"}, "light"),
        ("auto", {"COLORFGBG": "0;default;7"}, "light"),
        ("light", {"COLORFGBG": "15;0"}, "light"),
        ("none", {}, "none"),
        ("dark", {"NO_COLOR": "1"}, "none"),
        ("dark", {"NO_COLOR": ""}, "dark"),
    ],
)
def test_the_theme_is_the_one_that_was_set_or_fits_the_background(
    wanted: str, environ: dict[str, str], theme: str
) -> None:
    assert choose_theme(wanted, environ) == theme


def test_a_light_theme_replaces_each_colour_and_keeps_the_rest() -> None:
    assert sgr_for("light", "1;33") == "1;38;5;94"
    assert sgr_for("dark", "1;33") == "1;33"
