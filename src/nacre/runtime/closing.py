"""Closing what was opened, in order, whatever fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

logger = logging.getLogger(__name__)


class Closing:
    """Things to close, the last one first; one that fails does not keep the others from being closed."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def add(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        self._parts.append((name, close))

    async def close(self) -> list[str]:
        """Close everything; returns what could not be closed, and logs why."""
        failed: list[str] = []
        while self._parts:
            name, close = self._parts.pop()
            try:
                with anyio.CancelScope(shield=True):
                    await close()
            except Exception:
                # The rest is to be closed all the same.
                logger.exception("a part could not be closed", extra={"part": name})
                failed.append(name)
        return failed
