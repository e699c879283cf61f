"""Turns under way: they belong to their session, not to the client that began them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from nacre.agent.ports import Emit, Event
from nacre.errors import Busy, Stopped
from nacre.runtime.stats import Traffic

T = TypeVar("T")
MOST_WAITING = 64
CHANNEL = "http"
"""What this way in is called where channels are counted."""


class Running(Generic[T]):
    """Work under way, what happens in it, and what comes of it."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._woken = anyio.Event()
        self._is_watched = True
        self._is_over = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[Emit], Awaitable[T]]) -> None:
        """Do the work; what it raises is for whoever asks for the result."""
        try:
            self._value = await work(self._emit)
        except asyncio.CancelledError:
            self._error = Stopped("the client closed the request")
        except Exception as error:  # noqa: BLE001 - it is raised again where the result is asked for
            self._error = error
        finally:
            self._is_over = True
            self._woken.set()

    def leave(self, *, stop: bool) -> None:
        """Watch it no longer; it goes on unless it is to be stopped."""
        self._is_watched = False
        self._events.clear()
        if stop and self.task is not None:
            self.task.cancel()

    async def events(self, *, silence: float) -> AsyncIterator[Event | None]:
        """What happens, as it happens, to the end; None when nothing has for a while."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._is_over:
                return
            if not await self.wait(silence):
                yield None

    async def wait(self, seconds: float) -> bool:
        """Wait until something has happened; False if nothing has."""
        with anyio.move_on_after(seconds):
            while not (self._events or self._is_over):
                self._woken = anyio.Event()
                await self._woken.wait()
        return bool(self._events) or self._is_over

    async def over(self) -> None:
        """Wait for its end, whatever that is."""
        async for _ in self.events(silence=3600):
            continue

    def outcome(self) -> T:
        """What has come of work that is over; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value] # it is over and has not failed

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def count(self, traffic: Traffic) -> None:
        """Count what came of it."""
        match self._error:
            case None:
                traffic.answered[CHANNEL] += 1
            case Busy():
                traffic.refused[CHANNEL, "full"] += 1
            case Stopped():
                pass
            case _:
                traffic.failed[CHANNEL] += 1

    def _emit(self, event: Event) -> None:
        if self._is_watched:
            self._events.append(event)
            self._woken.set()


class Turns:
    """All that is under way. Nothing here is cancelled at the end: the kernel ends its turns itself."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: dict[str, _Line] = {}
        self.traffic = Traffic()

    def start(self, work: Callable[[Emit], Awaitable[T]]) -> Running[T]:
        self.traffic.accepted[CHANNEL] += 1
        running = Running[T]()
        running.task = asyncio.create_task(running.run(work))
        self._tasks.add(running.task)
        running.task.add_done_callback(self._tasks.discard)
        running.task.add_done_callback(lambda _: running.count(self.traffic))
        return running

    def beside(self, work: Coroutine[object, object, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Wait until nobody else is at a session; raises Busy if too many wait already."""
        line = self._lines.setdefault(key, _Line())
        if line.waiting > MOST_WAITING:
            raise Busy(f"session {key!r} has {MOST_WAITING} requests waiting; try again later")
        line.waiting += 1
        try:
            async with line.lock:
                yield
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[key]


class _Line:
    """Those who wait for a session."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.waiting = 0
