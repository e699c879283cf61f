"""What waits in the gateway: messages for an answer, and turns for their next step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from nacre.channels.channel import InboundMessage


class Queue:
    """Messages that wait for an answer: in order within a session, round robin between sessions.

    Of each session only the first message is taken, and the next one when the session was released.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[InboundMessage]] = {}
        self._next: deque[str] = deque()
        self._taken: set[str] = set()

    @property
    def has_next(self) -> bool:
        """Tell whether a message can be taken."""
        return bool(self._next)

    def length(self, key: str) -> int:
        """The number of messages that wait in a session."""
        return len(self._waiting.get(key, ()))

    def add(self, key: str, arrived: InboundMessage) -> None:
        """Add a message to the queue of its session."""
        line = self._waiting.setdefault(key, deque())
        line.append(arrived)
        if len(line) == 1 and key not in self._taken:
            self._next.append(key)

    def take(self) -> tuple[str, InboundMessage] | None:
        """The message whose session has waited longest; None if none can be taken."""
        if not self._next:
            return None
        key = self._next.popleft()
        line = self._waiting[key]
        arrived = line.popleft()
        if not line:
            del self._waiting[key]
        self._taken.add(key)
        return key, arrived

    def release(self, key: str) -> None:
        """Release a session: its next message goes after those of other sessions."""
        self._taken.discard(key)
        if key in self._waiting:
            self._next.append(key)


class StepPacer:
    """Lets one step of a turn run in each round of the event loop, and none while messages are being stored.

    Whenever a message has become durable one step runs, so that turns are slowed by messages and never stopped.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arriving = 0
        self._is_due = False

    async def step(self) -> None:
        """Wait until a turn may take its next step."""
        step: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(step)
        if not self._arriving:
            self._schedule()
        await step

    @contextmanager
    def first(self) -> Iterator[None]:
        """Hold up the steps of turns during the block."""
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run_one)

    def _run_one(self) -> None:
        self._is_due = False
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        if self._waiting:
            self._waiting.popleft().set_result(None)
        if self._waiting and not self._arriving:
            self._schedule()
