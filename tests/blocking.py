"""Async sessions as plain ones, for checks that are written for those: each call is awaited in a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from itertools import chain, islice
from threading import Thread
from typing import Any, Self, cast

import nacre

Face = nacre.AsyncSessions | nacre.AsyncSession | nacre.AsyncLease
# Properties there, methods here: what cannot be awaited as one.
_PROPERTIES = ("summary", "meta")


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

    def __init__(self, inner: Face, loop: asyncio.AbstractEventLoop) -> None:
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
        if isinstance(self._inner, nacre.AsyncSession) and name in _PROPERTIES:
            return self._wait(value())
        gives = getattr(getattr(nacre.Sessions, name, None), "__annotations__", {}).get("return", "")

        def call(*args: Any, **named: Any) -> Any:
            if isinstance(held := named.get("held"), Blocking):
                named["held"] = held._inner
            return self._wait(value(*args, **named), gives)

        return call

    def __getitem__(self, key: str) -> Any:
        return Blocking(cast("nacre.AsyncSessions", self._inner)[key], self._loop)

    def __contains__(self, key: str) -> bool:
        return bool(self.__getattr__("exists")(key))

    def __bool__(self) -> bool:
        return bool(self._inner)

    def __len__(self) -> int:
        return cast("int", self.__getattr__("length")())

    def __iter__(self) -> Iterator[Any]:
        # Of sessions there is none: `iter` refuses them as it refuses the plain ones.
        return self._each(aiter(cast("nacre.AsyncSession", self._inner)))

    def __repr__(self) -> str:
        return repr(self._inner).removeprefix("Async")

    def close(self) -> None:
        if isinstance(self._inner, nacre.AsyncLease):
            self._wait(self._inner.close())
        if self.thread is not None and self.thread.is_alive():
            self._wait(cast("nacre.AsyncSessions", self._inner).close())
            self.end(self.thread)

    def end(self, thread: Thread) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def _wait(self, found: Any, gives: str = "") -> Any:
        """What a call gives in the end, in the form that plain sessions give it."""
        if inspect.iscoroutine(found):
            if self._loop.is_closed():
                return asyncio.run(found)
            found = asyncio.run_coroutine_threadsafe(found, self._loop).result()
        if isinstance(found, Future) and isinstance(error := found.exception(), nacre.InvalidKey):
            # Whether a key may be used is found out in a thread, so the future says it.
            raise error
        if isinstance(found, Face):
            return Blocking(found, self._loop)
        if not isinstance(found, AsyncIterator):
            return found
        if gives.startswith("Generator"):
            # It has no end.
            return self._each(found)
        # It is refused for wrong arguments when the first item is asked for.
        items = self._each(found)
        return chain(list(islice(items, 1)), items)

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def take() -> Any:
            return await anext(items, self)

        while (item := asyncio.run_coroutine_threadsafe(take(), self._loop).result()) is not self:
            yield item
