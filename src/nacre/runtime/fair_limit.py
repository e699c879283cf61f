"""A limit on what runs side by side, at which callers take turns however much each of them wants."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""For whom the running task works; tasks that it starts do so too."""


class Fair:
    """Lets `most` in at once; of those who wait, one of each caller in turn, and a caller's own in their order."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._lines: dict[str, deque[anyio.Event]] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for a while."""
        await self._enter(CALLER.get())
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = anyio.Event()
        self._lines.setdefault(caller, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                # It was given a place at the moment at which it gave up.
                self._leave()
            else:
                self._remove(caller, turn)
            raise

    def _leave(self) -> None:
        """Pass a place on to the caller whose turn it is, who comes after all others then."""
        caller = next(iter(self._lines), None)
        if caller is None:
            self._free += 1
            return
        line = self._lines.pop(caller)
        line.popleft().set()
        if line:
            self._lines[caller] = line

    def _remove(self, caller: str, turn: anyio.Event) -> None:
        self._lines[caller].remove(turn)
        if not self._lines[caller]:
            del self._lines[caller]
