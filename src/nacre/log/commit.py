"""Group commit: whoever finds the log idle commits for all who wait; one flush serves them all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

from nacre.entries import Unit
from nacre.errors import DurabilityUnknown, StoreError
from nacre.log.batch import Ticket

T = TypeVar("T")

Later = Callable[[Callable[[], None]], object]
"""Runs a function on another thread."""


class Pending(Future[int]):
    """The number that a unit will have; a future that can be awaited too.

    Those who await it in one event loop are woken together, once per batch: waking them one by one
    costs more than the commit.
    """

    waiter: tuple[Any, Any] | None = None

    def __await__(self) -> Generator[Any, None, int]:
        import asyncio  # noqa: PLC0415 - who awaits has it loaded; who does not, need not

        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        with self._condition:
            if not self.done():
                self.waiter = (loop, woken)
        if self.waiter is not None:
            yield from woken
        return self.result()


class Committer:
    """The queue of one log.

    A caller that finds the queue idle commits its own unit and all that have come by then. What
    comes meanwhile is left to a thread of the pool, batch after batch, until nothing is left.
    """

    def __init__(self, commit: Callable[[Sequence[Ticket]], None], later: Later) -> None:
        self._commit = commit
        self._later = later
        self._turn = Lock()
        self._lock = Lock()
        self._waiting: list[tuple[Ticket, Pending | None]] = []
        self._leader: object = None

    def run(self, unit: Unit) -> int:
        """Store a unit and return its number, once it is durable."""
        ticket = Ticket(unit)
        try:
            pending = self._joined(ticket, always=False)
            if pending is not None:
                return pending.result()
            self._lead()
        except BaseException:
            # A signal may strike before we lead; whoever waits for us must not wait for ever.
            if self._leader is ticket:
                self._later(self._drain)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.number or 0

    def submit(self, unit: Unit) -> Pending:
        """Store a unit without waiting for it."""
        ticket = Ticket(unit)
        pending = self._joined(ticket, always=True)
        if self._leader is ticket:
            self._later(self._drain)
        return pending or Pending()

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches."""
        with self._turn:
            return work()

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every unit that has not been taken into a batch."""
        _resolve(self._taken(), error)

    def _joined(self, ticket: Ticket, *, always: bool) -> Pending | None:
        """Queue a unit; what its caller waits for, unless it is for the caller to see to the queue."""
        with self._lock:
            if self._leader is None:
                self._leader = ticket
            pending = Pending() if always or self._leader is not ticket else None
            self._waiting.append((ticket, pending))
        return pending

    def _lead(self) -> None:
        """Commit one batch, then leave the rest to the pool: the caller has its own work to do."""
        self._commit_waiting()
        if not self._retired():
            self._later(self._drain)

    def _drain(self) -> None:
        while True:
            self._commit_waiting()
            if self._retired():
                return

    def _retired(self) -> bool:
        with self._lock:
            self._leader = self if self._waiting else None
            return self._leader is None

    def _taken(self) -> list[tuple[Ticket, Pending | None]]:
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def _commit_waiting(self) -> None:
        error: StoreError | None = None
        with self._turn:
            taken = self._taken()
            try:
                if taken:
                    self._commit([ticket for ticket, _ in taken])
            except StoreError as failure:
                error = failure
            except BaseException as failure:
                _resolve(taken, DurabilityUnknown(f"interrupted while it was written: {failure!r}"))
                raise
        _resolve(taken, error)


def _resolve(taken: Sequence[tuple[Ticket, Pending | None]], error: StoreError | None) -> None:
    """Tell everyone what came of their unit."""
    loops: dict[Any, list[Any]] = {}
    for ticket, pending in taken:
        ticket.error = ticket.error or error
        if pending is None:
            continue
        if ticket.error is not None:
            pending.set_exception(ticket.error)
        else:
            pending.set_result(ticket.number or 0)
        if pending.waiter is not None:
            loop, woken = pending.waiter
            loops.setdefault(loop, []).append(woken)
    for loop, sleepers in loops.items():
        loop.call_soon_threadsafe(_wake, sleepers)


def _wake(sleepers: Sequence[Any]) -> None:
    for woken in sleepers:
        if not woken.done():
            woken.set_result(None)
