"""Whether work grows with its input and not with the square of it, on however busy a machine."""

from __future__ import annotations

import time
from collections.abc import Callable

_FACTOR = 8
_SLACK = 0.5


def assert_linear(work: Callable[[str], object], text: str) -> None:
    """Do the work on a text and on an eighth of it; eight times the text may not cost 64 times as much."""
    small = min(_seconds(work, text[: len(text) // _FACTOR]) for _ in range(2))
    large = _seconds(work, text)
    assert large < 3 * _FACTOR * small + _SLACK, f"{small:.3f} s for an eighth, {large:.3f} s for all of it"


def _seconds(work: Callable[[str], object], text: str) -> float:
    """What the work costs this thread, whatever else the machine does."""
    began = time.thread_time()
    work(text)
    return time.thread_time() - began
