"""Group commit: whoever finds the log idle commits for all who wait; one flush serves them all."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
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
    costs more than the commit. So does the condition that a future is made with; it is made when a
    thread waits for it or a callback is added, which those who await do not need.
    """

    waiters: Sequence[tuple[Any, Any]] = ()

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
        self.__dict__.setdefault("waiters", []).append((loop, woken))
        # Whoever resolves it looks for the waiters only afterwards, so one of us sees the other.
        if self._state != FINISHED:
            yield from woken
        if self._exception is not None:
            raise self._exception
        return self._result or 0

    def cancel(self) -> bool:
        """False: what was submitted is written, whoever still waits for it."""
        return False

    def resolve(self, ticket: Ticket, error: StoreError | None) -> None:
        """Say what came of the unit; the first answer counts."""
        refused = ticket.error or error
        with _making:
            if self._state == FINISHED:
                return
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
            self._error = ticket.error or error
            self._number = ticket.number or 0
        if self._lock.locked():
            self._lock.release()


class Committer:
    """The queue of one log.

    A caller that finds the log idle commits its own unit and all that wait. Who finds it busy
    waits; what has come in meanwhile is left to a thread of the pool, batch after batch.

    A signal may strike anywhere, even right behind an acquire. So whoever may have the turn lets go
    in an exception handler too, and whoever may have left something to wait calls again for someone
    who writes it; to do so twice is harmless.
    """

    def __init__(self, commit: Callable[[Sequence[Ticket]], None], later: Later) -> None:
        self._commit = commit
        self._later = later
        self._turn = RLock()
        self._is_busy = False
        self._is_called = False
        self._waiting: deque[tuple[Ticket, Pending | Gate]] = deque()

    def run(self, unit: Unit) -> int:
        """Store a unit and return its number, once it is durable.

        Raises Refused in the middle of another write by this thread, as in a signal handler.
        """
        ticket = Ticket(unit)
        if self._is_busy:
            self.refuse_nested()
        try:
            gate = None if self._turn.acquire(blocking=False) else self._queued(ticket)
            if gate is None:
                self._write(ticket)
                self._turn.release()
                if self._waiting:
                    self._later(self._drain)
        except BaseException as failure:
            self._let_go(failure)
            raise
        if gate is not None:
            return gate.result()
        if ticket.error is not None:
            raise ticket.error
        return ticket.number or 0

    def submit(self, unit: Unit) -> Pending:
        """Store a unit without waiting for it."""
        pending = Pending()
        try:
            self._waiting.append((Ticket(unit), pending))
            # Who was called and has not begun will look at what waits.
            if not self._is_called:
                self._is_called = True
                self._later(self._drain)
        except BaseException:
            self._is_called = False
            self._later(self._drain)
            raise
        return pending

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches; raises like `run`."""
        self.refuse_nested()
        try:
            self._turn.acquire()
            done = self._done(work)
            self._let_go()
        except BaseException as failure:
            self._let_go(failure)
            raise
        return done

    def try_alone(self, work: Callable[[], None]) -> bool:
        """Do other work on the log, if nobody is at it; tells whether it was done."""
        if self._is_nested():
            return False
        try:
            if not self._turn.acquire(blocking=False):
                return False
            self._done(work)
            self._let_go()
        except BaseException as failure:
            self._let_go(failure)
            raise
        return True

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every unit that has not been taken into a batch."""
        with self._turn:
            self._write(refusal=error)

    def refuse_nested(self) -> None:
        """Raise Refused if this thread is in the middle of work on the log; to wait for that would be for ever."""
        if self._is_nested():
            raise Nested("nothing was done: this thread is already writing the same session")

    def _queued(self, ticket: Ticket) -> Gate:
        """Wait for whoever writes now; if it has just finished, nobody else would look."""
        gate = Gate()
        self._waiting.append((ticket, gate))
        if self._turn.acquire(blocking=False):
            self._let_go()
        return gate

    def _is_nested(self) -> bool:
        """True in the middle of work on the log by this thread: in a signal handler, a finalizer, a handler of logs."""
        return self._is_busy and self._has_turn()

    def _has_turn(self) -> bool:
        return bool(self._turn._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001

    def _let_go(self, failure: BaseException | None = None) -> None:
        """Give the turn back, if this thread has it, and leave what waits to another."""
        if self._has_turn():
            self._turn.release()
        if self._waiting:
            self._later(self._drain)
        if isinstance(failure, Nested):
            raise DurabilityUnknown(f"interrupted while it was written: {failure!r}") from failure

    def _done(self, work: Callable[[], T]) -> T:
        """What comes of work on the log; whoever asks for more in the middle of it is refused."""
        self._is_busy = True
        try:
            return work()
        finally:
            self._is_busy = False

    def _drain(self) -> None:
        try:
            while not self._is_nested():
                with self._turn:
                    # Only now: whoever came before is in the batch, and nobody else need wait for the turn.
                    self._is_called = False
                    self._write()
                if not self._waiting:
                    return
            # In the middle of other work on this thread, it is left to whoever does that.
            self._is_called = False
        except BaseException:
            # Those of the batch have been told; others may have come meanwhile.
            self._is_called = False
            if self._waiting:
                self._later(self._drain)
            raise

    def _write(self, own: Ticket | None = None, *, refusal: StoreError | None = None) -> None:
        """Commit what waits, and the caller's own unit behind it, unless they are refused; tell everyone."""
        taken: list[tuple[Ticket, Pending | Gate]] = []
        error = refusal
        is_known = refusal is not None
        try:
            if self._waiting:
                # In the order in which it came, and in one step: a signal in between would leave some to nobody.
                taken.extend(islice(iter(self._waiting.popleft, None), len(self._waiting)))
            tickets = [ticket for ticket, _ in taken] if taken else []
            if own is not None:
                tickets.append(own)
            if tickets and refusal is None:
                error = self._stored(tickets)
            is_known = True
            if own is not None and own.error is None:
                own.error = error
            if taken:
                _resolve(taken, error)
        except BaseException as failure:
            doubt = DurabilityUnknown(f"interrupted while it was written: {failure!r}")
            _resolve(taken, error if is_known else doubt)
            raise

    def _stored(self, tickets: Sequence[Ticket]) -> StoreError | None:
        """Commit units; gives what befell all of them."""
        self._is_busy = True
        try:
            self._commit(tickets)
        except Nested:
            raise
        except StoreError as failure:
            return failure
        finally:
            self._is_busy = False
        return None


def _resolve(taken: Sequence[tuple[Ticket, Pending | Gate]], error: StoreError | None) -> None:
    """Tell everyone what came of their unit, unless they know."""
    loops: dict[Any, list[Any]] = {}
    try:
        for ticket, waiting in taken:
            waiting.resolve(ticket, error)
            for loop, woken in waiting.waiters:
                loops.setdefault(loop, []).append(woken)
    except BaseException:
        # A signal, or what a callback raised: no concern of the others.
        _resolve(taken, error)
        raise
    for loop, sleepers in loops.items():
        # In a loop that was closed nobody is left to be woken.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, sleepers)


def _wake(sleepers: Sequence[Any]) -> None:
    for woken in sleepers:
        if not woken.done():
            woken.set_result(None)


def _begin_in_child() -> None:
    """After a fork, in the child: a thread of the parent may hold the lock."""
    global _making  # noqa: PLW0603 - it must be another
    _making = RLock()


os.register_at_fork(after_in_child=_begin_in_child)
