"""A search of every byte under some folders for a text that must not be there."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
import sys
import zlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from nacre.testing import Disk

zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def traces(text: str, *folders: Path) -> list[str]:
    """The files below some folders that have a text, as it is, as JSON has it, in Base64, compressed, or its hash."""
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    kept = {path: b"\n".join(_kept(path)) for path in paths if path.name == "index.sqlite"}
    return [path.name for path in paths if _has(path.name, path.read_bytes() + kept.get(path, b""), text)]


def traces_on(disk: Disk, text: str, root: str) -> list[str]:
    """The same on a simulated disk."""
    process = disk.process()
    paths: list[str] = []
    for folder in process.listdir(root):
        with suppress(NotADirectoryError):
            paths += [f"{folder}/{name}" for name in process.listdir(f"{root}/{folder}")]
    return [path for path in paths if _has(path, disk.read(f"{root}/{path}"), text)]


def _has(name: str, data: bytes, text: str) -> bool:
    raw = text.encode()
    # As JSON has it, also inside of a text that JSON has, as in the quarantine.
    once = msgspec.json.encode(text)[1:-1]
    wanted = [raw, once, msgspec.json.encode(once.decode())[1:-1], hashlib.sha256(raw).hexdigest().encode()]
    wanted += [base64.b64encode(raw[start:])[4:-4] for start in range(3) if len(raw) > 16]
    parts = [name.encode(), data, _unpacked(data) if name.endswith(".zst") else b""]
    return any(one in part for one in wanted for part in parts)


def _unpacked(data: bytes) -> bytes:
    """What is in the frames of a file, in the order of the file; a torn one as far as it goes."""
    found = []
    while data:
        reader = zstd.ZstdDecompressor()
        found.append(reader.decompress(data))
        data = reader.unused_data if reader.eof else b""
    return b"".join(found)


def _kept(path: Path) -> list[bytes]:
    """The texts that an index keeps deflated."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        rows = [body for (body,) in connection.execute("SELECT body FROM message")]
    connection.close()
    return [zlib.decompress(row, -13) if isinstance(row, bytes) else row.encode() for row in rows]
