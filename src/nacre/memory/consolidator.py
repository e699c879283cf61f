"""The worker that goes through turns after they ended: one at a time, and no answer waits for it."""

from __future__ import annotations

import logging
from typing import Protocol

import anyio
from anyio import to_thread

from nacre.agent.background import Worker

logger = logging.getLogger(__name__)


class Learner(Protocol):
    """A memory that learns."""

    async def consolidate(self, key: str) -> int:
        """Go through the turns of a session that memory does not know; returns how many there were."""

    def begin(self) -> list[str]:
        """Note when memory began, store what people edited, and list the sessions with turns that may be unknown."""

    def warm(self) -> bool:
        """Do a piece of what makes recall better; False if there is nothing left of it."""


class Consolidator(Worker):
    """Goes through the turns of sessions that are posted; those that a full queue does not take, it finds later.

    With `reads_earlier` it begins with what earlier processes left; where several share a store, one does.
    """

    def __init__(self, memory: Learner, *, limit: int = 256, reads_earlier: bool = True) -> None:
        self._memory = memory
        self._limit = limit
        self._queue: dict[str, None] = {}
        self._of_others: set[str] = set()
        self._left_earlier: set[str] | None = None if reads_earlier else set()
        self._may_have_missed = reads_earlier
        self._is_at_work = False
        self._woken = anyio.Event()
        self._stepped = anyio.Event()

    def post(self, key: str) -> None:
        """Say that a turn of a session has ended; never waits, never raises."""
        if len(self._queue) < self._limit or key in self._queue:
            self._queue[key] = None
            self._of_others.discard(key)
        else:
            self._may_have_missed = True
        self._woken.set()

    def look_back(self) -> None:
        """Go through what other processes left, as at the start: one of them may be gone."""
        self._may_have_missed = True
        self._woken.set()

    async def rest(self) -> None:
        """Wait until everything that was posted has been gone through."""
        while self._queue or self._may_have_missed or self._is_at_work:
            await self._stepped.wait()

    async def learn_earlier(self) -> None:
        """Wait until something was learned from what an earlier process left, or nothing can be.

        Processes that all end soon would else never learn from a slow model: each begins again where the last one did.
        """
        while self._left_earlier is None or self._left_earlier:
            await self._stepped.wait()

    async def _run(self) -> None:
        while True:
            await self._work()
            self._notify()
            try:
                while not self._queue and await to_thread.run_sync(self._memory.warm):
                    pass
            except Exception:  # the worker must outlive whatever went wrong once
                logger.exception("memory could not prepare its index")
            if not self._queue and not self._may_have_missed:
                self._woken = anyio.Event()
                await self._woken.wait()

    async def _work(self) -> None:
        """Go through all that waits; what fails is left for the next time, since its cursor has not moved."""
        self._is_at_work = True
        try:
            while self._queue or self._may_have_missed:
                if self._queue:
                    await self._learn_from_next()
                else:
                    self._may_have_missed = False
                    found: list[str] = []
                    try:
                        found = await to_thread.run_sync(self._memory.begin)
                    except Exception:  # the same
                        logger.exception("memory could not start")
                    self._left_earlier = set(found) if self._left_earlier is None else self._left_earlier
                    self._of_others |= set(found).difference(self._queue)
                    self._queue |= dict.fromkeys(found)
                self._notify()
        finally:
            self._is_at_work = False

    async def _learn_from_next(self) -> None:
        key = next(iter(self._queue))
        del self._queue[key]
        learned = 0
        try:
            learned = await self._memory.consolidate(key)
        except Exception:  # the same
            # The user of another session cannot do anything about this one.
            level = logging.INFO if key in self._of_others else logging.ERROR
            logger.log(level, "memory could not read a session", exc_info=True, extra={"key": key})
        if self._left_earlier:
            self._left_earlier = set() if learned else self._left_earlier - {key}

    def _notify(self) -> None:
        """Wake up all that wait."""
        self._stepped.set()
        self._stepped = anyio.Event()
