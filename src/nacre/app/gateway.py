"""The gateway: words from channels into their sessions, and exactly one answer back."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from nacre.agent.actor import Inbound
from nacre.agent.kernel import Kernel
from nacre.app.inbox import Inbox, name_of
from nacre.channels.channel import Arrived, Channel, key_of
from nacre.channels.lost import Gone
from nacre.entries import Message
from nacre.errors import Busy, ChannelError, NacreError, SessionBusy, Stopped
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_MINUTE = 60.0
TOO_FAST = "You write faster than I can answer; please wait a minute. Your last message was not taken."
TOO_MUCH = "There is too much waiting here; please try again in a moment. Your last message was not taken."


class Manners(Struct, frozen=True, kw_only=True):
    """How a channel is served: who may write, how often, whose session it is, and whether anything is kept."""

    allow: Sequence[str] = ("*",)
    per_minute: int = 30
    per: Literal["sender", "chat"] = "sender"
    keeps: bool = True


class Room(Struct, frozen=True):
    """Where the sessions of a channel live: on disk, or in RAM for one that keeps nothing."""

    sessions: Sessions
    kernel: Kernel


Command = Callable[[str, Room], Awaitable[str]]
"""Do what a command asks in a session; returns what to say."""


class Gateway:
    """Joins channels and sessions; what was accepted is answered once, through every restart."""

    def __init__(  # noqa: PLR0913 - each is one thing that it joins
        self,
        channels: Sequence[Channel],
        *,
        inbox: Inbox,
        room: Callable[[str], Room],
        manners: Callable[[str], Manners],
        commands: Mapping[str, Command],
        earlier: Callable[[Arrived], str | None] = lambda _: None,
    ) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._inbox = inbox
        self._room = room
        self._manners = manners
        self._commands = commands
        self._earlier = earlier
        self._sending: dict[str, anyio.Lock] = {}
        self._recent: dict[str, deque[float]] = {}
        self._tasks: TaskGroup | None = None

    async def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Answer what an earlier run left open, and then serve until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            for arrived in self._inbox.read():
                self._tasks.start_soon(self._served, arrived)
            for channel in self._channels.values():
                self._tasks.start_soon(channel.run, self.accept, name=f"channel {channel.name}")
            ready()

    async def accept(self, arrived: Arrived) -> None:
        """Take words in; they are durable when it returns, unless nobody is to answer them."""
        manners = self._manners(arrived.channel)
        if not _is_allowed(arrived, manners):
            logger.info("words of a stranger were left unanswered", extra={"channel": arrived.channel})
            return
        if not self._is_in_time(arrived, manners):
            self._begin(arrived, TOO_FAST)
        elif not manners.keeps or await self._inbox.add(arrived):
            self._begin(arrived)

    def _begin(self, arrived: Arrived, refusal: str = "") -> None:
        if self._tasks is not None and refusal:
            self._tasks.start_soon(self._sent, arrived, refusal, "slow")
        elif self._tasks is not None:
            self._tasks.start_soon(self._served, arrived)

    async def _served(self, arrived: Arrived) -> None:
        """Answer words, tell whoever sent them, and close them; what befalls one is nobody else's."""
        try:
            text = await self._answer(arrived)
            async with self._alone(arrived.channel):
                if text and not await self._sent(arrived, text, "answer"):
                    return
                # Once it is sent nothing comes between: a shutdown here would have it sent again.
                with anyio.CancelScope(shield=True):
                    await self._inbox.done(arrived)
        except Exception:
            # A bug with one message must not end the service of all others; it stays open for the next start.
            logger.exception("words could not be served", extra={"channel": arrived.channel})

    def _alone(self, channel: str) -> AbstractAsyncContextManager[None]:
        """One answer at a time where a repeated one would be seen, so that a crash repeats at most one."""
        found = self._channels.get(channel)
        if found is None or found.is_exact:
            return nullcontext()
        return self._sending.setdefault(channel, anyio.Lock())

    async def _answer(self, arrived: Arrived) -> str:
        room = self._room(arrived.channel)
        key = self._earlier(arrived) or key_of(arrived, per=self._manners(arrived.channel).per)
        command = self._commands.get(arrived.text.split(maxsplit=1)[0].lower() if arrived.text.strip() else "")
        if command is not None:
            return await command(key, room)
        inbound = Inbound(key=key, content=arrived.text, id=_id(arrived), sender=arrived.sender)
        try:
            return _text(await _delivered(room.kernel, inbound))
        except Stopped:
            return ""
        except Busy:
            return TOO_MUCH
        except NacreError as error:
            logger.warning("a turn failed", extra={"session": key, "error": str(error)})
            return f"I cannot answer now: {str(error).splitlines()[0]}"

    async def _sent(self, arrived: Arrived, text: str, what: str) -> bool:
        """Send an answer, again and again while the channel is away; False if it cannot be sent at all."""
        channel = self._channels.get(arrived.channel)
        wait = _FIRST_WAIT
        while channel is not None:
            try:
                await channel.send(arrived, text, id=f"{_id(arrived)}.{what}")
            except Gone:
                logger.warning("nobody is there to take an answer", extra={"channel": arrived.channel})
                return True
            except ChannelError as error:
                logger.warning("an answer could not be sent yet", extra={"error": str(error)})
                await anyio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            else:
                return True
        return False

    def _is_in_time(self, arrived: Arrived, manners: Manners) -> bool:
        now = time.monotonic()
        recent = self._recent.setdefault(key_of(arrived), deque())
        while recent and recent[0] < now - _MINUTE:
            recent.popleft()
        if len(recent) >= manners.per_minute:
            return False
        recent.append(now)
        return True


async def _delivered(kernel: Kernel, inbound: Inbound) -> Message | None:
    """Deliver words; while another process is at a turn of their session they wait."""
    wait = _FIRST_WAIT
    while True:
        try:
            return await kernel.deliver(inbound)
        except SessionBusy:
            await anyio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


def _text(answer: Message | None) -> str:
    if answer is None:
        # They came in the middle of a turn, and its answer is theirs too.
        return ""
    return answer.content if isinstance(answer.content, str) else str(answer.content or "")


def _id(arrived: Arrived) -> str:
    """A name for words that fits an idempotency key, however long the channel's own is."""
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along

    return blake2b(name_of(arrived).encode(), digest_size=16).hexdigest()


def _is_allowed(arrived: Arrived, manners: Manners) -> bool:
    return "*" in manners.allow or arrived.sender in manners.allow or arrived.channel == "schedule"
