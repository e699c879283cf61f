"""A session as it is written: the lines of its records, and every record read once."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nacre.entries import Past, Recalled, Record
from nacre.log import blobs
from nacre.log.format import fields, seal, sealed_fields
from nacre.log.past import LogPast


def lines(past: Past) -> Iterator[tuple[Record, bytes]]:
    """Every record by number, moved-out ones too, with its line as it was written."""
    if isinstance(past, LogPast):
        return ((piece.record, piece.raw + b"\n") for piece in past.pieces() if piece.record is not None)
    return ((record, seal(replace(record, br=None))) for record in past.all())


def whole_line(past: Past, record: Record, line: bytes) -> bytes:
    """The line of a record with the large payloads in it that the log only names; one that is lost is still named."""
    if record.blobs is None or not isinstance(past, LogPast):
        return line
    whole = blobs.whole(record, past.payload, lost=None)
    part = "m" if record.m is not None else "data"
    found = fields(line) | {part: getattr(whole, part)}
    if all(past.payload(name) is not None for name in blobs.names(record)):
        del found["blobs"]
    return sealed_fields(found, st=record.st)


def read_once(past: Past) -> tuple[Recalled, list[Record]]:
    """Every record of a session, decoded once: those that its history is made of, and its `use` records."""
    history: list[Record] = []
    used: list[Record] = []
    for record in past.all():
        (used if record.t == "use" else history).append(record)
    held = Recalled(history)
    held.state, held.has_holes = past.state, past.has_holes
    return held, used
