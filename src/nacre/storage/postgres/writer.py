"""Appending to one session: what its writer knows of it, one statement for a batch, and what came of that.

1. The number known here is still the last one: the row is updated and the records are inserted, in one statement.
2. Somebody else has written: nothing is changed. Lock the row, read what is new, and try again: everyone's turn comes.
3. The connection broke: look whether our records are there. The comparison makes a second try harmless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, overload

import msgspec

from nacre.codec import parse_time, sortable, timestamp
from nacre.errors import Conflict, DurabilityUnknown, Refused, StoreError
from nacre.keys import is_internal
from nacre.records import AppendMessage, MemoryView, Record, RecordStamp, Rules, State
from nacre.storage import blobs
from nacre.storage.format import seal
from nacre.storage.paths import new_uid
from nacre.storage.postgres.connections import (
    ConnectionLost,
    Failed,
    NotReplicated,
    Request,
    Result,
    Value,
    explain,
    is_passing,
    is_repeat,
)
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.view import Head, PostgresView, Read, head_of, plain_uid, sid_of
from nacre.storage.recovery import Header
from nacre.storage.seal import sealed
from nacre.storage.transaction import Batch, PendingCommit, Seen, print_of

Guard = tuple[str, str]
"""A lease that must not be lost: the session that it is of, and its holder."""
Send = Callable[[Sequence[Request]], list[Result | Failed]]
"""Runs statements as one transaction, perhaps together with those of others."""
_Outcome = Literal["stored", "known", "in doubt", "missed"]


class _Attempt(NamedTuple):
    """How to store a batch once. `is_fresh` if what is known of the session was read just now."""

    read: Read
    send: Send
    held: Guard | None
    is_fresh: bool
    looks_up_ids: bool


_NO_HEAD = Head(
    uid="",
    status=0,
    n=0,
    state=State(),
    first=1,
    base=(),
    forked=False,
    holes=False,
    patched=False,
    created="",
    updated="",
    bytes=0,
)
# A message does not depend on the records before it.
_NO_RECORDS = MemoryView(())
_MAX_WAIT = 1.0
# Labels and titles, who has the turn, and what maintenance leaves: nobody said anything.
ABOUT = frozenset(("meta", "mark", "ids", "turn"))
_encode = msgspec.json.Encoder().encode


class _Growing(PostgresView):
    """The view that a batch grows from: the active generation, or a new one after the archived ones."""

    def __init__(self, database: Database, key: str, head: Head | None, read: Read) -> None:
        self.earlier = head if head is not None and head.status else None
        active = head if head is not None and not head.status else None
        super().__init__(read, database.statements, key=key, sid=sid_of(key), head=active or _NO_HEAD)
        self._database = database
        # What was stored before a fork, or in an archived generation, is not where the database would refuse it.
        self.looks_up_ids = self.earlier is not None or self.head.forked

    @property
    def header(self) -> Header:
        return super().header if self.head.uid else Header()

    def window(self) -> dict[str, Seen]:
        """No ids: the database has all of them, and refuses a second one."""
        return {}

    def kept(self, id: str, state: State, rules: Rules) -> Seen | None:  # noqa: ARG002 - every id is kept
        """What was stored under an id; not looked for before the database refused it, which is one round trip less."""
        return self.find_id(id) if self.looks_up_ids else None

    def find_id(self, id: str) -> Seen | None:
        """What was stored under an id in any generation, or before one of them was forked; the newest one counts."""
        id = id_column(id)
        own = {plain_uid(uid): n for uid, n in self._read(self._statements.id, self._sid, id)}
        heads = [head_of(row) for row in self._read(self._statements.generations, self._sid)]
        for head in reversed(heads):
            if head.uid in own:
                return self._seen(head, int(own[head.uid] or b"0"))
            for level in head.base:
                for (n,) in self._read(self._statements.shared_id, level.sid, level.uid, id, level.upto):
                    return self._seen(head, int(n or b"0"))
        return None

    def _seen(self, head: Head, n: int) -> Seen:
        """The last number of the transaction that a record of a generation began, and its fingerprint."""
        view = PostgresView(self._read, self._statements, key=self.key, sid=self._sid, head=head)
        first = view.find(n)
        if first is None:
            return n, ""
        last = first.tx[0] + first.tx[1] - 1 if first.tx is not None else n
        group = [record for at in range(n, last + 1) if (record := view.find(at)) is not None]
        return last, print_of(group, view) if len(group) == last - n + 1 else ""

    def next_uid(self) -> str:
        return new_uid(self._database.system, after=[self.earlier.uid] if self.earlier is not None else [])

    def earlier_fence(self) -> int:
        return self.earlier.state.fence if self.earlier is not None else 0


def growing(database: Database, key: str, head: Head | None, read: Read) -> _Growing:
    """The view that a batch grows from, after the head of the active generation or of the newest archived one."""
    return _Growing(database, key, head, read)


class SessionWriter:
    """Writes to one session; only one thread at a time. What it knows of the session saves reading it."""

    def __init__(self, database: Database, key: str) -> None:
        self._database = database
        self.key, self.sid = key, sid_of(key)
        # What is known: nothing; or a head, None if there is no session.
        self._is_known = False
        self._head: Head | None = None

    def forget(self) -> None:
        """Know nothing: the session was changed by other means than appending."""
        self._is_known = False

    def read_head(self) -> Head | None:
        """Read the row of the active generation, or else of the newest archived one."""
        rows = self._database.connections.read(self._database.statements.head, self.sid)
        self._head, self._is_known = head_of(rows[0]) if rows else None, True
        return self._head

    def commit(self, commits: Sequence[PendingCommit], send: Send, held: Guard | None = None) -> None:
        """Store transactions as one batch; each has its number or its error afterwards.

        With `held` nothing is stored if that lease is lost.
        Raises DurabilityUnknown if what came of them cannot be known, and Refused if nothing was stored.
        """
        try:
            if held is not None or len(commits) > 1 or not self._append_message(commits[0], send):
                self._commit(commits, send, held)
        except BaseException:
            # Whatever it was, a signal too: what is known may be wrong.
            self.forget()
            raise

    def _append_message(self, commit: PendingCommit, send: Send) -> bool:
        """Store one message without conditions in a session that is known: the short way, since most appends are so.

        False if it is not that, or the session has changed: then nothing was stored, and the long way begins.
        """
        head, transaction = self._head, commit.transaction
        operations = transaction.operations
        if (
            not self._is_known
            or head is None
            or head.status
            or len(operations) != 1
            or type(operations[0]) is not AppendMessage
            or transaction.expect is not None
            or transaction.id is not None
            or transaction.fence not in (None, head.state.fence)
        ):
            return False
        database, n = self._database, head.n + 1
        ts = timestamp(database.system.now())
        stamp = RecordStamp(n, ts, None, None, 1 if database.connections.relaxed else None, None)
        record = database.rules.apply(operations[0], stamp, head.state, _NO_RECORDS)
        if record is None or len(line := seal(record)) > blobs.LARGEST:
            return False
        # In the order of the statement's values.
        (updated, minute), state, text = time_columns(ts), record.st, line[:-1].decode()
        row: list[Value] = [self.sid, head.uid, n, _encode(state).decode(), state.hd, state.mp, state.live]
        size = head.bytes + len(line)
        row += [updated, minute, size, head.n, database.token, None, text, size.bit_length(), state.live.bit_length()]
        row.append("t" if head.forked else "f")
        try:
            if not self._send([(database.statements.append, row)], n=n, uid=head.uid, last=text, send=send):
                return False
        except Failed:
            # The long way meets it again, if it has not passed, and says what it means.
            return False
        self._head = head._replace(n=n, state=state, updated=updated, bytes=size)
        commit.number = n
        return True

    def _commit(self, commits: Sequence[PendingCommit], send: Send, held: Guard | None) -> None:
        connections, lock = self._database.connections, self._database.statements.lock
        deadline, wait = time.monotonic() + connections.patience, 0.001
        is_contended = looks_up_ids = False
        while True:
            before = self._head if self._is_known else None
            try:
                if is_contended:
                    with connections.locked(lock, self.sid) as row:
                        self._head = head_of(row.rows[0]) if row.rows else None
                        outcome = self._try(
                            commits, _Attempt(row.read, row.send, held, is_fresh=True, looks_up_ids=looks_up_ids)
                        )
                else:
                    is_fresh = not self._is_known
                    if is_fresh:
                        self.read_head()
                    outcome = self._try(
                        commits, _Attempt(connections.read, send, held, is_fresh=is_fresh, looks_up_ids=looks_up_ids)
                    )
            except (ConnectionLost, Failed) as error:
                # Nothing of this batch was stored.
                self.forget()
                if isinstance(error, Failed) and is_repeat(error) and not looks_up_ids:
                    looks_up_ids = True
                    continue
                if isinstance(error, Failed) and not is_passing(error) and not is_repeat(error):
                    raise explain(error, connections.address) from error
                if time.monotonic() + wait > deadline:
                    raise Refused(f"session {self.key!r}: nothing was stored: {error}; try again") from error
                time.sleep(wait)
                wait = min(wait * 2, _MAX_WAIT)
                continue
            if outcome == "stored":
                return
            if outcome == "known":
                self._make_durable()
                return
            if outcome == "in doubt":
                # A refusal, or a change without an effect, must not come from what was known: look for real.
                self._check_deleted(before)
                looks_up_ids = any(commit.transaction.id is not None for commit in commits)
            else:
                # Somebody else was quicker, or nobody may write any more.
                self._check_deleted(self._head)
                self._check_sealed()
                is_contended = True
                if time.monotonic() > deadline:
                    raise Refused(f"session {self.key!r}: nothing was stored: others write to it all the time")
            self.forget()

    def _try(self, commits: Sequence[PendingCommit], attempt: _Attempt) -> _Outcome:
        """Number a batch, and store it; raises ConnectionLost or Failed if nothing was stored."""
        head = self._head
        batch, numbers = self._number(commits, head, attempt)
        is_certain = all(commit.error is None for commit in commits) and all(numbers) and bool(batch.lines)
        has_ids = any(commit.transaction.id is not None for commit in commits)
        if not is_certain and not (attempt.is_fresh and (attempt.looks_up_ids or not has_ids)):
            return "in doubt"
        if batch.lines and not self._store(batch, head, attempt.send, attempt.held):
            return "missed"
        _give(commits, numbers)
        return "stored" if batch.lines or not has_ids else "known"

    def _make_durable(self) -> None:
        """Wait until what was found under an id is durable, on the standby too: a commit after it shows that.

        The one that stored it may have learned that this is not known.
        """
        database, head = self._database, self._head
        if head is None or database.connections.relaxed:
            return
        try:
            database.connections.write(database.statements.flush, self.sid, head.uid)
        except StoreError as error:
            raise DurabilityUnknown(
                f"session {self.key!r}: it is stored, but whether it is durable is not known: {error}; retry with the "
                "same id"
            ) from error

    def _check_deleted(self, known: Head | None) -> None:
        """Raise Conflict, once, if the generation that was written to here was deleted by somebody else."""
        if known is None or known.status:
            return
        rows = self._database.connections.read(self._database.statements.generation, self.sid, known.uid)
        if not rows:
            self.forget()
            raise Conflict(f"session {self.key!r} was deleted by another process; nothing was stored")

    def _check_sealed(self) -> None:
        """Raise Refused if the sessions were moved to another store."""
        rows = self._database.connections.read(self._database.statements.store)
        moved_to = rows[0][1] if rows else None
        if moved_to is not None:
            raise sealed(moved_to.decode(), self._database.location)

    def _number(
        self, commits: Sequence[PendingCommit], head: Head | None, attempt: _Attempt
    ) -> tuple[Batch, list[int]]:
        view = growing(self._database, self.key, head, attempt.read)
        view.looks_up_ids = view.looks_up_ids or attempt.looks_up_ids
        for commit in commits:
            commit.error = None
        batch = Batch(
            view,
            rules=self._database.rules,
            now=self._database.system.now(),
            relaxed=self._database.connections.relaxed,
        )
        return batch, [batch.take(commit) for commit in commits]

    # ---- one batch

    def _store(self, batch: Batch, head: Head | None, send: Send, held: Guard | None) -> bool:
        """Store a batch; False if the session was not as it was known."""
        requests, after = self._requests(batch, head)
        if held is not None:
            requests.append((self._database.statements.held, held))
        last = batch.lines[-1][:-1].decode()
        is_stored = self._send(requests, n=batch.n, uid=batch.uid, last=last, send=send)
        if is_stored:
            self._head, self._is_known = after, True
        return is_stored

    def _send(self, requests: Sequence[Request], *, n: int, uid: str, last: str, send: Send) -> bool:
        """Send what stores records up to number `n`, whose line is `last`; False if the number was set by others."""
        try:
            found = send(requests)
        except (ConnectionLost, NotReplicated) as error:
            found = self._settle(requests, (self.sid, uid, n, self._database.token, last), error)
        for one in found:
            if isinstance(one, Failed):
                raise one
        return found[0].changed > 0  # type: ignore[union-attr] # none has failed

    def _settle(
        self, requests: Sequence[Request], ours: tuple[str, str, int, int, str], error: Exception
    ) -> list[Result | Failed]:
        """Find out whether records were stored whose statement had no answer, or else store them.

        To send it again is harmless: the first one to set the number wins, be it the try that is still under way. What
        is found must also be on the standby, if there is one: a commit after it shows that. An error shows nothing of
        the first try, unless it is that its id is there already.
        """
        database, deadline, wait = self._database, time.monotonic() + self._database.connections.patience, 0.02
        while time.monotonic() < deadline:
            try:
                is_there, again = database.connections.send(
                    [(database.statements.is_ours, ours), (database.statements.flush, ours[:2])]
                )
                if isinstance(is_there, Result) and isinstance(again, Result) and is_there.rows:
                    return [Result([], 1)]
                found = database.connections.send(requests)
                if isinstance(found[0], Failed):
                    if is_repeat(found[0]):
                        return found
                    raise found[0]
                if found[0].changed:
                    return found
                # The number was set meanwhile: by us, or by somebody else.
                (is_there,) = database.connections.send([(database.statements.is_ours, ours)])
                if isinstance(is_there, Result) and not is_there.rows:
                    return found
            except StoreError as failure:
                error = failure
            time.sleep(wait)
            wait = min(wait * 2, 0.5)
        self.forget()
        raise DurabilityUnknown(
            f"session {self.key!r}: whether the messages were stored is not known: {error}; retry with the same id"
        ) from error

    def _requests(self, batch: Batch, head: Head | None) -> tuple[list[Request], Head]:
        """The statements that store a batch, and the row as it will be then."""
        database, state, lines = self._database, batch.state, [line[:-1].decode() for line in batch.lines]
        is_new = not batch.records[0].n > 1
        said = next((record.ts for record in reversed(batch.records) if record.t not in ABOUT), None)
        updated, minute = time_columns(said) if said is not None else (None, None)
        size = sum(map(len, batch.lines)) + sum(map(len, batch.payloads.values()))
        size += head.bytes if head is not None and not is_new else 0
        classes, uid = [size.bit_length(), state.live.bit_length()], batch.uid
        row: list[Value] = [self.sid, uid, batch.n, _encode(state).decode(), state.hd, state.mp, state.live]
        row += [updated, minute, size]
        if is_new:
            created = batch.header.created
            folded = database.labels({}, self.key)[0]
            row += [folded, database.token, *_arrays(batch.records, lines)]
            row += [self.key, created, "t" if is_internal(self.key) else "f", sortable(parse_time(created))]
            row += ["t" if head is not None else "f", *classes]
            requests: list[Request] = [(database.statements.create, row)]
        elif len(lines) == 1:
            row += [batch.n - 1, database.token, id_column(batch.records[0].id), lines[0], *classes]
            row.append("t" if head is not None and head.forked else "f")
            requests = [(database.statements.append, row)]
        else:
            row += [batch.records[0].n - 1, database.token, *_arrays(batch.records, lines), *classes]
            row.append("t" if head is not None and head.forked else "f")
            requests = [(database.statements.append_many, row)]
        # What a list is narrowed by, if that is new.
        described = next((record for record in batch.records if record.n == state.mp), None)
        if described is not None:
            requests.append(self._labels(described, uid))
        for name, data in batch.payloads.items():
            n = next(record.n for record in batch.records if record.blobs is not None and name in blobs.names(record))
            requests.append((database.statements.keep_blob, [self.sid, uid, n, name, data, database.token]))
        if is_new:
            after = _NO_HEAD._replace(forked=head is not None, uid=uid, created=batch.header.created)
        else:
            assert head is not None  # noqa: S101 - what is not new grows from it
            after = head
        now = updated or after.updated
        return requests, after._replace(n=batch.n, state=state, updated=now, bytes=size)

    def _labels(self, described: Record, uid: str) -> Request:
        """Set the columns that a list is narrowed by from a record with the meta."""
        folded, cwd, pinned, tags = self._database.labels(described.meta or {}, self.key)
        values: list[Value] = [self.sid, uid, described.n, folded, cwd, "t" if pinned else "f", array_of(tags)]
        return self._database.statements.labels, [*values, self._database.token]


@lru_cache(maxsize=64)
def time_columns(ts: str) -> tuple[str, int]:
    """The time of a record as it is sorted by, and its minute."""
    moment = parse_time(ts)
    return sortable(moment), int(moment.timestamp() // 60)


def _give(commits: Sequence[PendingCommit], numbers: Sequence[int]) -> None:
    for commit, number in zip(commits, numbers, strict=True):
        if commit.error is None:
            commit.number = number


def _arrays(records: Sequence[Record], lines: Sequence[str]) -> list[Value]:
    return [
        array_of([str(record.n) for record in records]),
        array_of([id_column(record.id) for record in records]),
        array_of(lines),
    ]


@overload
def id_column(id: str) -> str: ...


@overload
def id_column(id: None) -> None: ...


def id_column(id: str | None) -> str | None:
    """An id as its column has it: a text of PostgreSQL has no NUL, and two ids must not become one."""
    if id is None or ("\0" not in id and "\\" not in id):
        return id
    return id.replace("\\", "\\\\").replace("\0", "\\0")


def array_of(texts: Sequence[str | None]) -> str:
    """An array as PostgreSQL reads it."""
    quoted = ("NULL" if text is None else _quote(text) for text in texts)
    return f"{{{','.join(quoted)}}}"


def _quote(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
