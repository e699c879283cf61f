"""What is in quarantine, or cannot be read at all, by session, as every front says it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct

from nacre.messages import QuarantineEntry, describe_quarantine
from nacre.records import Losses


class Notice(Struct, frozen=True, kw_only=True):
    """How much of a session waits in quarantine: whole records, bytes, a sentence, and the command that shows it."""

    records: int
    bytes: int
    text: str
    command: str


def notices(entries: Iterable[QuarantineEntry]) -> Mapping[str, Notice]:
    """A notice for each session that has unsettled entries; give it what `Sessions.quarantine` gives."""
    found: dict[str, list[QuarantineEntry]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry)
    return {
        key: Notice(
            records=sum(len(entry.records) for entry in of),
            bytes=sum(entry.bytes for entry in of),
            text=describe_quarantine(of),
            command=f"nacre sessions quarantine show {shlex.quote(key)}",
        )
        for key, of in found.items()
    }


class Unreadable(Struct, frozen=True, kw_only=True):
    """How much of a session could not be read: records, large payloads, a sentence, and the command that shows more."""

    records: int
    payloads: int
    text: str
    command: str


def unreadable(key: str, losses: Losses) -> Unreadable | None:
    """A notice of what a read could not find; None if it found everything."""
    if not losses:
        return None
    command = f"nacre sessions verify {shlex.quote(key)}"
    return Unreadable(records=losses.records, payloads=losses.payloads, text=losses.text, command=command)
