"""Cold files as earlier versions wrote them, and read by zstd alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

MAGIC = bytes.fromhex("28b52ffd")
_zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def plain_frame(*lines: bytes) -> bytes:
    """A frame as earlier versions wrote it: without a checksum."""
    packed: bytes = _zstd.compress(b"".join(lines))
    return packed


def frames_of(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and text of each frame of an intact cold file."""
    at = 0
    while at < len(content):
        reader = _zstd.ZstdDecompressor()
        text = reader.decompress(content[at:])
        end = len(content) - len(reader.unused_data)
        yield at, end, text
        at = end
