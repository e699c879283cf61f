"""Streams of a server, cut into the pieces of an answer: lines of JSON, server-sent events, or neither."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from nacre.providers.server_responses import Failure, not_json

LONGEST_LINE = 64 * 1024 * 1024
OVER: dict[str, Any] = {}
"""What OpenAI's `[DONE]` is taken as."""
_BOM = b"\xef\xbb\xbf"
_EVENT_FIELD = re.compile(rb"\s*+(?:data|event|id|retry|error)?(?::|\Z)")


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut bytes into lines at LF, CR or both; a byte order mark in front is left out.

    A character may be split between chunks, and U+2028 ends no line of JSON: nothing is decoded here.
    """
    rest, is_first, is_behind_cr = b"", True, False
    async for chunk in chunks:
        # A line feed behind a carriage return of the chunk before is the rest of one line end.
        new = chunk.removeprefix(b"\n") if is_behind_cr else chunk
        is_behind_cr = chunk.endswith(b"\r") if chunk else is_behind_cr
        if not new:
            continue
        *whole, rest = (rest + new).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield line.removeprefix(_BOM) if is_first else line
            is_first = False
        if len(rest) > LONGEST_LINE:
            raise Failure(f"sent a line of more than {LONGEST_LINE} bytes")
    if rest:
        yield rest.removeprefix(_BOM) if is_first else rest


async def documents(whole: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """NDJSON: each line that is not empty is a document; what does not begin with one is given whole."""
    async for line in whole:
        if not line.strip():
            continue
        if not _is_json(line):
            yield await _gather(line, whole)
            return
        yield line
        break
    async for line in whole:
        if line.strip():
            yield line


async def events(whole: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Server-sent events: the data of each, and what llama.cpp sends as a field `error`.

    A body that begins with something else is not a stream of events, and is given whole: it is the answer in
    one piece, an error, or a page of some server in between.
    """
    data: list[bytes] = []
    has_begun = False
    async for line in whole:
        if not has_begun and line.strip():
            has_begun = True
            if not _EVENT_FIELD.match(line):
                yield await _gather(line, whole)
                return
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"error":
            yield b'{"error":%b}' % value
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


async def _gather(first: bytes, rest: AsyncIterator[bytes]) -> bytes:
    """The lines of a body in one piece."""
    found, size = [first], len(first)
    async for line in rest:
        found.append(line)
        size += len(line)
        if size > LONGEST_LINE:
            raise Failure(f"sent more than {LONGEST_LINE} bytes that are not a stream")
    return b"\n".join(found).strip()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def parse_piece(piece: bytes) -> dict[str, Any]:
    """Read one piece; raises Failure if it is not a JSON object."""
    if piece.strip() == b"[DONE]":
        return OVER
    try:
        value = json.loads(piece)
    except (ValueError, RecursionError) as error:
        raise not_json(piece) from error
    if not isinstance(value, dict):
        raise Failure(f"sent {piece[:80]!r} where an object was expected")
    return value
