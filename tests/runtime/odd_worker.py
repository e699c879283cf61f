"""Workers that misbehave, as programs: `python -m tests.runtime.odd_worker SOCKET`, which one is in NACRE_ODD.

`deaf` does not notice that the daemon has given it up, and writes to the file NACRE_NOTES how its requests failed.
`scripted` has a model that does what the user's words say.
`absent` ends at once; `silent` never says that it is ready; `late` ends unless its siblings ended before;
`refusing` says why it cannot start.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nacre
from nacre.agent.ports import Context, Emit, Reply, Text
from nacre.config import Settings
from nacre.errors import ConfigError, RateLimited
from nacre.messages import Message
from nacre.runtime import worker
from nacre.runtime.app import App, Options
from nacre.runtime.worker_frames import SentError, encode_error
from nacre.web.api.openai_requests import make_handlers


class Obedient:
    """A model that does what it hears."""

    model = "obedient"

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        words = str(context.messages[-1].content)
        match words:
            case "end":
                os._exit(9)
            case "begin and end":
                emit(Text("half"))
                # What was emitted is on its way after a few rounds of the loop.
                for _ in range(3):
                    await asyncio.sleep(0)
                os._exit(9)
            case "wrong event":
                emit(Text(7))  # type: ignore[arg-type] # that is what is wrong
            case _ if words.startswith("wait for "):
                while not Path(words.removeprefix("wait for ")).exists():  # noqa: ASYNC110, ASYNC240 - a test makes it
                    await asyncio.sleep(0.01)
            case "bug":
                raise KeyError("pearl")
            case "limit":
                raise RateLimited("too many requests", wait=2.5)
            case _:
                pass
        for word in ("I heard ", words):
            emit(Text(word))
        return Reply(message=Message(role="assistant", content=f"I heard {words}", model=self.model))

    async def close(self) -> None:
        """Close nothing."""


@asynccontextmanager
async def run_scripted(settings: Settings, options: Options, _: int) -> AsyncIterator[App]:
    """An agent without tools and memory."""
    assert options.store is not None
    with nacre.open(options.store) as sessions:
        app = App(settings, sessions, Obedient())
        app.kernel = worker.make_kernel(app)
        async with app.kernel:
            yield app


@asynccontextmanager
async def refuse(settings: Settings, options: Options, number: int) -> AsyncIterator[App]:
    """Start nothing."""
    if number >= 0:
        raise ConfigError("there is no pearl")
    async with run_scripted(settings, options, number) as app:
        yield app


def note_start() -> None:
    """Note that one more process was started."""
    with Path(os.environ["NACRE_NOTES"]).open("a", encoding="utf-8") as file:
        file.write("began\n")


def note_errors() -> None:
    """Go on when the daemon is gone, and note what comes of requests."""

    def noted(error: BaseException) -> SentError:
        with Path(os.environ["NACRE_NOTES"]).open("a", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}\n")
        return encode_error(error)

    worker.encode_error = noted  # type: ignore[attr-defined] # this program is the test's own
    os._exit = print  # type: ignore[assignment] # the same


if __name__ == "__main__":
    match os.environ["NACRE_ODD"]:
        case "absent":
            note_start()
            sys.exit(3)
        case "silent":
            note_start()
            signal.pause()
        case "late":
            with Path(os.environ["NACRE_NOTES"]).open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                count = file.read().count("began")
                file.write("began\n")
            # Two start at once for each of two agents.
            if count % 4 < 2:
                sys.exit(3)
            worker.main(make_handlers())
        case "refusing":
            worker.main({}, refuse)
        case "deaf":
            note_errors()
            worker.main(make_handlers())
        case _:
            worker.main(make_handlers(), run_scripted)
