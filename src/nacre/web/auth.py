"""Who may come in, and how: the host that was meant, the page that asks, the token, and how much may be sent."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from functools import cache
from urllib.parse import quote, unquote

import anyio
import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nacre.errors import ConfigError
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.fair_limit import CALLER
from nacre.web.caller import Caller, caller_of, fault_for
from nacre.web.http_errors import Fault, response
from nacre.web.limits import Limits
from nacre.web.mounts import split
from nacre.web.pages.layout import problem
from nacre.web.revocation import Revocations

logger = logging.getLogger(__name__)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_HEAD = 32 * 1024
LARGEST_LOGIN = 4096
SLOWEST_BODY = 1000
"""Bytes in a second that a body must have on the whole, when it takes longer than the timeout of bodies."""
PUBLIC = frozenset(("/login", "/openapi.json", "/healthz", "/readyz"))
PUBLIC_FOLDER = "/static/"
TELLS_MORE = frozenset(("/readyz",))
"""What is public, and says more to the owner."""

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_RAW = ("/api/", "/v1/")
_FORM = "application/x-www-form-urlencoded"
_COOKIE_DAYS = 30
_DAY = 86_400
_MOST_WRONG = 10
_WINDOW = 60.0
_MOST_ADDRESSES = 1024
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


class Keys:
    """What opens the door: a token, or a cookie that only someone who had it could get.

    Both are compared in a time that tells nothing. A cookie does not hold the token, and ends by itself or with its
    token. `token` is the owner's, `tokens` has those that were made for others.
    """

    def __init__(self, token: str, tokens: Tokens | None = None) -> None:
        if not token:
            raise ConfigError("the server needs a token: without one, anyone who can reach it could read every session")
        self._digest = _digest(token)
        self._tokens = tokens
        self._guesses = _Guesses()
        self._secret = hashlib.blake2b(token.encode(), person=b"nacre cookie").digest()
        # Browsers keep one jar for all ports of a host: two servers must not take each other's cookie.
        self.cookie = f"nacre_{hashlib.blake2b(self._secret, digest_size=4).hexdigest()}"

    def check(self, token: str, address: str) -> Caller:
        """Who has a token; raises Fault if it is wrong, and another if too many wrong ones came from that address.

        The right one is always accepted: others behind the same address may be guessing.
        """
        is_owners = hmac.compare_digest(_digest(token), self._digest)
        found = self._tokens.find(token) if self._tokens is not None else None
        if is_owners:
            return Caller()
        if found is not None:
            return Caller.of(found)
        now = time.monotonic()
        self._guesses.check(address, now)
        self._guesses.add(address, token, now)
        raise _unauthorized("the token is wrong")

    def new_cookie(self, now: float, caller: Caller) -> str:
        """A cookie's value for somebody who knew a token."""
        name = f".{caller.token}" if caller.token else ""
        head = f"{int(now) + _COOKIE_DAYS * _DAY}{name}"
        return f"{head}.{self._mac(head, caller.digest)}"

    def cookie_of(self, value: str, now: float) -> Caller | None:
        """Whose cookie it is; None if it is not one of ours, or not valid any more."""
        head, _, mac = value.rpartition(".")
        until, _, name = head.partition(".")
        token = self._tokens.get(name) if name and self._tokens is not None else None
        found = Caller() if token is None else Caller.of(token)
        is_ours = hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(head, found.digest).encode())
        return found if is_ours and found.token == name and int(until) > now else None

    def _mac(self, head: str, digest: str) -> str:
        return hmac.new(self._secret, f"{head}{digest}".encode("utf-8", "replace"), "sha256").hexdigest()


