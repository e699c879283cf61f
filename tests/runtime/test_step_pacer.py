"""Words that arrive go first; turns go on one step at a time, and are never stopped."""

from __future__ import annotations

import asyncio

from nacre.runtime.gateway.queue import StepPacer


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_turns_take_their_steps_one_after_the_other() -> None:
    async def play() -> list[int]:
        pacer = StepPacer()
        steps = [asyncio.ensure_future(pacer.step()) for _ in range(3)]
        seen = []
        while not all(step.done() for step in steps):
            await asyncio.sleep(0)
            seen.append(sum(step.done() for step in steps))
        return seen

    seen = asyncio.run(play())
    assert seen[-1] == 3
    assert all(after - before <= 1 for before, after in zip([0, *seen], seen, strict=False))


def test_no_turn_takes_a_step_while_words_arrive() -> None:
    async def play() -> None:
        pacer = StepPacer()
        with pacer.first():
            step = asyncio.ensure_future(pacer.step())
            await rounds(10)
            assert not step.done()
        await rounds(5)
        assert step.done()

    asyncio.run(play())


def test_words_without_end_slow_turns_and_do_not_stop_them() -> None:
    async def play() -> None:
        pacer = StepPacer()
        steps = [asyncio.ensure_future(pacer.step()) for _ in range(5)]
        with pacer.first():
            for _ in range(5):
                with pacer.first():
                    await rounds(3)
            await rounds(5)
            assert all(step.done() for step in steps)

    asyncio.run(play())


def test_a_turn_that_is_cancelled_makes_way_for_the_next() -> None:
    async def play() -> None:
        pacer = StepPacer()
        with pacer.first():
            gone, step = (asyncio.ensure_future(pacer.step()) for _ in range(2))
            await rounds(2)
            gone.cancel()
            await rounds(2)
        await rounds(5)
        assert step.done()

    asyncio.run(play())
