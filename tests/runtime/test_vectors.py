"""Messages are prepared for a search by meaning while nobody waits."""

from __future__ import annotations

import logging

import anyio
import pytest

from nacre.runtime.assembly import VectorMaker


class Made:
    """What is left to be made, piece by piece."""

    def __init__(self, *left: int | Exception) -> None:
        self._left = list(left)
        self.is_done = anyio.Event()

    def __call__(self, most: int) -> int:
        left = self._left.pop(0)
        if not self._left:
            anyio.from_thread.run_sync(self.is_done.set)
        if isinstance(left, Exception):
            raise left
        return left


def test_it_goes_on_until_nothing_is_left_and_after_each_turn() -> None:
    async def run() -> None:
        made = Made(2, 1, 0, 3, 0)
        async with VectorMaker(made, rest=0) as maker:
            while not made.is_done.is_set():
                maker.post("cli:1")
                await anyio.lowlevel.checkpoint()

    anyio.run(run)


def test_what_fails_once_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        made = Made(OSError("disk"), 0)
        async with VectorMaker(made, rest=0) as maker:
            while not made.is_done.is_set():
                maker.post("cli:1")
                await anyio.lowlevel.checkpoint()

    with caplog.at_level(logging.ERROR):
        anyio.run(run)
    assert "could not be prepared" in caplog.text


def test_a_program_that_answers_once_does_not_wait_for_it() -> None:
    async def run() -> None:
        async with VectorMaker(Made(), rest=3600) as maker:
            maker.post("cli:1")

    anyio.run(run)