class _Guesses:
    """Wrong tokens, by the address they came from; whoever tries too many different ones must wait.

    One wrong token that comes again and again is somebody's old configuration, not a guess.
    """

    def __init__(self) -> None:
        self._wrong: dict[str, dict[bytes, float]] = {}

    def check(self, address: str, now: float) -> None:
        """Raise Fault if too many have come from an address."""
        recent = {guess: at for guess, at in self._wrong.get(address, {}).items() if at > now - _WINDOW}
        if recent:
            self._wrong[address] = recent
        else:
            self._wrong.pop(address, None)
        if len(recent) >= _MOST_WRONG:
            wait = max(1, round(min(recent.values()) + _WINDOW - now))
            raise Fault("busy", "too many wrong tokens; wait a minute", headers={"retry-after": str(wait)})

    def add(self, address: str, guess: str, now: float) -> None:
        if address not in self._wrong and len(self._wrong) >= _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong.setdefault(address, {}).setdefault(_digest(guess), now)


class Gate:
    """Stands before the application: lets in what may come in, and sends nothing out without its headers.

    `prefix` is the path below which the server is, and `proxies` gives the networks whose word is taken for where a
    request comes from.
    """

    def __init__(  # noqa: PLR0913 - what is checked
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        hosts: Sequence[str],
        proxies: Callable[[], Sequence[str]],
        revocations: Revocations,
        prefix: str,
        limits: Limits,
    ) -> None:
        self._app = app
        self._prefix = prefix
        self._limits = limits
        self._keys = keys
        self._proxies = proxies
        self._revocations = revocations
        self._hosts = frozenset((f"[{host}]" if _is_ipv6(host) else host).lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        nonce = secrets.token_urlsafe(18)
        scope = _prepared(scope, nonce, self._prefix)
        scope["state"]["address"] = source_of(scope, self._proxies())
        receiving = _Receiving(receive, self._most(scope), self._limits)
        sending = _Sending(send, nonce)
        try:
            self._check(scope)
            await self._run(scope, receiving, sending)
        except Exception as error:  # noqa: BLE001 - it is logged where it is answered
            # Whatever it is: one request's end, and the client learns no more of it than is meant for it.
            await _refuse(error, scope, receiving, sending)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if _head(scope) > LONGEST_HEAD:
            raise Fault(
                "head",
                f"the maximum size of the request headers is {LONGEST_HEAD} bytes",
                headers={"connection": "close"},
            )
        self._check_host(headers)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may have taken the other one for the end of the body, and what follows for another's request.
            raise Fault(
                "usage",
                "a request has either a Content-Length or a Transfer-Encoding, not both",
                headers={"connection": "close"},
            )
        if scope["method"] not in _SAFE:
            _check_origin(headers)
        most = self._most(scope)
        if _length(headers) > most:
            raise Fault("too_large", f"the maximum size of a request is {most} bytes", headers={"connection": "close"})
        if not _is_public(scope) or (scope["path"] in TELLS_MORE and self._is_introduced(headers)):
            scope["state"]["caller"] = found = self._caller(scope, headers)
            CALLER.set(found.account)

    async def _run(self, scope: Scope, receive: Receive, send: _Sending) -> None:
        """Have a request answered; it is cut off when the token that was shown for it is revoked."""
        caller = caller_of(scope)
        if not caller.token:
            return await self._app(scope, receive, send)
        with anyio.CancelScope() as cut:
            forget = self._revocations.add(caller.token, caller.digest, cut.cancel)
            try:
                await self._app(scope, receive, send)
            finally:
                forget()
        if cut.cancelled_caught:
            await send.end()
            raise _unauthorized("the token was revoked")
        return None

    def _most(self, scope: Scope) -> int:
        return LARGEST_LOGIN if _is_public(scope) else self._limits.body_bytes

    def _is_introduced(self, headers: Headers) -> bool:
        """Tell whether somebody says who they are; a wrong token is a guess here as elsewhere."""
        return "authorization" in headers or self._cookie(headers) is not None

    def _check_host(self, headers: Headers) -> None:
        """A page of somebody else's whose name leads here (DNS rebinding) is told that this is not its host."""
        named = headers.getlist("host")
        if len(named) != 1 or _name(named[0]) not in self._hosts:
            raise Fault("host", "this host name is not allowed; add it with `nacre serve --name`")

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        """Who sends a request; raises Fault if that is nobody whom we know."""
        given = headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            return self._keys.check(token.strip() if kind.lower() == "bearer" else "", scope["state"]["address"])
        found = self._cookie(headers)
        if found is None:
            raise _unauthorized("a token is needed: `Authorization: Bearer …`")
        if scope["method"] not in _SAFE and "origin" not in headers:
            raise Fault("forbidden", "a request with a cookie needs an Origin header")
        return found

    def _cookie(self, headers: Headers) -> Caller | None:
        # The library's own reader gives up at the first cookie that it does not understand, and that may be another's.
        value = cookie_parser(headers.get("cookie", "")).get(self._keys.cookie)
        return None if value is None else self._keys.cookie_of(value, time.time())


class _Receiving:
    """What a client sends, as far as it is not too much and does not take too long."""

    def __init__(self, receive: Receive, most: int, limits: Limits) -> None:
        self._receive = receive
        self._left = most
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
            raise Fault("timeout", "the request was not completed in time", headers={"connection": "close"}) from None
        size = len(message.get("body", b""))
        self._until = min(self._until + size / SLOWEST_BODY, anyio.current_time() + self._limits.body_timeout)
        self._left -= size
        self._is_complete = not message.get("more_body", False)
        if self._left < 0:
            raise Fault("too_large", "the request is too large", headers={"connection": "close"})
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


# ---- coming in through the page


def login_routes(keys: Keys) -> list[Route]:
    """`POST /login` gives a cookie for a token, `POST /logout` takes it away."""

    async def login(request: Request) -> Response:
        token, is_form = await _token_in(request)
        who = keys.check(token, request.state.address)
        home = f"{request.state.prefix}/"
        answer: Response = RedirectResponse(home, status_code=303) if is_form else Response(status_code=204)
        _set_cookie(answer, keys.cookie, keys.new_cookie(time.time(), who), request)
        return answer

    async def logout(request: Request) -> Response:
        is_form = media_type(request.headers) == _FORM
        page = f"{request.state.prefix}/login"
        answer = RedirectResponse(page, status_code=303) if is_form else Response(status_code=204)
        _set_cookie(answer, keys.cookie, "", request)
        return answer

    return [Route("/login", login, methods=["POST"]), Route("/logout", logout, methods=["POST"])]


def _set_cookie(answer: Response, name: str, value: str, request: Request) -> None:
    answer.set_cookie(
        name,
        value,
        max_age=_COOKIE_DAYS * _DAY if value else 0,
        path=request.state.prefix or "/",
        httponly=True,
        samesite="strict",
        # Behind a proxy only the browser knows that it speaks TLS, and it says so.
        secure="https" in {request.url.scheme, request.headers.get("origin", "").partition(":")[0]},
    )


class _Login(msgspec.Struct):
    token: str


async def _token_in(request: Request) -> tuple[str, bool]:
    """The token of a login, and whether it came in a form."""
    body = await request.body()
    if media_type(request.headers) == _FORM:
        fields = dict(part.partition("=")[::2] for part in body.decode("latin-1").split("&"))
        return unquote(fields.get("token", "").replace("+", " ")), True
    try:
        return msgspec.json.decode(body, type=_Login).token, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault("usage", 'a login must be a JSON object with a token: {"token": "…"}') from error


# ---- reading a request's head


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def source_of(scope: Scope, proxies: Sequence[str]) -> str:
    """Where a request comes from, as far as addresses are counted: of IPv6, everyone has many.

    What a trusted proxy says of where it got the request is believed, and of what that one said nothing unless it is
    trusted too: a client may begin the list with whatever it likes.
    """
    client = scope.get("client")
    address = _parsed_address(client[0]) if client else None
    if proxies and _is_among(address, proxies):
        named = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        for text in reversed(named):
            nearer = _parsed_address(text)
            if nearer is None:
                break
            address = nearer
            if not _is_among(address, proxies):
                break
    if not isinstance(address, ipaddress.IPv6Address):
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _parsed_address(text: str) -> _Address | None:
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


def _is_among(address: _Address | None, networks: Sequence[str]) -> bool:
    return address is not None and any(address in _network(text) for text in networks)


_network = cache(ipaddress.ip_network)


def _prepared(scope: Scope, nonce: str, prefix: str) -> Scope:
    """A request whose path is below the server's prefix and its agent's folder.

    In the APIs it is still escaped: a session's key may hold a slash. Some proxies remove the prefix and some do not;
    no path of ours begins with it, so that both are understood.
    """
    state = {**scope.get("state", {}), "nonce": nonce, "prefix": prefix}
    root, path = split(_below(prefix, scope["path"]))
    if path.startswith(_RAW):
        path = _below(prefix, _raw_path(scope)).removeprefix(root)
    return {**scope, "path": path, "root_path": root, "state": state}


def _below(prefix: str, path: str) -> str:
    """A path without the prefix, if it begins with it."""
    is_below = path == prefix or path.startswith(f"{prefix}/")
    return (path.removeprefix(prefix) or "/") if is_below else path


def _raw_path(scope: Scope) -> str:
    """A request's whole path as it was sent, escaped."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _is_public(scope: Scope) -> bool:
    """Tell whether everybody may ask for it; below an agent's name nobody may, who need not know that there is one."""
    path = scope["root_path"] + scope["path"]
    return path in PUBLIC or (path.startswith(PUBLIC_FOLDER) and scope["method"] in _SAFE)


def _check_origin(headers: Headers) -> None:
    """What changes something is asked for by our own page, or by no page at all."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise Fault("forbidden", "requests from other sites are not allowed")
    if origin is None:
        return
    host = headers["host"].lower()
    if origin.lower() not in {f"http://{host}", f"https://{host}"}:
        raise Fault("forbidden", "requests from other sites are not allowed")


def _is_ipv6(host: str) -> bool:
    """Tell whether a host is an address that stands in brackets where it is named."""
    return ":" in host and not host.startswith("[")


def _name(host: str) -> str:
    """A host's name without its port, as it is compared."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _head(scope: Scope) -> int:
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return fields + len(scope["path"]) + len(scope["query_string"])


def _length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() else 0


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _unauthorized(detail: str) -> Fault:
    return Fault("unauthorized", detail, headers={"www-authenticate": "Bearer"})


async def _refuse(error: Exception, scope: Scope, receive: _Receiving, send: _Sending) -> None:
    fault = fault_for(error, caller_of(scope))
    if fault.status >= 500:  # noqa: PLR2004 - the server's own failures
        logger.error("a request failed", exc_info=error, extra={"method": scope["method"]})
    if send.is_begun:
        return
    answer = _answer(fault, scope)
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


def _answer(fault: Fault, scope: Scope) -> Response:
    """What a client is told: people in a browser get a page."""
    if not is_page(scope):
        return response(fault, scope["path"])
    return _to_login(scope) if fault.kind == "unauthorized" else problem(Request(scope), fault)


def is_page(scope: Scope) -> bool:
    """Tell whether somebody looks at it in a browser."""
    is_api = scope["path"].startswith(_RAW)
    return not is_api and scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


def _to_login(scope: Scope) -> Response:
    query = scope["query_string"].decode("latin-1")
    prefix: str = scope["state"]["prefix"]
    wanted = prefix + _below(prefix, _raw_path(scope)) + (f"?{query}" if query else "")
    return RedirectResponse(f"{prefix}/login?next={quote(wanted, safe='')}", status_code=303)
