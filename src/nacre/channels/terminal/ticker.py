"""A line on stderr that says what happens, for as long as it happens; only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import anyio

_TICK = 0.1
_PATIENCE = 0.5
_FRAMES = "|/-\\"
_LONGEST = 60


class Ticker:
    """Says on one line what happens, once that has taken a while."""

    def __init__(self, status: Callable[[], str]) -> None:
        self._status = status
        self._since = time.monotonic()
        self._is_shown = False
        self._is_wanted = sys.stderr is not None and sys.stderr.isatty()

    def tick(self) -> None:
        """Draw the line anew."""
        status = self._status()[:_LONGEST]
        if not status or not self._is_wanted or time.monotonic() - self._since < _PATIENCE:
            return
        frame = _FRAMES[int(time.monotonic() / _TICK) % len(_FRAMES)]
        sys.stderr.write(f"\r\x1b[K{frame} {status}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Take the line away, since something else is printed."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_shown = False
        self._since = time.monotonic()

    async def run(self) -> None:
        """Draw it again and again."""
        while True:
            self.tick()
            await anyio.sleep(_TICK)
