"""Pasted text: a long one is folded to one line, and what it says is never a command."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MAX_LINES = 4
_MAX_LETTERS = 600
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A file that somebody mentions: @path, or @"a path with blanks"."""
_PUNCTUATION = ".,;:!?)]}'\""


class Pastes:
    """What of a line was not typed, since the line was last empty."""

    def __init__(self) -> None:
        self._folded: dict[str, str] = {}
        self._foreign: list[str] = []
        self.pasted: list[str] = []

    def clear(self) -> None:
        """Begin a new line."""
        self._folded, self._foreign, self.pasted = {}, [], []

    def add(self, text: str) -> str:
        """Take note of pasted text; returns what stands for it in the line."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._foreign.append(text)
        self.pasted.append(text)
        count = text.rstrip("\n").count("\n") + 1
        if count <= _MAX_LINES and len(text) <= _MAX_LETTERS:
            return text
        extent = f"{count} lines" if count > 1 else f"{len(text)} characters"
        mark, number = f"[pasted {extent}]", 2
        while self._folded.get(mark, text) != text:
            mark, number = f"[pasted {extent}, no. {number}]", number + 1
        self._folded[mark] = text
        return mark

    def add_foreign(self, text: str) -> None:
        """Take note of text that was not typed, and is not folded."""
        self._foreign.append(text)

    def add_edited(self, before: str, after: str) -> None:
        """Take note of what an editor made of a line; only files that were mentioned before count as typed."""
        for mention in typed_mentions(before, self._foreign):
            after = after.replace(f"@{mention}", "").replace(f'@"{mention}"', "")
        self._foreign.append(after)

    def whole(self, line: str) -> str:
        """The line with every folded text in its place."""
        for mark, text in self._folded.items():
            line = line.replace(mark, text)
        return line

    def mark_before(self, line: str) -> str:
        """The mark at the end of a line, so that it is deleted as one; "" if there is none."""
        return next((mark for mark in self._folded if line.endswith(mark)), "")

    @property
    def foreign(self) -> tuple[str, ...]:
        """Every text that was not typed."""
        return tuple(self._foreign)


def mentions(text: str) -> list[str]:
    """The files that a text mentions by `@path`, each once, as they are written."""
    found = [quoted or plain for quoted, plain in _MENTION.findall(text)]
    return list(dict.fromkeys(found))


def typed_mentions(text: str, foreign: Iterable[str]) -> list[str]:
    """The files that somebody mentioned by typing: none that pasted text mentions too."""
    others = "\n".join(foreign)
    return [one for one in mentions(text) if f"@{one}" not in others and f'@"{one}' not in others]


def spellings(mention: str) -> list[str]:
    """How a mention may be meant: as it is written, and without the punctuation after it."""
    bare = mention.rstrip(_PUNCTUATION)
    return [mention, bare] if bare and bare != mention else [mention]
