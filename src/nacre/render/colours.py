"""Colours of the terminal, the same few for a dark and for a light background; and of code, line by line.

Pygments knows the languages of code, if it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


PLAIN = "36"
"""The style of code whose language is not known."""
_MAX_LINE = 2000
"""Longer lines are data; to take them apart costs more than it tells."""
# The first that a token belongs to counts.
_STYLES = (
    ("Token.Comment", "2"),
    ("Token.Keyword", "35"),
    ("Token.Name.Function", "34"),
    ("Token.Name.Class", "1;34"),
    ("Token.Name.Decorator", "33"),
    ("Token.Name.Builtin", "36"),
    ("Token.Name.Tag", "34"),
    ("Token.Name.Attribute", "36"),
    ("Token.Literal.String", "32"),
    ("Token.Literal.Number", "33"),
    ("Token.Operator.Word", "35"),
    ("Token.Generic.Deleted", "31"),
    ("Token.Generic.Inserted", "32"),
    ("Token.Generic.Heading", "1"),
    ("Token.Generic.Subheading", "36"),
    ("Token.Generic.Prompt", "2"),
    ("Token.Generic.Output", "2"),
)


class Painter:
    """Splits each line of one code block into pieces with a style; remembers what is open, as a long comment."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._open: tuple[str, ...] = ("root",)

    def pieces(self, line: str) -> list[tuple[str, str]]:
        """The next line, as texts with their SGR codes."""
        if self._lexer is None or len(line) > _MAX_LINE:
            return [(line, PLAIN)]
        try:
            found = self._tokens(f"{line}\n")
        except Exception:  # noqa: BLE001 - a lexer of another project on a model's text: an error costs only the colours
            self._lexer = None
            return [(line, PLAIN)]
        pieces = []
        for _, kind, text in found:
            sgr = next((sgr for name, sgr in _STYLES if str(kind).startswith(name)), "")
            pieces.append((text.rstrip("\n"), sgr))
        return pieces if "".join(text for text, _ in pieces) == line else [(line, PLAIN)]

    def _tokens(self, line: str) -> list[tuple[int, Any, str]]:
        from pygments import lexer  # type: ignore[import-untyped] # noqa: PLC0415 - as in `_lexer`

        if type(self._lexer).get_tokens_unprocessed is not lexer.RegexLexer.get_tokens_unprocessed:
            return list(self._lexer.get_tokens_unprocessed(line))
        # The same rules, but with a stack of states that can be kept from one line to the next.
        context = lexer.LexerContext(line, 0, stack=list(self._open))
        found = list(lexer.ExtendedRegexLexer.get_tokens_unprocessed(self._lexer, context=context))
        self._open = tuple(context.stack)
        return found


def _lexer(language: str) -> Any:
    """The lexer of a language; None if there is none, or no Pygments."""
    name = language.strip().partition(" ")[0].lower()
    if not name:
        return None
    try:
        from pygments import lexers, util  # noqa: PLC0415 - optional, for code in colour
    except ImportError:
        return None
    try:
        return lexers.get_lexer_by_name(name)
    except util.ClassNotFound:
        return None
