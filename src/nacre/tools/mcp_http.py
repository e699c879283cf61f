"""An MCP server at an address: each message is a POST, answered by JSON or by a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

import httpx2
import msgspec

from nacre.errors import ToolError
from nacre.tools.mcp import VERSION, Config, Gone, result_of

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_FORGOTTEN = 404


class Http:
    """A server that is asked over HTTP; it runs whether we are there or not."""

    def __init__(self, config: Config) -> None:
        self._url = config.url
        headers = {"accept": "application/json, text/event-stream", _VERSION: VERSION, **config.headers}
        self._client = httpx2.AsyncClient(headers=headers, timeout=config.timeout)
        self._numbers = count(1)
        self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        number = next(self._numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        async with aclosing(self._posted(message)) as answers:
            async for answer in answers:
                if isinstance(answer, dict) and answer.get("id") == number and "method" not in answer:
                    return result_of(answer)
        raise ToolError(f"{self._url} gave no answer to {method}")

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        async for _ in self._posted({"jsonrpc": "2.0", "method": method, "params": params}):
            pass

    async def close(self) -> None:
        """Let the server forget the session, and close the connections."""
        self._is_open = False
        if _SESSION in self._client.headers and not self._client.is_closed:
            with suppress(httpx2.HTTPError):  # it is a courtesy
                await self._client.delete(self._url, timeout=2)
        await self._client.aclose()

    async def _posted(self, message: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Send a message, and give what comes back."""
        try:
            async with self._client.stream(
                "POST",
                self._url,
                content=msgspec.json.encode(message),
                headers={"content-type": "application/json"},
            ) as response:
                self._check(response)
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async with aclosing(_events(response)) as events:
                        async for event in events:
                            yield event
                elif body := await response.aread():
                    yield _decoded(body)
        except httpx2.HTTPError as error:
            self._is_open = False
            raise Gone(f"{self._url}: {str(error) or type(error).__name__}") from error

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code == _FORGOTTEN:
            self._is_open = False
            raise Gone(f"{self._url} no longer knows the session")
        if response.is_error:
            raise ToolError(f"{self._url} answered with status {response.status_code}")
        if _SESSION in response.headers:
            self._client.headers[_SESSION] = response.headers[_SESSION]


async def _events(response: httpx2.Response) -> AsyncGenerator[Any, None]:
    """The messages of an event stream."""
    data: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield _decoded("\n".join(data).encode())
            data = []


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
