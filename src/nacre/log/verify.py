"""Reading a whole log to see whether it is what was written, and whether its states follow from each other."""

from __future__ import annotations

from collections.abc import Iterator

from nacre.entries import Finding, Record, Rules, State
from nacre.log.lines import Piece
from nacre.log.past import LogPast


def findings(past: LogPast, *, key: str, rules: Rules) -> Iterator[Finding]:
    """Everything that is wrong with one log and what was moved out of it."""
    if not past.header.uid:
        yield Finding(key=key, kind="header", where="byte 0", detail="the log has no header")
    for piece in past.cold():
        if piece.record is None:
            yield _finding(key, "cold", piece, "moved-out records cannot be read")
    yield from _log_findings(past, key, rules)


def _log_findings(past: LogPast, key: str, rules: Rules) -> Iterator[Finding]:
    before: Record | None = None
    for piece in past.lines.forward():
        record = piece.record
        if record is None:
            yield _finding(key, "damage", piece, "not a whole record")
        elif before is not None and record.n == before.n:
            yield _finding(key, "repeated", piece, f"record {record.n} is there twice")
        elif before is not None and record.n < before.n:
            yield _finding(key, "order", piece, f"record {record.n} stands behind record {before.n}")
        else:
            if before is not None and record.n == before.n + 1 and not _follows(record, before.st, past, rules):
                yield _finding(key, "state", piece, f"record {record.n} does not follow from the one before it")
            before = record


def _follows(record: Record, state: State, past: LogPast, rules: Rules) -> bool:
    """Tell whether a record follows from a state; one that refers to what was moved out is taken at its word."""
    refers_to = record.upto or record.to or (record.n if record.pop else 0)
    if record.t in ("mark", "ids") or 0 < refers_to <= past.header.high:
        return True
    return rules.redo(record, state, past) == (record.p, record.st)


def _finding(key: str, kind: str, piece: Piece, detail: str) -> Finding:
    return Finding(key=key, kind=kind, where=f"bytes {piece.start} to {piece.end}", detail=detail)
