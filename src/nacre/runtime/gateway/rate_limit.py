"""How often people may write: messages in a minute, and exchanges without a pause."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nacre.channels.channel import InboundMessage

_MINUTE = 60.0
MAX_EXCHANGES = 30
"""So many exchanges in a row may be a person's."""
_PROMPT, _QUIET = 20.0, 60.0
_MAX_KNOWN = 10_000


class RateLimit:
    """When each sender wrote; those who have not for a minute are forgotten."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, str], deque[float]] = {}
        self._tidied = time.monotonic()

    def allow(self, arrived: InboundMessage, per_minute: int) -> bool:
        """Tell whether a sender may write once more, and count it if so."""
        now = time.monotonic()
        if now - self._tidied > _MINUTE:
            self._recent = {who: times for who, times in self._recent.items() if times and times[-1] > now - _MINUTE}
            self._tidied = now
        recent = self._recent.setdefault((arrived.channel, arrived.account, arrived.sender), deque())
        while recent and recent[0] < now - _MINUTE:
            recent.popleft()
        if len(recent) >= per_minute:
            return False
        recent.append(now)
        return True


class _Row(NamedTuple):
    """How many exchanges without a pause, when the last answer was sent, and when they last wrote."""

    length: int
    answered: float
    wrote: float


class LoopLimit:
    """Counts how often each sender in a chat has written promptly after an answer, without a pause between.

    Two programs that answer each other would never end. It counts exchanges and not messages per minute: programs
    whose models are slow write few. People pause; a person who does not is asked to, and loses nothing but a minute.
    """

    def __init__(self, *, limit: int = MAX_EXCHANGES, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._rows: dict[tuple[str, ...], _Row] = {}

    def allow(self, arrived: InboundMessage) -> bool:
        """Tell whether a message may be answered; after too many exchanges, only once its sender was quiet."""
        row, now = self._rows.get(_who(arrived)), self._clock()
        if row is None:
            return True
        is_over = row.length >= self._limit
        since, pause = (max(row.answered, row.wrote), _QUIET) if is_over else (row.answered, _PROMPT)
        has_paused = now - since > pause
        self._put(arrived, row._replace(length=0 if has_paused else row.length, wrote=now))
        return has_paused or not is_over

    def count_answer(self, arrived: InboundMessage) -> None:
        """Count an answer that was sent."""
        row = self._rows.get(_who(arrived), _Row(0, 0.0, 0.0))
        self._put(arrived, row._replace(length=row.length + 1, answered=self._clock()))

    def _put(self, arrived: InboundMessage, row: _Row) -> None:
        self._rows.pop(_who(arrived), None)
        self._rows[_who(arrived)] = row
        if len(self._rows) > _MAX_KNOWN:
            del self._rows[next(iter(self._rows))]


def _who(arrived: InboundMessage) -> tuple[str, ...]:
    return arrived.channel, arrived.account, arrived.chat, arrived.thread, arrived.sender
