"""The messages of a program, one per line; unlike the package's own reader, with a limit to what it may send.

The package keeps a line of any length and copies all of it for each piece that arrives: a program that never ends its
line takes all memory, and a result of 64 MB half a minute.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from nacre.errors import ToolError
from nacre.tools.mcp.process import Program

MAX_BYTES = 64 * 1024 * 1024
"""The longest message."""
MAX_UNASKED = 10_000
"""The most messages in a minute that answer nothing."""

_MINUTE = 60

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def connect(program: Program, ended: Callable[[], None]) -> AsyncIterator[Streams]:
    """Give the streams that the package's session works with; says when its output ends, and ends it in the end."""
    inward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, outward = anyio.create_memory_object_stream[SessionMessage]()

    async def read() -> None:
        unasked, since = 0, anyio.current_time()
        with suppress(BrokenResourceError):  # nobody listens any more
            async for message in _messages(program.stdout):
                if anyio.current_time() - since > _MINUTE:
                    unasked, since = 0, anyio.current_time()
                unasked += not isinstance(message.message, JSONRPCResponse | JSONRPCError)
                if unasked > MAX_UNASKED:
                    raise ToolError(f"it sent more than {MAX_UNASKED:,} messages in a minute that answer nothing")
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


async def _messages(stdout: ByteReceiveStream) -> AsyncIterator[SessionMessage]:
    """The messages until the output ends; what is none is skipped, since some programs print other things too."""
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            piece = await stdout.receive(1 << 20)
        except (EndOfStream, BrokenResourceError, ClosedResourceError):
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if (message := _message(b"".join([*pieces, line]))) is not None:
                yield message
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_BYTES:
            raise ToolError(f"it sent a message of more than {MAX_BYTES:,} bytes")


def _message(line: bytes) -> SessionMessage | None:
    try:
        message: Any = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None
    return SessionMessage(message)
