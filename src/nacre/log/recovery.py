"""How a log ends: which records count, what is damage, and whether it can be mended by a cut.

A batch is written only after the one before it was flushed. So the last batch, and relaxed ones
before it, are all that a crash may have left incomplete; everything before them was acknowledged.
"""

from __future__ import annotations

from typing import NamedTuple

from nacre.entries import LONGEST_LINE, Record, State
from nacre.errors import LogDamaged
from nacre.log.format import START, righted, unseal
from nacre.log.lines import Lines, Piece


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
    """The end of a log as it counts.

    `kept` are the pieces in doubt that stay, `bad` those that do not, `before` the last record that
    is beyond doubt, `first` the number at which doubt begins. `torn` is true when everything bad is
    behind everything kept, `headed` when the log begins with its header as that was written.
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
        """True if there is nothing to mend: every record has a line of its own, in order, behind a header."""
        return self.torn and not self.bad and self.headed


def examine(lines: Lines, *, key: str) -> Tail:
    """Read how a log ends, and its header, but not what is between.

    An empty key is any session's. Raises LogDamaged if the header names another session, FormatTooNew
    if a later version wrote it.
    """
    before, first, found = _in_doubt(lines)
    start = before.end if before is not None else 0
    kept, bad = _sorted_out(found, after=before.record.n if before is not None and before.record is not None else 0)
    opening, headed = _opening(lines, kept)
    return Tail(
        header=_header(opening, key=key),
        headed=headed,
        start=start,
        before=before.record if before is not None else _beginning(opening, kept),
        first=first,
        kept=kept,
        bad=bad,
        torn=all(piece.start >= (kept[-1].end if kept else start) for piece in bad) and _are_lines(kept, start),
    )


def was_cut_short(tail: Tail) -> bool:
    """Tell whether the bytes in doubt are the beginning of what was written, as a write leaves that a crash ended.

    These are whole lines in order, then at most one that has no newline, and NUL bytes where a power cut left a file
    longer than what was written of it. Nobody was told that the rest was stored. Anything else may be rot.
    """
    *before, last = sorted([*tail.kept, *tail.bad], key=_start)
    for n, piece in enumerate(before, tail.first):
        if piece.record is None or piece.record.n != n or not (piece.is_line or piece.end == last.start):
            return False
    if last.record is not None:
        return last.record.n == tail.first + len(before)
    begun = last.raw.rstrip(b"\0")
    return last.end - last.start == len(last.raw) and (begun.startswith(START) or START.startswith(begun))


def glance(lines: Lines, *, key: str) -> Tail:
    """Like `examine`, but content with a last record that stands alone: all before it was acknowledged."""
    last = lines.last()
    record = last.record if last is not None else None
    if last is None or record is None or record.b is not None or record.r or record.tx is not None:
        return examine(lines, key=key)
    opening, headed = _opening(lines, [last])
    return Tail(
        header=_header(opening, key=key),
        headed=headed,
        start=last.start,
        before=None,
        first=record.n,
        kept=[last],
        bad=[],
        torn=True,
    )


def _in_doubt(lines: Lines) -> tuple[Piece | None, int, list[Piece]]:
    """The last piece beyond doubt, the first number in doubt, and the pieces from there on."""
    found: list[Piece] = []
    proof = 0
    for piece in lines.backward(lines.size):
        record = piece.record
        if record is not None:
            if proof and record.n < proof:
                return piece, proof, found[::-1]
            if not proof and not record.r:
                proof = record.batch
        found.append(piece)
    return None, proof or 1, found[::-1]


def _sorted_out(found: list[Piece], *, after: int) -> tuple[list[Piece], list[Piece]]:
    """Split pieces into records that stay, by number, and what goes: damage, repetitions, incomplete groups."""
    good: dict[int, Piece] = {}
    bad: list[Piece] = []
    for piece in found:
        if piece.record is None or piece.record.n <= after or piece.record.n in good:
            bad.append(piece)
        else:
            good[piece.record.n] = piece
    groups = {piece.record.tx for piece in good.values() if piece.record is not None and piece.record.tx is not None}
    for first, count in groups:
        members = range(first, first + count)
        if not _is_complete(members, good):
            bad += [good.pop(n) for n in members if n in good]
    return [good[n] for n in sorted(good)], sorted(bad, key=_start)


def _start(piece: Piece) -> int:
    return piece.start


def _is_complete(members: range, good: dict[int, Piece]) -> bool:
    return all(n in good for n in members)


def _are_lines(kept: list[Piece], start: int) -> bool:
    """Tell whether pieces follow each other as lines of their own."""
    for piece in kept:
        if piece.start != start or not piece.is_line:
            return False
        start = piece.end
    return True


def _opening(lines: Lines, kept: list[Piece]) -> tuple[Piece | None, bool]:
    """The header, None if it is lost, and whether it stands where it should, as it was written."""
    first = kept[0] if kept and kept[0].start == 0 else lines.first()
    if _is_header(first):
        return first, True
    first = next((piece for piece in lines.forward() if piece.record is not None), None)
    if _is_header(first):
        return first, False
    end = first.start if first is not None else lines.size
    raw = righted(lines.read(0, min(end, LONGEST_LINE)).removesuffix(b"\n"))
    found = Piece(0, end, raw, unseal(raw))
    return found if _is_header(found) else None, False


def _is_header(piece: Piece | None) -> bool:
    return piece is not None and piece.record is not None and piece.record.t == "open" and bool(piece.record.uid)


def _beginning(opening: Piece | None, kept: list[Piece]) -> Record | None:
    """The header of a fork, whose own bytes are damaged: what it shares is there without any other record."""
    record = opening.record if opening is not None else None
    return record if record is not None and record.base is not None and opening not in kept else None


def _header(opening: Piece | None, *, key: str) -> Header:
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


def levels_of(record: Record) -> tuple[Level, ...]:
    """The logs below a fork, the nearest first."""
    base = record.base or {}
    levels = [Level(*level) for level in base.get("levels", ())]
    counts = base.get("moved") or [None] * len(levels)
    return tuple(level._replace(moved=moved) for level, moved in zip(levels, counts, strict=True))


def state_of(record: Record | None) -> State:
    return record.st if record is not None else State()
