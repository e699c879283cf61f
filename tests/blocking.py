"""Async sessions as plain ones, for checks that are written for those: each call is awaited in a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any, Self, cast

import nacre
from nacre.async_sessions import AsyncHold


def opened(open_async: Callable[[], nacre.AsyncSessions]) -> nacre.Sessions:
    """Sessions that are opened for asyncio."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    blocking = Blocking(open_async(), loop)
    try:
        blocking.__aenter__()
    except BaseException:
        blocking.end(thread)
        raise
    blocking.thread = thread
    return cast("nacre.Sessions", blocking)


class Blocking:
    """Every method of something async, called in the thread of an event loop and waited for."""

    thread: Thread | None = None

    def __init__(self, inner: nacre.AsyncSessions | AsyncHold, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aenter__(self) -> None:
        self.__getattr__("__aenter__")()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        gives = getattr(getattr(nacre.Sessions, name, None), "__annotations__", {}).get("return", "")
        return lambda *args, **kwargs: self._wait(value(*args, **kwargs), gives)

    def close(self) -> None:
        if self.thread is not None and self.thread.is_alive():
            self._wait(self._inner.close())
            self.end(self.thread)

    def end(self, thread: Thread) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def _wait(self, found: Any, gives: str = "") -> Any:
        """What a call gives in the end, in the form that plain sessions give it."""
        if inspect.iscoroutine(found):
            found = asyncio.run_coroutine_threadsafe(found, self._loop).result()
        if isinstance(found, Future) and isinstance(error := found.exception(), nacre.InvalidKey):
            # Whether a key may be used is found out in a thread, so the future says it.
            raise error
        if isinstance(found, nacre.AsyncSessions | AsyncHold):
            return Blocking(found, self._loop)
        if not isinstance(found, AsyncIterator):
            return found
        if gives.startswith("Generator"):
            # It has no end.
            return self._each(found)
        return iter(list(self._each(found))) if gives.startswith("Iterator") else list(self._each(found))

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def take() -> Any:
            return await anext(items, self)

        while (item := asyncio.run_coroutine_threadsafe(take(), self._loop).result()) is not self:
            yield item
