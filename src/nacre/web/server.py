"""The server: the application with its gate, one for each agent, and uvicorn inside the loop that is running."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import anyio
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from nacre.config import MAIN, PROXIES, Settings
from nacre.errors import ConfigError
from nacre.runtime import App
from nacre.runtime.access_tokens import Tokens
from nacre.web import health
from nacre.web.api import api_routes, openai_completions, openai_models, openai_responses
from nacre.web.auth import Keys, login_routes
from nacre.web.caller import caller_of, guard_routes
from nacre.web.compression import Compress
from nacre.web.gate import DEFAULT, MAX_HEAD, Gate, Limits, is_page
from nacre.web.http_errors import Fault, fault_of, response
from nacre.web.pages.layout import problem
from nacre.web.pages.urls import AGENTS
from nacre.web.running_turns import Revocations, Turns
from nacre.web.sse import Changes

_PAGES = "nacre.web.pages.page_routes"
_IDLE_TIMEOUT = 15
_GRACE = 8
_BACKLOG = 1024
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def application(  # noqa: PLR0913 - each is one thing that it has to show
    app: App,
    *,
    token: str,
    hosts: Sequence[str],
    agents: Mapping[str, App] | None = None,
    gateways: Sequence[health.Served] = (),
    missing: Collection[str] = (),
    prefix: str = "",
    tokens: Tokens | None = None,
    settings: Callable[[], Settings] | None = None,
    limits: Limits = DEFAULT,
) -> Starlette:
    """Everything that the web has of an agent; `hosts` are the names, without ports, that it goes by.

    `prefix` is the path on these hosts below which a proxy has it, as `/nacre`; "" is the root. `token` is the
    owner's, and `tokens` has those that were made for others. `settings` gives those of the daemon as they are now,
    without it they are the agent's.

    `agents` and `gateways` are all that run, this one among them, and `missing` names the agents that are to run and
    do not start; all of them may change. In its `state`, `agent` is the agent, `turns` what is under way, `limits`
    what its clients may do, and `closing` an event that ends streams; each further agent has a state of its own.
    Raises ConfigError if there is no token.
    """
    agents = agents or {MAIN: app}
    keys, revocations = Keys(token, tokens), Revocations(tokens)
    settings = settings or (lambda: app.settings)

    async def refuse(request: Request, error: Exception) -> Response:
        fault = fault_of(error)
        return problem(request, fault) if is_page(request.scope) else response(fault, request.url.path)

    gate = Middleware(
        Gate,
        keys=keys,
        hosts=hosts,
        proxies=lambda: settings().texts(PROXIES),
        revocations=revocations,
        prefix=prefix,
        limits=limits,
    )
    made = Starlette(
        routes=guard_routes([*login_routes(keys), *_routes()]),
        middleware=[gate, Middleware(Compress), Middleware(_ChooseSite)],
        exception_handlers={HTTPException: refuse},
    )
    made.router.redirect_slashes = False
    closing, turns, began = anyio.Event(), Turns(), time.time()
    parts = health.Parts(agents=agents, gateways=gateways, missing=missing, http=turns.traffic, began=began)
    sites = Sites(made, agents)
    sites.shared |= {
        "sites": sites,
        "limits": limits,
        "revocations": revocations,
        "settings": settings,
        "closing": closing,
        "changes": Changes(closing),
        "began": began,
        "parts": parts,
        "check": health.Check(parts),
    }
    made.state = State({**sites.shared, "agent": app, "turns": turns})
    return made


async def serve(application: Starlette, *, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; `ready` is called with the port when connections are accepted.

    Once cancelled, streams of records end at once, and other requests have a few seconds. Signals are the
    caller's. Raises ConfigError if it cannot listen there.
    """
    sockets = listen(host, port)
    limits: Limits = application.state.limits
    # Connections may have half of the files that may be open, for the store needs some too.
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 2 * limits.connections if files == resource.RLIM_INFINITY else files
    config = uvicorn.Config(
        application,
        http=partial(_Protocol, limits=limits),  # type: ignore[arg-type] # uvicorn only calls it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD,
        timeout_keep_alive=_IDLE_TIMEOUT,
        timeout_graceful_shutdown=_GRACE,
        limit_concurrency=min(limits.connections, files // 2),
        # So many are accepted at once, before the first of them can be closed again.
        backlog=min(_BACKLOG, files // 8),
    )
    server = _Server(config, application.state.closing, lambda: ready(sockets[0].getsockname()[1]))
    serving = asyncio.create_task(server.serve(sockets))
    try:
        await asyncio.shield(serving)
    finally:
        server.stop()
        with anyio.CancelScope(shield=True):
            await serving


def check_prefix(prefix: str) -> None:
    """Raise ConfigError if a prefix would be mistaken for one of the server's own paths.

    A proxy may remove it from a path or leave it there, and what is below it must be known without asking.
    """

    def first(path: str) -> str:
        """The first part of a path, without what makes it a file's name."""
        return path.split("/")[1].partition(".")[0]

    ours = {AGENTS.strip("/"), "logout", *(first(route.path) for route in _routes() if isinstance(route, Route))}
    if prefix and first(prefix) in ours:
        taken = ", ".join(sorted(ours - {""}))
        raise ConfigError(f"the prefix {prefix!r} begins like a path of nacre's own ({taken}); choose another")


def _routes() -> list[BaseRoute]:
    """All routes; the pages where they are installed."""
    pages: list[BaseRoute] = import_module(_PAGES).routes if find_spec(_PAGES) is not None else []
    return [
        *api_routes.routes,
        *openai_models.routes,
        *openai_completions.routes,
        *openai_responses.routes,
        *health.routes,
        *pages,
    ]


class Sites:
    """What the web knows of each agent: a `state` for each, of which only what is everybody's is shared."""

    def __init__(self, main: Starlette, agents: Mapping[str, App]) -> None:
        self._found = {MAIN: main}
        self._agents = agents
        self.shared: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        return list(self._agents)

    def of(self, name: str) -> Starlette:
        """The application of an agent as it runs now; raises Fault if there is none of that name."""
        agent = self._agents.get(name)
        if agent is None:
            raise Fault("not_found", f"there is no agent {name!r:.100}; there are: {', '.join(self.names)}")
        if name not in self._found:
            turns = Turns()
            turns.traffic = self._found[MAIN].state.turns.traffic
            site = self._found[name] = Starlette()
            site.state = State({**self.shared, "turns": turns})
        site = self._found[name]
        site.state.agent = agent
        return site


class _ChooseSite:
    """Hands requests the application of the agent that they are for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sites: Sites = scope["app"].state.sites
        name, who = scope.get("root_path", "").removeprefix(AGENTS), caller_of(scope)
        if who.agent:
            # A guest talks to one agent, and need not know its name, nor that there are others.
            if name not in {"", who.agent} or who.agent not in sites.names:
                raise Fault("not_found", "there is nothing here")
            name = who.agent
        await self._app({**scope, "app": sites.of(name or MAIN)}, receive, send)


def listen(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host; raises ConfigError if it cannot listen there."""
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            sockets.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
            # Connections inherit it. asyncio sets it only on sockets whose protocol number is TCP's, and create_server
            # leaves that at 0: the body of a reply would wait 40 ms for the client to acknowledge its head.
            sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            port = sockets[0].getsockname()[1]
    except OSError as error:
        for one in sockets:
            one.close()
        raise ConfigError(f"cannot listen at {host!r}, port {port}: {error}; choose another port") from error
    return sockets


class _Server(uvicorn.Server):
    """uvicorn's server without its signals; it says when it is ready, and ends streams when it closes."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._closing = closing
        self._ready = ready
        self._stopping = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        """Keep the date in the headers right until it is time to stop, without asking ten times a second."""
        while not self._stopping.is_set():
            await self.on_tick(0)
            with anyio.move_on_after(1):
                await self._stopping.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)


class _Protocol(H11Protocol):
    """HTTP/1.1, with limits on the number of connections, and on the time that a client takes to write and to read."""

    _head_timer: asyncio.TimerHandle | None = None
    """Runs while all that the connection is kept for is a head, or the rest of a body that was answered already."""
    _read_timer: asyncio.TimerHandle | None = None
    """Runs while the client does not read as fast as it is written to."""
    _waits_since = 0.0

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        # Addresses hold what people search for, and an owner who sets up logging would have them written down.
        self.access_log = False
        # uvicorn refuses requests once there are so many connections, and accepts more; here there are no more.
        self._max, self.limit_concurrency = self.limit_concurrency or limits.connections, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Wait for a request; if there are too many connections, close the one that has waited longest for its client.

        So nobody keeps others out by opening many and saying nothing. If all are being answered, refuse this one.
        """
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) <= self._max:
            return
        others = [one for one in self.connections if isinstance(one, _Protocol) and not one.transport.is_closing()]
        if len(others) <= self._max:
            return
        others.remove(self)
        waiting = [one for one in others if one._head_timer is not None]  # noqa: SLF001 - they are of this class
        waiting = waiting or [one for one in others if one.conn.their_state is h11.SEND_BODY]
        if waiting:
            min(waiting, key=lambda one: one._waits_since).transport.abort()  # noqa: SLF001 - the same
        else:
            self.transport.write(_FULL)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # Nonsense that follows an answer, and that uvicorn wants to answer once more.
            self.transport.close()
        theirs, ours = self.conn.their_state, self.conn.our_state
        if not (theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours in {h11.DONE, h11.MUST_CLOSE})):
            self._stop_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._waits_since = self.loop.time()
        self._head_timer = self.loop.call_later(self._limits.head_timeout, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_reader(self) -> None:
        """Drop a client that takes too little of what waits for it, and is in memory for as long as it likes."""
        before = self.transport.get_write_buffer_size()

        def check() -> None:
            least = self._limits.slowest_reader * self._limits.stall_timeout
            if before - self.transport.get_write_buffer_size() >= least:
                self._watch_reader()
                return
            # The system has a part of it too, and would keep that; so the connection is reset, not closed.
            reset = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            self.transport.abort()

        self._read_timer = self.loop.call_later(self._limits.stall_timeout, check)

    def _stop_watching(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
