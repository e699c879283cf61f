"""Turns: rows that say who has the turn of a session until when, renewed while their holder lives.

A lock of the database would be lost in a failover. So the turn is a row, and what protects the log is the fence in it:
the process that takes a turn from a holder which did not give it back, because it died or was stopped for too long,
appends a record with a greater fence, and every append with the old one is refused from then on.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread

from nacre.errors import LeaseLost, SessionBusy, StoreError, describe_error
from nacre.records import TakeOver, Transaction
from nacre.storage.postgres.connections import Connections, Failed
from nacre.storage.postgres.statements import Statements
from nacre.storage.postgres.view import head_of, plain_uid, sid_of
from nacre.storage.postgres.writer import Guard, array_of

logger = logging.getLogger(__name__)

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Leases:
    """The turns that this process has; a thread renews them."""

    def __init__(
        self,
        connections: Connections,
        statements: Statements,
        *,
        append: Callable[[str, Transaction], int],
        seconds: float,
    ) -> None:
        self.connections, self.statements, self.seconds = connections, statements, seconds
        self.append = append
        self._lock = Lock()
        self._held: dict[str, PostgresLease] = {}
        self._renewer: Thread | None = None
        self._ending = Event()

    def keep(self, lease: PostgresLease) -> None:
        """Renew a lease from now on."""
        with self._lock:
            self._held[lease.holder_id] = lease
            if self._renewer is None:
                self._ending.clear()
                self._renewer = Thread(target=self._renew, name="nacre-leases", daemon=True)
                self._renewer.start()

    def drop(self, lease: PostgresLease) -> None:
        with self._lock:
            self._held.pop(lease.holder_id, None)

    def close(self) -> None:
        """Give every turn back, so that nobody has to wait until it has expired."""
        self._ending.set()
        held = list(self._held.values())
        for lease in held:
            lease.number = None
            self.drop(lease)
        # All at once: they wait only once for a database that is down. There they expire.
        if held:
            with suppress(StoreError):
                self.connections.send([(self.statements.release_all, _names(held))])
        if self._renewer is not None:
            self._renewer.join(timeout=self.seconds)
            self._renewer = None

    def begin_in_child(self) -> None:
        """After a fork: the turns are the parent's."""
        self._lock, self._held, self._renewer, self._ending = Lock(), {}, None, Event()

    def _renew(self) -> None:
        while not self._ending.wait(self.seconds / 3):
            with self._lock:
                held = list(self._held.values())
            try:
                self.renew(held)
            except StoreError as error:
                # If it lasts, others take the turns over, and what is appended with them is refused.
                logger.warning("turns could not be renewed", extra={"error": describe_error(error)})

    def renew(self, held: Sequence[PostgresLease]) -> None:
        """Renew leases in one statement; those that others have by now are lost."""
        if not held:
            return
        now, asked = clock(), [(lease, lease.holder_id) for lease in held]
        (found,) = self.connections.send([(self.statements.renew, (*_names(held), str(self.seconds)))])
        if isinstance(found, Failed):
            raise found
        kept = {plain_uid(row[0]) for row in found.rows}
        for lease, holder_id in asked:
            if holder_id in kept:
                lease.certain_until = now + self.seconds
            else:
                # Not one that was given back and taken again meanwhile: that has another name.
                lease.is_lost = lease.is_lost or lease.holder_id == holder_id
                with self._lock:
                    self._held.pop(holder_id, None)

    def release(self, lease: PostgresLease) -> None:
        lease.number = None
        self.drop(lease)
        # What cannot be given back now expires.
        with suppress(StoreError):
            self.connections.send([(self.statements.release, (lease.sid, lease.holder_id))])


