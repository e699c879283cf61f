"""JSON as models write it: single quotes, bare keys, comments, trailing commas, raw newlines, quotes inside quotes."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

DEEPEST = 100
_MOST_GUESSES = 1000

_GAP = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?(?![\w.])")
_WORD = re.compile(r"[^\s,:{}\[\]\"'`<>()]+")
_PIECE = {quote: re.compile(rf"[^\\{quote}]+|\\u[0-9a-fA-F]{{4}}|\\.|{quote}", re.DOTALL) for quote in "\"'`"}
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "undefined": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": "\n"}
_PLAIN_ESCAPES = frozenset("\"'`\\/")
_VERBATIM = ('<|"|>', '"""', "'''")

# What may stand behind the quote that ends a string; behind any other, the quote was part of it.
_QUOTED = r"""(?:"[^"\n]{0,80}"|'[^'\n]{0,80}')"""
_KEY = rf"(?:{_QUOTED}\s*+[:=]|[\w$-]{{1,80}}\s*+:)"
_REMARK = r"//|#|/\*"
_BEHIND = {
    "key": re.compile(r"\s*+[:=]"),
    "item": re.compile(rf"\s*+(?:,|\]|\Z|{_REMARK})"),
    "value": re.compile(rf"\s*+(?:[}}\]]|\Z|{_REMARK}|,\s*+(?:[}}\]]|\Z|{_REMARK}|{_KEY})|(?<=\s){_QUOTED}\s*+:)"),
}


class Wrong(ValueError):
    """The text is not JSON, however kindly it is read; `at` is how far it was."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class Cut(Wrong):
    """The text ends before the value does."""


class Reader:
    """Reads one value; afterwards `at` is behind it.

    `guessed` says that a quote inside a string was taken as part of it, `unclosed` that closing brackets
    were missing at the very end, with nothing else left open.
    """

    def __init__(self, text: str, at: int, end: int | None = None) -> None:
        self._text = text
        self._end = len(text) if end is None else end
        self._guesses = 0
        self.at = at
        self.unclosed = False

    @property
    def guessed(self) -> bool:
        return self._guesses > 0

    def value(self, depth: int = DEEPEST, role: str = "value") -> Any:
        """Read a value; raises Wrong, or Cut where the text ends first."""
        self._skip()
        if depth == 0:
            self._fail("it is nested too deep")
        match self._text[self.at : min(self.at + 1, self._end)]:
            case "":
                raise Cut("it ends where a value is expected", self.at)
            case "{":
                return self._object(depth)
            case "[":
                return self._list(depth)
            case _:
                return self._scalar(role)

    def _skip(self) -> None:
        found = _GAP.match(self._text, self.at, self._end)
        self.at = found.end() if found else self.at
        if self._text.startswith("/*", self.at, self._end):
            raise Cut("it ends inside a comment", self._end)

    def _fail(self, reason: str) -> NoReturn:
        raise Wrong(reason, self.at)

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while not self._is_over("}"):
            key = self._key()
            self._skip()
            if not self._text.startswith((":", "="), self.at, self._end):
                self._fail_at_end(f"a colon is expected after {key[:40]!r}")
            self.at += 1
            found[key] = self.value(depth - 1)
            self._separate()
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._is_over("]"):
            found.append(self.value(depth - 1, "item"))
            self._separate()
        return found

    def _is_over(self, bracket: str) -> bool:
        """Step over the closing bracket; at the end of the text it is taken as read, and noted."""
        self._skip()
        if self.at >= self._end:
            self.unclosed = True
            return True
        if self._text[self.at] != bracket:
            return False
        self.at += 1
        return True

    def _separate(self) -> None:
        self._skip()
        if self._text.startswith(",", self.at, self._end):
            self.at += 1

    def _fail_at_end(self, reason: str) -> NoReturn:
        if self.at >= self._end:
            raise Cut("it ends in the middle", self.at)
        self._fail(reason)

    def _key(self) -> str:
        if self._text[self.at] in _PIECE or self._text.startswith(_VERBATIM, self.at, self._end):
            return self._string("key")
        found = _WORD.match(self._text, self.at, self._end)
        if found is None:
            self._fail("a key is expected")
        self.at = found.end()
        return found[0]

    def _scalar(self, role: str) -> Any:
        if self._text[self.at] in _PIECE or self._text.startswith(_VERBATIM, self.at, self._end):
            return self._string(role)
        found = _NUMBER.match(self._text, self.at, self._end)
        if found is not None:
            self.at = found.end()
            return self._number(found[0])
        return self._word()

    def _number(self, digits: str) -> float:
        if digits.lstrip("-").isdigit():
            return int(digits)
        number = float(digits)
        return number if math.isfinite(number) else self._fail("a number is too large")

    def _word(self) -> Any:
        found = _WORD.match(self._text, self.at, self._end)
        if found is None or found[0] in {"NaN", "Infinity", "-Infinity"}:
            self._fail("a value is expected")
        self.at = found.end()
        if self.at >= self._end:
            raise Cut("it may end inside a word", self.at)
        return _LITERALS.get(found[0], found[0])

    def _string(self, role: str) -> str:
        for mark in _VERBATIM:
            if self._text.startswith(mark, self.at, self._end):
                return self._verbatim(mark)
        quote = self._text[self.at]
        self.at += 1
        pieces: list[str] = []
        while True:
            found = _PIECE[quote].match(self._text, self.at, self._end)
            if found is None:
                raise Cut("it ends inside a string", self.at)
            self.at = found.end()
            if found[0] == quote and self._ends(role):
                return "".join(pieces)
            pieces.append(_unescaped(found[0]))

    def _verbatim(self, mark: str) -> str:
        start = self.at + len(mark)
        end = self._text.find(mark, start, self._end)
        if end < 0:
            raise Cut("it ends inside a string", self._end)
        self.at = end + len(mark)
        return self._text[start:end]

    def _ends(self, role: str) -> bool:
        if _BEHIND[role].match(self._text, self.at, self._end):
            return True
        self._guesses += 1
        if self._guesses > _MOST_GUESSES:
            self._fail("its quotes are ambiguous")
        return False


def _unescaped(piece: str) -> str:
    if piece[0] != "\\":
        return piece
    if piece.startswith("\\u") and piece != "\\u":
        return chr(int(piece.replace("\\u", "0x"), base=16))
    if piece[1] in _PLAIN_ESCAPES:
        return piece[1]
    # An escape that JSON does not know is a backslash that was not doubled, as in a pattern or a path.
    return _ESCAPES.get(piece[1], piece)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)


class Source:
    """A text of which values of plain JSON are read, at many places.

    It is read in a window: where the decoder fails, it counts the lines from the beginning of what it was
    given, which over a long text would take quadratic time.
    """

    _STRIDE = 32_768

    def __init__(self, text: str) -> None:
        self.text = text
        self._start = 0
        self._window = text

    def strictly(self, at: int) -> tuple[Any, int]:
        """Read one value, whose strings may hold raw newlines; gives it and where it ends.

        Raises Wrong with how far it was.
        """
        start = at - at % self._STRIDE
        if start != self._start:
            self._start, self._window = start, self.text[start:]
        try:
            value, end = _DECODER.raw_decode(self._window, at - start)
        except json.JSONDecodeError as error:
            raise Wrong(error.msg, start + error.pos) from error
        except (ValueError, RecursionError) as error:
            # Neither says where: a number that is too long, or nesting that is too deep.
            raise Wrong(str(error), min(len(self.text), at + 10_000)) from error
        return value, start + end
