"""Transactions on their way into a log: known by their ids, numbered, linked and sealed, but not yet written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol, assert_never

import msgspec

from nacre.codec import timestamp
from nacre.errors import Conflict, LeaseLost, Refused
from nacre.messages import Version
from nacre.records import (
    FORMAT,
    AppendMessage,
    AppendRecord,
    CallerOperation,
    Pop,
    Record,
    Records,
    RecordStamp,
    Rewind,
    Rules,
    SetMeta,
    State,
    Summarise,
    Transaction,
    Truncate,
)
from nacre.storage import blobs
from nacre.storage.format import seal, short_enough
from nacre.storage.recovery import Header
from nacre.storage.system import is_from_system

WINDOW = 4096
_SURPLUS = WINDOW // 8
"""How many ids that no longer count may wait until they are all forgotten at once."""
_LIGHT = 1024
_MAINTENANCE = ("mark", "ids")

Seen = tuple[int, str]
"""The number that was returned, and a fingerprint of what was stored; "" if some of that was erased."""


class Ids:
    """The idempotency keys of the last records of one log, so that a retry is not stored twice.

    They are read on first use and then kept up to date.

    Those of the generation before it count too, so that a retry is not stored twice if the session was archived
    in between, until this one has as many records as count.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._upto = 0
        self._earlier: Mapping[str, Seen] = {}
        self._has_earlier = False
        self._keeps = (0, False)
        # The earlier generations that keep their ids; None if they were not looked for yet.
        self.keepers: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def is_light(self) -> bool:
        """Whether it may be kept for a log that is not open."""
        return len(self._seen) <= _LIGHT

    def window(self, view: Records, earlier: Callable[[], Mapping[str, Seen]] = dict) -> dict[str, Seen]:
        """The ids that still count; `earlier` gives those of the generation before."""
        if not self._has_earlier and view.n < WINDOW:
            self._earlier = earlier()
            self._seen = {**self._earlier, **self._seen}
        self._has_earlier = True
        if self._upto < view.n:
            # Take in the ids of transactions whose last record is in the window, however long they are.
            found: dict[str, Seen] = {}
            later: dict[int, Record] = {}
            for record in view.back(view.n):
                first, count = record.tx or (record.n, 1)
                last = first + count - 1
                if last <= max(self._upto, view.n - WINDOW):
                    break
                later[record.n] = record
                for id, seen in (record.ids or {}).items():
                    found.setdefault(id, seen)
                # What compaction carried over is right, even if it moved part of the group out.
                if record.id is not None and record.id not in found:
                    group = (later[n] for n in range(first, first + count) if n in later)
                    found[record.id] = (last, print_of(group, view))
            self._seen.update(found)
            self._upto = view.n
        if view.n >= WINDOW and (self._earlier or len(self._seen) > WINDOW + _SURPLUS):
            floor, earlier_ids = view.n - WINDOW, self._earlier
            self._seen = {
                id: seen for id, seen in self._seen.items() if seen[0] > floor and seen is not earlier_ids.get(id)
            }
            self._earlier = {}
        return self._seen

    def are_kept(self, view: Records, state: State, rules: Rules) -> bool:
        """Tell whether they count without limit, which is read again only if the meta has changed."""
        if state.mp > view.n:
            # It is not written yet, and may never be: then another meta gets its number.
            return rules.keeps_ids(view, state)
        if self._keeps[0] != state.mp:
            self._keeps = (state.mp, rules.keeps_ids(view, state))
        return self._keeps[1]

    def add(self, ids: dict[str, Seen], *, after: int, upto: int) -> None:
        """Take in the ids of a batch that was stored after record `after`, if everything before it is known."""
        if self._upto == after:
            self._seen.update(ids)
            self._upto = upto


def fingerprint(contents: Iterable[bytes]) -> str:
    """Tell contents apart in sixteen characters."""
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, which is for those who use ids

    digest = blake2b(digest_size=8)
    for content in contents:
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def units(records: Iterable[Record]) -> Iterator[tuple[int, int, Sequence[Record]]]:
    """Records in their order, by what was stored as one transaction: its first and last number, and its records."""
    for _, group in groupby(records, key=lambda record: record.tx or record.n):
        parts = list(group)
        first, count = parts[0].tx or (parts[0].n, 1)
        yield first, first + count - 1, parts


def print_of(records: Iterable[Record], view: Records) -> str:
    """The fingerprint of what was stored as one transaction.

    Of what was erased there is none: any content is taken for the same.
    """
    group = list(records)
    is_known = all(record.gone is None for record in group)
    return fingerprint(_content(record, view) for record in group) if is_known else ""


