"""The messages of a program, one per line; unlike the package's own reader, with a limit to what it may send.

The package keeps a line of any length and copies all of it for each piece that arrives: a program that never ends its
line takes all memory, and a result of 64 MB half a minute.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from nacre.errors import ToolError
from nacre.tools.mcp.client_types import MAX_BYTES, Unasked
from nacre.tools.mcp.program import Program

# Both halves of a character, or one of them alone, or whatever else is escaped.
_ESCAPED = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def connect(program: Program, ended: Callable[[], None]) -> AsyncIterator[Streams]:
    """Give the streams that the package's session works with; says when its output ends, and ends it in the end."""
    inward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, outward = anyio.create_memory_object_stream[SessionMessage]()

    async def read() -> None:
        unasked = Unasked()
        with suppress(BrokenResourceError):  # nobody listens any more
            async for message in _messages(program.stdout):
                if message is None or not isinstance(message.message, JSONRPCResponse | JSONRPCError):
                    unasked.add()
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
            yield incoming, outgoing
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
            piece = await stdout.receive(1 << 20)
        except (EndOfStream, BrokenResourceError, ClosedResourceError):
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            yield _message(b"".join([*pieces, line]))
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_BYTES:
            raise ToolError(f"it sent a message of more than {MAX_BYTES:,} bytes")


def _message(line: bytes) -> SessionMessage | None:
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
