"""A real server for each test: an agent with a scripted model, behind uvicorn on a free port."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette

import nacre
from nacre.agent.ports import Context, Emit, Provider, Reply, Text, Tool, Usage
from nacre.config import Settings
from nacre.messages import Message
from nacre.providers.scripted import Scripted, Step
from nacre.runtime import App
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.agent_parts import AgentParts
from nacre.runtime.gateway.access import Guests
from nacre.skills import Catalogue
from nacre.web.gate import DEFAULT, Limits
from nacre.web.server import application, serve

TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing but these tests
HOSTS = ("127.0.0.1", "localhost")
# Reading the system's certificates takes longer than most tests, and none is looked at.
PLAIN: Any = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "trust_env": False}


class Echo:
    """A model that says what it hears, for ever."""

    model = "echo"

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.contexts.append(context)
        text = f"echo: {context.messages[-1].content}"
        emit(Text(text))
        message = Message(role="assistant", content=text, model=self.model)
        return Reply(message=message, usage=Usage(prompt=3, completion=2))

    async def close(self) -> None:
        """Nothing to release."""


class Site:
    """A running server, and what is behind it."""

    def __init__(self, app: App, web: Starlette, port: int, call: Callable[[Callable[[], Any]], Any]) -> None:
        self.app = app
        self.web = web
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.call = call
        self.client = self.visitor({"Authorization": f"Bearer {TOKEN}"})

    def visitor(self, headers: dict[str, str] | None = None) -> httpx.Client:
        """A client without a token, unless it brings one."""
        return httpx.Client(base_url=self.url, headers=headers, timeout=20, **PLAIN)

    @property
    def sessions(self) -> nacre.Sessions:
        return self.app.sessions

    def said(self, key: str) -> list[tuple[str, Any]]:
        return [(one.role, one.content) for one in self.sessions.get_history(key)]


class Beginning:
    """A server on its way up in another thread."""

    def __init__(self, make: Callable[[], App], limits: Limits) -> None:
        self._make = make
        self._limits = limits
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="server")

    def __enter__(self) -> Site:
        self._thread.start()
        assert self._ready.wait(20)
        if self._failed is not None:
            raise self._failed
        return Site(self.app, self._web, self.port, self._call)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._scope.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _call(self, act: Callable[[], Any]) -> Any:
        """Do something in the server's loop."""
        done = threading.Event()
        found: list[Any] = []

        def run() -> None:
            found.append(act())
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(20)
        return found[0]

    def _run(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - it is raised where the server was started
            self._failed = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        import asyncio  # noqa: PLC0415 - the loop of this thread

        self._loop = asyncio.get_running_loop()
        self.app = self._make()
        with anyio.CancelScope() as self._scope:
            async with self.app.kernel:
                self._web = application(
                    self.app, token=TOKEN, hosts=HOSTS, tokens=tokens_of(self.app), limits=self._limits
                )
                await serve(self._web, host="127.0.0.1", port=0, ready=self._up)

    def _up(self, port: int) -> None:
        self.port = port
        self._ready.set()


def agent(
    root: Path | str,
    provider: Provider,
    *,
    tools: Mapping[str, Tool] | None = None,
    for_guests: Mapping[str, Tool] | None = None,
    system: str = "Be brief.",
    settings: Mapping[str, Any] | None = None,
) -> App:
    """An agent with its parts given."""
    app = App(Settings(settings or {}, {}), nacre.open(root), provider)
    app.parts = AgentParts(dict(tools or {}), Catalogue(()), system, [], for_guests or {})
    app.is_guest = Guests(app.settings, app.sessions.aliases, is_owners=tokens_of(app).is_owners)
    return app


def tokens_of(app: App) -> Tokens:
    """The tokens in the store of an agent."""
    return Tokens(app.sessions.location)


@contextmanager
def served(root: Path | str, provider: Provider, *, limits: Limits = DEFAULT, **parts: Any) -> Iterator[Site]:
    made: list[App] = []

    def make() -> App:
        made.append(agent(root, provider, **parts))
        return made[0]

    try:
        with Beginning(make, limits) as site, site.client:
            yield site
    finally:
        for app in made:
            app.sessions.close()


Serve = Callable[..., Site]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


@pytest.fixture
def server(root: Path, stack: ExitStack) -> Serve:
    """Start a server with a model that follows a script, or with another model."""

    def start(*steps: Step, provider: Provider | None = None, **parts: Any) -> Site:
        model = provider if provider is not None else Scripted(steps)
        return stack.enter_context(served(parts.pop("root", root), model, **parts))

    return start


@pytest.fixture
def echo(server: Serve) -> Site:
    """A server with a model that says what it hears."""
    return server(provider=Echo())


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream, with their data read."""
    found: dict[str, Any] = {}
    for line in lines:
        if not line and found:
            yield found
            found = {}
        name, colon, value = line.partition(": ")
        if colon and name:
            found[name] = json.loads(value) if name == "data" and value != "[DONE]" else value