def content_of(operation: CallerOperation) -> bytes:
    """What an operation stores, for its fingerprint; `_content` reads the same from its record."""
    match operation:
        case AppendMessage(raw, _, has_bytes):
            return _mark(bytes(raw), has_bytes=has_bytes)
        case AppendRecord(kind, data, has_bytes):
            return _mark(_note(kind, data), has_bytes=has_bytes)
        case SetMeta(fields):
            return _note("meta", fields)
        case Summarise(text, upto):
            return _note("sum", [text, upto])
        case Truncate(keep):
            return _note("trunc", keep)
        case Rewind(to, keeps_summary):
            return _note("head", [to, keeps_summary])
        case Pop():
            return _note("head", "pop")
        case _:
            assert_never(operation)


def _mark(text: bytes, *, has_bytes: bool) -> bytes:
    """Tell bytes from the text that they are written as."""
    return b"\0" + text if has_bytes else text


def _content(record: Record, view: Records) -> bytes:
    record = record if record.blobs is None else view.whole(record)
    match record.t:
        case "meta" if record.set is not None:
            meta = record.meta or {}
            return _note("meta", {name: meta.get(name) for name in record.set})
        case "sum":
            return _note("sum", [record.text, record.upto])
        case "trunc":
            return _note("trunc", record.keep)
        case "head":
            return _note("head", "pop" if record.pop else [record.to, record.sum])
        case _:
            text = msgspec.json.encode(record.m) if record.m is not None else _note(record.t, record.data)
            return _mark(text, has_bytes=record.bin)


def _note(kind: str, data: Any) -> bytes:
    # Fields in the order of their names: that of the caller is not known any more, except in what a caller's own
    # record holds, where it counts.
    return kind.encode() + msgspec.json.encode(data, order="sorted" if kind == "meta" else None)


class Expectable(Protocol):
    """What an expectation is compared with."""

    @property
    def n(self) -> int:
        """Number of the last record."""

    @property
    def uid(self) -> str:
        """Which generation it is."""

    @property
    def state(self) -> State:
        """Where the session stands after it."""

    def find(self, n: int) -> Record | None:
        """Record `n`."""


def check_expect(expect: int | Version | None, found: Expectable | None) -> None:
    """Raise Conflict if a session, or none, is not as a caller expects it."""
    if expect is None:
        return
    # A log with only a header was never fully created.
    now = Version(found.n, found.uid) if found is not None and found.n > 1 else Version()
    if not isinstance(expect, Version):
        h = found.state.h if found is not None else 0
        if expect != h:
            raise Conflict(f"history last changed at record {h}, not {expect}; nothing was stored")
    elif expect != now and (found is None or not _is_maintained(found, expect, now)):
        raise Conflict(f"the session is at {_describe(now)}, not at {_describe(expect)}; nothing was stored")


def _is_maintained(found: Expectable, before: Version, now: Version) -> bool:
    """Tell whether only maintenance has added records between two versions; one that is lost may have been any."""
    if before.generation != now.generation or before.n > now.n:
        return False
    return all((record := found.find(n)) and record.t in _MAINTENANCE for n in range(now.n, before.n, -1))


def _describe(version: Version) -> str:
    return f"record {version.n} of generation {version.generation or repr('')}" if version.n else "no record"


class Growing(Records, Protocol):
    """A view that records are being added to: it shows those which are numbered but not yet written."""

    staged: Sequence[Record]

    @property
    def key(self) -> str:
        """Whose session it is."""

    def window(self) -> dict[str, Seen]:
        """The idempotency keys that still count."""

    def kept(self, id: str, state: State, rules: Rules) -> Seen | None:
        """What was stored under an id that counts without limit, in this generation or an earlier one."""

    def next_uid(self) -> str:
        """The uid of a generation that begins now."""

    def earlier_fence(self) -> int:
        """The fence of the generation before it, which holds in the next one; 0 if there is none."""

    @property
    def header(self) -> Header:
        """What the first record says of the session."""


class PendingCommit(msgspec.Struct, eq=False):
    """A transaction, and what came of it: a number or an error."""

    transaction: Transaction
    number: int | None = None
    error: Exception | None = None


def refusal(key: str, error: Exception) -> Exception:
    """The error for the caller of a transaction that was not stored; one of the system becomes Refused."""
    return Refused(f"session {key!r}: nothing was stored: {error}") if is_from_system(error) else error


