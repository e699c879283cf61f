"""Colours for the lines of a code block, one after another as they come; Pygments knows the languages, if installed."""

from __future__ import annotations

from typing import Any

PLAIN = "36"
"""The style of code whose language is not known."""
_LONGEST_LINE = 2000
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
        if self._lexer is None or len(line) > _LONGEST_LINE:
            return [(line, PLAIN)]
        try:
            found = self._tokens(f"{line}\n")
        except Exception:  # noqa: BLE001 - a lexer of another project on a model's text: whatever it raises costs the colours
            self._lexer = None
            return [(line, PLAIN)]
        pieces = [(text.rstrip("\n"), _style(str(kind))) for kind, text in found]
        return pieces if "".join(text for text, _ in pieces) == line else [(line, PLAIN)]

    def _tokens(self, line: str) -> list[tuple[Any, str]]:
        from pygments.lexer import (  # type: ignore[import-untyped] # noqa: PLC0415 - as in `_lexer`
            ExtendedRegexLexer,
            LexerContext,
            RegexLexer,
        )

        if type(self._lexer).get_tokens_unprocessed is not RegexLexer.get_tokens_unprocessed:
            return [(kind, text) for _, kind, text in self._lexer.get_tokens_unprocessed(line)]
        # The same rules, but with a stack of states that can be kept from one line to the next.
        context = LexerContext(line, 0, stack=list(self._open))
        found = list(ExtendedRegexLexer.get_tokens_unprocessed(self._lexer, context=context))
        self._open = tuple(context.stack)
        return [(kind, text) for _, kind, text in found]


def _lexer(language: str) -> Any:
    """The lexer of a language; None if there is none, or no Pygments."""
    name = language.strip().partition(" ")[0].lower()
    if not name:
        return None
    try:
        from pygments.lexers import (  # type: ignore[import-untyped] # noqa: PLC0415 - optional, only for code in colour
            get_lexer_by_name,
        )
        from pygments.util import ClassNotFound  # type: ignore[import-untyped] # noqa: PLC0415 - the same
    except ImportError:
        return None
    try:
        return get_lexer_by_name(name)
    except ClassNotFound:
        return None


def _style(kind: str) -> str:
    return next((sgr for name, sgr in _STYLES if kind.startswith(name)), "")
