"""How a channel waits for a server that is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from nacre.backoff import Backoff


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Seconds to wait: after the first failure, at most, and with an answer for a server that is away: `outage`."""

    first: float = 1.0
    limit: float = 300.0
    outage: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class Retries:
    """Waits between attempts, which begin again with the first when one succeeds."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self.reset()

    def reset(self) -> None:
        """Begin with the first wait again: an attempt succeeded."""
        self._waits = Backoff(first=self._policy.first, longest=self._policy.limit).waits()

    async def wait(self) -> None:
        await self._policy.sleep(next(self._waits))