class Batch:
    """What one write and one flush will store; `view` is the log before it."""

    __slots__ = ("_relaxed", "_rules", "_ts", "_view", "header", "ids", "lines", "n", "payloads", "records", "state")

    def __init__(self, view: Growing, *, rules: Rules, now: float, relaxed: bool = False) -> None:
        self._view = view
        self._rules = rules
        self._ts = timestamp(now)
        self._relaxed = relaxed
        self.header = view.header
        self.n = view.n
        self.state = view.state
        self.records: list[Record] = []
        view.staged = self.records
        self.lines: list[bytes] = []
        self.ids: dict[str, Seen] = {}
        self.payloads: blobs.Payloads = {}

    def take(self, commit: PendingCommit) -> int:
        """Number a transaction; if it is refused, or was already, its commit has the error and the others go on.

        The error of one transaction, whatever it is, is not that of the others.
        """
        lines = len(self.lines)
        try:
            return self.add(commit.transaction) if commit.error is None else 0
        except Exception as error:
            # If the transaction is in the batch all the same, the error came from a signal handler.
            if len(self.lines) != lines:
                raise
            commit.error = refusal(self._view.key, error)
            return 0

    def add(self, transaction: Transaction) -> int:
        """Number the records and return the last number, 0 if nothing changes; may refuse, without a trace."""
        # 1. A retry gets the number of the first try.
        if transaction.id is not None:
            seen = self.ids.get(transaction.id) or self._view.window().get(transaction.id)
            # Before the batch: the index has what is older than the window was then.
            if seen is None or seen[0] <= self._view.n - WINDOW:
                seen = self._view.kept(transaction.id, self.state, self._rules)
            if seen is not None:
                if seen[1] not in ("", transaction.print):
                    raise Conflict(f"id {transaction.id!r} was used for other content, stored as record {seen[0]}")
                return seen[0]
        # 2. Only some transactions create a session.
        if self.n <= 1 and not transaction.creates:
            return 0
        # 3. The caller may have had the turn, and lost it; or have decided on what has changed since.
        if transaction.fence is not None and transaction.fence != self._fence:
            raise LeaseLost(f"the turn of session {self._view.key!r} was taken over; nothing was stored")
        if transaction.expect is not None:
            check_expect(transaction.expect, self)
        # 4. All of its records, or none.
        kept, state, header, payloads = len(self.records), self.state, self.header, self.payloads
        lines: list[bytes] = []
        try:
            lines = self._seal(transaction)
        finally:
            if not lines:
                del self.records[kept:]
                self.state, self.header, self.payloads = state, header, payloads
        if not lines:
            return 0
        self.lines += lines
        self.n = self.records[-1].n
        if transaction.id is not None:
            self.ids[transaction.id] = (self.n, transaction.print)
        return self.n

    @property
    def _fence(self) -> int:
        return self.state.fence if self.n else self._view.earlier_fence()

    @property
    def uid(self) -> str:
        return self.header.uid

    def find(self, n: int) -> Record | None:
        """Record `n` of the log or of the batch."""
        return self._view.find(n)

    def _seal(self, transaction: Transaction) -> list[bytes]:
        """The lines of a transaction, none if it changes nothing; its records are staged for those after it."""
        lines = []
        if not self.n:
            # The first record of a log says whose it is.
            key = self._view.key
            state = State(fence=self._fence)
            header = Record(v=FORMAT, n=1, t="open", ts=self._ts, sid=key, uid=self._view.next_uid(), st=state)
            lines.append(seal(header))
            self.records.append(header)
            self.state = state
            self.header = Header(uid=header.uid or "", sid=key, created=self._ts, raw=lines[0][:-1])
        before, first = self.state, self.n + len(lines) + 1
        group = (first, len(transaction.operations)) if len(transaction.operations) > 1 else None
        for n, operation in enumerate(transaction.operations, first):
            b = self.records[0].n if self.records else n
            id = transaction.id if n == first else None
            stamp = RecordStamp(n, self._ts, b if b != n else None, group, 1 if self._relaxed else None, id)
            record = self._rules.apply(operation, stamp, self.state, self._view)
            if record is None:
                return []
            line = seal(record)
            if len(line) > blobs.LARGEST:
                # Large payloads go to files of their own. Not added to those before: these are all if it is refused.
                record, taken = blobs.lightened(record)
                line = short_enough(seal(record))
                self.payloads = self.payloads | taken
            lines.append(line)
            self.records.append(record)
            self.state = record.st
        if group is not None and self.state is before and _have_no_effect(self.records[-group[1] :]):
            return []
        return lines


def _have_no_effect(records: Sequence[Record]) -> bool:
    """Tell whether records that left the state as it was only wanted to change it."""
    return all(record.t in ("trunc", "head") for record in records)
