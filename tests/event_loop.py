"""Whether a coroutine leaves the event loop to others, on however busy a machine."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from threading import Event, get_ident
from types import FrameType
from typing import Any, TypeAlias, cast

import nacre
from nacre.history.session_state import RULES
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Backend

AsyncCall: TypeAlias = Callable[[nacre.Sessions], Awaitable[object]]

_DEADLOCKED = 60
"""Seconds after which a loop that has not gone on is blocked; one that is free goes on at once."""


def async_methods(adapter: type) -> set[str]:
    """The public coroutines and async iterators of an adapter that are nacre's own."""
    return {
        name
        for name, method in inspect.getmembers(adapter, inspect.isfunction)
        if not name.startswith("_") and method.__module__.startswith("nacre.")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
    }


def assert_loop_goes_on(prepare: Callable[[nacre.Sessions], object], call: AsyncCall, *, most: int) -> None:
    """Await a call on sessions whose store does nothing before the event loop has gone on.

    `prepare` is called before, and may block. In the thread of the loop the store may not be called at all, and at most
    `most` functions: with more messages than that in the sessions, or in what is given, none of them is touched there.
    """
    # The first time modules are imported, and threads begun.
    _count_calls(prepare, call)
    calls = _count_calls(prepare, call)
    assert calls <= most, f"{calls} functions were called in the thread of the event loop"


def _count_calls(prepare: Callable[[nacre.Sessions], object], call: AsyncCall) -> int:
    gate = _Gate(MemoryStore(rules=RULES))
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        calls += event == "call" and module not in ("asyncio", "selectors")

    async def run(sessions: nacre.Sessions) -> None:
        gate.loop, gate.loop_thread = asyncio.get_running_loop(), get_ident()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            await call(sessions)
        finally:
            sys.setprofile(before)
            gate.loop = None

    with nacre.Sessions(cast("Backend", gate)) as sessions:
        prepare(sessions)
        asyncio.run(run(sessions))
    assert not gate.errors, "; ".join(gate.errors)
    return calls


class _Gate:
    """A store whose methods wait until the loop has done something else."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.loop: asyncio.AbstractEventLoop | None = None
        self.loop_thread = 0
        self.errors: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if self.loop is None or not callable(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            self._wait(name)
            return value(*args, **named)

        return call

    def _wait(self, name: str) -> None:
        loop = self.loop
        if loop is None:
            return
        if get_ident() == self.loop_thread:
            self.errors.append(f"{name} of the store was called in the thread of the event loop")
            return
        has_gone_on = Event()
        loop.call_soon_threadsafe(has_gone_on.set)
        if not has_gone_on.wait(_DEADLOCKED):
            self.errors.append(f"the event loop waited for {name} of the store")
