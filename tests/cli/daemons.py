"""`nacre serve` as a process of its own, and models for it in a thread of the test's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from tests.ollama_server import serving
from tests.runtime.wires import Voice

PROGRAM = [sys.executable, "-m", "nacre.cli"]
TOKEN = "a-token-that-is-long-enough-for-all"  # noqa: S105 - it opens nothing but these tests
PATIENT = 30.0


def environment(room: Path) -> dict[str, str]:
    """A home of its own, without a model."""
    ours = {"NACRE_HOME": "store", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "HOME": "home"}
    (room / "home").mkdir(exist_ok=True)
    places = {name: str(room / folder) for name, folder in ours.items()}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("NACRE_")}
    return {**kept, **places, "OLLAMA_HOST": "127.0.0.1:9", "NACRE_SERVE_TOKEN": TOKEN}


def configure(room: Path, text: str) -> None:
    (room / "config" / "nacre").mkdir(parents=True, exist_ok=True)
    (room / "config" / "nacre" / "config.toml").write_text(text)


class Daemon:
    """A daemon that is up."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENT)

    def logs(self, event: str) -> dict[str, Any]:
        """The next line of the log that says this."""
        assert self.process.stderr is not None
        # A line that never comes would be waited for without end: the daemon is killed, and its log ends.
        timer = threading.Timer(4 * PATIENT, self.process.kill)
        timer.start()
        try:
            for line in self.process.stderr:
                found: dict[str, Any] = json.loads(line)
                if event in str(found):
                    return found
        finally:
            timer.cancel()
        raise AssertionError(f"the log ended without {event!r}, or it took {4 * PATIENT} seconds")

    def ends(self, number: int) -> float:
        """Tell it to end; the seconds that it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENT)
        return time.monotonic() - begun


@contextmanager
def daemon(room: Path, *words: str, **variables: str) -> Iterator[Daemon]:
    command = [*PROGRAM, "serve", "--port", "0", "--json", *words]
    pipes: Mapping[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**environment(room), **variables}, cwd=room, **pipes) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            found = json.loads(line)
            assert "url" in found, (line, process.communicate()[1])
            made = Daemon(process, found["url"])
            with made.client:
                yield made
        finally:
            process.kill()


class Models:
    """Voices in a thread; what is done to them is done there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.voices: dict[str, Voice] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENT)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENT)

    def host(self, name: str) -> str:
        return self.voices[name].host

    def call(self, act: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(act)

    def asked(self, name: str) -> None:
        """Wait until a model was asked."""
        future = asyncio.run_coroutine_threadsafe(self.voices[name].asked.wait(), self._loop)
        future.result(PATIENT)
        self.call(self.voices[name].asked.clear)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for name in self._names:
                self.voices[name] = Voice(name)
                await stack.enter_async_context(serving(self.voices[name]))
            self._ready.set()
            await asyncio.to_thread(self._over.wait)
