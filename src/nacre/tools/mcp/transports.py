"""The two ways to reach a server, each with limits: a program by its input and output, an address by HTTP."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio
import httpx2
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ByteReceiveStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCResponse, Tool, jsonrpc_message_adapter
from pydantic import ValidationError

from nacre.errors import ToolError
from nacre.tools.mcp.client_types import MAX_BYTES, MAX_TIMEOUTS, Config, FloodCounter, Login, Program
from nacre.tools.web.fetch import Gate

logger = logging.getLogger(__name__)

_CHUNK = 1 << 20
# Both halves of a character, or one of them alone, or whatever else is escaped.
_ESCAPED = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_SECONDS_TO_CONNECT = 30
_PORTS = {"http": 80, "https": 443}

Streams = tuple["Trimmed", Any]


# ---- a program
#
# One message per line. The package's own reader keeps a line of any length and copies all of it for each piece that
# arrives: a program that never ends its line takes all memory, and a result of 64 MB half a minute.


@asynccontextmanager
async def connect_program(program: Program, ended: Callable[[], None], *, name: str) -> AsyncIterator[Streams]:
    """Give the streams that the package's session works with; says when its output ends, and ends it in the end."""
    inward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, outward = anyio.create_memory_object_stream[SessionMessage]()

    async def read() -> None:
        unsolicited = FloodCounter()
        with suppress(BrokenResourceError):  # nobody listens any more
            async for message in _messages(program.stdout):
                if message is None or not isinstance(message.message, JSONRPCResponse | JSONRPCError):
                    unsolicited.add()
                if message is not None:
                    await inward.send(message)
        inward.close()
        await program.settle()
        ended()

    async def write() -> None:
        async with outward:
            async for message in outward:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await program.stdin.send(line.encode() + b"\n")
                except (BrokenResourceError, ClosedResourceError, OSError):
                    # It is read to its end all the same: an answer may still be there.
                    return

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield Trimmed(incoming, name), outgoing
            tasks.cancel_scope.cancel()
    finally:
        for stream in (inward, incoming, outgoing, outward):
            stream.close()
        with anyio.CancelScope(shield=True):
            await program.close()


async def _messages(stdout: ByteReceiveStream) -> AsyncIterator[SessionMessage | None]:
    """The messages until the output ends; None for a line that is none, since some programs print other things too."""
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            piece = await stdout.receive(_CHUNK)
        except (EndOfStream, BrokenResourceError, ClosedResourceError):
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            yield _parse(b"".join([*pieces, line]))
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_BYTES:
            raise ToolError(f"it sent a message of more than {MAX_BYTES:,} bytes")


def _parse(line: bytes) -> SessionMessage | None:
    """A line as a message; what answers something, and is no message otherwise, becomes an error for who waits."""
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    # Some programs cut a text inside a character, or print bytes of another encoding.
    mended = _ESCAPED.sub(lambda found: "\\ufffd" if found[1] else found[0], line.decode("utf-8", "replace"))
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(mended.removeprefix("\ufeff"), by_name=False))
    try:
        value: Any = msgspec.json.decode(mended)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "method" in value or not isinstance(value.get("id"), int | str):
        return None
    error = ErrorData(code=INVALID_REQUEST, message="it sent an answer that is not valid")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=value["id"], error=error))


# ---- HTTP


@asynccontextmanager
async def connect_http(config: Config, login: Login) -> AsyncIterator[Streams]:
    """Give the streams that the package's session works with; redirects to other hosts are not followed."""
    limits = httpx2.Timeout(_SECONDS_TO_CONNECT, read=config.timeout * MAX_TIMEOUTS)
    transport = HttpTransport(httpx2.AsyncHTTPTransport(), config.url)
    # A small answer that is compressed could become a large one.
    headers = {"accept-encoding": "identity", **config.headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=limits, transport=transport, auth=login(config)) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_BYTES) as (incoming, outgoing),
    ):
        yield Trimmed(incoming, config.name), outgoing


class HttpTransport(httpx2.AsyncBaseTransport):
    """Another transport, whose responses end with an error when they become too long.

    A server may name other addresses for logging in. One of the public web may not lead us into the user's own
    network, nor to where others can read along.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str) -> None:
        self._inner = inner
        self._own = httpx2.URL(url)
        self._peer = ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        is_own = (request.url.scheme, request.url.netloc) == (self._own.scheme, self._own.netloc)
        is_public = False  # whether the server itself is in the public web, by the address that has answered
        if not is_own:
            with suppress(ToolError):
                await _check_public(self._peer or self._own.host, self._own)
                is_public = True
        if is_public:
            if request.url.scheme != "https":
                raise ToolError(f"it leads to {str(request.url.host)!r} without https: that is not followed")
            await _check_public(request.url.host, request.url)
        response = await self._inner.handle_async_request(request)
        if is_own and (stream := response.extensions.get("network_stream")) is not None:
            peer = stream.get_extra_info("server_addr")
            self._peer = str(peer[0]) if peer else self._peer
        if response.headers.get("content-encoding", "identity").strip().lower() not in {"identity", ""}:
            await response.aclose()
            raise httpx2.DecodingError("it compressed its answer, which was not requested", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous transport gives one
        response.stream = _LimitedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _check_public(host: str, url: httpx2.URL) -> None:
    """Raise ToolError unless a host is in the public web."""
    await Gate().addresses(host, url.port or _PORTS[url.scheme])


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MAX_BYTES:
                raise httpx2.ReadError(f"it sent an answer of more than {MAX_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


# ---- what a server sends, bounded before the package checks it

_MAX_BLOCKS = 2_000


class Trimmed:
    """A stream of messages, each without tools that are not valid, and with a bounded content.

    The package refuses a list of tools for one that is not valid, and builds an object for each block of a content.
    """

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name

    @property
    def last_context(self) -> Any:
        """The context of the sender, which the package looks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._trim(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._trim(await self._inner.__anext__())

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> bool | None:
        is_handled: bool | None = await self._inner.__aexit__(*details)
        return is_handled

    def _trim(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(message, SessionMessage) or not isinstance(message.message, JSONRPCResponse):
            return message
        result = message.message.result
        # Tools that are valid; if none is left, the package says what is wrong.
        if isinstance(tools := result.get("tools"), list):
            valid = []
            for tool in tools[:_MAX_BLOCKS]:
                with suppress(ValidationError):
                    # Every version of the protocol requires an object.
                    if Tool.model_validate(tool, by_name=False).input_schema.get("type") == "object":
                        valid.append(tool)
            if valid and len(valid) < len(tools):
                about = {"server": self._name, "left_out": len(tools) - len(valid)}
                logger.warning("tools of an MCP server are not valid or too many", extra=about)
                result["tools"] = valid
        # Contents within the limit; a last block says what is left out.
        for field in ("content", "contents", "messages"):
            blocks = result.get(field)
            if isinstance(blocks, list) and len(blocks) > _MAX_BLOCKS:
                text = f"[… {len(blocks) - _MAX_BLOCKS:,} more parts of this result left out …]"
                note: dict[str, Any] = {"type": "text", "text": text}
                if field == "contents":
                    note = {"uri": "nacre:left-out", "text": text}
                elif field == "messages":
                    note = {"role": "user", "content": note}
                result[field] = [*blocks[:_MAX_BLOCKS], note]
        return message
