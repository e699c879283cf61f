"""Cold files as earlier versions wrote them, and read by zstd alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

from nacre.testing import Disk
from tests.damage.lines import fields_of, seal
from tests.paths import log_of
from tests.simulated import ROOT, names

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


def cold_file(disk: Disk, key: str) -> str:
    (name,) = (name for name in names(disk, "cold") if name.startswith(f"{key}."))
    return f"{ROOT}/cold/{name}"


def make_earlier(disk: Disk, key: str) -> None:
    """Make the cold file of a session what earlier versions made of it: no checksums, and no count in the header."""
    log, path = str(log_of(ROOT, key)), cold_file(disk, key)
    packed = b"".join(plain_frame(text) for _, _, text in frames_of(disk.read(path)))
    header, rest = disk.read(log).split(b"\n", 1)
    fields = fields_of(header)
    fields.pop("moved", None)
    disk.write_durable(path, packed)
    disk.write_durable(log, seal(fields | {"cold": len(packed)}) + rest)
