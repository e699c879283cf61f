"""Threads that do blocking work for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_IDLE = 0.2

_Given: TypeAlias = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class LoopThreads:
    """Up to `most` threads that work for event loops; one that has had nothing to do for `idle` seconds ends.

    An executor of the standard library costs as much CPU for each call as a small append does.
    """

    def __init__(
        self, most: int, name: str, *, idle: float = _IDLE, given: SimpleQueue[_Given | None] | None = None
    ) -> None:
        self._most = most
        self._names = (f"{name}_{number}" for number in count())
        self._idle = idle
        # The lock guards everything below, also where one is put into the queue.
        self._lock = Lock()
        self._given: SimpleQueue[_Given | None] = SimpleQueue() if given is None else given
        self._threads: set[Thread] = set()
        self._waiting = 0
        self._is_shut_down = False

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Let a thread do something; if the future is cancelled before that began, it is not done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the store is closed")
            self._given.put((work, loop, answer))
            try:
                self._add_thread_if_short()
            except BaseException as error:
                # If others run, one of them does it.
                if not isinstance(error, RuntimeError) or not self._threads:
                    answer.cancel()
                    raise
        return answer

    def _add_thread_if_short(self) -> None:
        """Start a thread if more is given than threads wait for it; under the lock."""
        # Once this is shut down, the mark for the end is in the queue too.
        given = self._given.qsize() - self._is_shut_down
        if given <= self._waiting or len(self._threads) >= self._most:
            return
        # The program does not end before the thread, also where the loop is in a daemon's.
        thread = Thread(target=self._serve, name=next(self._names), daemon=False)
        self._threads.add(thread)
        self._waiting += 1
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            self._waiting -= 1
            raise

    def _serve(self) -> None:
        """Do what is given, until for a while nothing was."""
        while True:
            given, has_timed_out = None, False
            try:
                given = self._given.get(timeout=self._idle)
            except Empty:
                has_timed_out = True
            with self._lock:
                if has_timed_out:
                    # Something may have come since, and nobody else may have been started for it.
                    if not self._given.empty():
                        continue
                    self._waiting -= 1
                    self._threads.discard(current_thread())
                    return
                self._waiting -= 1
                if given is None:
                    # All that was given has been taken; the others shall see the mark too.
                    self._given.put(None)
                    return
                # Somebody may have counted on this thread.
                with suppress(RuntimeError):
                    self._add_thread_if_short()
            work, loop, answer = given
            result, failure = None, None
            if not answer.cancelled():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it
                    failure = error
            # Before the answer is given: the next work that follows from it shall not need another thread.
            with self._lock:
                self._waiting += 1
            # In a loop that was closed nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, answer, result, failure)
            del given, work, loop, answer, result, failure

    def shutdown(self) -> None:
        """Wait until everything is done that was given."""
        with self._lock:
            self._is_shut_down = True
            self._given.put(None)
        ended: set[Thread] = set()
        while True:
            # A thread may have started another one.
            with self._lock:
                running = self._threads - ended
            if not running:
                return
            for thread in running:
                thread.join()
            ended |= running


def _settle(answer: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(result)
    else:
        answer.set_exception(failure)
