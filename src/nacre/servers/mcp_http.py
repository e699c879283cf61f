"""The MCP server over HTTP: what a request must be before the protocol sees it, and serving until a signal."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nacre.web.auth import Keys, unauthorized
from nacre.web.gate import DEFAULT, Limits
from nacre.web.http_errors import Fault, response
from nacre.web.server import serve

PATH = "/mcp"
MAX_BODY = 1024 * 1024
MAX_CLIENTS = 64
"""How many sessions of the older protocol stay open; beyond that, the one that was not used longest ends."""
_MAX_IN_USE = 256
_SESSION = "mcp-session-id"
_GRACE = 1.0
_MAX_DIGITS = 12
_LOCAL = frozenset(("127.0.0.1", "localhost", "[::1]"))
_CLOSE = {"connection": "close"}


def is_loopback(host: str) -> bool:
    """Tell whether only programs on this machine reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Door:
    """Stands before the protocol: a request needs the token, a host of ours, and no page of another site.

    Everything is decided by the head of a request, before its body is read.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._keys = Keys(token)
        named = (f"[{host}]" if ":" in host and not host.startswith("[") else host for host in hosts)
        self._hosts = _LOCAL | {host.lower() for host in named}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
        except Fault as fault:
            await response(fault, scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Raise Fault for a request that is not to be answered."""
        headers = Headers(scope=scope)
        # A page of somebody else whose name leads here (DNS rebinding) has its own host, and its own origin.
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self._hosts:
            raise Fault("host", "this host name is not allowed; add it with `--host-name`", headers=_CLOSE)
        ours = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in ours for origin in origins):
            raise Fault("forbidden", "requests from other sites are not allowed", headers=_CLOSE)
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise unauthorized("a token is needed: `Authorization: Bearer …`")
        client = scope.get("client")
        self._keys.check(token.strip(), client[0] if client else "")
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Fault(
                "usage", "a request has either a Content-Length or a Transfer-Encoding, not both", headers=_CLOSE
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > _MAX_DIGITS or int(length) > MAX_BODY:
            raise _too_large()


def _too_large() -> Fault:
    return Fault("too_large", f"the maximum size of a request is {MAX_BODY} bytes", headers=_CLOSE)


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


class _Bodies:
    """The protocol, which gets a request once its body is whole: one that does not come takes nobody's place."""

    def __init__(self, protocol: ASGIApp, timeout: float) -> None:
        self._protocol, self._timeout = protocol, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._read(receive)
        except Fault as fault:
            await response(fault, scope["path"])(scope, receive, send)
            return
        if body is None:
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        await self._protocol(scope, receive_whole, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body of a request, None if its client is gone; raises Fault for one that is too large or too slow."""
        body = bytearray()
        try:
            with anyio.fail_after(self._timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > MAX_BODY:
                        raise _too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Fault("timeout", "the request was not completed in time", headers=_CLOSE) from None


class _Clients:
    """The protocol, with a limit of sessions that locks nobody out: many clients never say that theirs has ended.

    When one begins and there are too many, the one that was not used longest ends. If its client is still there, it is
    told that its session is unknown, and begins another.
    """

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager
        self._requests: dict[str, int] = {}
        """How many requests each session has under way, the one that was not used longest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = Headers(scope=scope).get(_SESSION, "")

        async def note(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start":
                has_failed, is_new = message["status"] >= HTTPStatus.BAD_REQUEST, not session
                session = session or Headers(raw=message["headers"]).get(_SESSION, "")
                if is_new and session and not has_failed:
                    self._requests[session] = 1
                    await self._make_room(scope)
                elif message["status"] == HTTPStatus.NOT_FOUND or (scope["method"] == "DELETE" and not has_failed):
                    self._requests.pop(session, None)
            await send(message)

        if session in self._requests:
            self._requests[session] += 1
        try:
            await self._manager.handle_request(scope, receive, note)
        finally:
            if session in self._requests:
                # At the end: it was used last.
                self._requests[session] = self._requests.pop(session) - 1

    async def _make_room(self, scope: Scope) -> None:
        """End sessions as their clients would, until there are not too many; those that are in use stay."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            """Nobody waits for the answer."""

        idle = [session for session, requests in self._requests.items() if not requests]
        for session in idle[: max(len(self._requests) - MAX_CLIENTS, 0)]:
            del self._requests[session]
            end = {**scope, "method": "DELETE", "headers": [(_SESSION.encode(), session.encode())]}
            await self._manager.handle_request(end, receive, send)


class _Streams:
    """The protocol, whose open streams end when the server closes: they would keep it from ending."""

    def __init__(self, protocol: ASGIApp) -> None:
        self._protocol = protocol
        self._open: dict[anyio.CancelScope, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = is_ended = False

        async def note(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as cut:
            self._open[cut] = scope["method"]
            try:
                await self._protocol(scope, receive, note)
            finally:
                del self._open[cut]
        if cut.cancelled_caught and is_begun and not is_ended:
            # So its client sees an end, and not a broken line.
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end(self, closing: anyio.Event) -> None:
        """End streams when the server closes: those that only wait for news at once, answers after a moment."""
        with anyio.CancelScope(shield=True):
            await closing.wait()
            for cut in [cut for cut, method in self._open.items() if method == "GET"]:
                cut.cancel()
            if self._open:
                await anyio.sleep(_GRACE)
            for cut in self._open:
                cut.cancel()


def application(server: Server[Any], *, token: str, hosts: Collection[str], limits: Limits = DEFAULT) -> Starlette:
    """The server at `/mcp`, after its door; `hosts` are names, without ports, that it goes by besides loopback."""
    manager = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY, max_sessions=_MAX_IN_USE)
    streams = _Streams(_Bodies(_Clients(manager), limits.body_timeout))
    made = Starlette(routes=[Route(PATH, endpoint=streams)])
    made.router.redirect_slashes = False
    made.add_middleware(Door, token=token, hosts=hosts)
    made.state.limits, made.state.closing = limits, anyio.Event()
    made.state.manager, made.state.streams = manager, streams
    return made


async def serve_http(application: Starlette, *, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; `ready` is called with the port. Raises ConfigError if it cannot listen there."""
    state = application.state
    async with state.manager.run(), anyio.create_task_group() as tasks:
        tasks.start_soon(state.streams.end, state.closing)
        try:
            await serve(application, host=host, port=port, ready=ready)
        finally:
            state.closing.set()
