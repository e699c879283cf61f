"""Group commit: whoever finds the log idle commits for all who wait; one flush serves them all."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from threading import Condition, Lock, RLock
from typing import Any, TypeVar

from nacre.entries import Unit
from nacre.errors import DurabilityUnknown, StoreError
from nacre.log.batch import Ticket

T = TypeVar("T")

_making = Lock()

Later = Callable[[Callable[[], None]], object]
"""Runs a function on another thread."""


class Pending(Future[int]):
    """The number that a unit will have; a future that can be awaited too.

    Those who await it in one event loop are woken together, once per batch: waking them one by one
    costs more than the commit. So does the condition that a future is made with; it is made when a
    thread waits for it or a callback is added, which those who await do not need.
    """

    waiter: tuple[Any, Any] | None = None

    def __init__(self) -> None:
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name != "_condition":
            raise AttributeError(name)
        with _making:
            return self.__dict__.setdefault("_condition", Condition())

    def __await__(self) -> Generator[Any, None, int]:
        # Who awaits has asyncio loaded; who does not, need not.
        loop = sys.modules["asyncio"].get_running_loop()
        woken = loop.create_future()
        self.waiter = (loop, woken)
        # Whoever resolves it looks for the waiter only afterwards, so one of us sees the other.
        if self._state != FINISHED:
            yield from woken
        if self._exception is not None:
            raise self._exception
        return self._result or 0

    def resolve(self, ticket: Ticket, error: StoreError | None) -> None:
        refused = ticket.error or error
        with _making:
            if "_condition" not in self.__dict__:
                self._exception, self._result, self._state = refused, ticket.number or 0, FINISHED
                return
        if refused is not None:
            self.set_exception(refused)
        else:
            self.set_result(ticket.number or 0)


class Gate:
    """What a thread waits at for its unit; much cheaper than a future."""

    __slots__ = ("_error", "_lock", "_number")

    waiter = None

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def result(self) -> int:
        self._lock.acquire()
        if self._error is not None:
            raise self._error
        return self._number

    def resolve(self, ticket: Ticket, error: StoreError | None) -> None:
        self._error = ticket.error or error
        self._number = ticket.number or 0
        self._lock.release()


class Committer:
    """The queue of one log.

    A caller that finds the log idle commits its own unit and all that wait. Who finds it busy
    waits; what has come in meanwhile is left to a thread of the pool, batch after batch.
    """

    def __init__(self, commit: Callable[[Sequence[Ticket]], None], later: Later) -> None:
        self._commit = commit
        self._later = later
        self._turn = RLock()
        self._joining = Lock()
        self._waiting: deque[tuple[Ticket, Pending | Gate]] = deque()

    def run(self, unit: Unit) -> int:
        """Store a unit and return its number, once it is durable."""
        ticket = Ticket(unit)
        try:
            if not self._turn.acquire(blocking=False):
                return self._queued(ticket).result()
            self._write(ticket)
            if ticket.error is not None:
                raise ticket.error
            return ticket.number or 0
        finally:
            # Asked, not remembered: a signal may strike right behind the acquire.
            if self._turn._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
                self._turn.release()
                if self._waiting:
                    self._later(self._drain)

    def submit(self, unit: Unit) -> Pending:
        """Store a unit without waiting for it."""
        pending = Pending()
        with self._joining:
            self._waiting.append((Ticket(unit), pending))
            is_first = len(self._waiting) == 1
        if is_first:
            self._later(self._drain)
        return pending

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches."""
        try:
            with self._turn:
                return work()
        finally:
            if self._waiting:
                self._later(self._drain)

    def try_alone(self, work: Callable[[], None]) -> bool:
        """Do other work on the log, if nobody is at it; tells whether it was done."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            work()
        finally:
            self._turn.release()
            if self._waiting:
                self._later(self._drain)
        return True

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every unit that has not been taken into a batch."""
        with self._turn:
            _resolve(self._taken(), error)

    def _queued(self, ticket: Ticket) -> Gate:
        """Wait for whoever writes now; if it has just finished, nobody else would look."""
        gate = Gate()
        self._waiting.append((ticket, gate))
        if self._turn.acquire(blocking=False):
            self._turn.release()
            self._later(self._drain)
        return gate

    def _drain(self) -> None:
        while self._waiting:
            with self._turn:
                self._write()

    def _taken(self) -> list[tuple[Ticket, Pending | Gate]]:
        """What waits, in the order in which it came; only who has the turn takes."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _write(self, own: Ticket | None = None) -> None:
        """Commit what waits, and the caller's own unit behind it."""
        taken = self._taken() if self._waiting else []
        tickets = [ticket for ticket, _ in taken]
        if own is not None:
            tickets.append(own)
        error: StoreError | None = None
        try:
            if tickets:
                self._commit(tickets)
        except StoreError as failure:
            error = failure
        except BaseException as failure:
            _resolve(taken, DurabilityUnknown(f"interrupted while it was written: {failure!r}"))
            raise
        if own is not None and own.error is None:
            own.error = error
        if taken:
            _resolve(taken, error)


def _resolve(taken: Sequence[tuple[Ticket, Pending | Gate]], error: StoreError | None) -> None:
    """Tell everyone what came of their unit."""
    loops: dict[Any, list[Any]] = {}
    for ticket, waiting in taken:
        waiting.resolve(ticket, error)
        if waiting.waiter is not None:
            loop, woken = waiting.waiter
            loops.setdefault(loop, []).append(woken)
    for loop, sleepers in loops.items():
        loop.call_soon_threadsafe(_wake, sleepers)


def _wake(sleepers: Sequence[Any]) -> None:
    for woken in sleepers:
        if not woken.done():
            woken.set_result(None)
