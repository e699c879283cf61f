"""Noticing that records are missing, where not a byte of them is left."""

from __future__ import annotations

from nacre.entries import Record

_MOST_NAMED = 20


class Gaps:
    """Follows the records of a log in their order; `found` says what is missing, "" if nothing is.

    Numbers may have been skipped before a mark: it was written when the log was, and says how many
    records were left. Behind the last mark every number must be there.
    """

    def __init__(self) -> None:
        self._before_mark = ""
        self._gaps: list[tuple[int, int]] = []
        self._last = 0
        self._count = 0

    def see(self, record: Record) -> None:
        if record.t == "mark" and record.kept is not None:
            lost = record.kept - self._count
            are = "record is" if lost == 1 else "records are"
            self._before_mark = f"{lost} {are} missing before record {record.n}" if lost else ""
            self._gaps = []
        elif record.n > self._last + 1 > 1:
            self._gaps.append((self._last + 1, record.n - 1))
        self._last = record.n
        self._count += 1

    @property
    def found(self) -> str:
        return "; ".join(filter(None, (self._before_mark, self._behind_mark())))

    def _behind_mark(self) -> str:
        """Name the numbers that are missing, of very many gaps the first."""
        names = [f"{first} to {last}" if last > first else str(first) for first, last in self._gaps]
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED:] = [f"and {len(names) - _MOST_NAMED} more"]
        is_one = len(self._gaps) == 1 and self._gaps[0][0] == self._gaps[0][1]
        return f"record{'' if is_one else 's'} {', '.join(names)} {'is' if is_one else 'are'} missing" if names else ""
