"""JSON requests to a chat server, with failures grouped by what can be done about them."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from nacre.channels.channel import Lost, Unsent

_MAX_BODY = 64 * 1024 * 1024
_MAX_REASON = 300
_SERVER_ERROR = 500
_CLIENT_ERROR = 400
_CONNECT = 10.0
_client_logger = logging.getLogger("httpx2")


class Refusal(Exception):
    """The server understood and refused; `body` is its answer, `wait` how long it asks to wait, in seconds."""

    def __init__(self, status: int, body: Mapping[str, Any], message: str, *, wait: float | None) -> None:
        super().__init__(f"answered {status}: {message}")
        self.summary = f"answered {status}"
        self.status, self.body, self.wait = status, body, wait


class Api:
    """One server, whose secret is in no error and in no log."""

    def __init__(self, address: str, *, secret: str) -> None:
        self._address = address.rstrip("/")
        self.secret = secret
        self.headers: dict[str, str] = {}
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        max_seconds: float = 30.0,
    ) -> dict[str, Any]:
        """Send a request, and return the object of its answer; raises Lost, or Refusal."""
        limits = httpx2.Timeout(max_seconds, connect=_CONNECT)
        if self._client is None:
            # A proxy is for the world outside, whatever the environment forgot to exclude.
            self._client = httpx2.AsyncClient(headers={"user-agent": "nacre"}, trust_env=not _is_local(self._address))
            # It logs every address that it requests, and Telegram wants the secret in there.
            _client_logger.addFilter(self._redact)
        try:
            async with self._client.stream(
                method, self._address + path, json=body, params=query, headers=self.headers, timeout=limits
            ) as response:
                content = bytearray()
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > _MAX_BODY:
                        raise Lost(f"sent more than {_MAX_BODY} bytes")
                return self._check(response, bytes(content))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise Unsent("cannot be reached", said=self._reason(error)) from None
        except httpx2.HTTPError as error:
            raise Lost("closed the connection", said=self._reason(error)) from None

    async def close(self) -> None:
        """Close every connection; twice is harmless, and a later request opens new ones."""
        client, self._client = self._client, None
        _client_logger.removeFilter(self._redact)
        if client is not None:
            await client.aclose()

    def _redact(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._without_secret(record.getMessage()), ()
        return True

    def _without_secret(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text

    def _reason(self, error: Exception) -> str:
        reason = " ".join(str(error).split()) or type(error).__name__
        return self._without_secret(reason)[:_MAX_REASON]

    def _check(self, response: httpx2.Response, content: bytes) -> dict[str, Any]:
        try:
            # The standard parser: it takes halves of characters, with which one person could stop a whole batch.
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        body = found if isinstance(found, dict) else None
        if response.status_code >= _SERVER_ERROR or (body is None and response.status_code < _CLIENT_ERROR):
            raise Lost(f"answered {response.status_code} without a usable body")
        if response.status_code >= _CLIENT_ERROR:
            reason = " ".join(str((body or {}).get("error") or (body or {}).get("description") or "").split())
            message = self._without_secret(reason[:_MAX_REASON])
            wait = response.headers.get("retry-after", "")
            seconds = float(wait) if wait.isdecimal() else None
            raise Refusal(response.status_code, body or {}, message, wait=seconds)
        return body or {}


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
