"""What a completion costs a client that keeps its connection, with a model that answers at once."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import httpx
import openai

from benchmarks import measure
from benchmarks.rows import Row, at_most, micros
from benchmarks.scene import Scene

_TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing but this benchmark
_HEADERS = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
_WARM, _TIMED = 25, 10
"""Completions in each session: after the first of them it has fifty messages, and then some more."""
_SAID = [{"role": "user", "content": "hello"}]


class _Client(NamedTuple):
    """What a client asks: something that costs nothing, and a completion, in a session unless its name is empty."""

    bare: Callable[[], object]
    chat: Callable[[str], object]


def completions(scene: Scene) -> Iterator[Row]:
    """A completion by three clients, without a session and in one, where it is durable before it is answered.

    Beside each is a bare request of the same client, and for the latter the flushes that it waits for.
    """
    room = scene.room("completions")
    samples: dict[str, list[float]] = defaultdict(list)
    used: dict[str, list[_Used]] = defaultdict(list)
    with ExitStack() as stack:
        stack.enter_context(measure.awake())
        server = stack.enter_context(_serving(room / "store"))
        file = stack.enter_context((room / "raw").open("wb", buffering=0))
        clients = {
            "http.client": stack.enter_context(_plain(server.port)),
            "httpx": stack.enter_context(_httpx(server.port)),
            "openai": stack.enter_context(_openai(server.port)),
        }
        # A session that outgrows what a model is shown is summarised, which is another matter: begin new ones.
        for number in range(scene.sizes.pairs // 20):
            actions: dict[str, Callable[[], object]] = {"flushes": partial(_flush_twice, file)}
            for name, client in clients.items():
                actions[f"{name} bare"] = client.bare
                actions[f"{name} alone"] = partial(client.chat, "")
                actions[f"{name} stored"] = partial(client.chat, f"{name} {number}")
            for what, took in measure.interleave(actions, rounds=_TIMED, warm=_WARM).items():
                samples[what] += took
            for name, client in clients.items():
                used[name].append(server.count(partial(client.chat, f"{name} {number} alone")))
    flushes = micros(measure.p50(samples["flushes"]))
    for name in clients:
        bare, alone, stored = (measure.p50(samples[f"{name} {what}"]) for what in ("bare", "alone", "stored"))
        beside = f"a bare request {micros(bare)}"
        yield at_most(f"keep-alive completion by {name}, p50", 1000 * alone, 5, unit=" ms", absolute=beside)
        beside += f", two flushes alone {flushes}"
        what = f"keep-alive completion in a session of {2 * _WARM} messages by {name}"
        yield at_most(f"{what}, p50", 1000 * stored, 5, unit=" ms", absolute=beside)
        cpu, read = 1000 * measure.p50([one.cpu for one in used[name]]), max(one.read for one in used[name])
        yield at_most(f"{what}: CPU of the server", cpu, 2.1, unit=" ms")
        yield at_most(f"{what}: bytes of the store read again", read, 0, unit="")


def _flush_twice(file: FileIO) -> None:
    for _ in range(2):
        file.write(b"x" * 500)
        os.fdatasync(file.fileno())


class _Used(NamedTuple):
    """What one completion costs the server."""

    cpu: float
    read: float


class _Server:
    """A server in a process of its own, which tells what it has used so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        assert process.stdout is not None  # noqa: S101 - the same
        self._input, self._output = process.stdin, process.stdout
        self.port = int(self._output.readline())

    def count(self, act: Callable[[], object]) -> _Used:
        """What an action costs the server, in the mean over some, after others."""
        for _ in range(_WARM):
            act()
        before = self._ask()
        for _ in range(_TIMED):
            act()
        after = self._ask()
        return _Used((after.cpu - before.cpu) / _TIMED, (after.read - before.read) / _TIMED)

    def _ask(self) -> _Used:
        self._input.write("\n")
        self._input.flush()
        return _Used(**json.loads(self._output.readline()))


@contextmanager
def _serving(store: Path) -> Iterator[_Server]:
    command = [sys.executable, "-m", "benchmarks.child", "completions", str(store), _TOKEN]
    with subprocess.Popen(  # noqa: S603 - our own module
        command, cwd=measure.PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield _Server(process)
        process.communicate()


def _body(session: str) -> Mapping[str, object]:
    return {"model": "nacre", "messages": _SAID} | ({"session_id": session} if session else {})


@contextmanager
def _plain(port: int) -> Iterator[_Client]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(method: str, path: str, body: Mapping[str, object] | None = None) -> None:
        connection.request(method, path, json.dumps(body) if body else None, _HEADERS)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"{path} answers with status {response.status}")

    yield _Client(
        bare=partial(ask, "GET", "/healthz"),
        chat=lambda session: ask("POST", "/v1/chat/completions", _body(session)),
    )
    connection.close()


@contextmanager
def _httpx(port: int) -> Iterator[_Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=_HEADERS, trust_env=False) as client:
        yield _Client(
            bare=lambda: client.get("/healthz"),
            chat=lambda session: client.post("/v1/chat/completions", json=_body(session)).raise_for_status(),
        )


@contextmanager
def _openai(port: int) -> Iterator[_Client]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=_TOKEN, max_retries=0) as client:

        def chat(session: str) -> None:
            more = {"session_id": session} if session else {}
            client.chat.completions.create(model="nacre", messages=_SAID, extra_body=more)  # type: ignore[arg-type]

        yield _Client(bare=client.models.list, chat=chat)