class PostgresLease:
    """The turn of a session, for one holder."""

    def __init__(self, leases: Leases, key: str) -> None:
        self._leases = leases
        self.key, self.sid = key, sid_of(key)
        self.holder_id = uuid.uuid4().hex
        self.number: int | None = None
        self.is_lost = False
        # Nobody can have taken it before this moment, by our own clock: the database counts from a later one.
        self.certain_until = 0.0

    @property
    def guard(self) -> Guard:
        """What the database looks at when something is stored that relies on this lease."""
        return self.sid, self.holder_id

    def __repr__(self) -> str:
        return f"Lease({self.key!r}, number={self.number})"

    def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another holder whose time is not over."""
        if self.number is not None:
            raise self._busy(_me())
        leases = self._leases
        values = (self.sid, self.holder_id, _me(), str(leases.seconds))

        # In one transaction, so that who takes it over meanwhile stores the new fence after this one was read.
        def claim() -> tuple[int, int]:
            claimed, head = leases.connections.send(
                [(leases.statements.claim, values), (leases.statements.head, (self.sid,))]
            )
            if isinstance(claimed, Failed) or isinstance(head, Failed):
                raise next(one for one in (claimed, head) if isinstance(one, Failed))
            return claimed.changed, head_of(head.rows[0]).state.fence if head.rows else 0

        now = clock()
        is_mine, fence = leases.connections.retry(claim)
        if not is_mine:
            self._take_from_holder()
            return
        self._begin(fence, now)

    def _take_from_holder(self) -> None:
        """Take the turn of a holder that did not renew it; raises SessionBusy if it did."""
        leases = self._leases
        rows = leases.connections.read(leases.statements.holder, self.sid)
        holder, who, is_expired = rows[0] if rows else (None, b"somebody else", b"f")
        if plain_uid(holder) == self.holder_id:
            # The answer to our own claim was lost.
            is_expired = b"t"
        if is_expired != b"t":
            raise self._busy((who or b"").decode())
        self._seize(by_force=False)

    def take_over(self) -> None:
        """Take it although another may have it, from whom every append with its lease is refused from now on."""
        self.close()
        self._seize(by_force=True)

    def _seize(self, *, by_force: bool) -> None:
        """Be the holder in the row, and then store a fence by which the holder before is refused.

        One that is killed in between has the turn until it expires; the next one stores a fence, too.
        """
        leases = self._leases
        statement = leases.statements.seize if by_force else leases.statements.seize_expired
        values = (self.sid, self.holder_id, _me(), str(leases.seconds))

        def seize() -> int:
            (found,) = leases.connections.send([(statement, values)])
            if isinstance(found, Failed):
                raise found
            return found.changed

        now = clock()
        if not leases.connections.retry(seize):
            raise self._busy("somebody else")
        try:
            leases.append(self.key, Transaction((TakeOver(_me()),)))
        except BaseException:
            # Nobody has to wait until it expires.
            self._give_back()
            raise
        # What is the fence now is ours, if we are still the holder: in one transaction with that question.
        holder, head = leases.connections.read_together(
            [(leases.statements.holder_locked, (self.sid,)), (leases.statements.head, (self.sid,))]
        )
        if not holder or plain_uid(holder[0][0]) != self.holder_id or not head:
            raise self._busy((holder[0][1] or b"").decode() if holder else "somebody else")
        self._begin(head_of(head[0]).state.fence, now)

    def _begin(self, fence: int, now: float) -> None:
        self.number, self.is_lost, self.certain_until = fence, False, now + self._leases.seconds
        self._leases.keep(self)

    def check(self) -> None:
        """Raise LeaseLost if it is not taken, or another has it; asks the database only if it may have expired."""
        if self.number is not None and not self.is_lost and clock() >= self.certain_until:
            self._leases.renew([self])
        if self.number is None or self.is_lost:
            raise LeaseLost(f"the turn of session {self.key!r} was taken over; nothing was stored")

    def holder(self) -> int:
        """The process that has it, if it is on this machine; -1 for one elsewhere, 0 for none."""
        with suppress(StoreError):
            rows = self._leases.connections.read(self._leases.statements.holder, self.sid)
            if not rows or rows[0][2] == b"t":
                return 0
            machine, _, process = (rows[0][1] or b"").decode().rpartition(" ")
            return int(process) if machine == os.uname().nodename and process.isdigit() else -1
        return 0

    def close(self) -> None:
        """Let others take it."""
        if self.number is not None:
            self._give_back()

    def _give_back(self) -> None:
        self._leases.release(self)
        # A release that is late must not take it from who takes it next. One that could not be taken keeps its name,
        # which may be in the row.
        self.holder_id = uuid.uuid4().hex

    def _busy(self, who: str) -> SessionBusy:
        where = "this process" if who == _me() else "another process"
        return SessionBusy(f"session {self.key!r} is in use by {where} ({who})")


def _names(held: Sequence[PostgresLease]) -> tuple[str, str]:
    """Leases as two arrays: the sids, and the holders."""
    return array_of([lease.sid for lease in held]), array_of([lease.holder_id for lease in held])


def clock() -> float:
    """Seconds that go on while the machine sleeps, where there is such a clock."""
    return time.clock_gettime(_CLOCK)


def _me() -> str:
    return f"{os.uname().nodename} {os.getpid()}"
