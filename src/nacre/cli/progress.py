"""How far a long piece of work has come, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from nacre.cli.one_line import cut, size

_DELAY = 0.5
_REDRAW = 0.1
_LINE_EVERY = 10.0
_MINUTES_FROM, _HOURS_FROM = 100, 6000


class Progress:
    """A line that is redrawn on a terminal, from half a second on; elsewhere a line every ten seconds.

    It is entered with `with`, and called with every step that was done.
    """

    def __init__(self, what: str, *, total: int | None, unit: str, shown: bool) -> None:
        self._what = what
        self.total = total
        self._unit = unit
        self._is_shown = shown
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._done = 0
        self._began = time.monotonic()
        self._next = self._began + (_DELAY if self._is_terminal else _LINE_EVERY)
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn and self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, step: int = 1) -> None:
        self._done += step
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._drawn = True
            self._next = now + (_REDRAW if self._is_terminal else _LINE_EVERY)
            line = self.line(now - self._began)
            sys.stderr.write(f"\r{cut(line, _columns() - 1)}\x1b[K" if self._is_terminal else f"{line}\n")
            sys.stderr.flush()

    def line(self, seconds: float) -> str:
        """What is shown after some seconds: how much, how fast, how long still."""
        rate = self._done / seconds if seconds > 0 else 0.0
        of_total = f" of {self._amount(self.total)}" if self.total else ""
        parts = [f"{self._what} {self._amount(self._done)}{of_total}", f"{self._amount(int(rate))}/s"]
        if self.total and rate > 0:
            parts.append(f"{format_duration(max(0, self.total - self._done) / rate)} left")
        return ", ".join(parts)

    def _amount(self, count: int) -> str:
        return size(count) if self._unit == "bytes" else f"{count:,} {self._unit}"


def _columns() -> int:
    import os  # noqa: PLC0415 - needed only here, which most runs never reach

    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80


def format_duration(seconds: float) -> str:
    """A span of time for people, in the largest unit that says enough."""
    if seconds < _MINUTES_FROM:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _HOURS_FROM else f"{seconds / 3600:.1f} h"
