"""A web page with sessions to look at, asked without a socket or served on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx
from anyio.from_thread import start_blocking_portal

import nacre
from nacre.agent.ports import Tool
from nacre.config import Settings
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Scripted, Step
from nacre.runtime import App
from nacre.sessions import Sessions
from nacre.skills import Catalogue
from nacre.web.server import application, serve

TOKEN = "correct horse battery staple"  # noqa: S105 - a test's own
HEADERS = {"authorization": f"Bearer {TOKEN}", "accept": "text/html", "host": "localhost"}
HOSTS = ("localhost", "127.0.0.1")
T = TypeVar("T")
Ask = Callable[[httpx.AsyncClient], Awaitable[T]]


def made(
    sessions: Sessions,
    steps: Iterable[Step] = (),
    tools: dict[str, Tool] | None = None,
    settings: dict[str, Any] | None = None,
) -> App:
    """An agent that says what it was told to; unless the settings say so, it names no sessions."""
    app = App(Settings({"agent": {"titles": False}, **(settings or {})}, {}), sessions, Scripted(steps))
    app.parts = type(app.parts)(tools or {}, Catalogue(()), "", [])
    return app


def asked(sessions: Sessions, ask: Ask[T], steps: Iterable[Step] = ()) -> T:
    """What a client gets from the application."""

    async def run() -> T:
        app = made(sessions, steps)
        transport = httpx.ASGITransport(app=application(app, token=TOKEN, hosts=HOSTS))
        async with (
            app.kernel,
            httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client,
        ):
            return await ask(client)

    return anyio.run(run)


def got(sessions: Sessions, path: str, *, status: int = 200, **headers: str) -> str:
    """The text of one page."""

    async def ask(client: httpx.AsyncClient) -> str:
        answer = await client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    return asked(sessions, ask)


def posted(sessions: Sessions, path: str, steps: Iterable[Step] = (), **fields: str) -> httpx.Response:
    """What comes of a form."""

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        form = {"content-type": "application/x-www-form-urlencoded"}
        return await client.post(path, data=fields, headers=form)

    return asked(sessions, ask, steps)


@contextmanager
def served(
    root: Path,
    steps: Iterable[Step] = (),
    *,
    tools: dict[str, Tool] | None = None,
    port: int = 0,
    prefix: str = "",
    settings: dict[str, Any] | None = None,
) -> Iterator[str]:
    """The address of a real server over a store, with its prefix."""
    ready, found = threading.Event(), []

    def told(port: int) -> None:
        found.append(port)
        ready.set()

    async def run(stopping: anyio.Event) -> None:
        with nacre.open(str(root)) as sessions:
            app = made(sessions, steps, tools, settings)
            async with app.kernel, anyio.create_task_group() as tasks:
                web = application(app, token=TOKEN, hosts=HOSTS, prefix=prefix)
                tasks.start_soon(lambda: serve(web, host="127.0.0.1", port=port, ready=told))
                await stopping.wait()
                tasks.cancel_scope.cancel()

    with start_blocking_portal() as portal:
        stopping = portal.call(anyio.Event)
        serving = portal.start_task_soon(run, stopping)
        assert ready.wait(10), serving.exception(0)
        try:
            yield f"http://127.0.0.1:{found[0]}{prefix}"
        finally:
            portal.call(stopping.set)
            serving.result(20)


def said(role: str, content: str, **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def called(id: str, name: str, **arguments: Any) -> Message:
    """A message in which the model calls one tool."""
    call = ToolCall(id=id, name=name, arguments=arguments)
    return Message(role="assistant", content="", tool_calls=(call,), model="scripted")


def returned(id: str, name: str, text: str, *, failed: bool = False) -> Message:
    return Message(role="tool", tool_call_id=id, name=name, content=text, extra={"failed": True} if failed else {})


def fill(sessions: Sessions, key: str, count: int) -> None:
    """Messages of unlike lengths, some with calls; `count` is a multiple of four."""
    for start in range(0, count, 400):
        batch: list[Message] = []
        for at in range(start, min(start + 400, count), 4):
            batch.append(said("user", f"Question {at}: what is in part {at % 97}?" + " and more" * (at % 31)))
            batch.append(called(f"c{at}", "read_file", path=f"part{at}.txt"))
            batch.append(returned(f"c{at}", "read_file", f"line one of {at}\n" * (1 + at % 5)))
            batch.append(said("assistant", f"It is **{at}**.\n\n" + "- a point\n" * (at % 13), model="scripted"))
        sessions.add_messages(key, batch)
