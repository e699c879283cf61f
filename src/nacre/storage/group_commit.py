"""Group commit: a caller that finds the log idle commits at once; those who wait share one write and one flush."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from threading import Condition, Lock, RLock, get_ident, local
from typing import Any, TypeVar

from nacre.errors import DurabilityUnknown, Refused, StoreError
from nacre.records import Transaction
from nacre.storage.transaction import PendingCommit

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Re-entrant, since a signal handler may ask for a number while another is given.
_making = RLock()

Later = Callable[[Callable[[], None]], object]
"""Runs a function on another thread."""


class Nested(Refused):
    """A write refused because its thread is in the middle of another; if it gets out of there, that one is in doubt."""


class Owner:
    """Tells whether the calling thread holds a lock; that it does not, at the cost of a look into a list.

    A thread is listed, as often as it comes, from before it takes the lock until after it has released it. So one that
    is not listed does not hold it. For one that is, the lock decides: `notify` of a condition refuses all but the
    owner. A note of the holder would not do: a signal may strike between the taking and the note.
    """

    __slots__ = ("_condition", "near")

    def __init__(self, lock: Any) -> None:
        self._condition = Condition(lock)
        self.near: list[int] = []

    def __enter__(self) -> None:
        self.near.append(get_ident())

    def __exit__(self, *_: object) -> None:
        self.near.remove(get_ident())

    def is_me(self) -> bool:
        if get_ident() not in self.near:
            return False
        try:
            self._condition.notify(0)
        except RuntimeError:
            return False
        return True


class Wakeup:
    """Wakes those who await in one event loop, all whose transactions are done by then together.

    The loop is called from another thread, which costs more than a commit: so one call serves all logs.
    """

    __slots__ = ("_is_called", "_woken", "loop")

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self._woken: deque[Any] = deque()
        self._is_called = False

    def add(self, woken: Any) -> None:
        self._woken.append(woken)

    def call(self) -> None:
        """Call the loop, unless it is called already and has not come yet."""
        if self._is_called:
            return
        try:
            self._is_called = True
            self.loop.call_soon_threadsafe(self._wake)
        except BaseException as failure:
            self._is_called = False
            # In a loop that was closed nobody is left to be woken.
            if not isinstance(failure, RuntimeError):
                raise

    def _wake(self) -> None:
        # First: who comes from here on calls again.
        self._is_called = False
        while self._woken:
            woken = self._woken.popleft()
            if not woken.done():
                woken.set_result(None)


# Each thread has one for the loop that runs there.
_here = local()


class Pending(Future[int]):
    """The number that a transaction will have: a `concurrent.futures.Future` that can be awaited in asyncio too.

    >>> pending = sessions.submit("cli:1", [nacre.Message(role="user", content="And a pearl?")])
    >>> pending.result(timeout=10)
    4
    """

    # It does without the condition that a future is made with. A signal may strike a thread that has just taken it and
    # leave it taken: the thread that resolves the future would wait for it forever, and everyone after it. A thread
    # waits at a lock of its own instead, which also costs less. Those who await it in one event loop are woken
    # together.
    #
    # Only `wait` and `as_completed` of `concurrent.futures`, which look at what is inside a future, need the condition;
    # it is made for them when they do.

    waiters: Sequence[tuple[Wakeup, Any]] = ()
    _sleepers: Sequence[Any] = ()
    _callbacks: Sequence[Callable[[Future[int]], object]] = ()
    _is_done = False
    _is_complete = False
    _number = 0
    _error: Exception | None = None

    def __init__(self) -> None:
        """Make nothing: whatever is needed is made when it is."""

    def __getattr__(self, name: str) -> Any:
        """Make what is inside a future."""
        with _making:
            if not self._is_complete:
                # In one step, which no signal parts.
                self.__dict__.update(vars(Future()), _is_complete=True)
        if self._is_done:
            self._tell_future()
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return f"<Pending {'finished' if self._is_done else 'pending'}>"

    def __await__(self) -> Generator[Any, None, int]:
        # Who awaits has asyncio loaded; who does not, need not.
        loop = sys.modules["asyncio"].get_running_loop()
        wakeup = getattr(_here, "wakeup", None)
        if wakeup is None or wakeup.loop is not loop:
            wakeup = _here.wakeup = Wakeup(loop)
        woken = loop.create_future()
        self.__dict__.setdefault("waiters", []).append((wakeup, woken))
        # The thread that resolves it looks for waiters only afterwards, so one of us sees the other.
        if not self._is_done:
            yield from woken
        return self._answer()

    def result(self, timeout: float | None = None) -> int:
        self._sleep(timeout)
        return self._answer()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._sleep(timeout)
        return self._error

    def done(self) -> bool:
        return self._is_done

    def running(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """False: what was submitted is written, even if nobody waits for it any more."""
        return False

    def add_done_callback(self, fn: Callable[[Future[int]], object]) -> None:
        self.__dict__.setdefault("_callbacks", []).append(fn)
        # As in `__await__`.
        if self._is_done:
            self._call_back()

    def resolve(self, commit: PendingCommit, error: StoreError | None) -> None:
        """Say what came of the transaction; the first answer counts. If it is interrupted, it may be called again."""
        with _making:
            if not self._is_done:
                self._error = commit.error or (error if commit.number is None else None)
                self._number = commit.number or 0
                self._is_done = True
        if self._is_complete:
            self._tell_future()
        for lock in list(self._sleepers):
            if lock.locked():
                lock.release()
        if self._callbacks:
            self._call_back()

    def _tell_future(self) -> None:
        """Tell the functions that look inside the future."""
        with suppress(InvalidStateError):
            if self._error is not None:
                super().set_exception(self._error)
            else:
                super().set_result(self._number)

    def _answer(self) -> int:
        if self._error is not None:
            raise self._error
        return self._number

    def _sleep(self, timeout: float | None) -> None:
        """Wait until it is resolved; raises TimeoutError."""
        if self._is_done:
            return
        lock = Lock()
        lock.acquire()
        sleepers = self.__dict__.setdefault("_sleepers", [])
        sleepers.append(lock)
        # As in `__await__`.
        if not self._is_done and not lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            sleepers.remove(lock)
            raise TimeoutError

    def _call_back(self) -> None:
        """Call each callback once: the thread that takes it out of the list does."""
        callbacks = self.__dict__["_callbacks"]
        with suppress(IndexError):
            while True:
                callback = callbacks.pop(0)
                try:
                    callback(self)
                except Exception:
                    # As every future does: it is not the concern of others.
                    logger.exception("exception calling callback for %r", self)


class Latch:
    """Holds a blocking caller until its transaction has an outcome; much cheaper than a future."""

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

    def resolve(self, commit: PendingCommit, error: StoreError | None) -> None:
        """Say what came of the transaction; the first answer counts."""
        if self._number is None:
            self._error = commit.error or (error if commit.number is None else None)
            self._number = commit.number or 0
        if self._lock.locked():
            self._lock.release()


Waiting = tuple[PendingCommit, Pending | Latch]


class Committer:
    """The queue of one log.

        run                                                 submit
         |  idle, and nobody waits                            |
         |------------------------> commit this transaction   |
         |  else                                              |
         '----------> queue <---------------------------------'
                        '--> a thread of the pool: commit all that wait as one batch, again and again

    So a caller that is interrupted by a signal, which strikes the main thread only, holds nobody else's transaction.
    It may be struck right after an acquire or before a call: an exception handler gives the turn back, and calls again
    for a thread that drains the queue. To do so twice is harmless.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[PendingCommit]], None],
        later: Later,
        free: Callable[[], None] = lambda: None,
        *,
        latch: Callable[[], Latch] = Latch,
    ) -> None:
        self._commit = commit
        self._later = later
        # Unlocks the log for others; called if anything was raised, since a signal may strike while it is unlocked.
        self._free = free
        self._latch = latch
        # The turn to work on the log.
        self._turn = RLock()
        self._owner = Owner(self._turn)
        self._is_called = False
        self._waiting: deque[Waiting] = deque()

    def run(self, transaction: Transaction) -> int:
        """Store a transaction and return its number, once it is durable.

        Raises Refused in the middle of another write by this thread, as in a signal handler.
        """
        me, near = get_ident(), self._owner.near
        if me in near:
            self.refuse_nested()
        commit = PendingCommit(transaction)
        latch = None
        near.append(me)
        try:
            if self._waiting or not self._turn.acquire(blocking=False):
                latch = self._latch()
                self._waiting.append((commit, latch))
                # If the log is idle, a thread of the pool is called; if not, the one that is at it calls afterwards.
                if self._turn.acquire(blocking=False):
                    self._turn.release()
                    self._call()
            else:
                self._commit((commit,))
                self._turn.release()
                if self._waiting:
                    self._call()
        except BaseException as failure:
            self._release(failure)
            raise
        finally:
            near.remove(me)
        if latch is not None:
            return latch.result()
        if commit.error is not None:
            raise commit.error
        return commit.number or 0

    def submit(self, transaction: Transaction, pending: Pending | None = None) -> Pending:
        """Store a transaction without waiting for it; raises like `run`, since its result would never come."""
        self.refuse_nested()
        pending = pending or Pending()
        try:
            self._waiting.append((PendingCommit(transaction), pending))
            self._call()
        except BaseException:
            self._release()
            raise
        return pending

    def alone(self, work: Callable[[], T]) -> T:
        """Do other work on the log, between two batches; raises like `run`."""
        self.refuse_nested()
        with self._owner:
            try:
                self._turn.acquire()
                done = work()
                self._release()
            except BaseException as failure:
                self._release(failure)
                raise
        return done

    def try_alone(self, work: Callable[[], None]) -> bool:
        """Do other work on the log, if nobody is at it; tells whether it was done."""
        if self._owner.is_me():
            return False
        with self._owner:
            try:
                if not self._turn.acquire(blocking=False):
                    return False
                work()
                self._release()
            except BaseException as failure:
                self._release(failure)
                raise
        return True

    def refuse_waiting(self, error: StoreError) -> None:
        """Refuse every transaction that has not been taken into a batch; only with the turn.

        They stay in the queue, so that a signal cannot lose them; the thread that drains it tells them.
        """
        for commit, _ in self._waiting.copy():
            commit.error = error

    def refuse_nested(self) -> None:
        """Raise Refused if this thread is in the middle of work on the log: it would wait for itself forever."""
        if self._owner.is_me():
            raise Nested("nothing was done: this thread is already writing the same session")

    def _call(self) -> None:
        """Let a thread drain the queue; one that was called and has not begun will take all that waits."""
        if not self._is_called:
            self._is_called = True
            self._later(self._drain)

    def _release(self, failure: BaseException | None = None) -> None:
        """Give the turn back, if this thread has it, and leave what waits to another."""
        if self._owner.is_me():
            try:
                if failure is not None:
                    self._free()
            finally:
                self._turn.release()
        if self._waiting:
            # The interrupted caller may have noted that it calls, and not have done it.
            self._is_called = True
            self._later(self._drain)
        if isinstance(failure, Nested):
            raise DurabilityUnknown(f"interrupted while it was written: {failure!r}") from failure

    def _drain(self) -> None:
        """Commit what waits, batch after batch, and tell everyone; for a thread of the pool."""
        taken: list[Waiting] = []
        error: StoreError | None = None
        with self._owner:
            try:
                while True:
                    with self._turn:
                        # Only now: those who came before are in the batch, and nobody else need wait for the turn.
                        self._is_called = False
                        # All that waits, in the order in which it came; in one step, which no signal parts.
                        taken, error = [], None
                        taken.extend(islice(iter(self._waiting.popleft, None), len(self._waiting)))
                        commits = [commit for commit, _ in taken if commit.error is None]
                        try:
                            if commits:
                                self._commit(commits)
                        except StoreError as failure:
                            error = failure
                    # The log is free by now, so what is called back may write.
                    resolve(taken, error)
                    if not self._waiting:
                        return
            except BaseException as failure:
                resolve(taken, error or DurabilityUnknown(f"interrupted while it was written: {failure!r}"))
                self._release()
                raise


def resolve(taken: Sequence[Waiting], error: StoreError | None) -> None:
    """Give everyone the result of their transaction, unless they have it; `error` to those who have none."""
    wakeups: dict[Wakeup, None] = {}
    raised: BaseException | None = None
    for commit, waiting in taken:
        try:
            waiting.resolve(commit, error)
        except BaseException as failure:  # noqa: BLE001 - what a callback raised is no concern of the others
            waiting.resolve(commit, error)
            raised = raised or failure
        for wakeup, woken in waiting.waiters:
            wakeup.add(woken)
            wakeups[wakeup] = None
    for wakeup in wakeups:
        wakeup.call()
    if raised is not None:
        raise raised


def refuse(pending: Pending, error: Exception) -> None:
    """Tell the one who awaits a future that nothing was stored, and why."""
    commit = PendingCommit(Transaction(()))
    commit.error = error
    resolve([(commit, pending)], None)


def _begin_in_child() -> None:
    """After a fork, in the child: a thread of the parent may hold the lock."""
    global _making  # noqa: PLW0603 - it must be another
    _making = RLock()


os.register_at_fork(after_in_child=_begin_in_child)
