"""Server-sent events: a stream that ends when its client goes, and the records of a session as they come.

New records are waited for, whichever process writes them, without looking again and again where the system reports
changes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nacre.messages import Entry
from nacre.render.text import rfc3339
from nacre.sessions import Sessions
from nacre.web.api import queries, schemas

_STALL_TIMEOUT = 60.0
_READ_TIMEOUT = 10.0
_AT_ONCE = 64
_MAX_TAKEN = 1024 * 1024
"""How long the events that wait for a client may be together, in bytes, before no more are made; one is made always."""
_PIECE = 64 * 1024
"""How much of an event is sent at once: a client that reads slowly, but reads, has a minute for each piece."""
_LOOK_AGAIN = 0.2
"""How often to look, in seconds, where no changes are reported."""

BEAT = b": still here\n\n"


def event(data: Any, *, name: str = "", id: str = "") -> bytes:
    """One event; JSON has no line breaks of its own."""
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """A response of events; `left` is called when it is over, however it ends.

    A client that goes, or that takes nothing for a minute, ends it.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], *, left: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._left = left
        self.status_code = 200
        self.background = None
        self.init_headers({"x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        async def send_events() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._events) as events:
                async for one in events:
                    for at in range(0, len(one), _PIECE):
                        with anyio.move_on_after(_STALL_TIMEOUT) as waiting:
                            body = one[at : at + _PIECE]
                            await send({"type": "http.response.body", "body": body, "more_body": True})
                        if waiting.cancelled_caught:
                            return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await stays(receive, send_events)
        finally:
            self._left()


async def stays(receive: Receive, wait: Callable[[], Awaitable[object]]) -> bool:
    """Wait for something while a client waits too; False if it goes first."""

    async def cancel_when_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        tasks.cancel_scope.cancel()

    is_over = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when_gone)
        await wait()
        is_over = True
        tasks.cancel_scope.cancel()
    return is_over


# ---- the records of a session


async def records(
    sessions: Sessions, key: str, *, after: int, changes: Changes | None, heartbeat: float
) -> AsyncGenerator[bytes, None]:
    """The records of a session after a number, and new ones if `changes` reports them.

    A number that the session does not have yet is of an earlier one under its key, and everything comes. The
    stream ends when the session is deleted, or the server closes.
    """

    async def read_end() -> queries.End:
        return await to_thread.run_sync(queries.end, sessions, key)

    async def has_grown(bell: Bell) -> bool:
        """Wait until there is something new, or the server closes; False if nothing has come for so long."""
        until = anyio.current_time() + heartbeat
        while anyio.current_time() < until:
            await bell.wait(until - anyio.current_time())
            if bell.closing.is_set() or await read_end() != last:
                return True
        return False

    with changes.of(sessions, key) if changes is not None else nullcontext() as bell:
        last = await read_end()
        at = queries.End(last.generation, after if after <= last.n else 0)
        following = sessions.follow(key, at.n)
        try:
            yield BEAT
            while last.n:
                if last.generation != at.generation:
                    _close(following)
                    at = queries.End(last.generation, 0)
                    following = sessions.follow(key, 0)
                for place, made in await _take(following, last.n) if last != at else ():
                    at = place
                    yield made
                if at == last:
                    if bell is None or bell.closing.is_set():
                        return
                    if not await has_grown(bell):
                        yield BEAT
                last = await read_end()
            yield event({"key": key}, name="deleted")
        finally:
            _close(following)


async def _take(following: Generator[Entry, None, None], last: int) -> list[tuple[queries.End, bytes]]:
    """Some of the records up to the last one, which is known to be there, as events; none if it went away meanwhile.

    So no thread waits for what may never come, and none stays when a client goes.
    """

    def take() -> list[tuple[queries.End, bytes]]:
        taken: list[tuple[queries.End, bytes]] = []
        size = 0
        for entry in following:
            place = queries.End(entry.generation, entry.n)
            record = schemas.Record(**place._asdict(), ts=rfc3339(entry.ts), kind=entry.kind, data=entry.data)
            taken.append((place, event(record, name=entry.kind, id=str(entry.n))))
            size += len(taken[-1][1])
            if entry.n >= last or len(taken) == _AT_ONCE or size >= _MAX_TAKEN:
                break
        return taken

    with anyio.move_on_after(_READ_TIMEOUT):
        return await to_thread.run_sync(take, abandon_on_cancel=True)
    return []


def _close(following: Generator[Entry, None, None]) -> None:
    with suppress(ValueError):
        # A generator that still runs in its thread closes with it.
        following.close()


# ---- waiting for what is written


class Bell:
    """Rings when a session may have changed; one ring counts, however many were missed."""

    def __init__(self, closing: anyio.Event, *, interval: float) -> None:
        self.closing = closing
        self._interval = interval
        self.rang = anyio.Event()

    async def wait(self, limit: float) -> None:
        """Wait until it has rung since the last time, or all is over, or it is time to look anyway."""

        async def cancel_when_closing() -> None:
            await self.closing.wait()
            tasks.cancel_scope.cancel()

        with anyio.move_on_after(min(self._interval, limit)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_closing)
                await self.rang.wait()
                tasks.cancel_scope.cancel()
        self.rang = anyio.Event()


class Changes:
    """Reports changes in stores; each is watched while a caller waits, with one descriptor.

    Where the system reports changes it looks every `look` seconds too: those made on other machines are not reported.
    """

    def __init__(self, closing: anyio.Event, *, look: float = 2.0) -> None:
        self._look = look
        self._closing = closing
        self._watched: dict[str, _Store] = {}

    @contextmanager
    def of(self, sessions: Sessions, key: str) -> Iterator[Bell]:
        """A bell for a session; what changes from now on rings it."""
        location = sessions.location
        store = self._watched.get(location) or self._watched.setdefault(location, _Store(sessions))
        bell = Bell(self._closing, interval=self._look if store.reports else _LOOK_AGAIN)
        name = store.watch.name(key)
        bells = store.bells.setdefault(name, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                store.bells.pop(name, None)
            if not store.bells and self._watched.pop(location, None) is not None:
                store.close()


class _Store:
    """A store, and those who wait for changes in it, by what its watch calls their session."""

    def __init__(self, sessions: Sessions) -> None:
        self.bells: dict[str, set[Bell]] = {}
        self.watch = sessions.watch()
        self.reports = self.watch.fd >= 0
        self._loop = asyncio.get_running_loop()
        if self.reports:
            os.set_blocking(self.watch.fd, False)
            self._loop.add_reader(self.watch.fd, self.ring)

    def close(self) -> None:
        if self.reports:
            self._loop.remove_reader(self.watch.fd)
        self.watch.close()

    def ring(self) -> None:
        names = self.watch.changed()
        # An empty name: too much has changed to be reported, and it may be anything.
        chosen = self.bells if "" in names else names & self.bells.keys()
        for name in chosen:
            for bell in self.bells[name]:
                bell.rang.set()
