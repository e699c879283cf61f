"""Server-sent events: a stream that ends when its client goes, and the records of a session as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, nullcontext, suppress
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nacre.entries import Entry
from nacre.sessions import Sessions
from nacre.web.api import queries, schemas
from nacre.web.record_watch import Bell, Changes

_STALLED = 60.0
_PATIENCE = 10.0
_AT_ONCE = 64

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
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                await self._sent(send)
                tasks.cancel_scope.cancel()
        finally:
            self._left()

    async def _sent(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for piece in events:
                with anyio.move_on_after(_STALLED) as waiting:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if waiting.cancelled_caught:
                    return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def stays(receive: Receive, wait: Callable[[], Awaitable[object]]) -> bool:
    """Wait for something while a client waits too; False if it goes first."""
    is_over = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
        await wait()
        is_over = True
        tasks.cancel_scope.cancel()
    return is_over


async def records(
    sessions: Sessions, key: str, *, after: int, changes: Changes | None, heartbeat: float
) -> AsyncGenerator[bytes, None]:
    """The records of a session after a number, and new ones if `changes` reports them.

    A number that the session does not have yet is of an earlier one under its key, and everything comes. The
    stream ends when the session is deleted, or the server closes.
    """
    with changes.of(sessions, key) if changes is not None else nullcontext() as bell:
        last = await _end(sessions, key)
        source = _Source(sessions, key, last.generation, after if after <= last.n else 0)
        try:
            yield BEAT
            while last.n:
                for entry in await source.behind(last):
                    yield event(_item(entry), name=entry.kind, id=str(entry.n))
                if source.at == last:
                    if bell is None or bell.is_over:
                        return
                    if not await _has_grown(sessions, key, last, bell, heartbeat):
                        yield BEAT
                last = await _end(sessions, key)
            yield event({"key": key}, name="deleted")
        finally:
            source.close()


class _Source:
    """Where the records of a session come from; it is asked only for what is known to be there.

    So no thread waits for what may never come, and none is left behind by a client that goes.
    """

    def __init__(self, sessions: Sessions, key: str, generation: str, after: int) -> None:
        self._sessions = sessions
        self._key = key
        self.at = queries.End(generation, after)
        self._following = sessions.follow(key, after)

    async def behind(self, last: queries.End) -> list[Entry]:
        """Some of what is there up to the last record; none if it went away meanwhile."""
        if last.generation != self.at.generation:
            self.close()
            self.at = queries.End(last.generation, 0)
            self._following = self._sessions.follow(self._key, 0)
        if last == self.at:
            return []
        found: list[Entry] = []
        with anyio.move_on_after(_PATIENCE):
            found = await to_thread.run_sync(_taken, self._following, last.n, abandon_on_cancel=True)
        if found:
            self.at = queries.End(found[-1].generation, found[-1].n)
        return found

    def close(self) -> None:
        with suppress(ValueError):
            # A generator that still runs in its thread closes with it.
            self._following.close()


async def _end(sessions: Sessions, key: str) -> queries.End:
    return await to_thread.run_sync(queries.end, sessions, key)


async def _has_grown(sessions: Sessions, key: str, last: queries.End, bell: Bell, seconds: float) -> bool:
    """Wait until there is something new, or the server closes; False if nothing has come for so long."""
    until = anyio.current_time() + seconds
    while anyio.current_time() < until:
        await bell.rung(until - anyio.current_time())
        if bell.is_over or await _end(sessions, key) != last:
            return True
    return False


def _taken(following: Generator[Entry, None, None], newest: int) -> list[Entry]:
    """What is there, some at a time; the last of it is known to come."""
    found: list[Entry] = []
    for entry in following:
        found.append(entry)
        if entry.n >= newest or len(found) == _AT_ONCE:
            break
    return found


def _item(entry: Entry) -> schemas.Record:
    ts = queries.rfc3339(entry.ts)
    return schemas.Record(generation=entry.generation, n=entry.n, ts=ts, kind=entry.kind, data=entry.data)
