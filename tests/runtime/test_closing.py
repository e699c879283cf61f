"""Whatever fails to close, the rest is closed."""

from __future__ import annotations

import logging
from functools import partial

import anyio

from nacre.runtime.assembly import Closing


def test_everything_is_closed_in_order_whatever_fails() -> None:
    closed: list[str] = []

    async def play() -> list[str]:
        closing = Closing()
        for name in ("store", "agent", "channel"):
            closing.add(name, partial(_close, name, closed))
        failed = await closing.close()
        assert await closing.close() == []
        return failed

    logging.disable()
    assert anyio.run(play) == ["agent"]
    logging.disable(logging.NOTSET)
    assert closed == ["channel", "agent", "store"]


async def _close(name: str, closed: list[str]) -> None:
    closed.append(name)
    if name == "agent":
        raise OSError("it will not close")
