"""What was no message in an earlier session's file, set aside beside the damage of our own logs, once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec

from nacre.legacy.documents import Bad
from nacre.log import quarantine
from nacre.log.lines import Lines, Piece
from nacre.log.ops import Ops
from nacre.log.place import Place


class _Held(Lines):
    """Lines of a file that is in memory, from an offset on."""

    def __init__(self, ops: Ops, bad: Bad) -> None:
        super().__init__(ops, -1, bad.start + len(bad.raw))
        self._block, self._block_start = bad.raw, bad.start


def set_aside(ops: Ops, place: Place, uid: str, bad: Sequence[Bad]) -> None:
    """Append what is bad to a session's quarantine file, durably, unless a run that was killed has done so."""
    known = _known(ops, place.quarantine(uid)) if bad else set()
    for piece in bad:
        held = Piece(piece.start, piece.start + len(piece.raw), piece.raw, None)
        is_new = (piece.reason, piece.start, f"{crc32(piece.raw):08x}") not in known
        # What is there is flushed again: whoever wrote it may have been killed before that.
        quarantine.set_aside(ops, place, uid, _Held(ops, piece), [held] if is_new else [], reason=piece.reason)


def _known(ops: Ops, path: str) -> set[tuple[Any, ...]]:
    """Kind, offset and checksum of everything in a quarantine file."""
    try:
        fd = ops.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return set()
    try:
        data = ops.pread(fd, ops.fstat(fd).st_size, 0)
    finally:
        ops.close(fd)
    return {note for line in data.split(b"\n") if (note := _note(line)) is not None}


def _note(line: bytes) -> tuple[Any, ...] | None:
    try:
        found = msgspec.json.decode(line)
        return found["kind"], found.get("off", 0), found["crc"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError, AttributeError):
        return None
