"""One generation of a session at one moment: its log, what was moved out, and what is about to be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property

from nacre.records import Losses, Record, State
from nacre.storage import blobs, compaction
from nacre.storage.format import unseal
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import SessionPaths
from nacre.storage.recovery import Gaps, Header, Survey
from nacre.storage.system import System


class LogView:
    """Reads by record number over the bytes of a log.

    `staged` are records that are numbered but not yet on disk. `level` is that of a log below a fork.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a reader must know
        self,
        lines: Lines,
        *,
        header: Header,
        n: int,
        state: State,
        system: System,
        place: SessionPaths,
        staged: Sequence[Record] = (),
        level: int | None = None,
    ) -> None:
        self.header = header
        self.n = n
        self.state = state
        self.staged = staged
        self.is_newest = True
        self.moved_lost = 0
        """How many of the records that were moved out the last read of them did not find."""
        self._is_cold_damaged = False
        self.lines = lines
        self._system = system
        self._place = place
        self._last = n
        self._level = level
        self._base: LogView | None = None
        self._payloads: dict[str, str | None] = {}

    @property
    def uid(self) -> str:
        return self.header.uid

    @property
    def key(self) -> str:
        return self._place.key or self.header.sid

    @property
    def created(self) -> str:
        return self.header.created

    @property
    def is_archived(self) -> bool:
        return bool(self._place.archived)

    @property
    def has_holes(self) -> bool:
        return self.header.holes

    @property
    def damaged(self) -> bool:
        """True once a read has met bytes that are not what was written."""
        return self.lines.damaged or self._is_cold_damaged

    @property
    def losses(self) -> Losses:
        """What the reads so far have not found beside the log: moved out, shared by a fork, or a large payload.

        No repair changes these files. In a deletion they go before the log.
        """
        payloads = sum(text is None for text in self._payloads.values())
        # Older headers do not count what was moved out.
        found = Losses(self.moved_lost, payloads, self._is_cold_damaged and not self.moved_lost)
        if self._base is not None:
            found += self._base.losses + Losses(is_more=self._base.lines.damaged)
        return found

    @property
    def base(self) -> LogView | None:
        """The past that a fork shares with the session it came from."""
        if self._base is None and self.header.base:
            self._base = _below(self)
        return self._base

    def find(self, n: int) -> Record | None:
        if n < self.header.n and self.base is not None:
            return self.base.find(n)
        record = next(self.back(n), None)
        if record is not None and record.n == n:
            return record
        return unseal(self._moved[n]) if n in self._moved else None

    @cached_property
    def _moved(self) -> dict[int, bytes]:
        """The lines of what compaction moved out, by number."""
        return {piece.record.n: piece.raw for piece in self.cold() if piece.record is not None}

    def back(self, n: int) -> Iterator[Record]:
        yield from (record for record in reversed(self.staged) if record.n <= n)
        end = self.lines.size if n >= self._last else self.lines.bound(n, self._last)
        below = n + 1
        for record in self.lines.records(end):
            if record.n < below - 1 and self._is_disordered:
                yield from self._sorted_back(below)
                break
            if record.n < below:
                below = record.n
                yield record
            else:
                self.lines.damaged = True
        if self.base is not None:
            yield from self.base.back(min(n, self.base.n))

    def all(self) -> Iterator[Record]:
        return (piece.record for piece in self.pieces() if piece.record is not None)

    def whole(self, record: Record) -> Record:
        return blobs.whole(record, self.payload)

    def payload(self, name: str) -> str | None:
        """A large payload that a record names; read once, however many records name it."""
        if name not in self._payloads:
            self._payloads[name] = blobs.read(self._system, self._place, self.header.uid, name)
        return self._payloads[name]

    def pieces(self) -> Iterator[Piece]:
        """Every record by number with its bytes; where one is both moved out and at hand, the one at hand."""
        if self.base is not None:
            yield from self.base.pieces()
        moved = {piece.record.n: piece for piece in self.cold() if piece.record is not None}
        waiting = sorted(moved, reverse=True)
        gaps = Gaps()
        last = 0
        for piece in self._sorted() if self._is_disordered else self.lines.forward():
            if piece.record is None or piece.record.n <= last:
                self.lines.damaged = True
                continue
            last = piece.record.n
            if last > self.n:
                break
            gaps.see(piece.record)
            while waiting and waiting[-1] < last:
                yield moved[waiting.pop()]
            if waiting and waiting[-1] == last:
                waiting.pop()
            yield piece
        else:
            self.lines.damaged = self.lines.damaged or bool(gaps.found)
        for n in reversed(waiting):
            yield moved[n]

    @cached_property
    def _is_disordered(self) -> bool:
        """True for a log below a fork whose lines are not in order: nobody mends that, so it is read sorted."""
        if self._level is None:
            return False
        self._survey = Survey(self.lines)
        return not self._survey.in_order

    def _sorted(self) -> Iterator[Piece]:
        for _, line in self._survey.lines():
            yield Piece(0, 0, line[:-1], unseal(line[:-1]))

    def _sorted_back(self, below: int) -> Iterator[Record]:
        """The records before a number, last first."""
        self.lines.damaged = True
        found = (piece.record for piece in self._sorted())
        yield from reversed([record for record in found if record is not None and record.n < below])

    def cold(self) -> Iterator[Piece]:
        """What compaction moved out, in no particular order."""
        left = self.header.moved or 0
        if self.header.cold:
            for piece in compaction.pieces(self._system, self._cold_path, self.header.cold):
                self._is_cold_damaged = self._is_cold_damaged or piece.record is None
                left -= piece.record is not None
                if piece.record is None or self._counts(piece.record.n):
                    yield piece
            self.moved_lost = max(0, left)
            self._is_cold_damaged = self._is_cold_damaged or left > 0

    def _counts(self, n: int) -> bool:
        """False for what was said in a log below a fork when the fork had already left it."""
        return self._level is None or n <= self.n

    @property
    def _cold_path(self) -> str:
        uid = self.header.uid
        return self._place.cold(uid) if self._level is None else f"{self._place.base(uid, self._level)}.zst"


class _BaseLines(Lines):
    """A log below a fork: opened for each read, since most of what is asked is in the fork itself."""

    def __init__(self, system: System, path: str, size: int) -> None:
        super().__init__(system, -1, size)
        self._path = path

    def read(self, start: int, end: int) -> bytes:
        self._fd = self._system.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            data = super().read(start, end)
        finally:
            self._system.close(self._fd)
        self.damaged = self.damaged or len(data) < end - start
        return data


def _below(view: LogView) -> LogView:
    """The nearest log below another; it begins where the next below it no longer counts."""
    level, *rest = view.header.base
    depth = 0 if view._level is None else view._level + 1  # noqa: SLF001 - this module's own
    place, system, uid = view._place, view._system, view.header.uid  # noqa: SLF001
    lines = _BaseLines(system, place.base(uid, depth), level.log)
    ending = lines.last()
    if ending is None or ending.record is None or ending.record.n != level.last:
        # Bytes were put in or taken out, so what counts ends elsewhere; what was added later has greater numbers.
        lines.size = max(level.log, system.stat(place.base(uid, depth)).st_size)
    n = rest[0].n + 1 if rest else 1
    header = Header(uid=uid, sid=view.header.sid, n=n, base=tuple(rest), cold=level.cold, moved=level.moved)
    below = LogView(lines, header=header, n=level.n, state=State(), system=system, place=place, level=depth)
    below._last = level.last  # noqa: SLF001
    return below
