"""What compaction has moved out of a session, packed small and found by number, for those who scroll back."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import merge
from threading import Lock

from nacre.entries import Past, Record
from nacre.log.format import unseal
from nacre.log.lines import Piece
from nacre.log.past import LogPast

_MOST = 4
_PACK = 500


def with_moved(past: Past) -> Past:
    """A past in which records that were moved out are at hand too; the first time reads them all."""
    if not isinstance(past, LogPast):
        return past
    levels = list(_levels(past))
    name = tuple((level.header.uid, level.header.n, level.header.cold) for level in levels)
    with _lock:
        found = _kept.pop(name, None) or _Packed(piece for level in levels for piece in level.cold())
        # What is damaged is read again, so that each reader meets the damage.
        if not past.losses:
            _kept[name] = found
        while len(_kept) > _MOST:
            del _kept[next(iter(_kept))]
    return _Joined(past, found)


class _Packed:
    """Records by number, as compressed lines; what was moved out never changes."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        lines = {piece.record.n: piece.raw for piece in pieces if piece.record is not None}
        self._numbers = array("Q", sorted(lines))
        self._packs = [
            zlib.compress(b"\n".join(lines[n] for n in self._numbers[at : at + _PACK]), 1)
            for at in range(0, len(self._numbers), _PACK)
        ]

    def back(self, n: int) -> Iterator[Record]:
        """The records from `n` down."""
        end = bisect_right(self._numbers, n)
        while end:
            pack, rest = divmod(end - 1, _PACK)
            lines = zlib.decompress(self._packs[pack]).split(b"\n")
            for raw in reversed(lines[: rest + 1]):
                record = unseal(raw)
                if record is not None:
                    yield record
            end = pack * _PACK


class _Joined:
    """A past with what was moved out of it; where a record is in both, the one at hand."""

    def __init__(self, past: LogPast, moved: _Packed) -> None:
        self.uid, self.n, self.state, self.has_holes = past.uid, past.n, past.state, past.has_holes
        self._past = past
        self._moved = moved

    def find(self, n: int) -> Record | None:
        record = next(self.back(n), None)
        return record if record is not None and record.n == n else None

    def back(self, n: int) -> Iterator[Record]:
        last = n + 1
        for record in merge(self._past.back(n), self._moved.back(n), key=_descending):
            if record.n < last:
                last = record.n
                yield record

    def all(self) -> Iterator[Record]:
        return self._past.all()

    def whole(self, record: Record) -> Record:
        return self._past.whole(record)


def _levels(past: LogPast) -> Iterator[LogPast]:
    """A log and those below it, if it is a fork."""
    level: LogPast | None = past
    while level is not None:
        yield level
        level = level.base


def _descending(record: Record) -> int:
    return -record.n


_lock = Lock()
_kept: dict[tuple[tuple[str, int, int], ...], _Packed] = {}
