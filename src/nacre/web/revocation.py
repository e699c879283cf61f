"""Ends what was begun with a token when the token is revoked: requests, streams, turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from nacre.runtime.access_tokens import Tokens

_LOOK = 0.5
"""Seconds between two looks at the tokens, while anything is open that one of them was shown for."""


class Revocations:
    """What is open, by the token that was shown for it; looks at the tokens only while there is something."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._open: dict[int, tuple[str, str, Callable[[], None]]] = {}
        self._numbers = count()
        self._next: asyncio.TimerHandle | None = None

    def add(self, token: str, digest: str, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` when a token is revoked or replaced, unless what this returns was called before."""
        number = next(self._numbers)
        self._open[number] = (token, digest, end)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(_LOOK, self._look)

        def forget() -> None:
            self._open.pop(number, None)

        return forget

    def _look(self) -> None:
        self._next = None
        ended = [number for number, (token, digest, _) in self._open.items() if not self._is_valid(token, digest)]
        for number in ended:
            _, _, end = self._open.pop(number, ("", "", _nothing))
            end()
        if self._open:
            self._next = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _is_valid(self, name: str, digest: str) -> bool:
        found = self._tokens.get(name) if self._tokens is not None else None
        return found is not None and found.digest == digest


def _nothing() -> None:
    """Nothing is left to end."""
