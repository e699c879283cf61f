"""Messages are prepared for a search by meaning in the background, a few at a time, while nobody waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

logger = logging.getLogger(__name__)

_PIECE = 8
_REST = 5.0


class VectorMaker:
    """A worker that goes on `rest` seconds after it was entered, and after each turn; `make` says how many are left."""

    def __init__(self, make: Callable[[int], int], *, rest: float = _REST) -> None:
        self._make, self._rest = make, rest
        self._woken = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    def post(self, _: str) -> None:
        """Go on, since something was said."""
        self._woken.set()

    async def _run(self) -> None:
        while True:
            # A program that answers once is gone by then.
            await anyio.sleep(self._rest)
            self._woken = anyio.Event()
            try:
                began = anyio.current_time()
                while await to_thread.run_sync(self._make, _PIECE):
                    # At most half of the time, so that who asks something meanwhile is not kept waiting.
                    await anyio.sleep(anyio.current_time() - began)
                    began = anyio.current_time()
            except Exception:  # the worker must outlive whatever went wrong once
                logger.exception("messages could not be prepared for a search by meaning")
            await self._woken.wait()
