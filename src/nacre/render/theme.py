"""Colours of the terminal: the same few for a dark and for a light background."""

from __future__ import annotations

from collections.abc import Mapping

# On a dark background the terminal's own palette is used. On a light one its yellow, cyan and grey can hardly be read.
_ON_LIGHT = {
    "2": "38;5;241",
    "31": "38;5;124",
    "32": "38;5;28",
    "33": "38;5;94",
    "34": "38;5;25",
    "35": "38;5;90",
    "36": "38;5;30",
}
_LIGHT_GROUNDS = frozenset(("7", "9", "10", "11", "12", "13", "14", "15"))


def choose_theme(wanted: str, environ: Mapping[str, str]) -> str:
    """The theme to use: `dark`, `light` or `none`; `auto` asks the terminal's COLORFGBG, and is dark without it."""
    if environ.get("NO_COLOR"):
        return "none"
    if wanted != "auto":
        return wanted
    return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_GROUNDS else "dark"


def sgr_for(theme: str, sgr: str) -> str:
    """The codes of a style, as `1;33`, for a theme."""
    if theme != "light":
        return sgr
    return ";".join(_ON_LIGHT.get(code, code) for code in sgr.split(";"))
