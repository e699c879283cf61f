"""How often each sender has written in the last minute."""

from __future__ import annotations

import time
from collections import deque

from nacre.channels.channel import InboundMessage

_MINUTE = 60.0


class Rates:
    """When each sender wrote; those who have not for a minute are forgotten."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, str], deque[float]] = {}
        self._tidied = time.monotonic()

    def allow(self, arrived: InboundMessage, per_minute: int) -> bool:
        """Tell whether a sender may write once more, and count it if so."""
        now = time.monotonic()
        if now - self._tidied > _MINUTE:
            self._tidy(now)
        recent = self._recent.setdefault((arrived.channel, arrived.account, arrived.sender), deque())
        while recent and recent[0] < now - _MINUTE:
            recent.popleft()
        if len(recent) >= per_minute:
            return False
        recent.append(now)
        return True

    def _tidy(self, now: float) -> None:
        self._recent = {who: times for who, times in self._recent.items() if times and times[-1] > now - _MINUTE}
        self._tidied = now
