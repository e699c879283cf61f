"""gzip for what is worth it: pages, JSON and the two static files, if the client accepts it.

Never for events, which must leave as they happen, nor for pictures, which are compressed already. What was weighed
against attacks on compressed secrets (BREACH) is in docs/decisions/0048.
"""

from __future__ import annotations

import secrets
import struct
import zlib

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST = 1024
"""Bytes below which a response is sent as it is: it would fit into one packet all the same."""
_TYPES = ("text/", "application/json", "application/problem+json")
_OTHER_SITES = frozenset(("cross-site", "same-site"))
_LARGE = 64 * 1024
"""Bytes above which others would notice the time that it takes."""
_LEVEL = 6
_MAX_NAME = 100
_HAS_NAME = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"


class Compress:
    """Compresses responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        # A page of somebody else's must not learn anything from the size of what it makes a browser ask for.
        is_wanted = is_accepted(headers) and headers.get("sec-fetch-site") not in _OTHER_SITES
        # The head waits for the first piece of the body, which decides.
        head: Message | None = None
        gzip: _Gzip | None = None

        async def send_packed(message: Message) -> None:
            nonlocal head, gzip
            if message["type"] == "http.response.start":
                # Only kinds that get smaller; events are text too, and must not wait.
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if kind.startswith(_TYPES) and not kind.startswith("text/event-stream"):
                    head = message
                    return
            if message["type"] == "http.response.body":
                first, head = head, None
                body, is_last = message.get("body", b""), not message.get("more_body")
                if first is not None and is_wanted and (not is_last or len(body) >= LEAST):
                    gzip = _Gzip()
                if gzip is not None:
                    is_large = len(body) > _LARGE
                    body = await to_thread.run_sync(gzip.pack, body, is_last) if is_large else gzip.pack(body, is_last)
                    message = {**message, "body": body}
                # The head says what is done with the body, of which this is the first piece.
                if first is not None:
                    described = MutableHeaders(scope=first)
                    described.add_vary_header("Accept-Encoding")
                    if gzip is not None:
                        described["content-encoding"] = "gzip"
                        del described["content-length"]
                        if is_last:
                            described["content-length"] = str(len(body))
                    await send(first)
            await send(message)

        await self._app(scope, receive, send_packed)


def is_accepted(headers: Headers) -> bool:
    """Tell whether a client accepts gzip (RFC 9110, 12.5.3): by its name, else by `*`, and not with a weight of 0."""
    weights: dict[str, str] = {}
    for part in ",".join(headers.getlist("accept-encoding")).lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = weight.replace(" ", "").removeprefix("q=") or "1"
    weight = weights.get("gzip", weights.get("x-gzip", weights.get("*", "0")))
    return weight.replace(".", "").strip("0") != ""


class _Gzip:
    """A gzip stream whose length tells less: its header holds a file name of random length.

    Somebody who watches the line and can have words of theirs shown next to a secret has to ask far more often until
    the sizes tell how alike they are.
    """

    def __init__(self) -> None:
        self._packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._head = _HAS_NAME + b"a" * secrets.randbelow(_MAX_NAME + 1) + b"\0"
        self._sum = 0
        self._size = 0

    def pack(self, piece: bytes, is_last: bool) -> bytes:  # noqa: FBT001 - a thread's call has no names
        self._sum = zlib.crc32(piece, self._sum)
        self._size += len(piece)
        packed = self._head + self._packing.compress(piece)
        self._head = b""
        if is_last:
            packed += self._packing.flush() + struct.pack("<LL", self._sum, self._size & 0xFFFFFFFF)
        return packed
