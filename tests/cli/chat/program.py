"""`nacre` as a program of its own, with a scripted model: `python -m tests.cli.chat.program SCRIPT ARGUMENT…`.

A script is a JSON list of answers, each a list of pieces: a text, {"thinks": text}, {"call": name, …arguments},
{"pause": seconds}, {"until": path} to wait for a file, {"fails": sentence}.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
from argparse import Namespace
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import anyio

from nacre.cli import main
from nacre.cli.commands import chat
from nacre.errors import NoModel, ProviderError
from nacre.providers.scripted import Call, Part, Pause, Scripted, Thinks
from nacre.runtime import App
from tests.cli.chat.agents import running


class Slept:
    """Some seconds that pass."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def wait(self) -> None:
        await anyio.sleep(self._seconds)


class Appears:
    """A file that comes to be there."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def wait(self) -> None:
        while not self._path.exists():  # noqa: ASYNC110 - a file has no event
            await anyio.sleep(0.01)


def part(piece: str | dict[str, Any]) -> Part:
    match piece:
        case str():
            return piece
        case {"thinks": text}:
            return Thinks(text)
        case {"pause": seconds}:
            return Pause(Slept(seconds))
        case {"until": path}:
            return Pause(Appears(path))
        case {"fails": sentence}:
            return ProviderError(sentence)
        case _:
            return Call(piece["call"], {name: value for name, value in piece.items() if name != "call"})


def started(script: list[list[str | dict[str, Any]]], args: Namespace) -> AbstractAsyncContextManager[App]:
    if not script:
        raise NoModel("no model answers here\nstart one, or install the embedded one")
    provider = Scripted([[part(piece) for piece in step] for step in script], model="model")
    return running(":memory:" if args.incognito else args.store or os.environ["NACRE_HOME"], provider)


if __name__ == "__main__":
    if sys.stdin.isatty():
        # So that Ctrl-C is a signal there, as it is in everybody's terminal.
        with suppress(OSError):
            fcntl.ioctl(sys.stdin, termios.TIOCSCTTY, 0)
    if missing := os.environ.get("WITHOUT"):
        sys.modules[missing] = None  # type: ignore[assignment] # how Python is told that a module is not there
    script = json.loads(sys.argv[1])
    chat._running = lambda args: started(script, args)
    sys.exit(main(sys.argv[2:]))
