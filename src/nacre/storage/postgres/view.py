"""A generation of a session as it is in the database: its row, and its records, read in parts as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from nacre.checks import check_key
from nacre.records import Losses, Record, State
from nacre.storage import blobs
from nacre.storage.format import unseal
from nacre.storage.postgres.connections import Rows
from nacre.storage.postgres.schema import ARCHIVED
from nacre.storage.postgres.statements import Statements
from nacre.storage.recovery import Header

# Most readers want the last messages; one who reads on wants many.
_FIRST_PART, _MAX_PART = 128, 1024
_MAX_KNOWN = 16 * _MAX_PART
_MAX_NUMBER = (1 << 63) - 1
_decode_state = msgspec.json.Decoder(State).decode
_decode_base = msgspec.json.Decoder(list[tuple[str, str, int]]).decode


Read = Callable[..., Rows]
"""Gives the rows of a statement with its values."""


@lru_cache(maxsize=65536)
def sid_of(key: str) -> str:
    """What the rows of a session have in common: a hash of its key, since a key may be longer than an index takes.

    Raises InvalidKey for what cannot be a key.
    """
    return sha256(check_key(key).encode()).hexdigest()[:32]


class Level(NamedTuple):
    """Records of another generation that a fork shares, up to a number."""

    sid: str
    uid: str
    upto: int


class Head(NamedTuple):
    """The row of a generation. It is `forked` if ids of others count for it: it is a fork, or not the first one."""

    uid: str
    status: int
    n: int
    state: State
    first: int
    base: tuple[Level, ...]
    forked: bool
    holes: bool
    patched: bool
    created: str
    updated: str
    bytes: int

    @property
    def shared(self) -> int:
        """The last record that it shares with the session that it was forked from; 0 if it is no fork."""
        return self.base[-1].upto if self.base else 0


def head_of(row: Sequence[bytes | None]) -> Head:
    """A head from its row, with the columns of `statements`."""
    uid, status, n, state, first, base, forked, holes, patched, created, updated, size = [value or b"" for value in row]
    levels = tuple(Level(*level) for level in _decode_base(base)) if base else ()
    return Head(
        plain_uid(uid),
        int(status),
        int(n),
        _decode_state(state),
        int(first),
        levels,
        forked == b"t",
        holes == b"t",
        patched == b"t",
        created.decode(),
        updated.decode(),
        int(size),
    )


def plain_uid(value: bytes | None) -> str:
    """A uid as records have it, from a column."""
    return (value or b"").replace(b"-", b"").decode()


class PostgresView:
    """One generation of a session at one moment: the records up to the number that its row had.

    Records are never changed, but for one that is erased. So no transaction is needed for a view to be consistent;
    only a session that is deleted meanwhile loses its records, which the store finds out when some are missing.
    """

    def __init__(self, read: Read, statements: Statements, *, key: str, sid: str, head: Head) -> None:
        self._read, self._statements = read, statements
        self.key, self._sid, self.head = key, sid, head
        self.staged: Sequence[Record] = ()
        self.is_newest = True
        self._lines: dict[int, bytes] = {}
        self._payloads: dict[str, str | None] = {}
        self.damaged: dict[int, bytes] = {}
        self.missing: set[int] = set()
        self._lost_payloads: set[str] = set()

    # ---- what the row says

    @property
    def uid(self) -> str:
        return self.head.uid

    @property
    def n(self) -> int:
        return self.head.n

    highest = n

    @property
    def state(self) -> State:
        return self.head.state

    @property
    def created(self) -> str:
        return self.head.created

    @property
    def is_archived(self) -> bool:
        return self.head.status >= ARCHIVED

    @property
    def has_holes(self) -> bool:
        return self.head.holes or bool(self.damaged) or bool(self.missing)

    @property
    def losses(self) -> Losses:
        return Losses(len(self.damaged) + len(self.missing), len(self._lost_payloads))

    @property
    def header(self) -> Header:
        """What the first record says, as far as one who appends needs it."""
        head = self.head
        return Header(uid=head.uid, sid=self.key, n=head.first, created=head.created, holes=head.holes)

    # ---- records

    def find(self, n: int) -> Record | None:
        for record in self.staged:
            if record.n == n:
                return record
        if not 0 < n <= self.n:
            return None
        line = self._lines.get(n) or next((line for number, line in self._part(n - 1, n, 1) if number == n), None)
        return self._record(n, line) if line is not None else None

    def back(self, n: int) -> Iterator[Record]:
        yield from (record for record in reversed(self.staged) if record.n <= n)
        upto, size = min(n, self.n), _FIRST_PART
        while upto > 0:
            part = self._part(0, upto, size)
            for number, line in part:
                if number < upto:
                    self._note_missing(number, upto)
                upto = number - 1
                if (record := self._record(number, line)) is not None:
                    yield record
            if len(part) < size:
                # The first record of all is its header: what comes before the last one found is missing.
                self._note_missing(0, upto)
                return
            size = _MAX_PART

    def all(self) -> Iterator[Record]:
        return (record for record, _ in self.all_lines())

    def all_lines(self) -> Iterator[tuple[Record, bytes]]:
        n, size = 0, _FIRST_PART
        while n < self.n:
            part = self._part_after(n, size)
            for number, line in part:
                self._note_missing(n, number - 1)
                n = number
                if (record := self._record(number, line)) is not None:
                    yield record, line + b"\n"
            if not part:
                self._note_missing(n, self.n)
                return
            size = _MAX_PART

    def after(self, n: int, limit: int) -> list[Record]:
        found: list[Record] = []
        while n < self.n and len(found) < limit:
            part = self._part_after(n, min(max(limit, 1), _MAX_PART))
            if not part:
                break
            found += (record for number, line in part if (record := self._record(number, line)) is not None)
            n = part[-1][0]
        return found

    def moved(self, n: int) -> Iterator[Record]:  # noqa: ARG002 - nothing is moved out of a table
        return iter(())

    def whole(self, record: Record) -> Record:
        return blobs.whole(record, self.payload)

    def payload(self, name: str) -> str | None:
        """A large payload that a record names; None if it is lost, or not what was written."""
        if name not in self._payloads:
            places = [(self._sid, self.uid), *((level.sid, level.uid) for level in reversed(self.head.base))]
            # It may be given to this one, and erased in the other, between two looks.
            places += places[:1] if self.head.base else []
            self._payloads[name] = None
            for sid, uid in places:
                rows = self._read(self._statements.blob, sid, uid, name)
                if rows and (data := rows[0][0]) is not None and sha256(data).hexdigest() == name:
                    self._payloads[name] = data.decode()
                    break
        if self._payloads[name] is None:
            self._lost_payloads.add(name)
        return self._payloads[name]

    # ---- rows

    def _part(self, after: int, upto: int, size: int) -> list[tuple[int, bytes]]:
        """The last rows between two numbers, the newest first, of the fork itself and then of what it shares."""
        return self._rows(after, upto, size, goes_back=True)

    def _part_after(self, n: int, size: int) -> list[tuple[int, bytes]]:
        """The next rows after a number, oldest first."""
        return self._rows(n, self.n, size, goes_back=False)

    def _rows(self, after: int, upto: int, size: int, *, goes_back: bool) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        ranges = self._ranges(after, upto)
        for sid, uid, low, high in ranges if goes_back else reversed(ranges):
            statement = self._statements.back if goes_back else self._statements.forth
            rows = self._read(statement, sid, uid, low, high, size - len(found))
            found += [(int(n or b"0"), line or b"") for n, line in rows]
            if len(found) >= size:
                break
        # Its row may have been read before a shared record was erased in the other session.
        if after < self.head.shared and (self.head.patched or any(b'"gone":' in line for _, line in found)):
            found = self._patched(found, after, upto, size, goes_back=goes_back)
        if len(self._lines) > _MAX_KNOWN:
            # A reader of a whole long session must not have all of it in memory.
            self._lines.clear()
        self._lines.update(found)
        return found

    def _ranges(self, after: int, upto: int) -> list[tuple[str, str, int, int]]:
        """Where the records between two numbers are, the newest first."""
        levels = [Level(self._sid, self.uid, _MAX_NUMBER), *reversed(self.head.base)]
        lows = [level.upto for level in levels[1:]] + [0]
        found = []
        for level, low in zip(levels, lows, strict=True):
            start, end = max(after, low), min(upto, level.upto)
            if start < end:
                found.append((level.sid, level.uid, start, end))
        return found

    def _patched(
        self, found: list[tuple[int, bytes]], after: int, upto: int, size: int, *, goes_back: bool
    ) -> list[tuple[int, bytes]]:
        """The same rows, with the fork's own in the place of those shared ones that were erased in either."""
        own = self._read(self._statements.forth, self._sid, self.uid, after, min(upto, self.head.shared), _MAX_NUMBER)
        merged = dict(found) | {int(n or b"0"): line or b"" for n, line in own}
        if len(found) >= size:
            # Only as far as the others were read.
            end = found[-1][0]
            merged = {n: line for n, line in merged.items() if (n >= end if goes_back else n <= end)}
        return sorted(merged.items(), reverse=goes_back)

    def _record(self, n: int, line: bytes) -> Record | None:
        record = unseal(line)
        if record is None or record.n != n:
            self.damaged[n] = line
            return None
        return record

    def _note_missing(self, after: int, upto: int) -> None:
        """Note numbers between two that have no row, in a session that was not known to have lost records."""
        if after < upto and not self.head.holes:
            self.missing.update(range(after + 1, upto + 1))
