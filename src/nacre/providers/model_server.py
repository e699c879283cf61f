"""Requests to a model's server: timeouts, retries, answers in pieces, and failures as sentences."""

from __future__ import annotations

import ipaddress
import itertools
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
from msgspec import Struct, ValidationError

from nacre.agent.ports import Emit, Event, Notice, Reply, Text, Thought, ignore
from nacre.backoff import Backoff
from nacre.errors import ConfigError, ContextOverflow, ProviderError
from nacre.providers.wire import Answer, Failure, lines, not_json, parse_piece, read_failure

T = TypeVar("T")

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
MAX_REASON = 600
# Servers without keys are given words like "none", which are in every message.
MIN_SECRET = 8

# The errors of the libraries, in plain words.
_REASONS: dict[type[BaseException], str] = {
    ConnectionRefusedError: "connection refused",
    socket.gaierror: "no such host",
    ConnectionResetError: "connection reset",
    httpx2.TimeoutException: "no answer in time",
}


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds: to connect, for the next byte, for a whole answer; how often to ask, in all.

    `grace` is for what comes after the last piece that matters: usage, and the end of the body, without which the
    connection cannot be used again.
    """

    connect: float = 5.0
    read: float = 600.0
    whole: float | None = None
    grace: float = 2.0
    attempts: int = 4
    max_wait: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class ModelServer:
    """One server, spoken to over HTTP.

    `frames` cuts the lines of an answer into pieces. `judge` is what a provider knows about a failure: an error that a
    retry cannot help, or None. Nothing is opened before the first request. No key is in any message: what the server
    says is searched for it.
    """

    def __init__(  # noqa: PLR0913 - where it is, what it sends, and how it is asked
        self,
        name: str,
        address: str,
        *,
        headers: dict[str, str],
        secret: str,
        frames: Callable[[AsyncIterator[bytes]], AsyncGenerator[bytes, None]],
        judge: Callable[[Failure], ProviderError | None],
        timeouts: Timeouts | None,
        remedy: str = "check that the address is right and the server is running",
    ) -> None:
        self.where = f"{name} at {_public_address(address)}"
        self._address = address.rstrip("/")
        self._headers = {"user-agent": "nacre", **headers}
        self._secret, self._remedy = secret, remedy
        self._frames, self._judge, self._timeouts = frames, judge, timeouts or Timeouts()
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, path: str, body: Mapping[str, Any], *, begin: Callable[[Emit], Answer], emit: Emit) -> Reply:
        """Ask for an answer in pieces; once any of it was emitted, it is never asked for again."""

        async def send(watch: Emit) -> Reply:
            return await self._send("POST", path, body, lambda response: self._follow(response, begin(watch)))

        with anyio.move_on_after(self._timeouts.whole):
            return await self._retry(send, emit=emit, attempts=self._timeouts.attempts)
        late = ProviderError(f"{self.where} did not finish its answer within {self._timeouts.whole:g} seconds")
        late.summary = str(late)
        raise late

    async def fetch(self, path: str, body: Mapping[str, Any] | None = None, *, attempts: int = 1) -> Any:
        """Get a JSON value; a body makes it a POST."""

        async def read(response: httpx2.Response) -> Any:
            content = await response.aread()
            try:
                return json.loads(content)
            except (ValueError, RecursionError) as error:
                raise not_json(content) from error

        method = "GET" if body is None else "POST"
        return await self._retry(lambda _: self._send(method, path, body, read), emit=ignore, attempts=attempts)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Give the JSON documents of a response as they come; one attempt. Raises ProviderError."""
        try:
            response = await self._open("POST", path, body)
            try:
                if not response.is_success:
                    raise _refusal(response, await response.aread())
                async with aclosing(lines(response.aiter_bytes())) as whole, aclosing(self._frames(whole)) as pieces:
                    async for piece in pieces:
                        yield parse_piece(piece)
            except httpx2.HTTPError as error:
                raise Failure(f"stopped in the middle of its answer{_why(error)}", can_retry=True) from error
            finally:
                await response.aclose()
        except Failure as failure:
            final = self._final_error(failure) or failure.error(self.sentence(failure))
            raise self._with_summary(final, failure) from failure

    async def close(self) -> None:
        """Close every connection; twice is harmless, and a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # ---- asking until there is an answer

    async def _retry(self, send: Callable[[Emit], Awaitable[T]], *, emit: Emit, attempts: int) -> T:
        waits = Backoff(first=0.5, longest=8.0).waits()
        for attempt in itertools.count(1):
            watch = AnswerWatch(emit)
            try:
                return await send(watch)
            except Failure as failure:
                final = self._final_error(failure)
                wait = next(waits) if failure.wait is None else failure.wait
                can_retry = failure.can_retry and not watch.has_answer and attempt < attempts
                if final is not None or not can_retry or wait > self._timeouts.max_wait:
                    kind = ProviderError if watch.has_answer else failure.error
                    raise self._with_summary(final or kind(self.sentence(failure)), failure) from failure
                emit(Notice(f"{self.sentence(failure)}; asking again in {wait:.1f} seconds"))
                await self._timeouts.sleep(wait)
        raise AssertionError  # the loop has no end

    def _final_error(self, failure: Failure) -> ProviderError | None:
        """The error of a failure that a retry cannot help; None if it is another one."""
        # It is the cause of what is raised, and so in tracebacks: without the key.
        failure.args = (self._clean(failure.message),)
        overflow = ContextOverflow(self.sentence(failure)) if failure.overflow else None
        return self._judge(failure) or overflow

    def _with_summary(self, error: ProviderError, failure: Failure) -> ProviderError:
        """The same error, with what a log may say of it: nothing that the server said, which may repeat the request."""
        outcome = f"answered {failure.status}" if failure.status else "failed"
        error.summary = f"{self.where} {'cannot be reached' if failure.kind == 'unreachable' else outcome}"
        return error

    def sentence(self, failure: Failure) -> str:
        """Say what failed, for a person."""
        reason = self._clean(failure.message)
        match failure.status:
            case 0:
                return f"{self.where} {reason}" + (f"; {self._remedy}" if failure.kind == "unreachable" else "")
            case 200:
                return f"{self.where} failed in the middle of its answer: {reason}"
            case 401 | 403:
                return f"{self.where} {'refuses the key' if self._secret else 'wants a key'}: {reason}"
            case _:
                later = "" if failure.wait is None else f" (it asks to wait {failure.wait:.0f} seconds)"
                return f"{self.where} answered {failure.status}: {reason}{later}"

    def _clean(self, text: str) -> str:
        # A terminal and a log take no half of a surrogate pair.
        text = " ".join(text.encode("utf-8", "replace").decode().split())
        if len(self._secret) >= MIN_SECRET:
            text = text.replace(self._secret, "…")
        return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"

    # ---- one request

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, consume: Callable[[httpx2.Response], Awaitable[T]]
    ) -> T:
        response = await self._open(method, path, body)
        try:
            if not response.is_success:
                raise _refusal(response, await response.aread())
            return await consume(response)
        except httpx2.TimeoutException as error:
            raise Failure(f"was silent for {self._timeouts.read:g} seconds; the request was cancelled") from error
        except httpx2.HTTPError as error:
            raise Failure(f"closed the connection in the middle of its answer{_why(error)}", can_retry=True) from error
        finally:
            await response.aclose()

    async def _open(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx2.Response:
        """Send a request and wait for the head of the response."""
        if self._client is None:
            timeout = httpx2.Timeout(self._timeouts.read, connect=self._timeouts.connect)
            # A proxy is for the world outside, whatever the environment forgot to exclude.
            trust = not is_local(self._address)
            self._client = httpx2.AsyncClient(headers=self._headers, timeout=timeout, trust_env=trust)
        client = self._client
        try:
            for is_last in (False, True):
                request = client.build_request(method, f"{self._address}{path}", json=body)
                try:
                    return await client.send(request, stream=True)
                except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                    # The connection may have been kept too long: at once a second time.
                    if is_last:
                        raise
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise Failure(f"cannot be reached{_why(error)}", kind="unreachable", can_retry=True) from error
        except httpx2.TimeoutException as error:
            raise Failure(f"did not begin to answer within {self._timeouts.read:g} seconds") from error
        except httpx2.TransportError as error:
            raise Failure(f"closed the connection before it answered{_why(error)}", can_retry=True) from error
        raise AssertionError  # the last attempt returns or raises

    async def _follow(self, response: httpx2.Response, answer: Answer) -> Reply:
        def take(piece: bytes) -> None:
            # A piece of a shape that no server should send is the server's failure.
            value = parse_piece(piece)
            try:
                answer.take(value)
            except (ValidationError, UnicodeEncodeError) as error:
                # The latter comes of half a surrogate pair where something else than text is due.
                why = str(error) if isinstance(error, ValidationError) else "text that is not Unicode"
                raise Failure(f"sent something that is not a piece of an answer: {why}: {piece[:80]!r}") from error

        async with aclosing(lines(response.aiter_bytes())) as whole, aclosing(self._frames(whole)) as pieces:
            async for piece in pieces:
                take(piece)
                if answer.complete:
                    break
            if not answer.complete:
                answer.end()
            if not answer.complete:
                raise Failure("ended its answer before it was complete", can_retry=True)
            # Whatever goes wrong from here on, the answer is there.
            with anyio.move_on_after(self._timeouts.grace), suppress(httpx2.HTTPError, Failure):
                async for piece in pieces:
                    take(piece)
        return answer.result()


class AnswerWatch:
    """Passes events on, and knows whether anything of the answer was among them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.has_answer = False

    def __call__(self, event: Event) -> None:
        self.has_answer = self.has_answer or isinstance(event, Text | Thought)
        self._emit(event)


