"""Reading the lines of one log: forwards, backwards, and by record number, never more than is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nacre.entries import LONGEST_LINE, Record
from nacre.log.format import salvage, unseal
from nacre.log.ops import Ops

_FIRST_STEP = 16 * 1024
_LARGEST_STEP = 1024 * 1024
_NEAR = 8 * 1024


class Piece(NamedTuple):
    """Some bytes of a log: a record, or damage where `record` is None.

    `raw` has no newline; it is empty for a line that is too long to be one of ours.
    """

    start: int
    end: int
    raw: bytes
    record: Record | None


class Lines:
    """The first `size` bytes of an open log."""

    def __init__(self, ops: Ops, fd: int, size: int) -> None:
        self._ops = ops
        self._fd = fd
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, fewer where the file ends."""
        parts: list[bytes] = []
        while start < end:
            part = self._ops.pread(self._fd, min(_LARGEST_STEP, end - start), start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def first(self) -> Piece | None:
        """The first line, if it is a whole record."""
        end = self._line_end(0)
        raw = self.read(0, end).removesuffix(b"\n")
        record = unseal(raw)
        return Piece(0, end, raw, record) if record is not None else None

    def forward(self, start: int = 0) -> Iterator[Piece]:
        """Every piece from `start` on, in the order of the file."""
        carry = b""
        position = start
        while position < self.size:
            chunk = self.read(position, min(position + _LARGEST_STEP, self.size))
            if not chunk:
                break
            position += len(chunk)
            *whole, carry = (carry + chunk).split(b"\n")
            for raw in whole:
                end = start + len(raw) + 1
                record = unseal(raw)
                if record is not None:
                    yield Piece(start, end, raw, record)
                else:
                    yield from _pieces(raw, start, end)
                start = end
            if len(carry) > LONGEST_LINE:
                position = self._line_end(position)
                yield Piece(start, position, b"", None)
                start, carry = position, b""
        if carry:
            yield from _pieces(carry, start, start + len(carry))

    def backward(self, end: int) -> Iterator[Piece]:
        """Every piece before `end`, last first."""
        carry = b""
        step = _FIRST_STEP
        while end > 0:
            begin = max(0, end - step)
            data = self.read(begin, end) + carry
            end, step = begin, min(step * 2, _LARGEST_STEP)
            first = data.find(b"\n") + 1 or len(data) if begin else 0
            yield from _last_first(data[first:], begin + first)
            carry = data[:first]
            if len(carry) > LONGEST_LINE + 1:
                end = self._line_start(begin)
                yield Piece(end, begin + len(carry), b"", None)
                carry = b""

    def bound(self, n: int, last: int) -> int:
        """Return the offset behind the record `n`, or behind the one before where `n` would stand.

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
            start, end, found_n = self._first_record(guess, limit)
            if not found_n:
                limit = guess
            elif found_n <= n:
                low, low_n = end, found_n
            else:
                high = limit = start
                high_n = found_n
        for piece in Lines(self._ops, self._fd, high).forward(low):
            if piece.record is not None and piece.record.n > n:
                return piece.start
        return high

    def _first_record(self, start: int, limit: int) -> tuple[int, int, int]:
        """Start, end and number of the first record whose line begins behind `start` and before `limit`, or zeros."""
        begin = self._line_end(start)
        while begin < limit:
            end = self._line_end(begin)
            line = self.read(begin, end)
            record = unseal(line[:-1]) if line.endswith(b"\n") else None
            if record is not None:
                return begin, end, record.n
            begin = end
        return 0, 0, 0

    def _line_end(self, position: int) -> int:
        """Offset behind the first newline at or after `position`."""
        step = _FIRST_STEP // 4
        while position < self.size:
            chunk = self.read(position, min(position + step, self.size))
            at = chunk.find(b"\n")
            if at >= 0:
                return position + at + 1
            position += len(chunk) or self.size
            step = _LARGEST_STEP
        return self.size

    def _line_start(self, position: int) -> int:
        """Offset behind the last newline before `position`."""
        while position > 0:
            begin = max(0, position - _LARGEST_STEP)
            at = self.read(begin, position).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            position = begin
        return 0


def _last_first(data: bytes, start: int) -> Iterator[Piece]:
    """The pieces of whole lines that begin at `start`, last first; behind the last newline may be a torn one."""
    *whole, torn = data.split(b"\n")
    end = start + len(data)
    if torn:
        yield from reversed(_pieces(torn, end - len(torn), end))
        end -= len(torn)
    for raw in reversed(whole):
        begin = end - len(raw) - 1
        record = unseal(raw)
        if record is not None:
            yield Piece(begin, end, raw, record)
        else:
            yield from reversed(_pieces(raw, begin, end))
        end = begin


def _pieces(raw: bytes, start: int, end: int) -> list[Piece]:
    """Take a line that is no record apart: the whole records in it, and the damage around them."""
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
