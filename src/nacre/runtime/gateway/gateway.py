"""The gateway: passes messages from channels to their sessions, and exactly one answer back."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from nacre.agent.actor import UserMessage
from nacre.agent.kernel import AnyKernel
from nacre.backoff import USUAL, Backoff
from nacre.channels.channel import Channel, InboundMessage, key_of
from nacre.errors import (
    Busy,
    ConfigError,
    InvalidKey,
    InvalidMessage,
    LeaseLost,
    NacreError,
    ProviderError,
    SessionBusy,
    Stopped,
    describe_error,
)
from nacre.history.message_text import text_of
from nacre.history.replies import ids_answered, ids_waiting, place_of_id
from nacre.messages import Message
from nacre.runtime.counters import Refusal, Traffic
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.delivery import CLOCK, Delivery, MaySend, TypingIndicators, may_always_send, retry
from nacre.runtime.gateway.inbox import Inbox, id_of
from nacre.runtime.gateway.queue import Queue, StepPacer
from nacre.runtime.gateway.rate_limit import LoopLimit, RateLimit
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_AT_ONCE = ("/help", "/start", "/status", "/stop")
_MAX_WAITING = 64
_RECENT = 256
_FORGETTING = 3600.0
"""Seconds between two times at which the copies of answered messages are erased."""
TOO_FAST = "You are sending messages faster than I can answer; please wait a minute. Messages until then are ignored."
TOO_MUCH = "Too many messages are waiting; please try again in a moment. Your last message was not accepted."
NO_PAUSE = (
    "We have exchanged many messages without a pause, as two programs would; I will answer again after a minute in "
    "which you write nothing."
)
NOTHING = "I have no answer to that."
SILENT = "I cannot answer now: the model does not answer. Please try again later."
BROKEN = "I cannot answer now: an internal error occurred. The log of the server has the details."


class Room(Struct, frozen=True):
    """Where the sessions of a channel live: on disk, or in RAM for one that keeps nothing."""

    sessions: Sessions
    kernel: AnyKernel


Command = Callable[[str, Room], Awaitable[str]]
"""Do what a command asks in a session; returns what to say."""


class Gateway:
    """Joins channels and sessions; what was accepted is answered once, through every restart."""

    is_serving = True

    def __init__(  # noqa: PLR0913 - each is one thing that it joins
        self,
        channels: Sequence[Channel],
        *,
        inbox: Inbox,
        room: Callable[[str], Room],
        access: Callable[[str], Access],
        commands: Mapping[str, Command],
        earlier: Callable[[InboundMessage, str], str | None] = lambda *_: None,
        turns: int = 32,
        pacer: StepPacer | None = None,
        loops: LoopLimit | None = None,
        forgetting: float = _FORGETTING,
        backoff: Backoff = USUAL,
        traffic: Traffic | None = None,
        lost: Callable[[], None] = lambda: None,
        may_send: MaySend = may_always_send,
    ) -> None:
        """`lost` is called when another gateway has the channels; `may_send` returns when that is certainly not so."""
        self._lost = lost
        self._channels = {channel.name: channel for channel in channels}
        self._inbox, self._room, self._access = inbox, room, access
        self._commands, self._earlier = commands, earlier
        self._forgetting, self._backoff = forgetting, backoff
        self._rates, self._refusals = RateLimit(), RateLimit()
        self._queue, self._pacer, self._idle = Queue(), pacer or StepPacer(), turns
        self._tasks: TaskGroup | None = None
        self._over = anyio.Event()
        self._running: set[str] = set()
        self.traffic = traffic or Traffic()
        self._loops = loops or LoopLimit()
        self._delivery = Delivery(self._channels, inbox, self.traffic, self._loops, may_send=may_send, backoff=backoff)
        self._typing = TypingIndicators(self._channels)

    async def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Answer what an earlier run left open, and then serve until it is to end, and what is begun has ended."""
        try:
            async with anyio.create_task_group() as receiving:
                async with anyio.create_task_group() as self._tasks:
                    for arrived in await self._inbox.load():
                        self._begin(self._key(arrived), arrived)
                    for channel in self._channels.values():
                        receiving.start_soon(self._run, channel, name=f"channel {channel.name}")
                    receiving.start_soon(self._forget)
                    ready()
                    await self._over.wait()
                receiving.cancel_scope.cancel()
        finally:
            await self._inbox.finish()

    def end(self) -> None:
        """Accept no more messages, and start no more turns; what waits or arrives now is left for the next start."""
        self._over.set()

    @property
    def channels(self) -> Mapping[str, bool]:
        """Every channel, and whether it is up: it runs, is connected, and the last answer could be sent."""
        return {name: name in self._running and self._delivery.reaches(name) for name in self._channels}

    @property
    def open(self) -> int:
        """The number of messages that wait for their answer."""
        return len(self._inbox)

    async def _run(self, channel: Channel) -> None:
        """Run a channel to its end; one channel's trouble is not that of the others."""
        waits = self._backoff.waits()
        while True:
            self._running.add(channel.name)
            try:
                return await channel.run(self.accept)
            except ConfigError:
                # Such as a password that its server refuses: it would be refused again.
                return logger.exception(
                    "a channel was stopped: its configuration is wrong", extra={"channel": channel.name}
                )
            except LeaseLost:
                # Another gateway has the channels: this one is about to be stopped.
                self._lost()
            except Exception:
                logger.exception("a channel failed and is restarted", extra={"channel": channel.name})
            finally:
                self._running.discard(channel.name)
            await anyio.sleep(next(waits))

    async def _forget(self) -> None:
        """Erase the copies of answered messages from time to time: their sessions have them, or were erased."""
        while True:
            await anyio.sleep(self._forgetting)
            with anyio.CancelScope(shield=True):
                await self._inbox.forget()

    async def accept(self, arrived: InboundMessage) -> None:
        """Accept a message; it is durable when this returns, unless it is rejected."""
        if self._over.is_set():
            # It is not acknowledged, so that it comes again.
            await anyio.sleep_forever()
        channel, access, is_clock = arrived.channel, self._access(arrived.channel), arrived.channel == CLOCK
        if not is_clock and not access.lets(arrived.sender):
            logger.info("a message of a user who is not allowed was ignored", extra={"channel": channel})
            self.traffic.refused[channel, "stranger"] += 1
            return

        # Too many, too fast, or two programs that answer each other: refused, and said so.
        key = self._key(arrived)
        refusal: tuple[Refusal, str] | None = None
        if not is_clock and not self._rates.allow(arrived, access.per_minute):
            refusal = "rate", TOO_FAST
        elif not is_clock and not self._loops.allow(arrived):
            refusal = "loop", NO_PAUSE
        elif self._queue.length(key) >= _MAX_WAITING:
            refusal = "full", TOO_MUCH
        if refusal is not None:
            why, text = refusal
            self.traffic.refused[channel, why] += 1
            # A flood gets one such notice a minute; more would be a flood of our own.
            if why == "full" or self._refusals.allow(arrived, 1):
                self._start(self._delivery.remark, arrived, text)
            return

        if access.keeps:
            begun = time.monotonic()
            with self._pacer.first():
                is_new = await self._inbox.add(arrived)
            self.traffic.durable.add(time.monotonic() - begun)
        else:
            is_new = self._inbox.is_new(arrived)
        if is_new:
            self.traffic.accepted[channel] += 1
            self._begin(key, arrived)

    def _begin(self, key: str, arrived: InboundMessage) -> None:
        """Have a message answered: at once if it can join a turn that runs, else when it is its turn."""
        kernel = self._room(arrived.channel).kernel
        joins = kernel.is_at_work(key) and not self._queue.length(key) and not self._command(arrived)
        if joins or _first_word(arrived) in _AT_ONCE:
            self._start(self._serve, key, arrived)
            return
        self._queue.add(key, arrived)
        self._start_turn()

    def _start_turn(self) -> None:
        """Answer what has waited longest, if anything can be taken and one more turn may run."""
        if self._idle and self._queue.has_next:
            self._idle -= 1
            self._start(self._work)

    def _start(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(work, *args)

    async def _work(self) -> None:
        """Answer the message that has waited longest, let the next turn begin, and send the answer."""
        try:
            found = None if self._over.is_set() else self._queue.take()
            if found is None:
                return
            key, arrived = found
            try:
                answer = await self._answer(key, arrived)
            finally:
                self._queue.release(key)
        finally:
            self._idle += 1
        # However long it takes to send this one, others are answered meanwhile.
        self._start_turn()
        await self._delivery.tell(arrived, answer)

    async def _serve(self, key: str, arrived: InboundMessage) -> None:
        """Answer a message that does not wait in the queue."""
        await self._delivery.tell(arrived, await self._answer(key, arrived))

    def _key(self, arrived: InboundMessage) -> str:
        own = key_of(arrived, per=self._access(arrived.channel).per)
        return self._earlier(arrived, own) or own

    def _command(self, arrived: InboundMessage) -> Command | None:
        return self._commands.get(_first_word(arrived))

    async def _answer(self, key: str, arrived: InboundMessage) -> str:
        """The answer to a message; empty if it goes to another message of the same turn, or to nobody."""
        room, command = self._room(arrived.channel), self._command(arrived)
        try:
            if command is not None:
                text = self._inbox.result(arrived)
                if text is None:
                    # Once its result is noted, it is not carried out again after a restart.
                    text = await retry(lambda: command(key, room), SessionBusy, backoff=self._backoff)
                    await self._inbox.set_result(arrived, text)
                return text
            inbound = UserMessage(
                key=key,
                content=arrived.text,
                id=id_of(arrived),
                sender=arrived.sender,
                is_kept=self._inbox.keeps(arrived),
            )
            with self._typing.show(self._tasks, arrived):
                reply = await self._deliver(room, inbound)
            if reply is not None:
                text = text_of(reply)
                return text if text.strip() else NOTHING
            text = ""
        except Stopped:
            return ""
        except Busy:
            self.traffic.refused[arrived.channel, "full"] += 1
            text = TOO_MUCH
        except NacreError as error:
            logger.warning("a turn failed", extra={"session": key, "error": describe_error(error)})
            self.traffic.failed[arrived.channel] += 1
            if self._access(arrived.channel).is_owner(arrived.sender) or isinstance(error, InvalidKey | InvalidMessage):
                first, *_ = str(error).splitlines() or [type(error).__name__]
                text = f"I cannot answer now: {first}"
            else:
                # Anyone else learns nothing of the model's server, nor of the disk.
                text = SILENT if isinstance(error, ProviderError) else BROKEN
        except Exception:
            # A bug with one message must not end the service of all others, nor come again with every start.
            logger.exception("a message could not be answered", extra={"channel": arrived.channel})
            self.traffic.failed[arrived.channel] += 1
            text = BROKEN
        self._inbox.expect_no_reply(arrived)
        return text

    async def _deliver(self, room: Room, inbound: UserMessage) -> Message | None:
        """The reply to a message; None if another message that it answers too gets it.

        While another process is at a turn of its session it waits, also if that has taken the turn over from this one.
        Where it joined a turn that began elsewhere, such as on the web, it is delivered again until that turn has its
        reply.
        """
        key, id, kernel = inbound.key, inbound.id, room.kernel
        while True:
            reply = await retry(partial(kernel.deliver, inbound), SessionBusy, LeaseLost, backoff=self._backoff)
            ids = kernel.ids_answered(key) if reply is None else ids_answered(reply)
            if id in ids:
                others = ids[: ids.index(id)]
            elif reply is None:
                others = []  # the turn is over by now: its reply says so
            elif ids:
                # A message that it does not name had an error; the model saw it with those that the reply names.
                others = ids
            else:
                # An older log does not say so; what came since the reply before had the same one.
                messages = room.sessions.get_history(key, last=_RECENT)
                others = ids_waiting(messages[: place_of_id(messages, id) or 0])
            # Of the messages that it answers, the first one of ours gets it.
            if self._inbox.knows(others):
                return None
            if reply is not None:
                return reply


def _first_word(arrived: InboundMessage) -> str:
    return arrived.text.split(maxsplit=1)[0].lower() if arrived.text.strip() else ""
