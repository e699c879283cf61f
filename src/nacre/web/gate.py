"""What a request must be before anything answers it: its host, its origin, its token, and how much it sends."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from urllib.parse import quote

import anyio
from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nacre.errors import Refused, StoreError, describe_error
from nacre.runtime.structured_output import CALLER
from nacre.web.auth import Keys, unauthorized
from nacre.web.caller import Caller, caller_of, fault_for
from nacre.web.http_errors import Fault, response
from nacre.web.pages.layout import problem
from nacre.web.pages.urls import split
from nacre.web.running_turns import Revocations

logger = logging.getLogger(__name__)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HEAD = 32 * 1024
MAX_PUBLIC_BODY = 4096
SLOWEST_BODY = 1000
"""Bytes in a second that a body must have on the whole, when it takes longer than the timeout of bodies."""
PUBLIC = frozenset(("/login", "/openapi.json", "/healthz", "/readyz"))
PUBLIC_FOLDER = "/static/"
TELLS_MORE = frozenset(("/readyz",))
"""What is public, and says more to the owner."""

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_RAW = ("/api/", "/v1/")
_CLOSE = {"connection": "close"}
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server, and the pace of its streams; times are in seconds.

    A connection is closed whose client took less than `slowest_reader` bytes a second for `stall_timeout`. A body
    may take `body_timeout`, and longer only while it comes fast enough. A stream waits `first_event_timeout` for its
    first event, since what fails before it has a status of its own, and says that it lives each `heartbeat`.

    Of a body that was refused as too large, at most `discarded_bytes` are read and discarded, and in all for at most
    `discard_timeout`, before the connection is closed. The bytes are twice those of the largest body that is
    accepted: who sends more has not merely misjudged. The time is enough for a busy proxy to see the response, and
    less than a client has that sends nothing.
    """

    connections: int = 4096
    head_timeout: float = 10.0
    body_bytes: int = 16 * 1024 * 1024
    body_timeout: float = 30.0
    discarded_bytes: int = 32 * 1024 * 1024
    discard_timeout: float = 5.0
    stall_timeout: float = 60.0
    slowest_reader: int = 1000
    first_event_timeout: float = 10.0
    heartbeat: float = 15.0


DEFAULT = Limits()


