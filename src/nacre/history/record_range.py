"""Some records of a session: of one kind, between two numbers, the last few."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nacre.records import Record, View


class RecordRange(NamedTuple):
    """Which records are asked for: of a kind, or of all; `after` and `before` are exclusive."""

    kind: str | None = None
    after: int = 0
    before: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether only one generation is meant, since numbers start again with each."""
        return self.after > 0 or self.before is not None

    def has(self, record: Record) -> bool:
        """Tell whether a record is of the kind, and between the numbers."""
        is_before = self.before is None or record.n < self.before
        return self.kind in (None, record.t) and self.after < record.n and is_before

    def last_number(self, view: View) -> int:
        """The number after which there is none of them."""
        return view.highest if self.before is None else min(view.highest, self.before - 1)

    def newest(self, view: View, most: int) -> list[Record]:
        """The last few of them, oldest first; what is older is not read."""
        found: deque[Record] = deque()
        n = self.last_number(view) + 1
        for record in view.back(n - 1) if most else ():
            if record.n < n - 1 or record.n <= self.after:
                break
            n = record.n
            if self.has(record):
                found.appendleft(record)
            if len(found) >= most:
                break
        if len(found) >= most or n <= self.after + 1:
            return list(found)
        # Where numbers are missing, records may have been moved out of the log: read the rest with them.
        older = (record for record in view.all() if record.n < n and self.has(record))
        return [*deque(older, maxlen=most - len(found)), *found]
