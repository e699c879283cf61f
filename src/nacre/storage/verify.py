"""Reading a whole log to see whether it is what was written, and whether its states follow from each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from msgspec.structs import replace

from nacre.codec import is_time
from nacre.messages import SHARED, Finding
from nacre.records import Record, Rules
from nacre.storage.blobs import names
from nacre.storage.format import SUFFIX
from nacre.storage.lines import Piece
from nacre.storage.recovery import Gaps
from nacre.storage.view import LogView


def findings(view: LogView, *, key: str, rules: Rules) -> Iterator[Finding]:
    """Everything that is wrong with one log, what was moved out of it, and what it shares with others."""
    if view.base is not None:
        for finding in findings(view.base, key=key, rules=rules):
            yield finding if finding.is_shared else replace(finding, where=f"{SHARED}, {finding.where}")
    if not view.header.uid:
        yield Finding(key=key, kind="header", where="byte 0", detail="the log has no header")
    yield from _check_cold(view, key)
    yield from _check_log(view, key, rules)


def _check_cold(view: LogView, key: str) -> Iterator[Finding]:
    """What is wrong with the records that were moved out."""
    if not view.header.cold:
        return
    # 1. Each damaged frame, and the payloads of what can be read.
    numbers: list[int] = []
    is_damaged = False
    frame, readable = -1, 0
    for piece in view.cold():
        if piece.start != frame:
            frame, readable = piece.start, 0
        if piece.record is None:
            is_damaged = True
            yield _finding(key, "cold", piece, f"moved-out records are damaged; {readable} of them can be read")
        else:
            readable += 1
            numbers.append(piece.record.n)
            yield from _lost_payloads(view, key, piece, piece.record)
            yield from _wrong_time(key, piece, piece.record)
    # 2. How many are missing. Which ones is not known; it can only be said which numbers are not found.
    numbers += [piece.record.n for piece in view.lines.forward() if piece.record is not None]
    if is_damaged or view.moved_lost:
        count = str(view.moved_lost) if view.header.moved is not None else "an unknown number"
        lost = ", ".join(_gaps(numbers, first=view.header.n, last=view.header.high or view.n))
        detail = f"{count} of the moved-out records are missing; numbers that are not found: {lost or 'none'}"
        yield Finding(key=key, kind="cold", where="moved-out records", detail=detail)
    # 3. A record that was brought back is in both files, but it is the same in both.
    twice = {n for n, following in pairwise(sorted(numbers)) if n == following}
    seals: dict[int, bytes] = {}
    for piece in chain(view.cold(), view.lines.forward()) if twice else ():
        if piece.record is not None and piece.record.n in twice:
            # Of one that was erased, what is left may be shorter where it had to fit.
            n, seal = piece.record.n, piece.raw[-SUFFIX:] if piece.record.gone is None else b""
            if seals.setdefault(n, seal) != seal:
                detail = f"record {n} is there twice, with different contents"
                yield Finding(key=key, kind="repeated", where="moved-out records", detail=detail)


def _gaps(numbers: Iterable[int], *, first: int, last: int) -> Iterator[str]:
    """The numbers from first to last that are not among some others: "3", "5 to 9"."""
    known = sorted({first - 1, last + 1, *(n for n in numbers if first <= n <= last)})
    for before, after in pairwise(known):
        if after - before > 1:
            yield str(after - 1) if after - before == 2 else f"{before + 1} to {after - 1}"  # noqa: PLR2004 - one number


def _check_log(view: LogView, key: str, rules: Rules) -> Iterator[Finding]:
    """What is wrong with the lines of a log itself, in one pass over them."""
    before: Record | None = None
    gaps = Gaps()
    end = 0
    for piece in view.lines.forward():
        end, record = piece.end, piece.record
        # 1. A line that is whole, and a line of its own.
        if record is None:
            yield _finding(key, "damage", piece, "not a whole record")
            continue
        if not piece.is_line:
            yield _finding(key, "newline", piece, f"record {record.n} does not have its own line")
        # 2. In order, with what it refers to.
        if before is not None and record.n <= before.n:
            kind, what = ("repeated", "again") if record.n == before.n else ("order", f"after record {before.n}")
            yield _finding(key, kind, piece, f"record {record.n} is here {what}")
            continue
        yield from _lost_payloads(view, key, piece, record)
        yield from _wrong_time(key, piece, record)
        gaps.see(record)
        # 3. Following from the state before it. One that refers to another which is not there is taken at its word.
        if before is not None and record.n == before.n + 1 and record.t not in ("mark", "ids") and not record.pop:
            refers_to = record.upto or record.to
            is_unknown = refers_to and (refers_to <= view.header.high or view.find(refers_to) is None)
            if not is_unknown and rules.replay(record, before.st, view) != (record.p, record.st):
                yield _finding(key, "state", piece, f"record {record.n} does not follow from the one before it")
        before = record
    if end < view.lines.size:
        where = f"bytes {end} to {view.lines.size}"
        yield Finding(key=key, kind="damage", where=where, detail="the file ends before that")
    if gaps.found:
        yield Finding(key=key, kind="missing", where="between records", detail=gaps.found)


def _lost_payloads(view: LogView, key: str, piece: Piece, record: Record) -> Iterator[Finding]:
    for name in names(record) if record.blobs is not None else ():
        if view.payload(name) is None:
            yield _finding(key, "blob", piece, f"a large payload of record {record.n} is lost: {name}")


def _wrong_time(key: str, piece: Piece, record: Record) -> Iterator[Finding]:
    if not is_time(record.ts):
        yield _finding(key, "time", piece, f"the time of record {record.n} is none: {record.ts!r:.60}")


def _finding(key: str, kind: str, piece: Piece, detail: str) -> Finding:
    return Finding(key=key, kind=kind, where=f"bytes {piece.start} to {piece.end}", detail=detail)
