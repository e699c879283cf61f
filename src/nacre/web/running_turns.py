"""Turns under way: they belong to their session, not to the client that began them, and end with its token."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

import anyio
from msgspec import Struct

from nacre.agent.ports import Emit, Event, ignore
from nacre.errors import Busy, Stopped
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.counters import Traffic
from nacre.web.http_errors import Fault

T = TypeVar("T")
MAX_WAITING = 64
CHANNEL = "http"
"""What this way in is called where channels are counted."""
MAX_UNREAD = 8 * 1024 * 1024
"""How long the events that a client has not read yet may be together; if it is more, none are kept."""
_LOOK = 0.5
"""Seconds between two looks at the tokens, while anything is open that one of them was shown for."""


class Running(Generic[T]):
    """Work under way, what happens in it if that is watched, and what comes of it."""

    def __init__(self, *, is_watched: bool = True) -> None:
        self._events: deque[Event] = deque()
        self._unread = 0
        self._is_too_slow = False
        self._woken = anyio.Event()
        self._is_watched = is_watched
        self.is_over = False
        self._value: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[Emit], Awaitable[T]]) -> None:
        """Do the work; what it raises is for the caller that asks for the result."""
        try:
            self._value = await work(self._emit if self._is_watched else ignore)
        except asyncio.CancelledError:
            self.error = Stopped("the client closed the request")
        except Exception as error:  # noqa: BLE001 - it is raised again where the result is asked for
            self.error = error
        finally:
            self.is_over = True
            self._woken.set()

    def leave(self, *, stop: bool) -> None:
        """Watch it no longer; it goes on unless it is to be stopped."""
        self._is_watched = False
        self._events.clear()
        if stop and self.task is not None:
            self.task.cancel()

    async def events(self, *, silence: float) -> AsyncIterator[Event | None]:
        """What happens, as it happens, to the end, or until too much is unread; None when nothing has for a while."""
        while True:
            while self._events:
                happened = self._events.popleft()
                self._unread -= _size(happened)
                yield happened
            if self.is_over or self._is_too_slow:
                return
            if not await self.wait(silence):
                yield None

    async def wait(self, seconds: float) -> bool:
        """Wait until something has happened; False if nothing has."""
        with anyio.move_on_after(seconds):
            while not (self._events or self.is_over or self._is_too_slow):
                self._woken = anyio.Event()
                await self._woken.wait()
        return bool(self._events) or self.is_over or self._is_too_slow

    async def over(self) -> None:
        """Wait for its end, whatever that is; what happens until then is not kept."""
        self.leave(stop=False)
        self._is_too_slow = False
        while not await self.wait(3600):
            continue

    def outcome(self) -> T:
        """What has come of work that is over; raises what it raised, and Fault if its events were not read in time."""
        if self._is_too_slow:
            raise Fault(
                "timeout",
                f"the client reads too slowly: more than {MAX_UNREAD:,} bytes wait for it; "
                "a turn of a session goes on, and its answer is stored",
            )
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value] # it is over and has not failed

    def _emit(self, event: Event) -> None:
        if not self._is_watched:
            return
        self._unread += _size(event)
        if self._unread > MAX_UNREAD and self._events:
            # Without some of them the others could not be understood.
            self._is_too_slow = True
            self.leave(stop=False)
        else:
            self._events.append(event)
        self._woken.set()


def _size(event: Event) -> int:
    """About how long an event is."""
    return len(repr(event))


class Turns:
    """All that is under way. Nothing here is cancelled at the end: the kernel ends its turns itself."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lines: dict[str, _Line] = {}
        self.traffic = Traffic()

    def start(self, work: Callable[[Emit], Awaitable[T]], *, is_watched: bool = True) -> Running[T]:
        """Begin work, and count it and what comes of it."""
        self.traffic.accepted[CHANNEL] += 1
        running = Running[T](is_watched=is_watched)

        def count_outcome(_: object) -> None:
            match running.error:
                case None:
                    self.traffic.answered[CHANNEL] += 1
                case Busy():
                    self.traffic.refused[CHANNEL, "full"] += 1
                case Stopped():
                    pass
                case _:
                    self.traffic.failed[CHANNEL] += 1

        running.task = self.start_unwatched(running.run(work))
        running.task.add_done_callback(count_outcome)
        return running

    def start_unwatched(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Do something that nobody has to wait for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Wait until nobody else is at a session; raises Busy if too many wait already."""
        line = self._lines.setdefault(key, _Line(anyio.Lock()))
        if line.waiting > MAX_WAITING:
            raise Busy(f"session {key!r} has {MAX_WAITING} requests waiting; try again later")
        line.waiting += 1
        try:
            async with line.lock:
                yield
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[key]


class _Line(Struct):
    """Those who wait for a session."""

    lock: anyio.Lock
    waiting: int = 0


# ---- what ends when a token is revoked


class Revocations:
    """What is open, by the token that was shown for it; looks at the tokens only while there is something."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._open: dict[int, tuple[str, str, Callable[[], None]]] = {}
        self._numbers = count()
        self._next: asyncio.TimerHandle | None = None

    def add(self, token: str, digest: str, end: Callable[[], None]) -> Callable[[], object]:
        """Call `end` when a token is revoked or replaced, unless what this returns was called before."""
        number = next(self._numbers)
        self._open[number] = (token, digest, end)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(_LOOK, self._look)
        return partial(self._open.pop, number, None)

    def _look(self) -> None:
        self._next = None
        for number, (token, digest, end) in list(self._open.items()):
            found = self._tokens.get(token) if self._tokens is not None else None
            is_valid = found is not None and found.digest == digest
            # Ending one may have ended another.
            if not is_valid and self._open.pop(number, None) is not None:
                end()
        if self._open:
            self._next = asyncio.get_running_loop().call_later(_LOOK, self._look)
