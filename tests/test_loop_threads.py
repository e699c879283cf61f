"""The threads that work for event loops: nothing that was given is lost, and they end when nothing is to be done."""

from __future__ import annotations

import asyncio
from queue import Empty, SimpleQueue
from threading import Event, Thread, enumerate, get_ident
from typing import Any

import pytest

from nacre.loop_threads import LoopThreads

WAIT = 60


class LateQueue(SimpleQueue[Any]):
    """Its second `get` times out, which the thread learns only when the end was asked for."""

    def __init__(self) -> None:
        self.gets = 0
        self.is_waited_at, self.is_ended = Event(), Event()

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        super().put(item)
        if item is None:
            self.is_ended.set()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        self.gets += 1
        if self.gets != 2:
            return super().get(timeout=WAIT)
        self.is_waited_at.set()
        self.is_ended.wait(WAIT)
        raise Empty


def test_work_that_is_given_when_a_thread_stops_waiting_and_the_end_is_near_is_done() -> None:
    queue = LateQueue()
    threads = LoopThreads(1, "late", given=queue)

    async def main() -> list[int]:
        first = await threads.begin(lambda: 1)
        await asyncio.to_thread(queue.is_waited_at.wait, WAIT)
        second = threads.begin(lambda: 2)
        end = Thread(target=threads.shutdown)
        end.start()
        found = [first, await asyncio.wait_for(second, WAIT)]
        await asyncio.to_thread(end.join, WAIT)
        return found

    assert asyncio.run(main()) == [1, 2]


def test_threads_without_work_end() -> None:
    threads = LoopThreads(4, "idle", idle=0.01)

    async def main() -> list[int]:
        found = await asyncio.gather(*(threads.begin(lambda: 1) for _ in range(4)))
        for thread in [one for one in enumerate() if one.name.startswith("idle")]:
            await asyncio.to_thread(thread.join, WAIT)
            assert not thread.is_alive()
        return [*found, await threads.begin(lambda: 2)]

    assert asyncio.run(main()) == [1, 1, 1, 1, 2]
    threads.shutdown()


def test_work_that_follows_other_work_is_done_by_the_same_thread() -> None:
    threads = LoopThreads(4, "same", idle=WAIT)

    async def main() -> int:
        return len({await threads.begin(get_ident) for _ in range(200)})

    assert asyncio.run(main()) == 1
    threads.shutdown()


def test_a_thread_that_cannot_be_started_is_an_error_unless_another_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = LoopThreads(2, "few", idle=WAIT)

    async def main() -> list[int]:
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", fail)
            with pytest.raises(RuntimeError, match="can't start"):
                threads.begin(lambda: 1)
        found = [await threads.begin(lambda: 2)]
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", fail)
            found += await asyncio.gather(*(threads.begin(lambda: 3) for _ in range(3)))
        return found

    assert asyncio.run(main()) == [2, 3, 3, 3]
    threads.shutdown()


def test_what_is_given_after_the_end_is_refused() -> None:
    threads = LoopThreads(1, "ended")
    threads.shutdown()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="the store is closed"):
            threads.begin(lambda: 1)

    asyncio.run(main())


def test_the_end_waits_for_all_that_was_given() -> None:
    threads = LoopThreads(2, "all")
    done: list[int] = []

    async def main() -> None:
        begun = [threads.begin(lambda n=n: done.append(n)) for n in range(50)]  # type: ignore[misc]
        await asyncio.to_thread(threads.shutdown)
        await asyncio.gather(*begun)

    asyncio.run(main())
    assert sorted(done) == list(range(50))
