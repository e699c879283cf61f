"""The new content of a log, and the file that replaces the log with it by one rename.

A log is appended to, cut at its end, or replaced. It is replaced when it is repaired, compacted, forked, imported, or
when moved-out records are brought back; nothing in it is ever changed in place.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from nacre.records import FORMAT, ImportedRecord, MemoryView, Record, RecordStamp, Rules, State
from nacre.storage import blobs
from nacre.storage.compaction import Extent
from nacre.storage.format import fields, resealed, seal, sealed_fields, short_enough, unseal
from nacre.storage.paths import SessionPaths, in_blocks, unlink_if_there, write_all
from nacre.storage.recovery import Header, Survey, Tail, state_of
from nacre.storage.system import System
from nacre.storage.transaction import Seen
from nacre.storage.view import LogView


class Successor(NamedTuple):
    """The next content of a log: its lines, and its header, last number and state."""

    header: Header
    n: int
    state: State
    lines: Iterable[bytes]


class Closing(NamedTuple):
    """The last number and state of a log when its successor is made, and the time of that."""

    n: int
    state: State
    ts: str

    def mark(self, *, kept: int, after: int = 1) -> Record:
        """A record that repeats the state, and says how many records are before it."""
        return Record(v=FORMAT, n=self.n + after, t="mark", ts=self.ts, kept=kept, st=self.state)


# ---- what a log is replaced with


def rebuild(survey: Survey, ending: Sequence[bytes], *, header: Header, closing: Closing, key: str) -> Successor:
    """The records of a damaged log: header, surveyed records, ending, mark."""
    # 1. The header as it was; if it is lost, one that says what is known. It also says if records are missing.
    if header.raw:
        old = header.raw + b"\n"
    else:
        known = Record(
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
        old = seal(known)
    line = old
    if header.holes:
        line = sealed_fields({**fields(old[:-1]), "holes": 1}, st=state_of(unseal(old[:-1])))
    header = header._replace(raw=line[:-1])
    # 2. Everything else that is whole.
    surveyed = (other for n, other in survey.lines() if n != header.n)
    ending = [other for other in ending if other != old]
    # 3. How many records that is, so that a later loss is noticed.
    mark = closing.mark(kept=survey.count + (header.n not in survey.numbers()) + len(ending))
    return Successor(header, mark.n, closing.state, chain([line], surveyed, ending, [seal(mark)]))


def relink(tail: Tail, view: LogView, rules: Rules) -> tuple[list[bytes], State]:
    """The lines of the records in doubt, and the state after them.

    After a gap, links and states are computed again: what is missing there was never acknowledged, and must leave no
    trace. `view` is the log up to where doubt begins.

        before   3 -> 4 -> [5 lost] -> 6 -> 7        each record has the link and the state of the one before it
        after    3 -> 4 -------------> 6'-> 7'
    """
    lines: list[bytes] = []
    state, last, has_gap = state_of(tail.before), tail.first - 1, False
    records: list[Record] = []
    view.staged = records
    for raw, record in ((piece.raw, piece.record) for piece in tail.kept if piece.record is not None):
        has_gap = has_gap or record.n != last + 1
        if has_gap:
            p, state = rules.replay(record, state, view)
            lines.append(resealed(raw, p=p, st=state))
            records.append(msgspec.structs.replace(record, p=p, st=state))
        else:
            state = record.st
            lines.append(raw + b"\n")
            records.append(record)
        last = record.n
    return lines, state


def compact(survey: Survey, wanted: set[int], *, header: Header, closing: Closing, ids: dict[str, Seen]) -> Successor:
    """The header, the wanted records, the ids that still count, and a mark."""
    ending = [closing.mark(kept=1 + len(wanted))]
    if ids:
        carried = Record(v=FORMAT, n=closing.n + 1, t="ids", ts=closing.ts, ids=ids, st=closing.state)
        ending = [carried, closing.mark(kept=2 + len(wanted), after=2)]
    kept = (line for n, line in survey.lines() if n in wanted)
    lines = chain([header.raw + b"\n"], kept, map(seal, ending))
    return Successor(header, ending[-1].n, closing.state, lines)


def dead_lines(survey: Survey, wanted: set[int], header: Header) -> Iterator[bytes]:
    """The lines that compaction moves out."""
    return (line for n, line in survey.lines() if n > header.n and n not in wanted)


def renew_header(header: Header, extent: Extent, *, high: int, kept: int) -> Header:
    """The header that says what has been moved out; fields that this version does not know stay."""
    found = fields(header.raw) | {"cold": extent.length, "high": high, "kept": kept, "moved": extent.records}
    line = sealed_fields(found, st=state_of(unseal(header.raw)))
    return header._replace(cold=extent.length, high=high, kept=kept, moved=extent.records, raw=line[:-1])


def bring_back(survey: Survey, moved: dict[int, bytes], *, header: Header, closing: Closing) -> Successor:
    """The surveyed records with moved-out ones in their old places, and a mark."""
    mark = closing.mark(kept=survey.count + len(moved))
    merged = (line for _, line in heapq.merge(survey.lines(), sorted(moved.items())))
    return Successor(header, mark.n, closing.state, chain(merged, [seal(mark)]))


def import_records(  # noqa: PLR0913 - all that an imported session has
    records: Sequence[ImportedRecord], *, key: str, uid: str, src: dict[str, Any], created: str, rules: Rules
) -> tuple[Successor, blobs.Payloads]:
    """The log of an imported session, with the old times and with its source in the header, and its large payloads.

    Raises what any of its operations raises.
    """
    opening = Record(v=FORMAT, n=1, t="open", ts=created, sid=key, uid=uid, src=src, st=State())
    lines = [seal(opening)]
    payloads: blobs.Payloads = {}
    view = MemoryView([opening])
    for imported in records:
        stamp = RecordStamp(n=view.n + 1, ts=imported.ts)
        record = rules.apply(imported.operation, stamp, view.state, view)
        if record is not None:
            light, taken = blobs.lightened(record)
            payloads |= taken
            lines.append(short_enough(seal(light)))
            view.add(light)
    header = Header(uid=uid, sid=key, created=created, raw=lines[0][:-1])
    return Successor(header, view.n, view.state, lines), payloads


# ---- the file


class Scratch:
    """A new log under a temporary name, locked from the start."""

    def __init__(self, system: System, place: SessionPaths) -> None:
        self._system = system
        self._place = place
        self.size = 0
        unlink_if_there(system, place.scratch)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self.fd = system.open(place.scratch, flags, 0o600)
        # Others who open the new log by its name must wait until we unlock it.
        system.flock(self.fd, wait=True)

    def write(self, lines: Iterable[bytes]) -> None:
        """Write lines, in blocks of about a megabyte."""
        for block in in_blocks(lines):
            write_all(self._system, self.fd, block)
            self.size += len(block)

    def install(self) -> None:
        """Flush the new log and give it the old one's name; the name is not yet flushed."""
        self._system.fsync(self.fd)
        self._system.rename(self._place.scratch, self._place.log)

    def discard(self) -> None:
        self._system.close(self.fd)
        try:
            unlink_if_there(self._system, self._place.scratch)
        except OSError:
            # The next rewrite removes it; the log itself was not touched.
            return