@dataclass
class Gate:
    """Stands before the application: lets in what may come in, and sends nothing out without its headers.

    `prefix` is the path below which the server is, and `proxies` gives the networks whose word is taken for where a
    request comes from.
    """

    app: ASGIApp
    _: KW_ONLY
    keys: Keys
    hosts: Sequence[str]
    proxies: Callable[[], Sequence[str]]
    revocations: Revocations
    prefix: str
    limits: Limits

    def __post_init__(self) -> None:
        # An IPv6 address stands in brackets where a request names it.
        hosts = (f"[{host}]" if ":" in host and not host.startswith("[") else host for host in self.hosts)
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        nonce = secrets.token_urlsafe(18)
        # The path is the one below the server's prefix and its agent's folder. Some proxies remove the prefix and some
        # do not; no path of ours begins with it, so that both are understood. In the APIs it is still escaped: a
        # session's key may hold a slash.
        root, path = split(_below(self.prefix, scope["path"]))
        if path.startswith(_RAW):
            path = _below(self.prefix, _raw_path(scope)).removeprefix(root)
        address = source_of(scope, self.proxies())
        state = {**scope.get("state", {}), "nonce": nonce, "prefix": self.prefix, "address": address}
        scope = {**scope, "path": path, "root_path": root, "state": state}
        limit = MAX_PUBLIC_BODY if _is_public(scope) else self.limits.body_bytes
        receiving, sending = _Receiving(receive, limit, self.limits), _Sending(send, nonce)
        try:
            self._check(scope, limit)
            await self._run(scope, receiving, sending)
        except Exception as error:  # noqa: BLE001 - it is logged where it is answered
            # Whatever it is: one request's end, and the client learns no more of it than is meant for it.
            await _refuse(error, scope, receiving, sending)

    def _check(self, scope: Scope, limit: int) -> None:
        """Raise Fault for a request that is not to be answered, and note who sends it."""
        headers = Headers(scope=scope)
        fields = sum(len(name) + len(value) for name, value in scope["headers"])
        if fields + len(scope["path"]) + len(scope["query_string"]) > MAX_HEAD:
            raise Fault("head", f"the maximum size of the request headers is {MAX_HEAD} bytes", headers=_CLOSE)
        # Somebody else's page whose name leads here (DNS rebinding) learns that this is not its host.
        hosts = headers.getlist("host")
        name, colon, port = hosts[0].lower().rpartition(":") if len(hosts) == 1 else ("", "", "")
        host = name if colon and port.isdecimal() else "".join(hosts).lower()
        if len(hosts) != 1 or host not in self._hosts:
            raise Fault("host", "this host name is not allowed; add it with `nacre serve --name`")
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may have taken the other one for the end of the body, and what follows for another's request.
            reason = "a request has either a Content-Length or a Transfer-Encoding, not both"
            raise Fault("usage", reason, headers=_CLOSE)
        # What changes something is asked for by our own page, or by no page at all.
        if scope["method"] not in _SAFE:
            ours = {f"{scheme}://{headers['host'].lower()}" for scheme in ("http", "https")}
            is_ours = headers.get("origin") is None or headers["origin"].lower() in ours
            if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} or not is_ours:
                raise Fault("forbidden", "requests from other sites are not allowed")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            raise Fault("too_large", f"the maximum size of a request is {limit} bytes", headers=_CLOSE)
        # Where no token is needed, one that is shown is checked all the same: a wrong one is a guess.
        if not _is_public(scope) or (
            scope["path"] in TELLS_MORE and ("authorization" in headers or self._cookie(headers) is not None)
        ):
            scope["state"]["caller"] = found = self._caller(scope, headers)
            CALLER.set(found.account)

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        """Who sends a request; raises Fault if that is nobody whom we know."""
        given = headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            return self.keys.check(token.strip() if kind.lower() == "bearer" else "", scope["state"]["address"])
        found = self._cookie(headers)
        if found is None:
            raise unauthorized("a token is needed: `Authorization: Bearer …`")
        if scope["method"] not in _SAFE and "origin" not in headers:
            raise Fault("forbidden", "a request with a cookie needs an Origin header")
        return found

    def _cookie(self, headers: Headers) -> Caller | None:
        # The library's own reader gives up at the first cookie that it does not understand, and that may be another's.
        value = cookie_parser(headers.get("cookie", "")).get(self.keys.cookie)
        return None if value is None else self.keys.cookie_of(value, time.time())

    async def _run(self, scope: Scope, receive: Receive, send: _Sending) -> None:
        """Have a request answered; it is cut off when the token that was shown for it is revoked."""
        caller = caller_of(scope)
        if not caller.token:
            return await self.app(scope, receive, send)
        with anyio.CancelScope() as cut:
            forget = self.revocations.add(caller.token, caller.digest, cut.cancel)
            try:
                await self.app(scope, receive, send)
            finally:
                forget()
        if cut.cancelled_caught:
            await send.end()
            raise unauthorized("the token was revoked")
        return None


class _Receiving:
    """What a client sends, as far as it is not too much and does not take too long."""

    def __init__(self, receive: Receive, limit: int, limits: Limits) -> None:
        self._receive = receive
        self._left = limit
        self._is_complete = False
        self._limits = limits
        self._until = anyio.current_time() + limits.body_timeout

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            with anyio.fail_after(max(self._until - anyio.current_time(), 0)):
                message = await self._receive()
        except TimeoutError:
            raise Fault("timeout", "the request was not completed in time", headers=_CLOSE) from None
        size = len(message.get("body", b""))
        self._until = min(self._until + size / SLOWEST_BODY, anyio.current_time() + self._limits.body_timeout)
        self._left -= size
        self._is_complete = not message.get("more_body", False)
        if self._left < 0:
            raise Fault("too_large", "the request is too large", headers=_CLOSE)
        return message

    async def discard(self) -> None:
        """Read the rest of a body that was refused, without keeping it; what is too much or too slow is left."""
        left = self._limits.discarded_bytes
        with anyio.move_on_after(self._limits.discard_timeout):
            while left > 0 and not self._is_complete:
                message = await self._receive()
                left -= len(message.get("body", b""))
                self._is_complete = not message.get("more_body", False)


