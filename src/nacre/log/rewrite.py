"""What takes a log's place: mended, with dead records moved out, or with moved-out ones brought back."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from nacre.entries import FORMAT, Record, Rules, State
from nacre.log.cold import Extent
from nacre.log.format import fields, resealed, seal, sealed_fields, unseal
from nacre.log.idempotency import Seen
from nacre.log.past import LogPast
from nacre.log.recovery import Header, Tail, state_of
from nacre.log.survey import Survey


class Successor(NamedTuple):
    """A log to be: its lines, and where it stands at their end."""

    header: Header
    n: int
    state: State
    lines: Iterable[bytes]


class Closing(NamedTuple):
    """Where a log stands when its successor is made, and the time of that."""

    n: int
    state: State
    ts: str

    def mark(self, *, kept: int, after: int = 1) -> Record:
        """A restatement of the state, and of how many records stand before it."""
        return Record(v=FORMAT, n=self.n + after, t="mark", ts=self.ts, kept=kept, st=self.state)


def mended(survey: Survey, ending: Sequence[bytes], *, header: Header, closing: Closing, key: str) -> Successor:
    """The surveyed records, an ending, and a mark of the state; with the header, if it is not among them."""
    old = header.raw + b"\n" if header.raw else _header_line(header, closing, key)
    line = _with_holes(old) if header.holes else old
    header = header._replace(raw=line[:-1])
    surveyed = (other for n, other in survey.lines() if n != header.n)
    ending = [other for other in ending if other != old]
    mark = closing.mark(kept=survey.count + (header.n not in survey.numbers()) + len(ending))
    return Successor(header, mark.n, closing.state, chain([line], surveyed, ending, [seal(mark)]))


def compacted(survey: Survey, wanted: set[int], *, header: Header, closing: Closing, ids: dict[str, Seen]) -> Successor:
    """The header, the wanted records, the ids that still count, and a mark."""
    ending = [closing.mark(kept=1 + len(wanted))]
    if ids:
        carried = Record(v=FORMAT, n=closing.n + 1, t="ids", ts=closing.ts, ids=ids, st=closing.state)
        ending = [carried, closing.mark(kept=2 + len(wanted), after=2)]
    kept = (line for n, line in survey.lines() if n in wanted)
    lines = chain([header.raw + b"\n"], kept, map(seal, ending))
    return Successor(header, ending[-1].n, closing.state, lines)


def brought_back(survey: Survey, moved: dict[int, bytes], *, header: Header, closing: Closing) -> Successor:
    """The surveyed records with moved-out ones in their old places, and a mark."""
    mark = closing.mark(kept=survey.count + len(moved))
    merged = (line for _, line in heapq.merge(survey.lines(), sorted(moved.items())))
    return Successor(header, mark.n, closing.state, chain(merged, [seal(mark)]))


def redone(tail: Tail, past: LogPast, rules: Rules) -> tuple[list[bytes], State]:
    """The lines of the records in doubt, and the state at their end.

    Behind a gap, links and states are computed anew: what is missing there was never acknowledged,
    and must leave no trace. `past` is the log up to where doubt begins.
    """
    lines: list[bytes] = []
    state, last, gap = state_of(tail.before), tail.first - 1, False
    records: list[Record] = []
    past.staged = records
    for raw, record in ((piece.raw, piece.record) for piece in tail.kept if piece.record is not None):
        gap = gap or record.n != last + 1
        if gap:
            p, state = rules.redo(record, state, past)
            lines.append(resealed(raw, p=p, st=state))
            records.append(msgspec.structs.replace(record, p=p, st=state))
        else:
            state = record.st
            lines.append(raw + b"\n")
            records.append(record)
        last = record.n
    return lines, state


def renewed(header: Header, extent: Extent, *, high: int, kept: int) -> Header:
    """The header that says what has been moved out; fields that this version does not know stay."""
    found = fields(header.raw) | {"cold": extent.length, "high": high, "kept": kept, "moved": extent.records}
    record = unseal(header.raw)
    line = sealed_fields(found, st=state_of(record))
    return header._replace(cold=extent.length, high=high, kept=kept, moved=extent.records, raw=line[:-1])


def dead(survey: Survey, wanted: set[int], header: Header) -> Iterator[bytes]:
    """The lines that compaction moves out."""
    return (line for n, line in survey.lines() if n > header.n and n not in wanted)


def _with_holes(line: bytes) -> bytes:
    """A header's line that says that acknowledged records are missing in its log."""
    found = fields(line[:-1])
    base = {name: value for name, value in found.items() if name not in ("st", "br")}
    return sealed_fields({**base, "holes": 1}, st=state_of(unseal(line[:-1])))


def _header_line(header: Header, closing: Closing, key: str) -> bytes:
    record = Record(
        v=FORMAT,
        n=1,
        t="open",
        ts=closing.ts,
        sid=key,
        uid=header.uid,
        cold=header.cold or None,
        high=header.high or None,
        moved=header.moved if header.cold else None,
        st=State(),
    )
    return seal(record)
