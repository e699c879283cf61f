"""Group commit: whoever finds the log idle commits for all who wait; one flush serves them all."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import FINISHED, LOGGER, PENDING
from contextlib import suppress
from itertools import islice
from threading import Condition, Lock, RLock
from typing import Any, TypeVar

from nacre.entries import Unit
from nacre.errors import DurabilityUnknown, Refused, StoreError
from nacre.log.batch import Ticket

T = TypeVar("T")

# Re-entrant, since a signal handler may ask for a number while another is given.
_making = RLock()

Later = Callable[[Callable[[], None]], object]
"""Runs a function on another thread."""


class Nested(Refused):
    """A write refused because its thread is in the middle of another; if it gets out of there, that one is in doubt."""


class Pending(Future[int]):
    """The number that a unit will have; a future that can be awaited too.

    Those who await it in one event loop are woken together, once per batch: waking them one by one
    costs more than the commit. A thread waits at a lock of its own, which costs less than the condition that a future
    is made with. And a signal may strike a thread that has just taken a condition and leave it taken; whoever resolves
    the future would wait for it for ever, and everyone behind it. Only `wait` and `as_completed` of
    `concurrent.futures` still need the condition; it is made for them.
    """

    waiters: Sequence[tuple[Any, Any]] = ()
    sleepers: Sequence[Any] = ()

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

    def __repr__(self) -> str:
        return f"<Pending {self._state.lower()}>"

    def __await__(self) -> Generator[Any, None, int]:
        # Who awaits has asyncio loaded; who does not, need not.
        loop = sys.modules["asyncio"].get_running_loop()
        woken = loop.create_future()
        self.__dict__.setdefault("waiters", []).append((loop, woken))
        # Whoever resolves it looks for the waiters only afterwards, so one of us sees the other.
        if self._state != FINISHED:
            yield from woken
        return self._answer()

    def result(self, timeout: float | None = None) -> int:
        self._sleep(timeout)
        return self._answer()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._sleep(timeout)
        return self._exception

    def done(self) -> bool:
        return self._state == FINISHED

    def running(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """False: what was submitted is written, whoever still waits for it."""
        return False

    def add_done_callback(self, fn: Callable[[Future[int]], object]) -> None:
        self._done_callbacks.append(fn)
        # As in `__await__`. A callback is called by whoever takes it out of the list, and so once.
        if self._state == FINISHED:
            self._invoke_callbacks()

    def resolve(self, ticket: Ticket, error: StoreError | None) -> None:
        """Say what came of the unit; the first answer counts."""
        refused = ticket.error or (error if ticket.number is None else None)
        with _making:
            if "_condition" not in self.__dict__ and self._state != FINISHED:
                self._exception, self._result, self._state = refused, ticket.number or 0, FINISHED
        if self._state != FINISHED:
            with suppress(InvalidStateError):
                if refused is not None:
                    self.set_exception(refused)
                else:
                    self.set_result(ticket.number or 0)
        if self.sleepers:
            for lock in list(self.sleepers):
                if lock.locked():
                    lock.release()
        if self._done_callbacks:
            self._invoke_callbacks()

    def _answer(self) -> int:
        if self._exception is not None:
            raise self._exception
        return self._result or 0

    def _sleep(self, timeout: float | None) -> None:
        """Wait until it is resolved; raises TimeoutError."""
        if self._state == FINISHED:
            return
        lock = Lock()
        lock.acquire()
        sleepers = self.__dict__.setdefault("sleepers", [])
        sleepers.append(lock)
        # As in `__await__`.
        if self._state != FINISHED and not lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            sleepers.remove(lock)
            raise TimeoutError

    def _invoke_callbacks(self) -> None:
        with suppress(IndexError):
            while True:
                self._invoke(self._done_callbacks.pop(0))

    def _invoke(self, callback: Callable[[Future[int]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - as every future does: it is not the concern of others
            LOGGER.exception("exception calling callback for %r", self)


class Gate:
    """What a thread waits at for its unit; much cheaper than a future."""

    __slots__ = ("_error", "_lock", "_number")

    waiters = ()

    def __init__(self) -> None:
        self._number: int | None = None
        self._lock = Lock()
        self._lock.acquire()

    def result(self) -> int:
        self._lock.acquire()
        if self._error is not None:
            raise self._error
        return self._number or 0

    def resolve(self, ticket: Ticket, error: StoreError | None) -> None:
        """Say what came of the unit; the first answer counts."""
        if self._number is None:
            self._error = ticket.error or (error if ticket.number is None else None)
            self._number = ticket.number or 0
        if self._lock.locked():
            self._lock.release()


Waiting = tuple[Ticket, Pending | Gate]


class Committer:
    """The queue of one log.

    A caller that finds the log idle and nobody waiting commits its own unit, and only that. Every other unit waits
    in the queue, and a thread of the pool commits all that wait as one batch, batch after batch.

    So whoever is interrupted by a signal, which strikes the main thread only, has nobody else's unit in hand. It may
    be struck right behind an acquire or before a call: an exception handler lets go of the turn, and calls again for
    someone who drains the queue. To do so twice is harmless.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Ticket]], None],
        later: Later,
        free: Callable[[], None] = lambda: None,
        *,
        gate: Callable[[], Gate] = Gate,
    ) -> None:
        self._commit = commit
        self._later = later
        # Unlocks the log for others; called if anything was raised, since a signal may strike whoever unlocks it.
        self._free = free
        self._gate = gate
        # Re-entrant only for the sake of knowing its owner; the lock of `threading.Condition` is asked in the same way.
        self._turn = RLock()
        self._is_called = False
        self._waiting: deque[Waiting] = deque()

    def run(self, unit: Unit) -> int:
        """Store a unit and return its number, once it is durable.

        Raises Refused in the middle of another write by this thread, as in a signal handler.
        """
        if self._turn._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            self.refuse_nested()
        ticket = Ticket(unit)
        gate = None
        try:
            if self._waiting or not self._turn.acquire(blocking=False):
                gate = self._queue(ticket)
            else:
                self._commit((ticket,))
                self._turn.release()
                if self._waiting:
                    self._call()
        except BaseException as failure:
            self._let_go(failure)
            raise
        if gate is not None:
            return gate.result()
        if ticket.error is not None:
            raise ticket.error
        return ticket.number or 0

    def submit(self, unit: Unit) -> Pending:
        """Store a unit without waiting for it; raises like `run`, since to wait for it there would be for ever."""
        self.refuse_nested()
        pending = Pending()
        try:
            self._waiting.append((Ticket(unit), pending))
            self._call()
        except BaseException:
            self._let_go()
            raise
        return pending

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches; raises like `run`."""
        self.refuse_nested()
        try:
            self._turn.acquire()
            done = work()
            self._let_go()
        except BaseException as failure:
            self._let_go(failure)
            raise
        return done

    def try_alone(self, work: Callable[[], None]) -> bool:
        """Do other work on the log, if nobody is at it; tells whether it was done."""
        if self._has_turn():
            return False
        try:
            if not self._turn.acquire(blocking=False):
                return False
            work()
            self._let_go()
        except BaseException as failure:
            self._let_go(failure)
            raise
        return True

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every unit that has not been taken into a batch; whoever has the turn may do so.

        They stay in the queue, so that a signal cannot lose them; whoever drains it tells them.
        """
        for ticket, _ in self._waiting.copy():
            ticket.error = error

    def refuse_nested(self) -> None:
        """Raise Refused if this thread is in the middle of work on the log; to wait for that would be for ever."""
        if self._has_turn():
            raise Nested("nothing was done: this thread is already writing the same session")

    def _has_turn(self) -> bool:
        return bool(self._turn._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001

    def _queue(self, ticket: Ticket) -> Gate:
        """Leave a unit to the pool: at once if the log is idle, else whoever is at it calls the pool afterwards."""
        gate = self._gate()
        self._waiting.append((ticket, gate))
        if self._turn.acquire(blocking=False):
            self._turn.release()
            self._call()
        return gate

    def _call(self) -> None:
        """Have the queue drained; whoever was called and has not begun will look at all that waits."""
        if not self._is_called:
            self._is_called = True
            self._later(self._drain)

    def _let_go(self, failure: BaseException | None = None) -> None:
        """Give the turn back, if this thread has it, and leave what waits to another."""
        if self._has_turn():
            try:
                if failure is not None:
                    self._free()
            finally:
                self._turn.release()
        if self._waiting:
            # Whoever was interrupted may have said that it calls, and not have done it.
            self._is_called = True
            self._later(self._drain)
        if isinstance(failure, Nested):
            raise DurabilityUnknown(f"interrupted while it was written: {failure!r}") from failure

    def _take(self) -> list[Waiting]:
        """Take what waits, in the order in which it came; in one step, which no signal parts."""
        return list(islice(iter(self._waiting.popleft, None), len(self._waiting)))

    def _drain(self) -> None:
        """Commit what waits, batch after batch, and tell everyone; for a thread of the pool."""
        taken: list[Waiting] = []
        error: StoreError | None = None
        try:
            while True:
                with self._turn:
                    # Only now: whoever came before is in the batch, and nobody else need wait for the turn.
                    self._is_called = False
                    taken = self._take()
                    error = self._store([ticket for ticket, _ in taken if ticket.error is None])
                # The log is free by now, so what is called back may write.
                _resolve(taken, error)
                if not self._waiting:
                    return
        except BaseException as failure:
            _resolve(taken, error or DurabilityUnknown(f"interrupted while it was written: {failure!r}"))
            self._let_go()
            raise

    def _store(self, tickets: Sequence[Ticket]) -> StoreError | None:
        """Commit units; gives what befell all of them."""
        try:
            if tickets:
                self._commit(tickets)
        except StoreError as failure:
            return failure
        return None


def _resolve(taken: Sequence[Waiting], error: StoreError | None) -> None:
    """Tell everyone what came of their unit, unless they know; those without a number or an error get `error`."""
    loops: dict[Any, list[Any]] = {}
    raised: BaseException | None = None
    for ticket, waiting in taken:
        try:
            waiting.resolve(ticket, error)
        except BaseException as failure:  # noqa: BLE001 - what a callback raised is no concern of the others
            waiting.resolve(ticket, error)
            raised = raised or failure
        for loop, woken in waiting.waiters:
            loops.setdefault(loop, []).append(woken)
    for loop, sleepers in loops.items():
        # In a loop that was closed nobody is left to be woken.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, sleepers)
    if raised is not None:
        raise raised


def _wake(sleepers: Sequence[Any]) -> None:
    for woken in sleepers:
        if not woken.done():
            woken.set_result(None)


def _begin_in_child() -> None:
    """After a fork, in the child: a thread of the parent may hold the lock."""
    global _making  # noqa: PLW0603 - it must be another
    _making = RLock()


os.register_at_fork(after_in_child=_begin_in_child)
