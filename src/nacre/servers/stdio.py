"""The lines of a protocol on stdin and stdout, ACP or MCP: one JSON-RPC message each, and nothing else.

What is no message is answered with an error here, so that the connection above sees only messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

import anyio.to_thread

logger = logging.getLogger(__name__)

MAX_LINE = 64 * 1024 * 1024
"""The longest line, in bytes: a message with a few images."""
_MAX_WAITING = 16
_LOOK = 200
"""Milliseconds after which a write that has to wait looks whether this end was closed."""
_MAX_PROBLEMS = 5
INVALID_REQUEST, _PARSE, _PARAMS = -32600, -32700, -32602


def take_stdio() -> StdioTransport:
    """The lines at stdin and stdout, which are for messages from now on.

    Whatever else is printed by this process or its children goes to stderr, and none of them reads what the other side
    sends.
    """
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return StdioTransport(os.fdopen(source, "rb"), target)


class StdioTransport:
    """Messages over two file descriptors; a `Transport` of the SDK of ACP."""

    def __init__(self, source: BinaryIO, target: int, *, max_line: int = MAX_LINE) -> None:
        self._source, self._target, self._max = source, target, max_line
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING)
        self._writing = asyncio.Lock()
        self._is_closed = False
        loop = asyncio.get_running_loop()
        # A thread that cannot be stopped while it reads, and so must not be waited for at the end.
        threading.Thread(target=self._read, args=(loop,), name="stdin", daemon=True).start()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the input."""
        while (line := await self._lines.get()) is not None:
            if len(line) > self._max:
                await self.refuse(None, _PARSE, f"a message has at most {self._max:,} bytes; this one was skipped")
                continue
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self.refuse(None, _PARSE, "this line is not JSON; it was skipped")
                continue
            problem = _problem(message)
            if not problem:
                if "method" not in message and message.get("error") is not None:
                    # An answer that is an error too is none: what it says besides must not count as a yes.
                    message.pop("result", None)
                return dict(message)
            await self.refuse(message, INVALID_REQUEST, problem)
        return None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message; raises ConnectionError if nobody reads any more."""
        line = json.dumps(_plain_errors(message), ensure_ascii=False, separators=(",", ":"))
        data = line.encode("utf-8", "replace") + b"\n"
        async with self._writing:
            if self._is_closed:
                raise ConnectionError("the client is gone")
            try:
                await anyio.to_thread.run_sync(self._write, data)
            except OSError as error:
                self._is_closed = True
                raise ConnectionError("the client is gone") from error

    async def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True

    async def refuse(self, message: object, code: int, problem: str) -> None:
        """Answer what is no message with an error: by its id if it is a request, since others are of this side."""
        id = message.get("id") if isinstance(message, dict) and "method" in message else None
        known = id if isinstance(id, str | int) else None
        with suppress(ConnectionError):
            await self.send({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": problem}})

    def _write(self, data: bytes) -> None:
        rest, room = memoryview(data), select.poll()
        room.register(self._target, select.POLLOUT)
        while rest:
            if self._is_closed:
                raise BrokenPipeError
            # No more than fits: an editor that reads no more must not keep this process from ending.
            if room.poll(_LOOK):
                rest = rest[os.write(self._target, rest[: select.PIPE_BUF]) :]

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass on every line, of one that is too long only its beginning, and None at the end."""
        # The loop may end first.
        with suppress(RuntimeError, OSError, ValueError, asyncio.CancelledError):
            while line := self._source.readline(self._max + 1):
                if len(line) > self._max:
                    part = line
                    while part and not part.endswith(b"\n"):
                        part = self._source.readline(1 << 20)
                asyncio.run_coroutine_threadsafe(self._lines.put(line), loop).result()
        with suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._lines.put(None), loop)


def _problem(message: object) -> str:
    """Why something is no message of JSON-RPC; "" if it is one."""
    if not isinstance(message, dict):
        return "a message is a JSON object; batches are not part of this protocol"
    if not isinstance(message.get("id"), str | int | None):
        return "the id of a message is a text or a number"
    if "method" in message and not isinstance(message["method"], str):
        return "the method of a message is a text"
    if "method" in message and not isinstance(message.get("params", {}), dict | None):
        return "the params of a message are an object"
    if "method" not in message and "id" not in message:
        return "a message has a method or an id"
    if "error" in message and not isinstance(message["error"], dict | None):
        return "the error of a message is an object"
    return ""


def _plain_errors(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message; if it is an error of the SDK's check of parameters, with a sentence instead of what was sent."""
    error = message.get("error")
    if not isinstance(error, dict):
        return message
    data = error.get("data")
    if error.get("code") == _PARAMS and isinstance(data, dict) and isinstance(data.get("errors"), list):
        found = [f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg', '')}" for one in data["errors"]]
        more = f" and {len(found) - _MAX_PROBLEMS} more" if len(found) > _MAX_PROBLEMS else ""
        sentence = f"invalid params: {'; '.join(found[:_MAX_PROBLEMS])}{more}"
        return {**message, "error": {"code": _PARAMS, "message": sentence}}
    return {**message, "error": {name: value for name, value in error.items() if value is not None}}
