"""A worker whose model answers at once: `python -m benchmarks.scripted_worker SOCKET`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nacre
from nacre.config import Settings
from nacre.providers.scripted import Scripted
from nacre.runtime.app import App, Options
from nacre.runtime.worker import main, make_kernel
from nacre.web.api.openai_requests import make_handlers

ANSWERS = ["The weather is fine."] * 1_000_000


@asynccontextmanager
async def run(settings: Settings, options: Options, _: int) -> AsyncIterator[App]:
    """An agent without tools and memory."""
    assert options.store is not None  # noqa: S101 - it was given
    with nacre.open(options.store) as sessions:
        app = App(settings, sessions, Scripted(ANSWERS))
        app.kernel = make_kernel(app)
        async with app.kernel:
            yield app


if __name__ == "__main__":
    main(make_handlers(), run)
