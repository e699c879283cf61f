"""Reading the lines of one log: forwards, backwards, and by record number, never more than is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from nacre.records import MAX_LINE_BYTES, Record
from nacre.storage.format import number, salvage, unseal
from nacre.storage.system import System

_FIRST_STEP = 16 * 1024
_MAX_STEP = 1024 * 1024
_NEAR = 8 * 1024


class Piece(NamedTuple):
    """Some bytes of a log: a record, or damage where `record` is None.

    `raw` has no newline; it is empty for a line that is too long to be one of ours.
    """

    start: int
    end: int
    raw: bytes
    record: Record | None

    @property
    def is_line(self) -> bool:
        """True if it is a record that has a line of its own."""
        return self.record is not None and self.end - self.start == len(self.raw) + 1


class Lines:
    """The first `size` bytes of an open log; `damaged` once a read has met what is not a line of its own."""

    def __init__(self, system: System, fd: int, size: int) -> None:
        self._system = system
        self._fd = fd
        self.size = size
        self.damaged = False
        self._block, self._block_start = b"", 0

    @classmethod
    def of(cls, system: System, text: bytes) -> Lines:
        """The lines of a text that is in memory."""
        lines = cls(system, -1, len(text))
        lines._block = text
        return lines

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, fewer where the file ends; what is in memory is not read again."""
        in_memory = b""
        if start < end and self._block_start < end <= self._block_start + len(self._block):
            in_memory = self._block[max(0, start - self._block_start) : end - self._block_start]
            end -= len(in_memory)
        if start >= end:
            return in_memory
        parts: list[bytes] = []
        while start < end:
            part = self._system.pread(self._fd, min(_MAX_STEP, end - start), start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        if in_memory and start == end:
            parts.append(in_memory)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def keep(self, start: int, data: bytes) -> None:
        """Keep some bytes that were read in memory: those from `start` on, up to the end."""
        self._block, self._block_start = data, start

    def last(self) -> Piece | None:
        """The last line, if it is a whole record after another; what was read for it is kept."""
        start = max(0, self.size - _FIRST_STEP)
        self._block, self._block_start = self.read(start, self.size), start
        begin = self._block.rfind(b"\n", 0, -1) + 1
        raw = self._block[begin:-1]
        record = unseal(raw) if self._block.endswith(b"\n") and (begin or not start) else None
        # The number of the record before it; a great one if that is not known.
        before = 0
        if begin:
            at = self._block.rfind(b"\n", 0, begin - 1) + 1
            before = (number(self._block[at : begin - 1]) if at or not start else 0) or sys.maxsize
        if record is None or before >= record.n:
            return None
        return Piece(start + begin, self.size, raw, record)

    def first(self) -> Piece | None:
        """The first line, if it is a whole record."""
        end = self._line_end(0)
        raw = self.read(0, end).removesuffix(b"\n")
        record = unseal(raw)
        return Piece(0, end, raw, record) if record is not None else None

    def forward(self, start: int = 0) -> Iterator[Piece]:
        """Every piece from `start` on, in the order of the file."""
        carry = b""
        step = _FIRST_STEP
        position = start
        while position < self.size:
            chunk = self.read(position, min(position + step, self.size))
            if not chunk:
                break
            position += len(chunk)
            step = min(step * 2, _MAX_STEP)
            *whole, carry = (carry + chunk).split(b"\n")
            for raw in whole:
                end = start + len(raw) + 1
                record = unseal(raw)
                if record is not None:
                    yield Piece(start, end, raw, record)
                else:
                    yield from self._apart(raw, start, end)
                start = end
            if len(carry) > MAX_LINE_BYTES:
                position = self._line_end(position)
                yield from self._apart(b"", start, position)
                start, carry = position, b""
        if carry:
            yield from self._apart(carry, start, start + len(carry))

    def backward(self, end: int) -> Iterator[Piece]:
        """Every piece before `end`, last first."""
        for start, data, end in self._blocks(end):  # noqa: B020, PLR1704 - each block ends where the one before began
            *whole, torn = data.split(b"\n")
            if torn or not data:
                yield from reversed(self._apart(torn, end - len(torn) if data else start, end))
            end -= len(torn)  # noqa: PLW2901 - goes back line by line
            for raw in reversed(whole):
                begin = end - len(raw) - 1
                record = unseal(raw)
                if record is not None:
                    yield Piece(begin, end, raw, record)
                else:
                    yield from reversed(self._apart(raw, begin, end))
                end = begin  # noqa: PLW2901

    def records(self, end: int) -> Iterator[Record]:
        """Every record before `end`, last first: what `backward` gives, without what only mending needs."""
        for start, data, stop in self._blocks(end):
            *whole, torn = data.split(b"\n")
            if torn or not data:
                yield from self._salvaged(torn, start, stop)
            for raw in reversed(whole):
                record = unseal(raw)
                if record is not None:
                    yield record
                else:
                    yield from self._salvaged(raw, start, stop)

    def bound(self, n: int, last: int) -> int:
        """Return the offset after the record `n`, or after the one before where `n` would be.

        `last` is the number of the last record. Numbers grow with offsets, nearly evenly, so a guess
        in proportion takes a few reads; every second guess halves, so that it never takes many.
        """
        low, low_n = 0, 0
        high, high_n, limit = self.size, last + 1, self.size
        halve = False
        while limit - low > _NEAR:
            share = (limit - low) * (n - low_n) // max(1, high_n - low_n)
            guess = (low + limit) // 2 if halve else low + min(max(share, _NEAR // 4), limit - low - _NEAR // 4)
            halve = not halve
            start, end, found = self._first_record(guess, limit)
            if not found:
                limit = guess
            elif found <= n:
                low, low_n = end, found
            else:
                high = limit = start
                high_n = found
        for line in self.read(low, high).split(b"\n"):
            if number(line) > n:
                return low
            low += len(line) + 1
        return high

    def _blocks(self, end: int) -> Iterator[tuple[int, bytes, int]]:
        """Start, bytes and end of blocks of whole lines before `end`, last first; no bytes for a line too long."""
        carry = b""
        step = _FIRST_STEP
        position = end
        while position > 0:
            begin = max(0, position - step)
            data = self.read(begin, position) + carry
            position, step = begin, min(step * 2, _MAX_STEP)
            first = data.find(b"\n") + 1 or len(data) if begin else 0
            if first < len(data):
                yield begin + first, data[first:], begin + len(data)
            carry = data[:first]
            if len(carry) > MAX_LINE_BYTES + 1:
                position = self._line_start(begin)
                yield position, b"", begin + len(carry)
                carry = b""

    def _apart(self, raw: bytes, start: int, end: int) -> list[Piece]:
        """Take a line that is no record apart: the whole records in it, and the damage around them."""
        self.damaged = True
        found: list[Piece] = []
        at = 0
        for begin, stop in salvage(raw):
            if begin > at:
                found.append(Piece(start + at, start + begin, raw[at:begin], None))
            found.append(Piece(start + begin, start + stop, raw[begin:stop], unseal(raw[begin:stop])))
            at = stop
        if at == len(raw) and found:
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(Piece(start + at, end, raw[at:], None))
        return found

    def _salvaged(self, raw: bytes, start: int, end: int) -> Iterator[Record]:
        found = (piece.record for piece in reversed(self._apart(raw, start, end)))
        return (record for record in found if record is not None)

    def _first_record(self, guess: int, limit: int) -> tuple[int, int, int]:
        """Start, end and number of the first record whose line begins after `guess` and before `limit`; or zeros."""
        block = self.read(guess, min(guess + _NEAR, self.size))
        begin = block.find(b"\n") + 1
        end = block.find(b"\n", begin) + 1
        n = number(block[begin : end - 1]) if begin and end else 0
        if n:
            return (guess + begin, guess + end, n) if guess + begin < limit else (0, 0, 0)
        start = self._line_end(guess)
        while start < limit:
            stop = self._line_end(start)
            n = number(self.read(start, stop).removesuffix(b"\n"))
            if n:
                return start, stop, n
            start = stop
        return 0, 0, 0

    def _line_end(self, position: int) -> int:
        """Offset after the first newline at or after `position`."""
        step = _FIRST_STEP // 4
        while position < self.size:
            chunk = self.read(position, min(position + step, self.size))
            at = chunk.find(b"\n")
            if at >= 0:
                return position + at + 1
            position += len(chunk) or self.size
            step = _MAX_STEP
        return self.size

    def _line_start(self, position: int) -> int:
        """Offset after the last newline before `position`."""
        while position > 0:
            begin = max(0, position - _MAX_STEP)
            at = self.read(begin, position).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            position = begin
        return 0
