"""The server: the application with its gate, and uvicorn inside the loop that is running."""

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
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from nacre.config import MAIN, PROXIES, Settings
from nacre.errors import ConfigError
from nacre.runtime import App
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.gateway.gateway import Gateway
from nacre.web import caller, health
from nacre.web.api import api_routes, openai_completions, openai_embeddings, openai_models, openai_responses
from nacre.web.auth import LONGEST_HEAD, Gate, Keys, is_page, login_routes
from nacre.web.compression import Compress
from nacre.web.http_errors import fault_of, response
from nacre.web.limits import DEFAULT, Limits
from nacre.web.metrics import Parts
from nacre.web.mounts import FOLDER, Several, Sites
from nacre.web.pages.layout import problem
from nacre.web.record_watch import Changes
from nacre.web.revocation import Revocations
from nacre.web.running_turns import Turns

_PAGES = "nacre.web.pages.page_routes"
_IDLE_PATIENCE = 15
_GRACE = 8
_BACKLOG = 1024
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def application(  # noqa: PLR0913 - each is one thing that it has to show
    app: App,
    *,
    token: str,
    hosts: Sequence[str],
    agents: Mapping[str, App] | None = None,
    gateways: Sequence[Gateway] = (),
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

    def proxies() -> Sequence[str]:
        return settings().texts(PROXIES)

    gate = Middleware(
        Gate, keys=keys, hosts=hosts, proxies=proxies, revocations=revocations, prefix=prefix, limits=limits
    )
    made = Starlette(
        routes=caller.guarded([*login_routes(keys), *_routes()]),
        middleware=[gate, Middleware(Compress), Middleware(Several)],
        exception_handlers={HTTPException: _refused},
    )
    made.router.redirect_slashes = False
    made.state.agent = app
    made.state.limits = limits
    made.state.turns = Turns()
    made.state.revocations = revocations
    made.state.settings = settings
    made.state.closing = anyio.Event()
    made.state.changes = Changes(made.state.closing)
    made.state.began = time.time()
    made.state.parts = Parts(
        agents=agents, gateways=gateways, missing=missing, http=made.state.turns.traffic, began=made.state.began
    )
    made.state.sites = Sites(made, agents)
    made.state.check = health.Check(made.state.parts)
    return made


async def serve(application: Starlette, *, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; `ready` is called with the port when connections are accepted.

    Once cancelled, streams of records end at once, and other requests have a few seconds. Signals are the
    caller's. Raises ConfigError if it cannot listen there.
    """
    sockets = listening(host, port)
    server = _Server(_config(application), application.state.closing, lambda: ready(sockets[0].getsockname()[1]))
    serving = asyncio.create_task(server.serve(sockets))
    try:
        await asyncio.shield(serving)
    finally:
        server.stop()
        with anyio.CancelScope(shield=True):
            await serving


def _config(application: Starlette) -> uvicorn.Config:
    limits: Limits = application.state.limits
    files = _most_files(limits.connections)
    return uvicorn.Config(
        application,
        http=partial(_Protocol, limits=limits),  # type: ignore[arg-type] # uvicorn only calls it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        timeout_keep_alive=_IDLE_PATIENCE,
        timeout_graceful_shutdown=_GRACE,
        limit_concurrency=min(limits.connections, files // 2),
        # So many are accepted at once, before the first of them can be closed again.
        backlog=min(_BACKLOG, files // 8),
    )


def _most_files(connections: int) -> int:
    """How many files may be open; connections may have half of them, for the store needs some too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * connections if files == resource.RLIM_INFINITY else files


def check_prefix(prefix: str) -> None:
    """Raise ConfigError if a prefix would be mistaken for one of the server's own paths.

    A proxy may remove it from a path or leave it there, and what is below it must be known without asking.
    """
    ours = {FOLDER.strip("/"), "logout", *(_first(route.path) for route in _routes() if isinstance(route, Route))}
    if prefix and _first(prefix) in ours:
        taken = ", ".join(sorted(ours - {""}))
        raise ConfigError(f"the prefix {prefix!r} begins like a path of nacre's own ({taken}); choose another")


def _first(path: str) -> str:
    """The first part of a path, without what makes it a file's name."""
    return path.split("/")[1].partition(".")[0]


def _routes() -> list[BaseRoute]:
    return [
        *api_routes.routes,
        *openai_models.routes,
        *openai_completions.routes,
        *openai_responses.routes,
        *openai_embeddings.routes,
        *health.routes,
        *_pages(),
    ]


def _pages() -> list[BaseRoute]:
    """The pages, where they are installed."""
    if find_spec(_PAGES) is None:
        return []
    found: list[BaseRoute] = import_module(_PAGES).routes
    return found


async def _refused(request: Request, error: Exception) -> Response:
    fault = fault_of(error)
    return problem(request, fault) if is_page(request.scope) else response(fault, request.url.path)


def listening(host: str, port: int) -> list[socket.socket]:
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
        raise ConfigError(f"cannot listen at {host!r}, port {port}: {error}; choose another with --port") from error
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

    _hurry: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        # Addresses hold what people search for, and whoever sets up logging would have them written down.
        self.access_log = False
        # uvicorn refuses requests once there are so many connections, and accepts more; here there are no more.
        self._most, self.limit_concurrency = self.limit_concurrency or limits.connections, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > self._most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # Nonsense that follows an answer, and that uvicorn wants to answer once more.
            self.transport.close()
        if not self._is_awaited():
            self._unhurried()
        elif self._hurry is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is written to."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unhurried()
        self._stop_watching()
        super().connection_lost(exc)

    # ---- clients that say nothing

    def _wait_for_head(self) -> None:
        self._waits_since = self.loop.time()
        self._hurry = self.loop.call_later(self._limits.head_timeout, self.transport.close)

    def _is_awaited(self) -> bool:
        """Tell whether all that the line is kept for is a head, or the rest of a body that was answered already."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours in {h11.DONE, h11.MUST_CLOSE})

    def _unhurried(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client; if all are being answered, refuse this one.

        So whoever opens many and says nothing keeps nobody else out.
        """
        others = [one for one in self.connections if isinstance(one, _Protocol) and not one.transport.is_closing()]
        if len(others) <= self._most:
            return
        others.remove(self)
        waiting = [one for one in others if one._hurry is not None]  # noqa: SLF001 - they are of this class
        waiting = waiting or [one for one in others if one.conn.their_state is h11.SEND_BODY]
        if waiting:
            min(waiting, key=lambda one: one._waits_since).transport.abort()  # noqa: SLF001 - the same
        else:
            self.transport.write(_FULL)
            self.transport.close()

    # ---- clients that do not read

    def _watch_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stalling = self.loop.call_later(self._limits.stall_timeout, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        """Drop a client that took too little of what waits for it, which would be in memory for as long as it likes."""
        least = self._limits.slowest_reader * self._limits.stall_timeout
        if before - self.transport.get_write_buffer_size() >= least:
            self._watch_reader()
            return
        # The system has a part of it too, and would keep that; so the connection is reset, not closed.
        reset = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        self.transport.abort()

    def _stop_watching(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None
