"""Delivery: sends answers in order, again and again while a channel is away, and shows that one is being written."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Literal, TypeVar

import anyio
from anyio.abc import TaskGroup

from nacre.backoff import USUAL, Backoff
from nacre.channels.channel import Absent, Channel, Doubtful, Gone, InboundMessage, Later, Typist, again
from nacre.errors import ChannelError, LeaseLost, NacreError, StoreError, describe_error
from nacre.runtime.counters import Traffic
from nacre.runtime.gateway.inbox import Inbox, id_of
from nacre.runtime.gateway.rate_limit import LoopLimit

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOCK = "schedule"
"""The channel that is a clock."""
_MAX_BUGS, _MAX_DOUBTS = 5, 3
_ABSENCE = 60.0
_MAX_ABSENT = 10_000

MaySend = Callable[[], Awaitable[None]]
"""Returns when it is certain that no other gateway has the channels; never, if another has them."""


async def may_always_send() -> None:
    """The answer of a gateway that is the only one."""


Outcome = Literal["over", "again", "later"]
"""What an attempt led to: the end of it, another attempt before all others, or one when others had their turn."""


class Delivery:
    """Sends answers, and closes their messages in the inbox."""

    def __init__(  # noqa: PLR0913 - what it needs, and what it waits for
        self,
        channels: Mapping[str, Channel],
        inbox: Inbox,
        traffic: Traffic,
        loops: LoopLimit,
        *,
        may_send: MaySend = may_always_send,
        absence: float = _ABSENCE,
        backoff: Backoff = USUAL,
    ) -> None:
        self._may_send, self._absence, self._backoff = may_send, absence, backoff
        self._channels, self._inbox, self._traffic, self._loops = channels, inbox, traffic, loops
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
        except LeaseLost:
            # Another gateway has the channels: it has the answer from the session, and closes the message.
            logger.info("an answer was left to another daemon", extra={"channel": arrived.channel})
        except Exception:
            logger.exception("an answer could not be sent", extra={"channel": arrived.channel})

    async def remark(self, arrived: InboundMessage, text: str) -> None:
        """Send a notice once; if it cannot be sent now, it is dropped."""
        try:
            await self._may_send()
            await self._channels[arrived.channel].send(arrived, text, id=f"{id_of(arrived)}.slow")
        except ChannelError as error:
            logger.info(
                "a notice could not be sent", extra={"channel": arrived.channel, "error": describe_error(error)}
            )
        except Exception:
            logger.exception("a notice could not be sent", extra={"channel": arrived.channel})

    async def _send(self, arrived: InboundMessage, answer: str) -> None:
        """Send an answer until it is accepted; if its server fails on it again and again, others go first.

        A recipient who cannot be reached now keeps only the answers of the same chat waiting.
        """
        text, attempts, is_exact = "", _Attempts(self._backoff), self._is_exact(arrived)
        while True:
            async with self._in_turn(arrived.channel, arrived.chat):
                outcome: Outcome = "later"
                while outcome == "later":
                    # Where a repeat is seen one answer is sent at a time, so that a crash repeats only one.
                    async with nullcontext() if is_exact else self._in_turn(arrived.channel, ""):
                        text = text or await self._mark_repeat(arrived, answer)
                        outcome = await self._try(arrived, text, attempts)
                        while outcome == "again" and attempts.doubts < _MAX_DOUBTS:
                            await attempts.pause()
                            outcome = await self._try(arrived, text, attempts)
                    if outcome == "later":
                        await attempts.pause()
            if outcome == "over":
                return
            await attempts.pause()

    async def _mark_repeat(self, arrived: InboundMessage, answer: str) -> str:
        """The text to send: where a repeat would be seen, one that an earlier run began to send says so."""
        if self._is_exact(arrived):
            return answer
        is_repeat = await retry(lambda: self._inbox.sending(arrived), StoreError, backoff=self._backoff)
        return again(answer) if is_repeat else answer

    async def _try(self, arrived: InboundMessage, text: str, attempts: _Attempts) -> Outcome:
        """Send an answer, and close its message unless it is to be tried again."""
        channel, where = arrived.channel, (arrived.channel, arrived.chat)
        await self._may_send()
        try:
            await self._channels[channel].send(arrived, text, id=f"{id_of(arrived)}.answer")
            self._traffic.answered[channel] += 1
            self._loops.count_answer(arrived)
            self._absent.pop(where, None)
        except Later as error:
            if len(self._absent) > _MAX_ABSENT:
                del self._absent[next(iter(self._absent))]
            # One who has been absent for too long is gone, whatever waits for them.
            now, is_absent = time.monotonic(), isinstance(error, Absent)
            if not (is_absent and now - self._absent.setdefault(where, now) > self._absence):
                logger.info("an answer has to wait for its recipient", extra={"channel": channel})
                attempts.min_wait = error.wait
                return "later"
            logger.warning("an answer cannot be delivered: its recipient is gone", extra={"channel": channel})
        except Gone:
            logger.warning("an answer cannot be delivered: its recipient is gone", extra={"channel": channel})
        except ChannelError as error:
            logger.warning(
                "an answer could not be sent; retrying", extra={"channel": channel, "error": describe_error(error)}
            )
            self._away.add(channel)
            # How many it took is not known of a clock, whose answers go over other channels or nowhere.
            taken = self._traffic.answered[channel] if channel != CLOCK else 0
            if not (isinstance(error, Doubtful) and attempts.is_hopeless(taken)):
                return "again"
            logger.warning(
                "an answer was given up: the server accepts others but not this one", extra={"channel": channel}
            )
        except Exception:
            # A bug of the channel: it may be one with this text alone, which must not come with every start.
            logger.exception("an answer could not be sent", extra={"channel": channel})
            attempts.bugs += 1
            if attempts.bugs < _MAX_BUGS:
                return "again"
        self._away.discard(channel)
        await self._close(arrived)
        return "over"

    @asynccontextmanager
    async def _in_turn(self, channel: str, chat: str) -> AsyncIterator[None]:
        """One answer at a time in a chat, for their order."""
        where = (channel, chat)
        # Fast: else even a lock that is free costs a round of the event loop.
        lock = self._sending.setdefault(where, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._sending.pop(where, None)

    async def _close(self, arrived: InboundMessage) -> None:
        """Close a message; durably before anything else is sent where a repeat would be seen."""
        if self._is_exact(arrived):
            self._inbox.done_later(arrived)
        elif (closed := self._inbox.done(arrived)) is not None:
            # Once it is sent nothing comes between: a shutdown here would have it sent again.
            with anyio.CancelScope(shield=True):
                await closed

    def _is_exact(self, arrived: InboundMessage) -> bool:
        channel = self._channels.get(arrived.channel)
        return channel is not None and channel.is_exact


class _Attempts:
    """The attempts to send one answer."""

    def __init__(self, backoff: Backoff) -> None:
        self.bugs = self.doubts = 0
        self.min_wait = 0.0
        self._waits = backoff.waits()
        self._taken = self._passed_over = 0

    def is_hopeless(self, taken: int) -> bool:
        """Count an attempt of unknown outcome; True if others were `taken` before several such failures."""
        self._passed_over += self.doubts > 0 and taken > self._taken
        self.doubts, self._taken = self.doubts + 1, taken
        return self._passed_over >= _MAX_DOUBTS

    async def pause(self) -> None:
        """Wait before the next attempt, each time longer, and as long as its server asks."""
        await anyio.sleep(max(next(self._waits), self.min_wait))
        self.min_wait = 0.0


async def retry(act: Callable[[], Awaitable[T]], *trouble: type[NacreError], backoff: Backoff) -> T:
    """Do something, again and again while there is trouble that passes."""
    waits = backoff.waits()
    while True:
        try:
            return await act()
        except trouble as error:
            logger.warning("an operation has to wait; retrying", extra={"error": describe_error(error)})
            await anyio.sleep(next(waits))


class TypingIndicators:
    """Show that an answer is being written: one indicator per chat, however many turns run for it."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._typists = {name: channel for name, channel in channels.items() if isinstance(channel, Typist)}
        self._shown: dict[tuple[str, ...], tuple[int, anyio.CancelScope]] = {}

    @contextmanager
    def show(self, tasks: TaskGroup | None, arrived: InboundMessage) -> Iterator[None]:
        """Show it during the block, where the channel can; nothing waits for it, and its failures are ignored."""
        channel = self._typists.get(arrived.channel)
        if tasks is None or channel is None:
            yield
            return
        where = (arrived.channel, arrived.account, arrived.chat, arrived.thread)
        count, scope = self._shown.get(where) or (0, anyio.CancelScope())
        self._shown[where] = count + 1, scope

        async def run() -> None:
            with scope:
                try:
                    await channel.show_typing(arrived)
                except Exception:
                    # A channel of another package may raise anything; the answer is what matters.
                    logger.debug("a typing indicator failed", exc_info=True, extra={"channel": arrived.channel})

        if not count:
            tasks.start_soon(run)
        try:
            yield
        finally:
            count, scope = self._shown.pop(where)
            if count > 1:
                self._shown[where] = count - 1, scope
            else:
                scope.cancel()