# ---- failures


def _refusal(response: httpx2.Response, body: bytes) -> Failure:
    status = response.status_code
    if response.is_redirect:
        target = _public_address(response.headers.get("location", ""))
        return Failure(f"it has moved to {target}; set the address to that", status=status)
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode(errors="replace")
    wait = _retry_after(response.headers)
    return read_failure(value or response.reason_phrase, status=status, can_retry=status in RETRIED, wait=wait)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait: in milliseconds, in seconds, or until a date."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    text = headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(text))
    with suppress(ValueError):
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None


def _why(error: BaseException) -> str:
    """The reason of a failed connection in brackets, in plain words; "" if it says no more than that it ended."""
    causes: list[BaseException] = [error]
    for one in causes:
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        causes += [cause for cause in (*inner, one.__cause__, one.__context__) if cause and cause not in causes]
    for kind, text in _REASONS.items():
        if any(isinstance(one, kind) for one in causes):
            return f" ({text})"
    text = str(error) or type(error).__name__
    is_plain_end = "peer closed connection" in text or "disconnected" in text or isinstance(error, httpx2.ReadError)
    return "" if is_plain_end else f" ({text})"


# ---- addresses and keys


def clean_key(key: str | None, *, owner: str) -> str:
    """A key as it may stand in a header; white space around it came from a file."""
    key = (key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"the key for {owner} has characters that are not allowed in a key; copy it again")
    return key


def is_local(address: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def is_nearby(address: str) -> bool:
    """Whether an address is on this machine or in a private network, so that requests do not leave it."""
    host = urlsplit(address).hostname or ""
    with suppress(ValueError):
        ip = ipaddress.ip_address(host)
        return ip.is_loopback or ip.is_private or ip.is_link_local
    return "." not in host or host.endswith((".localhost", ".local", ".lan", ".internal", ".home.arpa"))


def _public_address(address: str) -> str:
    """An address without what may be secret in it: user, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
