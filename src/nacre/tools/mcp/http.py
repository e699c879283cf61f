"""The HTTP side of a connection: headers, limits, and who we are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from nacre.tools.mcp.config import Config
from nacre.tools.mcp.server import Login

MAX_BYTES = 64 * 1024 * 1024
"""The most that one response may have, a stream of events too."""
_SECONDS_TO_CONNECT = 30
_MOST_TIMEOUTS = 10


@asynccontextmanager
async def connect(config: Config, login: Login) -> AsyncIterator[Any]:
    """Give the streams that the package's session works with; redirects to other hosts are not followed."""
    limits = httpx2.Timeout(_SECONDS_TO_CONNECT, read=config.timeout * _MOST_TIMEOUTS)
    transport = _Limited(httpx2.AsyncHTTPTransport())
    async with (
        httpx2.AsyncClient(
            headers=dict(config.headers), timeout=limits, transport=transport, auth=login(config)
        ) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
    ):
        yield streams


class _Limited(httpx2.AsyncBaseTransport):
    """Another transport, whose responses end with an error when they become too long."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous transport gives one
        response.stream = _LimitedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


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
