"""Noticing that records are missing, where not a byte of them is left."""

from __future__ import annotations

from nacre.entries import Record


class Gaps:
    """Follows the records of a log in their order; `found` says what is missing, "" if nothing is.

    Numbers may have been skipped before a mark: it was written when the log was, and says how many
    records were left. Behind the last mark every number must be there.
    """

    def __init__(self) -> None:
        self.found = ""
        self._last = 0
        self._count = 0

    def see(self, record: Record) -> None:
        if record.t == "mark" and record.kept is not None:
            lost = record.kept - self._count
            self.found = f"{lost} records before record {record.n} are missing" if lost else ""
        elif record.n > self._last + 1 > 1:
            self.found = f"records {self._last + 1} to {record.n - 1} are missing"
        self._last = record.n
        self._count += 1