class _Sending:
    """What is sent back, with the headers that every response has."""

    def __init__(self, send: Send, nonce: str) -> None:
        self._send = send
        self._nonce = nonce
        self._is_stream = False
        self.is_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("content-security-policy", _POLICY.format(nonce=self._nonce))
            self._is_stream = "content-length" not in headers
        await self._send(message)

    async def end(self) -> None:
        """End a stream in the middle, so that its client sees an end and not a broken line."""
        if self.is_begun and self._is_stream:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(error: Exception, scope: Scope, receive: _Receiving, send: _Sending) -> None:
    fault = fault_for(error, caller_of(scope))
    if fault.status >= 500:  # noqa: PLR2004 - the server's own failures
        if type(error) in (Refused, StoreError):
            # Such as a database that is away: where it was met says nothing.
            logger.warning("a request failed", extra={"method": scope["method"], "error": describe_error(error)})
        else:
            logger.error("a request failed", exc_info=error, extra={"method": scope["method"]})
    if send.is_begun:
        return
    # People in a browser get a page: of the error, or to log in.
    answer: Response
    if not is_page(scope):
        answer = response(fault, scope["path"])
    elif fault.kind != "unauthorized":
        answer = problem(Request(scope), fault)
    else:
        query, prefix = scope["query_string"].decode("latin-1"), scope["state"]["prefix"]
        wanted = prefix + _below(prefix, _raw_path(scope)) + (f"?{query}" if query else "")
        answer = RedirectResponse(f"{prefix}/login?next={quote(wanted, safe='')}", status_code=303)
    if fault.kind != "too_large":
        await answer(scope, receive, send)
        return

    async def send_all_but_the_end(message: Message) -> None:
        await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

    # The server closes the connection when the response ends. To a client that is still sending, that is a broken
    # connection: what was answered is lost, and a proxy says 502.
    await answer(scope, receive, send_all_but_the_end)
    await receive.discard()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def is_page(scope: Scope) -> bool:
    """Tell whether somebody looks at it in a browser."""
    is_api = scope["path"].startswith(_RAW)
    return not is_api and scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


def _is_public(scope: Scope) -> bool:
    """Tell whether everybody may ask for it; below an agent's name nobody may, who need not know that there is one."""
    path = scope["root_path"] + scope["path"]
    return path in PUBLIC or (path.startswith(PUBLIC_FOLDER) and scope["method"] in _SAFE)


def _below(prefix: str, path: str) -> str:
    """A path without the prefix, if it begins with it."""
    is_below = path == prefix or path.startswith(f"{prefix}/")
    return (path.removeprefix(prefix) or "/") if is_below else path


def _raw_path(scope: Scope) -> str:
    """A request's whole path as it was sent, escaped."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("latin-1")


# ---- where a request comes from


def source_of(scope: Scope, proxies: Sequence[str]) -> str:
    """Where a request comes from, as far as addresses are counted: of IPv6, everyone has many.

    What a trusted proxy says of where it got the request is believed, and of what that one said nothing unless it is
    trusted too: a client may begin the list with whatever it likes.
    """
    client = scope.get("client")
    address = _parse_address(client[0]) if client else None
    named = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    while named and address is not None and any(address in _network(text) for text in proxies):
        nearer = _parse_address(named.pop())
        if nearer is None:
            break
        address = nearer
    if not isinstance(address, ipaddress.IPv6Address):
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _parse_address(text: str) -> _Address | None:
    """An address, without a port and a zone; None if it is none."""
    text = text.strip().partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None) or found


_network = cache(ipaddress.ip_network)
