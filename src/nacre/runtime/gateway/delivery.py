"""Delivery: answers on their way back, each in its turn, again and again while a channel is away."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import anyio

from nacre.backoff import USUAL, Backoff
from nacre.channels.channel import Absent, Channel, Doubtful, Gone, InboundMessage, Later, again
from nacre.errors import ChannelError, NacreError, StoreError, describe_error
from nacre.runtime.gateway.exchanges import Exchanges
from nacre.runtime.gateway.inbox import Inbox, id_of
from nacre.runtime.stats import Traffic

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOCK = "schedule"
"""The channel that is a clock."""
_MOST_BUGS, _MOST_DOUBTS = 5, 3
_ABSENCE = 60.0
_REMEMBERED = 10_000

Outcome = Literal["over", "again", "later"]
"""What an attempt led to: the end of it, another attempt before all others, or one when others had their turn."""


class Delivery:
    """Sends answers, and closes their messages in the inbox."""

    def __init__(  # noqa: PLR0913 - what it needs, and what it waits for
        self,
        channels: Mapping[str, Channel],
        inbox: Inbox,
        traffic: Traffic,
        exchanges: Exchanges,
        *,
        absence: float = _ABSENCE,
        backoff: Backoff = USUAL,
    ) -> None:
        self._absence = absence
        self._backoff = backoff
        self._channels, self._inbox, self._traffic, self._exchanges = channels, inbox, traffic, exchanges
        self._sending: dict[tuple[str, str], anyio.Lock] = {}
        self._away: set[str] = set()
        self._absent: dict[tuple[str, str], float] = {}

    def reaches(self, channel: str) -> bool:
        """Whether a channel is connected, and the last answer could be sent over it."""
        return self._channels[channel].is_up and channel not in self._away

    async def tell(self, arrived: InboundMessage, answer: str) -> None:
        """Send an answer unless it is empty, and close its message; a failure does not affect other messages."""
        try:
            if not answer:
                await self._close(arrived)
            elif arrived.channel in self._channels:
                await self._send(arrived, answer)
        except Exception:
            logger.exception("an answer could not be sent", extra={"channel": arrived.channel})

    async def remark(self, arrived: InboundMessage, text: str) -> None:
        """Send a notice once; if it cannot be sent now, it is dropped."""
        try:
            await self._channels[arrived.channel].send(arrived, text, id=f"{id_of(arrived)}.slow")
        except ChannelError as error:
            logger.info(
                "a notice could not be sent",
                extra={"channel": arrived.channel, "error": describe_error(error)},
            )
        except Exception:
            logger.exception("a notice could not be sent", extra={"channel": arrived.channel})

    async def _send(self, arrived: InboundMessage, answer: str) -> None:
        """Send an answer until it is taken; one that its server fails on again and again lets others go first.

        A recipient who cannot be reached now keeps only the answers of the same chat waiting.
        """
        text, case = "", _Case(self._backoff)
        while True:
            async with self._in_turn(arrived.channel, arrived.chat):
                outcome: Outcome = "later"
                while outcome == "later":
                    async with self._alone(arrived):
                        text = text or await self._marked(arrived, answer)
                        outcome = await self._tried(arrived, text, case)
                        while outcome == "again" and case.doubts < _MOST_DOUBTS:
                            await case.pause()
                            outcome = await self._tried(arrived, text, case)
                    if outcome == "later":
                        await case.pause()
            if outcome == "over":
                return
            await case.pause()

    async def _tried(self, arrived: InboundMessage, text: str, case: _Case) -> Outcome:
        """Send an answer, and close its words unless it is to be tried again."""
        channel = arrived.channel
        try:
            await self._channels[channel].send(arrived, text, id=f"{id_of(arrived)}.answer")
            self._traffic.answered[channel] += 1
            self._exchanges.answer(arrived)
            self._absent.pop((channel, arrived.chat), None)
        except Later as error:
            if not (isinstance(error, Absent) and self._is_gone(arrived)):
                logger.info("an answer has to wait for its recipient", extra={"channel": channel})
                case.least = error.wait
                return "later"
            logger.warning("an answer cannot be delivered: its recipient is gone", extra={"channel": channel})
        except Gone:
            logger.warning("an answer cannot be delivered: its recipient is gone", extra={"channel": channel})
        except ChannelError as error:
            logger.warning(
                "an answer could not be sent; retrying", extra={"channel": channel, "error": describe_error(error)}
            )
            self._away.add(channel)
            if not (isinstance(error, Doubtful) and case.is_hopeless(self._taken(channel))):
                return "again"
            logger.warning(
                "an answer was given up: the server accepts others but not this one", extra={"channel": channel}
            )
        except Exception:
            # A bug of the channel: it may be one with these words alone, which must not come with every start.
            logger.exception("an answer could not be sent", extra={"channel": channel})
            case.bugs += 1
            if case.bugs < _MOST_BUGS:
                return "again"
        self._away.discard(channel)
        await self._close(arrived)
        return "over"

    def _is_gone(self, arrived: InboundMessage) -> bool:
        """Note that a recipient is not there; True if that has been so for too long, whatever waits for them."""
        now, where = time.monotonic(), (arrived.channel, arrived.chat)
        if len(self._absent) > _REMEMBERED:
            del self._absent[next(iter(self._absent))]
        return now - self._absent.setdefault(where, now) > self._absence

    @asynccontextmanager
    async def _alone(self, arrived: InboundMessage) -> AsyncIterator[None]:
        """Send one answer at a time where a repeat is seen, so that a crash makes only one."""
        if self._is_exact(arrived):
            yield
            return
        async with self._in_turn(arrived.channel, ""):
            yield

    @asynccontextmanager
    async def _in_turn(self, channel: str, chat: str) -> AsyncIterator[None]:
        """One answer at a time in a chat, for their order."""
        where = (channel, chat)
        lock = self._sending.setdefault(where, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._sending.pop(where, None)

    async def _marked(self, arrived: InboundMessage, text: str) -> str:
        """An answer as it is sent: where a repeat would be seen, one that an earlier run began to send says so."""
        if self._is_exact(arrived):
            return text
        is_repeat = await patiently(lambda: self._inbox.sending(arrived), StoreError, backoff=self._backoff)
        return again(text) if is_repeat else text

    async def _close(self, arrived: InboundMessage) -> None:
        """Close words; durably before anything else is sent where a repeat would be seen."""
        closed = self._inbox.done(arrived)
        if closed is not None and not self._is_exact(arrived):
            # Once it is sent nothing comes between: a shutdown here would have it sent again.
            with anyio.CancelScope(shield=True):
                await closed

    def _is_exact(self, arrived: InboundMessage) -> bool:
        channel = self._channels.get(arrived.channel)
        return channel is not None and channel.is_exact

    def _taken(self, channel: str) -> int:
        """How many answers a channel took so far; nobody knows for a clock, whose answers go over others or nowhere."""
        return self._traffic.answered[channel] if channel != CLOCK else 0


class _Case:
    """What befell one answer so far."""

    def __init__(self, backoff: Backoff) -> None:
        self.bugs = self.doubts = 0
        self.least = 0.0
        self._waits = backoff.waits()
        self._taken = self._passed_over = 0

    def is_hopeless(self, taken: int) -> bool:
        """Note that nobody knows whether it was sent; True if others were `taken` before several such failures."""
        self._passed_over += self.doubts > 0 and taken > self._taken
        self.doubts, self._taken = self.doubts + 1, taken
        return self._passed_over >= _MOST_DOUBTS

    async def pause(self) -> None:
        """Wait before the next attempt, each time longer, and as long as its server asks."""
        await anyio.sleep(max(next(self._waits), self.least))
        self.least = 0.0


async def patiently(act: Callable[[], Awaitable[T]], trouble: type[NacreError], *, backoff: Backoff) -> T:
    """Do something, again and again while there is trouble that passes."""
    waits = backoff.waits()
    while True:
        try:
            return await act()
        except trouble as error:
            logger.warning("an operation has to wait; retrying", extra={"error": describe_error(error)})
            await anyio.sleep(next(waits))
