"""Idempotency keys: which ids the last records carried, so that a retry is not stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from nacre.errors import Conflict
from nacre.records import Record, Records, Transaction

WINDOW = 4096
_LIGHT = 1024

Seen = tuple[int, str]
"""The number that was returned, and a fingerprint of what was stored."""


class Ids:
    """The ids of the last records of one log, read on first use and then kept up to date.

    Those of the generation before it count too, so that a retry is not stored twice if the session was archived
    in between.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._upto = 0
        self._has_earlier = False

    @property
    def is_light(self) -> bool:
        """Whether it may be kept for a log that is not open."""
        return len(self._seen) <= _LIGHT

    def window(self, view: Records, earlier: Callable[[], Mapping[str, Seen]] = dict) -> dict[str, Seen]:
        """The ids that still count; `earlier` gives those of the generation before."""
        if not self._has_earlier and view.n < WINDOW:
            self._seen = {**earlier(), **self._seen}
        self._has_earlier = True
        if self._upto < view.n:
            self._read(view)
            self._upto = view.n
        if len(self._seen) > 2 * WINDOW:
            self._seen = {id: seen for id, seen in self._seen.items() if seen[0] > view.n - WINDOW}
        return self._seen

    def add(self, ids: dict[str, Seen], *, after: int, upto: int) -> None:
        """Take in the ids of a batch that was stored after record `after`, if everything before it is known."""
        if self._upto == after:
            self._seen.update(ids)
            self._upto = upto

    def _read(self, view: Records) -> None:
        """Take in the ids of transactions whose last record is in the window, however long they are."""
        found: dict[str, Seen] = {}
        later: dict[int, Record] = {}
        for record in view.back(view.n):
            first, count = record.tx or (record.n, 1)
            last = first + count - 1
            if last <= max(self._upto, view.n - WINDOW):
                break
            later[record.n] = record
            for id, seen in (record.ids or {}).items():
                found.setdefault(id, seen)
            # What compaction carried over is right, even if it moved part of the group out.
            if record.id is not None and record.id not in found:
                group = (later[n] for n in range(first, first + count) if n in later)
                found[record.id] = (last, fingerprint(_content(part, view) for part in group))
        self._seen.update(found)


def original(transaction: Transaction, seen: Seen) -> int:
    """Return the number that the first try of a transaction got; raises Conflict if that was other content."""
    number, content = seen
    if content != transaction.print:
        raise Conflict(f"id {transaction.id!r} was used for other content, stored as record {number}")
    return number


def fingerprint(contents: Iterable[bytes]) -> str:
    """Tell contents apart in sixteen characters."""
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, which is for those who use ids

    digest = blake2b(digest_size=8)
    for content in contents:
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def note(kind: str, data: Any) -> bytes:
    """What a record of a caller's own kind holds, for its fingerprint."""
    return kind.encode() + msgspec.json.encode(data)


def _content(record: Record, view: Records) -> bytes:
    record = record if record.blobs is None else view.whole(record)
    return msgspec.json.encode(record.m) if record.m is not None else note(record.t, record.data)
