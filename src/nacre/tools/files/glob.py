"""Which paths a pattern means, decided one name at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import NamedTuple

_ANY_DEPTH = "**"


class Match(NamedTuple):
    """What a name came to: whether the path is meant, and from where in the pattern its content goes on."""

    is_meant: bool
    states: frozenset[int]


class Pattern:
    """A pattern such as `src/**/*.py`; `**` stands for any number of directories."""

    def __init__(self, text: str) -> None:
        parts = [part for part in text.split("/") if part not in {"", "."}]
        # Several `**` in a row stand for what one does.
        pairs = zip(parts, [*parts[1:], ""], strict=True)
        self._parts: Sequence[str] = [one for one, after in pairs if not one == after == _ANY_DEPTH]
        self._names = [re.compile(translate(part)) for part in self._parts]
        self.start = self._closed({0})

    def step(self, states: frozenset[int], name: str) -> Match:
        """Go one name further."""
        after: set[int] = set()
        for state in states:
            if state < len(self._parts) and self._parts[state] == _ANY_DEPTH:
                after.add(state)
            elif state < len(self._parts) and self._names[state].match(name):
                after.add(state + 1)
        closed = self._closed(after)
        end = len(self._parts)
        return Match(end in closed, closed - {end})

    def names(self, states: frozenset[int], name: str) -> bool:
        """Whether the pattern says this name itself, and not only through `**`."""
        return any(state < len(self._parts) and self._parts[state] == name for state in states)

    def _closed(self, states: set[int]) -> frozenset[int]:
        """States with those that are reached because `**` may stand for nothing."""
        found = set(states)
        for state in sorted(states):
            at = state
            while at < len(self._parts) and self._parts[at] == _ANY_DEPTH:
                at += 1
                found.add(at)
        return frozenset(found)
