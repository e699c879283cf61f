"""JSON as models write it: single quotes, bare keys, comments, trailing commas, raw newlines, quotes inside quotes."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

MAX_DEPTH = 100
_MAX_GUESSES = 1000

_GAP = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?(?![\w.])")
_WORD = re.compile(r"[^\s,:{}\[\]\"'`<>()]+")
_PIECE = {quote: re.compile(rf"[^\\{quote}]+|\\u[0-9a-fA-F]{{4}}|\\.|{quote}", re.DOTALL) for quote in "\"'`"}
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "undefined": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": "\n"}
_PLAIN_ESCAPES = frozenset("\"'`\\/")
_VERBATIM = ('<|"|>', '"""', "'''")

# What may follow the quote that ends a string; before anything else, the quote is part of it.
_QUOTED = r"""(?:"[^"\n]{0,80}"|'[^'\n]{0,80}')"""
_KEY = rf"(?:{_QUOTED}\s*+[:=]|[\w$-]{{1,80}}\s*+:)"
_REMARK = r"//|#|/\*"
_AFTER_QUOTE = {
    "key": re.compile(r"\s*+[:=]"),
    "item": re.compile(rf"\s*+(?:,|\]|\Z|{_REMARK})"),
    "value": re.compile(rf"\s*+(?:[}}\]]|\Z|{_REMARK}|,\s*+(?:[}}\]]|\Z|{_REMARK}|{_KEY})|(?<=\s){_QUOTED}\s*+:)"),
}


class NotJson(ValueError):
    """The text is not JSON, however kindly it is read; `at` is how far it was."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class Incomplete(NotJson):
    """The text ends before the value does."""


class Reader:
    """Reads one value; afterwards `at` is where it ends.

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

    def value(self, depth: int = MAX_DEPTH, role: str = "value") -> Any:
        """Read a value; raises NotJson, or Incomplete where the text ends first."""
        self._skip()
        if depth == 0:
            self._fail("it is nested too deep")
        if self.at >= self._end:
            raise Incomplete("it ends where a value is expected", self.at)
        opening = self._text[self.at]
        if opening not in "{[":
            return self._scalar(role)
        self.at += 1
        items: list[Any] = []
        fields: dict[str, Any] = {}
        while not self._is_over("}" if opening == "{" else "]"):
            if opening == "[":
                items.append(self.value(depth - 1, "item"))
            else:
                key = self._key()
                fields[key] = self.value(depth - 1)
            self._skip()
            if self._text.startswith(",", self.at, self._end):
                self.at += 1
        return fields if opening == "{" else items

    def _skip(self) -> None:
        found = _GAP.match(self._text, self.at, self._end)
        self.at = found.end() if found else self.at
        if self._text.startswith("/*", self.at, self._end):
            raise Incomplete("it ends inside a comment", self._end)

    def _fail(self, reason: str) -> NoReturn:
        raise NotJson(reason, self.at)

    def _key(self) -> str:
        """Read the key of a field, and the colon after it."""
        if self._is_quoted():
            key = self._string("key")
        elif word := _WORD.match(self._text, self.at, self._end):
            key, self.at = word[0], word.end()
        else:
            self._fail("a key is expected")
        self._skip()
        if not self._text.startswith((":", "="), self.at, self._end):
            if self.at >= self._end:
                raise Incomplete("it ends in the middle", self.at)
            self._fail(f"a colon is expected after {key[:40]!r}")
        self.at += 1
        return key

    def _is_over(self, bracket: str) -> bool:
        """Step over the closing bracket; at the end of the text it is taken as read, and noted."""
        self._skip()
        self.unclosed = self.unclosed or self.at >= self._end
        is_closed = self._text.startswith(bracket, self.at, self._end)
        self.at += is_closed
        return is_closed or self.at >= self._end

    def _is_quoted(self) -> bool:
        return self._text[self.at] in _PIECE or self._text.startswith(_VERBATIM, self.at, self._end)

    def _scalar(self, role: str) -> Any:
        if self._is_quoted():
            return self._string(role)
        if found := _NUMBER.match(self._text, self.at, self._end):
            self.at = found.end()
            if found[0].lstrip("-").isdigit():
                return int(found[0])
            number = float(found[0])
            return number if math.isfinite(number) else self._fail("a number is too large")
        word = _WORD.match(self._text, self.at, self._end)
        if word is None or word[0] in {"NaN", "Infinity", "-Infinity"}:
            self._fail("a value is expected")
        self.at = word.end()
        if self.at >= self._end:
            raise Incomplete("it may end inside a word", self.at)
        return _LITERALS.get(word[0], word[0])

    def _string(self, role: str) -> str:
        # Between marks that mean nothing else, every character is part of it.
        for mark in _VERBATIM:
            if self._text.startswith(mark, self.at, self._end):
                start = self.at + len(mark)
                end = self._text.find(mark, start, self._end)
                if end < 0:
                    raise Incomplete("it ends inside a string", self._end)
                self.at = end + len(mark)
                return self._text[start:end]
        # Else what follows a quote decides whether the string ends there.
        quote = self._text[self.at]
        self.at += 1
        pieces: list[str] = []
        while True:
            found = _PIECE[quote].match(self._text, self.at, self._end)
            if found is None:
                raise Incomplete("it ends inside a string", self.at)
            self.at = found.end()
            if found[0] == quote:
                if _AFTER_QUOTE[role].match(self._text, self.at, self._end):
                    return "".join(pieces)
                self._guesses += 1
                if self._guesses > _MAX_GUESSES:
                    self._fail("its quotes are ambiguous")
            pieces.append(_unescape(found[0]))


def _unescape(piece: str) -> str:
    if piece[0] != "\\":
        return piece
    if piece.startswith("\\u") and piece != "\\u":
        return chr(int(piece.replace("\\u", "0x"), base=16))
    # An escape that JSON does not know is a backslash that was not doubled, as in a pattern or a path.
    return piece[1] if piece[1] in _PLAIN_ESCAPES else _ESCAPES.get(piece[1], piece)


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

    def read_strict(self, at: int) -> tuple[Any, int]:
        """Read one value, whose strings may hold raw newlines; gives it and where it ends.

        Raises NotJson with how far it was.
        """
        start = at - at % self._STRIDE
        if start != self._start:
            self._start, self._window = start, self.text[start:]
        try:
            value, end = _DECODER.raw_decode(self._window, at - start)
        except json.JSONDecodeError as error:
            raise NotJson(error.msg, start + error.pos) from error
        except (ValueError, RecursionError) as error:
            # Neither says where: a number that is too long, or nesting that is too deep.
            raise NotJson(str(error), min(len(self.text), at + 10_000)) from error
        return value, start + end
