"""Who may come in: tokens, cookies, wrong guesses, and the login of the page."""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nacre.errors import ConfigError
from nacre.runtime.access_tokens import Tokens
from nacre.web.caller import Caller
from nacre.web.http_errors import Fault

_FORM = "application/x-www-form-urlencoded"
_COOKIE_SECONDS = 30 * 86_400
_MAX_WRONG = 10
_WINDOW = 60.0
_MAX_ADDRESSES = 1024


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

        The right one is always accepted: others at the same address may be guessing.
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
        raise unauthorized("the token is wrong")

    def new_cookie(self, now: float, caller: Caller) -> str:
        """A cookie's value for somebody who knew a token."""
        name = f".{caller.token}" if caller.token else ""
        head = f"{int(now) + _COOKIE_SECONDS}{name}"
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
    """Wrong tokens, by the address they came from; after too many different ones an address must wait.

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
        if len(recent) >= _MAX_WRONG:
            wait = max(1, round(min(recent.values()) + _WINDOW - now))
            raise Fault("busy", "too many wrong tokens; wait a minute", headers={"retry-after": str(wait)})

    def add(self, address: str, guess: str, now: float) -> None:
        if address not in self._wrong and len(self._wrong) >= _MAX_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong.setdefault(address, {}).setdefault(_digest(guess), now)


class _Login(msgspec.Struct):
    token: str


def login_routes(keys: Keys) -> list[Route]:
    """`POST /login` gives a cookie for a token, `POST /logout` takes it away."""

    async def login(request: Request) -> Response:
        body, is_form = await request.body(), media_type(request.headers) == _FORM
        if is_form:
            fields = dict(part.partition("=")[::2] for part in body.decode("latin-1").split("&"))
            token = unquote(fields.get("token", "").replace("+", " "))
        else:
            try:
                token = msgspec.json.decode(body, type=_Login).token
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Fault("usage", 'a login must be a JSON object with a token: {"token": "…"}') from error
        who = keys.check(token, request.state.address)
        return respond(request, "/", keys.new_cookie(time.time(), who), is_form=is_form)

    async def logout(request: Request) -> Response:
        return respond(request, "/login", "", is_form=media_type(request.headers) == _FORM)

    def respond(request: Request, page: str, cookie: str, *, is_form: bool) -> Response:
        """Send a form on to a page, and anybody else nothing but the cookie; an empty one removes it."""
        to = f"{request.state.prefix}{page}"
        answer: Response = RedirectResponse(to, status_code=303) if is_form else Response(status_code=204)
        answer.set_cookie(
            keys.cookie,
            cookie,
            max_age=_COOKIE_SECONDS if cookie else 0,
            path=request.state.prefix or "/",
            httponly=True,
            samesite="strict",
            # Behind a proxy only the browser knows that it speaks TLS, and it says so.
            secure="https" in {request.url.scheme, request.headers.get("origin", "").partition(":")[0]},
        )
        return answer

    return [Route("/login", login, methods=["POST"]), Route("/logout", logout, methods=["POST"])]


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def unauthorized(detail: str) -> Fault:
    return Fault("unauthorized", detail, headers={"www-authenticate": "Bearer"})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
