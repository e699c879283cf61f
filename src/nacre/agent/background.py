"""Tasks that run for as long as their owner is entered."""

from __future__ import annotations

from typing import Self

import anyio
from anyio.abc import TaskGroup


class TaskOwner:
    """Has tasks of its own while it is entered; they are cancelled when it is left."""

    _tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            # What was raised is the caller's own; the tasks have nothing to add to it.
            await tasks.__aexit__(None, None, None)


class Worker(TaskOwner):
    """Does one thing in the background while it is entered."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._tasks is not None:
            self._tasks.start_soon(self._run)
        return self

    async def _run(self) -> None:
        raise NotImplementedError
