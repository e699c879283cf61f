"""Where the records of a log lie, found by reading all of it once."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from nacre.log.gaps import Gaps
from nacre.log.lines import Lines, Piece


class Survey:
    """Where the records of a log lie, by number, and what is damaged."""

    def __init__(self, lines: Lines) -> None:
        self.source = lines
        self._numbers = array("q")
        self._starts = array("q")
        self._sizes = array("q")
        self.bad: list[Piece] = []
        self.in_order = True
        self._are_lines = True
        self._gaps = Gaps()
        self._look()

    @property
    def count(self) -> int:
        """How many different records there are."""
        return len(self._numbers) - len(self.repeated())

    def _look(self) -> None:
        last = 0
        for piece in self.source.forward():
            if piece.record is None:
                self.bad.append(piece)
                continue
            self.in_order = self.in_order and piece.record.n > last
            self._are_lines = self._are_lines and piece.is_line
            self._gaps.see(piece.record)
            last = piece.record.n
            self._numbers.append(piece.record.n)
            self._starts.append(piece.start)
            self._sizes.append(len(piece.raw))

    @property
    def missing(self) -> str:
        """Which records are missing; "" if none are."""
        return self._gaps.found

    @property
    def is_whole(self) -> bool:
        return self.in_order and self._are_lines and not self.bad and not self._gaps.found

    def holds(self, n: int, raw: bytes) -> bool:
        """Tell whether a log that is in order has just this line as record `n`."""
        at = bisect_left(self._numbers, n)
        if at == len(self._numbers) or self._numbers[at] != n:
            return False
        return self.source.read(self._starts[at], self._starts[at] + self._sizes[at]) == raw

    def numbers(self) -> Iterator[int]:
        return (self._numbers[at] for at in self._order())

    def size_of(self, keep: set[int]) -> int:
        """Bytes of the lines of some records."""
        return sum(self._sizes[at] + 1 for at in self._order() if self._numbers[at] in keep)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The records' numbers and lines by number; of repeated numbers the first in the file."""
        last = 0
        for at in self._order():
            n = self._numbers[at]
            if n > last:
                yield n, self.source.read(self._starts[at], self._starts[at] + self._sizes[at]) + b"\n"
            last = n

    def repeated(self) -> list[Piece]:
        """The records whose number an earlier line has already."""
        found: list[Piece] = []
        last = 0
        for at in self._order():
            if self._numbers[at] == last:
                start = self._starts[at]
                found.append(Piece(start, start + self._sizes[at], b"", None))
            last = self._numbers[at]
        return found

    def _order(self) -> Iterable[int]:
        places = range(len(self._numbers))
        return places if self.in_order else sorted(places, key=lambda at: (self._numbers[at], self._starts[at]))
