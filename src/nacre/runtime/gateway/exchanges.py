"""Exchanges without a pause: two programs that answer each other would never end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from nacre.channels.channel import InboundMessage

MOST = 30
"""So many exchanges in a row may be a person's."""
_PROMPT, _QUIET = 20.0, 60.0
_REMEMBERED = 10_000


class _Row(NamedTuple):
    """How many exchanges without a pause, when the last answer was sent, and when they last wrote."""

    length: int
    answered: float
    wrote: float


class Exchanges:
    """Counts how often each sender in a chat has written promptly after an answer, without a pause between.

    It counts exchanges and not messages per minute: programs whose models are slow write few. People pause; a person
    who does not is asked to, and loses nothing but a minute.
    """

    def __init__(self, *, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._rows: dict[tuple[str, ...], _Row] = {}

    def allow(self, arrived: InboundMessage) -> bool:
        """Tell whether a message may be answered; after too many exchanges, only once its sender was quiet."""
        row, now = self._rows.get(_who(arrived)), self._clock()
        if row is None:
            return True
        is_over = row.length >= self._most
        has_paused = now - (max(row.answered, row.wrote) if is_over else row.answered) > (
            _QUIET if is_over else _PROMPT
        )
        self._put(arrived, row._replace(length=0 if has_paused else row.length, wrote=now))
        return has_paused or not is_over

    def answer(self, arrived: InboundMessage) -> None:
        """Note that an answer was sent."""
        row = self._rows.get(_who(arrived), _Row(0, 0.0, 0.0))
        self._put(arrived, row._replace(length=row.length + 1, answered=self._clock()))

    def _put(self, arrived: InboundMessage, row: _Row) -> None:
        self._rows.pop(_who(arrived), None)
        self._rows[_who(arrived)] = row
        if len(self._rows) > _REMEMBERED:
            del self._rows[next(iter(self._rows))]


def _who(arrived: InboundMessage) -> tuple[str, ...]:
    return arrived.channel, arrived.account, arrived.chat, arrived.thread, arrived.sender
