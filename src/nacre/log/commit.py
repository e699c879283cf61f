"""Group commit: whoever finds the log idle commits for all who wait; one flush serves them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import TypeVar

from nacre.entries import Unit
from nacre.errors import DurabilityUnknown, StoreError
from nacre.log.batch import Ticket

T = TypeVar("T")

Later = Callable[[Callable[[], None]], object]
"""Runs a function on another thread."""


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
        self._waiting: list[tuple[Ticket, Future[int]]] = []
        self._leader: object = None

    def run(self, unit: Unit) -> int:
        """Store a unit and return its number, once it is durable."""
        future: Future[int] = Future()
        try:
            if self._joined(unit, future):
                self._lead()
            return future.result()
        except BaseException:
            # A signal may strike before we lead; whoever waits for us must not wait for ever.
            if self._leader is future:
                self._later(self._drain)
            raise

    def submit(self, unit: Unit) -> Future[int]:
        """Store a unit without waiting for it."""
        future: Future[int] = Future()
        if self._joined(unit, future):
            self._later(self._drain)
        return future

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches."""
        with self._turn:
            return work()

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every unit that has not been taken into a batch."""
        _resolve(self._taken(), error)

    def _joined(self, unit: Unit, future: Future[int]) -> bool:
        """Queue a unit; True if it is for its caller to see to the queue."""
        with self._lock:
            self._waiting.append((Ticket(unit), future))
            if self._leader is None:
                self._leader = future
            return self._leader is future

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
            if self._waiting:
                self._leader = self
                return False
            self._leader = None
            return True

    def _taken(self) -> list[tuple[Ticket, Future[int]]]:
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


def _resolve(taken: Sequence[tuple[Ticket, Future[int]]], error: StoreError | None) -> None:
    for ticket, future in taken:
        refused = ticket.error or error
        if refused is not None:
            future.set_exception(refused)
        else:
            future.set_result(ticket.number or 0)
