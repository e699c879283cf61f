"""What the bytes of a log hold: how it ends, where its records are, and what is damaged or missing.

A batch is written only after the one before it was flushed. So only the last batch, and relaxed ones
before it, can be incomplete after a crash; everything before them was acknowledged:

    header | batch | batch | batch | last batch  torn bytes
    ------- beyond doubt ----------|-------- in doubt ------

`examine` reads only the header and the part in doubt. `Survey` reads everything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nacre.errors import LogDamaged
from nacre.records import MAX_LINE_BYTES, Record, State
from nacre.storage.format import START, righted, unseal
from nacre.storage.lines import Lines, Piece

_MAX_NAMED_GAPS = 20


class Level(NamedTuple):
    """One log below a fork: records up to `n` count, of `last` that are in its first `log` bytes."""

    n: int
    last: int
    log: int
    cold: int
    moved: int | None = None


class Header(NamedTuple):
    """What the first record of a log says of the session; an empty uid: there is none."""

    uid: str = ""
    sid: str = ""
    n: int = 1
    base: tuple[Level, ...] = ()
    created: str = ""
    cold: int = 0
    high: int = 0
    kept: int = 0
    moved: int | None = None
    holes: bool = False
    raw: bytes = b""


class Tail(NamedTuple):
    """The end of a log.

    `kept` are the pieces in doubt that stay, `bad` those that do not, `before` the last record that is beyond doubt,
    `first` the first number in doubt. `torn` is true if everything bad comes after everything kept, `headed` if the
    log begins with its header as that was written.
    """

    header: Header
    headed: bool
    start: int
    before: Record | None
    first: int
    kept: list[Piece]
    bad: list[Piece]
    torn: bool

    @property
    def last(self) -> Record | None:
        return self.kept[-1].record if self.kept else self.before

    @property
    def end(self) -> int:
        """Where the next record goes, once the bad bytes are gone."""
        return self.kept[-1].end if self.kept else self.start

    @property
    def is_whole(self) -> bool:
        """True if there is nothing to repair: every record has its own line, in order, after a header."""
        return self.torn and not self.bad and self.headed


def examine(lines: Lines, *, key: str) -> Tail:
    """Read how a log ends, and its header, but not what is between.

    An empty key is any session's. Raises LogDamaged if the header names another session, FormatTooNew
    if a later version wrote it.
    """
    # 1. Read backwards. The newest record that is not of a relaxed batch says at which number its batch began; what has
    #    a smaller number was flushed before that batch was written: it is beyond doubt.
    before: Piece | None = None
    first = 0
    found: list[Piece] = []
    for piece in lines.backward(lines.size):
        record = piece.record
        if record is not None:
            if first and record.n < first:
                before = piece
                break
            if not first and not record.r:
                first = record.batch
        found.append(piece)
    start = before.end if before is not None else 0
    sure = before.record if before is not None else None

    # 2. Of the pieces in doubt, keep each record once. Damage and repetitions are bad.
    after = sure.n if sure is not None else 0
    good: dict[int, Piece] = {}
    bad: list[Piece] = []
    for piece in reversed(found):
        if piece.record is None or piece.record.n <= after or piece.record.n in good:
            bad.append(piece)
        else:
            good[piece.record.n] = piece

    # 3. A group that is not complete was never acknowledged: none of it is kept.
    for group in {piece.record.tx for piece in good.values() if piece.record is not None}:
        if group is not None and not _is_complete(group, good):
            bad += [good.pop(n) for n in _members(group) if n in good]
    kept = [good[n] for n in sorted(good)]

    # 4. A cut repairs the log if the kept records follow each other as lines, and everything bad comes after them.
    end = start
    are_lines = True
    for piece in kept:
        are_lines = are_lines and piece.start == end and piece.is_line
        end = piece.end
    torn = are_lines and all(piece.start >= end for piece in bad)

    # 5. Find the header. That of a fork says what the fork shares, so it counts even if its own bytes are damaged.
    opening, headed = _find_header(lines, kept)
    if sure is None and opening is not None and opening.record is not None and opening not in kept:
        sure = opening.record if opening.record.base is not None else None
    header = _read_header(opening, key=key)
    return Tail(header, headed, start, sure, first or 1, kept, sorted(bad, key=_start), torn)


def examine_end(lines: Lines, *, key: str, is_whole: bool = False) -> Tail:
    """Like `examine`, but content with a last record that stands alone: all before it was acknowledged.

    So it is with any last record if it is known that the log `is_whole`: it was examined with these bytes. What else
    is in doubt was read to the last byte, and stays in memory for the reader of the lines.
    """
    last = lines.last()
    record = last.record if last is not None else None
    is_alone = record is not None and record.b is None and not record.r and record.tx is None
    if last is None or record is None or not (is_alone or is_whole):
        tail = examine(lines, key=key)
        if tail.torn and tail.kept:
            lines.keep(tail.start, b"".join(piece.raw + b"\n" for piece in tail.kept))
        return tail
    opening, headed = _find_header(lines, [last])
    return Tail(_read_header(opening, key=key), headed, last.start, None, record.n, [last], [], torn=True)


def was_cut_short(tail: Tail) -> bool:
    """Tell whether the bytes in doubt are the beginning of what was written, as a crash during a write leaves them.

    These are whole lines in order, then at most one that has no newline, and NUL bytes where a power cut left a file
    longer than what was written of it. The rest was never acknowledged. Anything else may be rot.
    """
    *before, last = sorted([*tail.kept, *tail.bad], key=_start)
    for n, piece in enumerate(before, tail.first):
        if piece.record is None or piece.record.n != n or not (piece.is_line or piece.end == last.start):
            return False
    if last.record is not None:
        return last.record.n == tail.first + len(before)
    begun = last.raw.rstrip(b"\0")
    return last.end - last.start == len(last.raw) and (begun.startswith(START) or START.startswith(begun))


def levels_of(record: Record) -> tuple[Level, ...]:
    """The logs below a fork, the nearest first."""
    base = record.base or {}
    levels = [Level(*level) for level in base.get("levels", ())]
    counts = base.get("moved") or [None] * len(levels)
    return tuple(level._replace(moved=moved) for level, moved in zip(levels, counts, strict=True))


def state_of(record: Record | None) -> State:
    return record.st if record is not None else State()


def _start(piece: Piece) -> int:
    return piece.start


def _members(group: tuple[int, int]) -> range:
    return range(group[0], group[0] + group[1])


def _is_complete(group: tuple[int, int], good: dict[int, Piece]) -> bool:
    return all(n in good for n in _members(group))


def _find_header(lines: Lines, kept: list[Piece]) -> tuple[Piece | None, bool]:
    """The header, None if it is lost, and whether it is where it should be, as it was written."""
    # 1. The first line.
    first = kept[0] if kept and kept[0].start == 0 else lines.first()
    if _is_header(first):
        return first, True
    # 2. The first record after damage.
    first = next((piece for piece in lines.forward() if piece.record is not None), None)
    if _is_header(first):
        return first, False
    # 3. The damage itself, if only one bit of it has flipped.
    end = first.start if first is not None else lines.size
    raw = righted(lines.read(0, min(end, MAX_LINE_BYTES)).removesuffix(b"\n"))
    found = Piece(0, end, raw, unseal(raw))
    return found if _is_header(found) else None, False


def _is_header(piece: Piece | None) -> bool:
    return piece is not None and piece.record is not None and piece.record.t == "open" and bool(piece.record.uid)


def _read_header(opening: Piece | None, *, key: str) -> Header:
    record = opening.record if opening is not None else None
    if opening is None or record is None or record.uid is None:
        return Header()
    if key and record.sid != key:
        raise LogDamaged(f"the log of session {key!r} says that it belongs to {record.sid!r}; it was not changed")
    return Header(
        uid=record.uid,
        sid=record.sid or "",
        n=record.n,
        base=levels_of(record),
        created=record.ts,
        cold=record.cold or 0,
        high=record.high or 0,
        kept=record.kept or 0,
        moved=record.moved,
        holes=bool(record.holes),
        raw=opening.raw,
    )


class Gaps:
    """Follows the records of a log in their order; `found` says what is missing, "" if nothing is.

    Numbers may have been skipped before a mark: it was written when the log was, and says how many
    records were left. After the last mark every number must be there.
    """

    def __init__(self) -> None:
        self._before_mark = ""
        self._after_mark: list[tuple[int, int]] = []
        self._last = 0
        self._count = 0

    def see(self, record: Record) -> None:
        if record.t == "mark" and record.kept is not None:
            lost = record.kept - self._count
            are = "record is" if lost == 1 else "records are"
            self._before_mark = f"{lost} {are} missing before record {record.n}" if lost else ""
            self._after_mark = []
        elif record.n > self._last + 1 > 1:
            self._after_mark.append((self._last + 1, record.n - 1))
        self._last = record.n
        self._count += 1

    @property
    def found(self) -> str:
        """What is missing; of very many gaps the first are named."""
        found = [self._before_mark] if self._before_mark else []
        names = [f"{first} to {last}" if last > first else str(first) for first, last in self._after_mark]
        if len(names) > _MAX_NAMED_GAPS:
            names[_MAX_NAMED_GAPS:] = [f"and {len(names) - _MAX_NAMED_GAPS} more"]
        if names:
            is_one = len(names) == 1 and " " not in names[0]
            found.append(f"record{'' if is_one else 's'} {', '.join(names)} {'is' if is_one else 'are'} missing")
        return "; ".join(found)


class Survey:
    """Where the records of a log are, by number, and what is damaged; it reads all of the log once."""

    def __init__(self, lines: Lines) -> None:
        self.source = lines
        self._numbers, self._starts, self._sizes = array("q"), array("q"), array("q")
        self.bad: list[Piece] = []
        self.in_order = True
        self._are_lines = True
        self._gaps = Gaps()
        last = 0
        for piece in lines.forward():
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
    def count(self) -> int:
        """How many different records there are."""
        return len(self._numbers) - len(self.repeated())

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
