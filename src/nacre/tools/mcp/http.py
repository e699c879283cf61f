"""The HTTP side of a connection: headers, limits, and who we are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from nacre.errors import ToolError
from nacre.tools.mcp.client_types import MAX_BYTES, MOST_TIMEOUTS, Login
from nacre.tools.mcp.config import Config
from nacre.tools.web.ssrf import Gate

_SECONDS_TO_CONNECT = 30
_PORTS = {"http": 80, "https": 443}


@asynccontextmanager
async def connect(config: Config, login: Login) -> AsyncIterator[Any]:
    """Give the streams that the package's session works with; redirects to other hosts are not followed."""
    limits = httpx2.Timeout(_SECONDS_TO_CONNECT, read=config.timeout * MOST_TIMEOUTS)
    transport = Transport(httpx2.AsyncHTTPTransport(), config.url)
    # A small answer that is compressed could become a large one.
    headers = {"accept-encoding": "identity", **config.headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=limits, transport=transport, auth=login(config)) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
    ):
        yield streams


class Transport(httpx2.AsyncBaseTransport):
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
        if not is_own and await self._is_public():
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

    async def _is_public(self) -> bool:
        """Whether the server itself is in the public web, by the address that has answered."""
        try:
            await _check_public(self._peer or self._own.host, self._own)
        except ToolError:
            return False
        return True


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
