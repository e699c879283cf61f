"""How the index keeps the text and the time of a message, so that both take little room."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta

from nacre.entries import EPOCH, is_time

# Shorter texts hardly get smaller.
_SHORTEST = 96
# A window of 8 KiB: with a larger one most of the time goes into making it ready.
_LEVEL, _WINDOW, _MEMORY = 6, -13, 6
_MILLISECOND = timedelta(milliseconds=1)


def pack(body: str) -> str | bytes:
    """A text as it is kept: as it is, or deflated if that is shorter."""
    raw = body.encode()
    if len(raw) < _SHORTEST:
        return body
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    packed = packer.compress(raw) + packer.flush()
    return packed if len(packed) < len(raw) else body


def unpack(kept: str | bytes) -> str:
    """The text that was kept."""
    return kept if isinstance(kept, str) else zlib.decompress(kept, _WINDOW).decode()


def unpack_head(kept: str | bytes, most: int) -> str:
    """The beginning of the text that was kept, so many characters of it."""
    if isinstance(kept, str):
        return kept[:most]
    # No character has more than four bytes; the last one may be cut in two.
    return zlib.decompressobj(_WINDOW).decompress(kept, 4 * most).decode(errors="ignore")[:most]


def pack_time(text: str) -> int:
    """The time of a record in milliseconds since 1970; 0 for one that is none."""
    return (datetime.fromisoformat(text) - EPOCH) // _MILLISECOND if is_time(text) else 0


def pack_moment(moment: datetime) -> int:
    """A time in milliseconds since 1970; one without a zone counts as UTC."""
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND


def unpack_time(kept: int) -> datetime:
    """The time that was kept, in UTC."""
    return EPOCH + kept * _MILLISECOND
