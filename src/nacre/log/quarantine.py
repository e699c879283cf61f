"""Damaged bytes are never thrown away: they are set aside, one JSON line each, before the log is touched."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from zlib import crc32

import msgspec

from nacre.entries import timestamp
from nacre.log.format import escaped
from nacre.log.lines import Lines, Piece
from nacre.log.ops import Ops
from nacre.log.place import make_folder, settle_names, write_all

_LARGEST = 1024 * 1024


def set_aside(ops: Ops, path: str, lines: Lines, bad: Iterable[Piece], *, reason: str) -> None:
    """Append pieces of a log to its quarantine file and wait until they are durable."""
    folder = os.path.dirname(path)
    make_folder(ops, folder)
    fd = ops.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        size = ops.fstat(fd).st_size
        if size and ops.pread(fd, 1, size - 1) != b"\n":
            # A crash tore the last note; the next one must not be glued to it.
            write_all(ops, fd, b"\n")
        for piece in bad:
            for start in range(piece.start, piece.end, _LARGEST):
                raw = lines.read(start, min(start + _LARGEST, piece.end))
                write_all(ops, fd, _line(raw, start, reason, timestamp(ops.now())))
        ops.fsync(fd)
    finally:
        ops.close(fd)
    settle_names(ops, folder)


def _line(raw: bytes, start: int, reason: str, ts: str) -> bytes:
    try:
        text = {"raw": raw.decode()}
    except UnicodeDecodeError:
        text = {"b64": base64.b64encode(raw).decode()}
    note = {"kind": reason, "off": start, "len": len(raw), "crc": f"{crc32(raw):08x}", "ts": ts, **text}
    return escaped(msgspec.json.encode(note)) + b"\n"
