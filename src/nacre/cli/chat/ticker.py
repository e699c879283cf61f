"""What happens now, drawn below the output for as long as it happens; only on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import IO

import anyio

_TICK = 0.1
_WAIT = 0.5
_FRAMES = "|/-\\"
_MAX_STATUS = 60


class Ticker:
    """Says on one line what happens, once that has taken a while; above it, lines that may still change.

    `live` gives these lines, each no wider than the terminal. They are drawn as soon as there are some.
    """

    def __init__(
        self, status: Callable[[], str], live: Callable[[], list[str]] = list, *, stream: IO[str] | None = None
    ) -> None:
        self._status = status
        self._live = live if os.environ.get("TERM", "dumb") != "dumb" else list
        self._stream = stream if stream is not None else sys.stderr
        self._since = time.monotonic()
        self._drawn: list[str] = []
        self._is_wanted = self._stream is not None and self._stream.isatty()

    def tick(self) -> None:
        """Draw the lines again."""
        if not self._is_wanted:
            return
        size = shutil.get_terminal_size()
        lines = self._live()[-max(size.lines - 2, 1) :]
        status = self._status()[: min(_MAX_STATUS, size.columns - 3)]
        if status and (lines or time.monotonic() - self._since >= _WAIT):
            frame = _FRAMES[int(time.monotonic() / _TICK) % len(_FRAMES)]
            lines.append(f"{frame} {status}")
        if lines != self._drawn:
            self._stream.write(self._erase() + "\n".join(lines))
            self._stream.flush()
            self._drawn = lines

    def clear(self) -> None:
        """Erase the lines, since something else is printed."""
        if self._drawn:
            self._stream.write(self._erase())
            self._stream.flush()
        self._drawn = []
        self._since = time.monotonic()

    def _erase(self) -> str:
        """The characters that go back to the first drawn line, and erase everything from there."""
        if len(self._drawn) > 1:
            return f"\r\x1b[{len(self._drawn) - 1}A\x1b[J"
        return "\r\x1b[K"

    async def run(self) -> None:
        """Draw it again and again."""
        while True:
            self.tick()
            await anyio.sleep(_TICK)
