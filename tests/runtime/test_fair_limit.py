"""A limit at which callers take turns."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from contextvars import copy_context

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from nacre.runtime.structured_output import CALLER, FairLimit


class Queue:
    """Work that waits for a place, and is noted when it has one."""

    def __init__(self, most: int) -> None:
        self.limit = FairLimit(most)
        self.order: list[str] = []
        self.running = self.highest = 0

    async def work(self, name: str) -> None:
        CALLER.set(name[0])
        async with self.limit.place():
            self.order.append(name)
            self.running += 1
            self.highest = max(self.highest, self.running)
            await settled()
            self.running -= 1


async def settled() -> None:
    for _ in range(5):
        await checkpoint()


def begin(tasks: TaskGroup, queue: Queue, *names: str) -> None:
    for name in names:
        copy_context().run(tasks.start_soon, queue.work, name)


def test_a_caller_who_wants_much_lets_others_go_first() -> None:
    async def run() -> None:
        queue = Queue(1)
        async with anyio.create_task_group() as tasks, queue.limit.place():
            begin(tasks, queue, *(f"m{at}" for at in range(6)))
            await settled()
            begin(tasks, queue, "a0", "a1", "b0")
            await settled()
        assert queue.order == ["m0", "a0", "b0", "m1", "a1", "m2", "m3", "m4", "m5"]

    anyio.run(run)


@pytest.mark.parametrize("most", [1, 3])
def test_so_many_run_at_once_and_all_have_their_turn(most: int) -> None:
    async def run() -> None:
        queue = Queue(most)
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                begin(tasks, queue, *(f"{caller}{at}" for caller in "abc" for at in range(5)))
        assert (queue.highest, len(queue.order)) == (most, 30)

    anyio.run(run)


@pytest.mark.parametrize("has_place", [False, True], ids=["waiting", "just given a place"])
def test_who_gives_up_takes_no_place(has_place: bool) -> None:
    async def run() -> None:
        queue = Queue(1)
        async with AsyncExitStack() as held:
            await held.enter_async_context(queue.limit.place())
            leaving = asyncio.create_task(queue.work("a0"))
            staying = asyncio.create_task(queue.work("a1"))
            await settled()
            if has_place:
                await held.aclose()
            leaving.cancel()
        await staying
        assert leaving.cancelled()
        await queue.work("b0")
        assert queue.order == ["a1", "b0"]

    anyio.run(run)
