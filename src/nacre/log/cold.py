"""What compaction moved out of a log: its lines, in zstd frames of about 128 kB."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from nacre.log.format import unseal
from nacre.log.lines import Lines, Piece
from nacre.log.ops import Ops
from nacre.log.place import make_folder, settle_names, write_all

_FRAME = 128 * 1024
_STEP = 64 * 1024


def frames(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Pack lines into frames, each of whole lines."""
    zstd = _zstd()
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) > _FRAME:
            yield zstd.compress(b"".join(held))
            held, size = [], 0
        held.append(line)
        size += len(line)
    if held:
        yield zstd.compress(b"".join(held))


def pieces(ops: Ops, path: str, length: int | None) -> Iterator[Piece]:
    """The lines in the first `length` bytes of a cold file; with no length, in every whole frame.

    What cannot be read comes as one piece of damage and ends the reading, since where the next
    frame starts is then not known; so does a file that should be longer, or there.
    """
    try:
        fd = ops.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        if length:
            yield Piece(0, length, b"", None)
        return
    try:
        size = ops.fstat(fd).st_size
        yield from _unpacked(Lines(ops, fd, size if length is None else min(size, length)))
        if length is not None and size < length:
            yield Piece(size, length, b"", None)
    finally:
        ops.close(fd)


def append(ops: Ops, path: str, at: int, lines: Iterable[bytes]) -> int:
    """Add lines behind the first `at` bytes of a cold file, wait until they are durable, return its new length.

    What is behind `at` was left by a compaction that did not come to its end.
    """
    make_folder(ops, os.path.dirname(path))
    fd = ops.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        if ops.fstat(fd).st_size > at:
            ops.ftruncate(fd, at)
        for frame in frames(lines):
            write_all(ops, fd, frame)
        ops.fsync(fd)
        length = ops.fstat(fd).st_size
    except OSError:
        _take_back(ops, fd, path, at)
        raise
    finally:
        ops.close(fd)
    settle_names(ops, os.path.dirname(path))
    return length


def _take_back(ops: Ops, fd: int, path: str, at: int) -> None:
    """Give up the room that a failed append took; if that fails, the next one cuts it off."""
    with suppress(OSError):
        if at:
            ops.ftruncate(fd, at)
        else:
            ops.unlink(path)


def whole_length(ops: Ops, path: str) -> int:
    """Length of a cold file up to the end of its last whole frame."""
    return max((piece.end for piece in pieces(ops, path, None) if piece.record is not None), default=0)


def _unpacked(file: Lines) -> Iterator[Piece]:
    at = 0
    while at < file.size:
        text, end = _frame(file, at)
        if end is None:
            yield Piece(at, file.size, b"", None)
            return
        for raw in text.split(b"\n")[:-1]:
            yield Piece(at, end, raw, unseal(raw))
        at = end


def _frame(file: Lines, at: int) -> tuple[bytes, int | None]:
    """The text of the frame at an offset and where it ends; no end if it is not whole."""
    zstd = _zstd()
    reader = zstd.ZstdDecompressor()
    parts: list[bytes] = []
    while at < file.size and not reader.eof:
        chunk = file.read(at, min(at + _STEP, file.size))
        at += len(chunk)
        if not chunk:
            break
        try:
            parts.append(reader.decompress(chunk))
        except zstd.ZstdError:
            break
    return b"".join(parts), at - len(reader.unused_data) if reader.eof else None


def _zstd() -> Any:
    """The compressor, loaded when something has been moved out: few sessions ever need it."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
