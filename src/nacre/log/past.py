"""One generation of a session at one moment: its log, what was moved out, and what is about to be written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nacre.entries import Record, State
from nacre.log import cold
from nacre.log.gaps import Gaps
from nacre.log.lines import Lines, Piece
from nacre.log.ops import Ops
from nacre.log.place import Place
from nacre.log.tail import Header


class LogPast:
    """Reads by record number over the bytes of a log.

    `staged` are records that are numbered but not yet on disk.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a reader must know
        self,
        lines: Lines,
        *,
        header: Header,
        n: int,
        state: State,
        ops: Ops,
        place: Place,
        staged: Sequence[Record] = (),
    ) -> None:
        self.header = header
        self.n = n
        self.state = state
        self.staged = staged
        self._is_cold_damaged = False
        self.lines = lines
        self._ops = ops
        self._place = place
        self._last = n

    @property
    def key(self) -> str:
        return self._place.key

    @property
    def damaged(self) -> bool:
        """True once a read has met bytes that are not what was written."""
        return self.lines.damaged or self._is_cold_damaged

    def find(self, n: int) -> Record | None:
        record = next(self.back(n), None)
        if record is not None and record.n == n:
            return record
        if not self.header.cold:
            return None
        return next((piece.record for piece in self.cold() if piece.record is not None and piece.record.n == n), None)

    def back(self, n: int) -> Iterator[Record]:
        yield from (record for record in reversed(self.staged) if record.n <= n)
        end = self.lines.size if n >= self._last else self.lines.bound(n, self._last)
        below = n + 1
        for record in self.lines.records(end):
            if record.n < below:
                below = record.n
                yield record
            else:
                self.lines.damaged = True

    def all(self) -> Iterator[Record]:
        return (piece.record for piece in self.pieces() if piece.record is not None)

    def pieces(self) -> Iterator[Piece]:
        """Every record by number with its bytes; where one is both moved out and at hand, the one at hand."""
        moved = {piece.record.n: piece for piece in self.cold() if piece.record is not None}
        waiting = sorted(moved, reverse=True)
        gaps = Gaps()
        last = 0
        for piece in self.lines.forward():
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
        self.lines.damaged = self.lines.damaged or bool(gaps.found)
        for n in reversed(waiting):
            yield moved[n]

    def cold(self) -> Iterator[Piece]:
        """What compaction moved out, in no particular order."""
        if self.header.cold:
            for piece in cold.pieces(self._ops, self._place.cold(self.header.uid), self.header.cold):
                self._is_cold_damaged = self._is_cold_damaged or piece.record is None
                yield piece
