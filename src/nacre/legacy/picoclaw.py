"""A session as picoclaw stores it, for the way back: one message per line, and a file of metadata beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from nacre.entries import Past, message_of
from nacre.errors import InvalidMessage
from nacre.history import live
from nacre.legacy.documents import spelled
from nacre.legacy.messages import moment, to_picoclaw

LINES, META = ".jsonl", ".meta.json"
_LONGEST_LINE = 10 * 1024 * 1024
_OTHERS = ("aliases", "scope")


class Exported(NamedTuple):
    """The two files of a session, and how many messages are in them."""

    lines: bytes
    meta: bytes
    messages: int


def file_of(key: str) -> str:
    """The name, without its ending, that picoclaw gives the files of a session; several keys may have one name."""
    return key.translate(str.maketrans(":/\\", "___"))


def export(past: Past, key: str, *, dropped: bool = False) -> Exported:
    """Spell a session as picoclaw reads it: its live messages and its summary.

    With `dropped`, messages that are no longer live come before them, and the metadata says that they are to be
    skipped. Raises InvalidMessage if one is longer than picoclaw can read, since it would then read none at all.
    """
    records = list(live.newest(past))[::-1]
    alive = {record.n for record in records}
    before = [record for record in past.all() if record.t == "msg" and record.n not in alive] if dropped else []
    lines: list[bytes] = []
    for record in (*before, *records):
        lines.append(msgspec.json.encode(to_picoclaw(message_of(record, past))) + b"\n")
        if len(lines[-1]) > _LONGEST_LINE:
            raise InvalidMessage(f"record {record.n} is longer than picoclaw can read ({_LONGEST_LINE} bytes)")
    return Exported(b"".join(lines), _meta(past, key, skip=len(before), count=len(lines)), len(lines))


def _meta(past: Past, key: str, *, skip: int, count: int) -> bytes:
    about = live.meta(past, past.state)
    times = [spelled(moment(record.ts)) for record in past.all()]
    found: dict[str, Any] = {"key": key, "summary": live.summary(past, past.state), "skip": skip, "count": count}
    # It cannot read metadata in which a time is none, and does without.
    found |= {name: time for name, time in (("created_at", times[0]), ("updated_at", times[-1])) if time}
    found |= {name: about[name] for name in _OTHERS if name in about}
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
