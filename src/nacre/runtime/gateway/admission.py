"""Scheduling under load: arriving messages go first, then turns, one step at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turnstile:
    """Runs one step of a turn in each round of the event loop, and none while messages are being stored.

    Whenever words have become durable one step goes through, so that turns are slowed by them and never stopped.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arriving = 0
        self._is_turning = False

    async def step(self) -> None:
        """Wait until a turn may take its next step."""
        step: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(step)
        if not self._arriving:
            self._turn()
        await step

    @contextmanager
    def first(self) -> Iterator[None]:
        """Hold turns up for what is done meanwhile."""
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1
            self._turn()

    def _turn(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._let_one_through)

    def _let_one_through(self) -> None:
        self._is_turning = False
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        if self._waiting:
            self._waiting.popleft().set_result(None)
        if self._waiting and not self._arriving:
            self._turn()
