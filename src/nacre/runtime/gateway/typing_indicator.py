"""Typing indicators: people see that an answer is being written, for as long as a turn runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import anyio
from anyio.abc import TaskGroup

from nacre.channels.channel import Channel, InboundMessage, Typist

logger = logging.getLogger(__name__)


class Typing:
    """One indicator per chat, however many turns run for it."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels
        self._shown: dict[tuple[str, ...], tuple[int, anyio.CancelScope]] = {}

    @contextmanager
    def show(self, tasks: TaskGroup | None, arrived: InboundMessage) -> Iterator[None]:
        """Show it during the block, where the channel can; nothing waits for it, and its failures are ignored."""
        channel = self._channels.get(arrived.channel)
        if tasks is None or not isinstance(channel, Typist):
            yield
            return
        where = (arrived.channel, arrived.account, arrived.chat, arrived.thread)
        count, scope = self._shown.get(where) or (0, anyio.CancelScope())
        self._shown[where] = count + 1, scope
        if not count:
            tasks.start_soon(self._run, channel, arrived, scope)
        try:
            yield
        finally:
            count, scope = self._shown.pop(where)
            if count > 1:
                self._shown[where] = count - 1, scope
            else:
                scope.cancel()

    async def _run(self, channel: Typist, arrived: InboundMessage, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await channel.show_typing(arrived)
            except Exception:
                # A channel of another package may raise anything; the answer is what matters.
                logger.debug("a typing indicator failed", exc_info=True, extra={"channel": arrived.channel})
