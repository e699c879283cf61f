"""What a completion costs a client that keeps its connection, with a model that answers at once."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

import httpx
import openai

from benchmarks import measure
from benchmarks.rows import Row, at_most, micros
from benchmarks.scene import Scene

_TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing but this benchmark
_HEADERS = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
_SAID = [{"role": "user", "content": "hello"}]


def completions(scene: Scene) -> Iterator[Row]:
    """A completion by three clients, without a session and in one, where it is durable before it is answered.

    Beside each is a bare request of the same client, and for the latter the flushes that it waits for.
    """
    room = scene.room("completions")
    with ExitStack() as stack:
        port = stack.enter_context(_serving(room / "store"))
        clients = {
            "http.client": stack.enter_context(_plain(port)),
            "httpx": stack.enter_context(_httpx(port)),
            "openai": stack.enter_context(_openai(port)),
        }
        actions = {f"{name} {what}": act for name, acts in clients.items() for what, act in acts.items()}
        file = stack.enter_context((room / "raw").open("wb", buffering=0))
        samples = measure.interleave(
            {**actions, "flushes": partial(_flush_twice, file)}, rounds=scene.sizes.pairs, warm=10
        )
    flushes = micros(measure.p50(samples["flushes"]))
    for name in clients:
        bare, alone, stored = (measure.p50(samples[f"{name} {what}"]) for what in ("bare", "alone", "stored"))
        beside = f"a bare request {micros(bare)}"
        yield at_most(f"keep-alive completion by {name}, p50", 1000 * alone, 10, unit=" ms", absolute=beside)
        beside += f", two flushes alone {flushes}"
        what = f"keep-alive completion in a session by {name}, p50"
        yield at_most(what, 1000 * stored, 10, unit=" ms", absolute=beside)


def _flush_twice(file: FileIO) -> None:
    for _ in range(2):
        file.write(b"x" * 500)
        os.fdatasync(file.fileno())


Acts = Mapping[str, Callable[[], object]]


@contextmanager
def _serving(store: Path) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, "-m", "benchmarks.child", "completions", str(store), _TOKEN]
    with subprocess.Popen(  # noqa: S603 - our own module
        command, cwd=measure.PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        yield json.loads(process.stdout.readline())
        process.communicate()


def _body(session: str) -> Mapping[str, object]:
    return {"model": "nacre", "messages": _SAID} | ({"session_id": session} if session else {})


@contextmanager
def _plain(port: int) -> Iterator[Acts]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(method: str, path: str, body: Mapping[str, object] | None = None) -> None:
        connection.request(method, path, json.dumps(body) if body else None, _HEADERS)
        connection.getresponse().read()

    chat = partial(ask, "POST", "/v1/chat/completions")
    yield {
        "bare": partial(ask, "GET", "/healthz"),
        "alone": partial(chat, _body("")),
        "stored": partial(chat, _body("plain")),
    }
    connection.close()


@contextmanager
def _httpx(port: int) -> Iterator[Acts]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=_HEADERS, trust_env=False) as client:
        chat = "/v1/chat/completions"
        yield {
            "bare": lambda: client.get("/healthz"),
            "alone": lambda: client.post(chat, json=_body("")).raise_for_status(),
            "stored": lambda: client.post(chat, json=_body("httpx")).raise_for_status(),
        }


@contextmanager
def _openai(port: int) -> Iterator[Acts]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=_TOKEN, max_retries=0) as client:

        def chat(**session: str) -> None:
            client.chat.completions.create(model="nacre", messages=_SAID, extra_body=session)  # type: ignore[arg-type]

        yield {"bare": client.models.list, "alone": chat, "stored": partial(chat, session_id="openai")}
