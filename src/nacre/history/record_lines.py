"""A session as it is written: lines with their large payloads, and every record read once."""

from __future__ import annotations

from nacre.records import MemoryView, Record, View
from nacre.storage import blobs
from nacre.storage.format import fields, sealed_fields


def whole_line(view: View, record: Record, line: bytes) -> bytes:
    """The line of a record with the large payloads in it that the log only names; one that is lost is still named."""
    if record.blobs is None:
        return line
    whole = blobs.whole(record, view.payload, lost=None)
    part = "m" if record.m is not None else "data"
    found = fields(line) | {part: getattr(whole, part)}
    if all(view.payload(name) is not None for name in blobs.names(record)):
        del found["blobs"]
    return sealed_fields(found, st=record.st)


def read_once(view: View) -> tuple[MemoryView, list[Record]]:
    """Every record of a session, decoded once: those that its history is made of, and its `use` records."""
    history: list[Record] = []
    used: list[Record] = []
    for record in view.all():
        (used if record.t == "use" else history).append(record)
    held = MemoryView(history)
    held.state, held.has_holes = view.state, view.has_holes
    return held, used
