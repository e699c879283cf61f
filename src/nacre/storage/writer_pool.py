"""The writers of a directory of logs: one queue per session, few logs open, a small pool of threads."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from queue import SimpleQueue
from threading import RLock, Thread
from typing import TypeVar
from weakref import WeakValueDictionary

from nacre.errors import StoreError
from nacre.messages import Load, Version
from nacre.records import State
from nacre.storage.group_commit import Committer, Nested, Owner
from nacre.storage.log import Log
from nacre.storage.paths import stem
from nacre.storage.transaction import PendingCommit

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_THREADS = 16
_MAX_IDLE = 1024
# More keep each other from running.
_MAX_AT_ONCE = 64
# Those of 64 busy logs, about 75 MB.
_MAX_IDS = 64 * 4096


class SessionQueue:
    """The log of one session, its writer, and the queue of transactions before it."""

    __slots__ = ("__weakref__", "ids_counted", "is_noted", "log", "queue", "used", "writer")

    def __init__(self, log: Log, writers: Writers) -> None:
        self.log = log
        self.writer = log.writer
        self.queue = Committer(partial(writers.commit, self), writers.pool.run, log.writer.free)
        self.used = 0
        self.is_noted = False
        self.ids_counted = 0


class Pool:
    """Threads that flush for those who do not wait; made when first needed.

    An executor of the standard library costs half as much again for each hand-over, and four times as much for some.
    """

    def __init__(self, lock: AbstractContextManager[bool], owner: Owner) -> None:
        self._lock = lock
        self._owner = owner
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._busy = 0

    def run(self, work: Callable[[], None]) -> None:
        """Let a thread do it, or do it here if none can be started."""
        with self._owner, self._lock:
            if len(self._threads) < min(self._busy + 1, _MAX_THREADS):
                thread = Thread(target=self._serve, args=(self._work,), name="nacre-flush", daemon=True)
                # If the machine has no more, the threads that are there do it, or the caller.
                with suppress(RuntimeError, MemoryError):
                    thread.start()
                    self._threads.append(thread)
                    if len(self._threads) == 1:
                        # A program may end during a write; daemon threads would be cut off in the middle of it.
                        atexit.register(self.finish)
            if self._threads:
                self._busy += 1
                self._work.put(work)
                return
        # Those who wait for it get the error.
        with suppress(Exception):
            work()

    def finish(self) -> None:
        """Wait until nothing is left to do."""
        with self._owner, self._lock:
            threads, self._threads = self._threads, []
            work, self._work = self._work, SimpleQueue()
        work.put(None)
        for thread in threads:
            thread.join()
        atexit.unregister(self.finish)

    def drop(self) -> None:
        """Forget the threads, which are the parent's."""
        atexit.unregister(self.finish)

    def _serve(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
        while (work := queue.get()) is not None:
            # Those who wait for it get the error.
            with suppress(BaseException):
                work()
            with self._owner, self._lock:
                self._busy -= 1
        # For the next: one that was interrupted when it was started serves too, and nobody counted it.
        queue.put(None)


class Writers:
    """All sessions of a store that are written to.

    At most `max_open` logs stay open between writes, and as many, but not more than 64, are written at once. About
    `max_ids` ids are kept in memory. `before` is called before the first write, and again until it does not raise.
    """

    def __init__(
        self, make: Callable[[str], Log], *, max_open: int, before: Callable[[], None], max_ids: int = _MAX_IDS
    ) -> None:
        self._make = make
        self._max_open = max_open
        self._max_ids = max_ids
        self._before = before
        self._clock = 0
        self._closed = False
        self._is_ready = False
        self._begin()

    def _begin(self) -> None:
        # Re-entrant as in the pool; and what may change in the middle of a loop is copied before.
        self._lock = RLock()
        self._owner = Owner(self._lock)
        self.pool = Pool(self._lock, self._owner)
        self._queues: dict[str, SessionQueue] = {}
        # Those too that are no longer kept, for as long as anyone uses them: there is one to a session.
        self._all: WeakValueDictionary[str, SessionQueue] = WeakValueDictionary()
        self._open: dict[SessionQueue, None] = {}
        self._ids = 0
        # A queue of permits: the semaphore of the standard library costs ten times as much.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(min(self._max_open, _MAX_AT_ONCE)):
            self._permits.put(None)

    def of(self, key: str) -> SessionQueue:
        """The queue of a session; raises Refused to a signal handler whose own thread holds the lock.

        What it wants to write would be left to threads that wait for the lock: it would wait forever.
        """
        if self._owner.near and self._owner.is_me():
            raise Nested("nothing was done: this thread is in the middle of another write")
        name = stem(key)
        session = self._queues.get(name)
        return session if session is not None else self._new(key, name)

    def look(self, key: str) -> tuple[Version, State] | None:
        """How a session ends if its log is as its writer here left it, open or closed."""
        session = self._queues.get(stem(key))
        return session.writer.look() if session is not None else None

    def alone(self, key: str, work: Callable[[SessionQueue], T]) -> T:
        """Do something other than appending, between two batches."""
        self.get_ready()
        session = self.of(key)

        def work_and_note() -> T:
            try:
                return work(session)
            finally:
                self._note(session)

        return session.queue.alone(work_and_note)

    def together(self, keys: Sequence[str], work: Callable[[Sequence[SessionQueue]], T]) -> T:
        """Do something with several sessions; turns are taken in one order, so that nobody waits forever."""
        sessions = [self.of(key) for key in keys]

        def take(rest: Sequence[str]) -> T:
            return self.alone(rest[0], lambda _: take(rest[1:])) if rest else work(sessions)

        return take(sorted(set(keys), key=stem))

    def get_ready(self) -> None:
        """Do what comes before the first write."""
        if not self._is_ready:
            self._before()
            self._is_ready = True

    def load(self) -> Load:
        with self._owner, self._lock:
            unsound = sum(not session.writer.is_sound for session in list(self._open))
            return Load(len(self._open), self._clock, unsound)

    def close(self) -> None:
        """Write what waits, flush, and close every log; raises the first flush that failed.

        Raises Refused in the middle of a write by this thread, as in a signal handler.
        """
        with self._owner, self._lock:
            sessions = self._known()
            for session in sessions:
                session.queue.refuse_nested()
            self._closed = True
            self._queues = {}
        self.pool.finish()
        errors: list[StoreError] = []
        for session in sessions:
            try:
                session.queue.alone(session.writer.close)
            except StoreError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def begin_in_child(self) -> None:
        """Forget what the parent was doing: its locks are shared with us and must not be released."""
        for session in self._known():
            session.writer.drop()
        self.pool.drop()
        self._begin()

    def _known(self) -> Sequence[SessionQueue]:
        """Every session that is kept or in use."""
        return list(dict.fromkeys([*self._queues.values(), *self._all.values()]))

    def _new(self, key: str, name: str) -> SessionQueue:
        with self._owner, self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            if len(self._queues) > _MAX_IDLE:
                known = list(self._queues.items())
                self._queues = {name: session for name, session in known if session.writer.is_open}
            session = self._queues.setdefault(name, self._all.get(name) or SessionQueue(self._make(key), self))
            self._all[name] = session
            return session

    def commit(self, session: SessionQueue, commits: Sequence[PendingCommit]) -> None:
        permit: list[None] = []
        try:
            # In one step: a signal between taking and having one would lose it.
            permit.extend(map(self._permits.get, (True,)))
            if not self._is_ready:
                self.get_ready()
            session.writer.commit(commits)
        finally:
            if permit:
                self._permits.put(None)
            self._clock = session.used = self._clock + 1
            if not session.is_noted:
                self._note(session)
            if session.writer.ids_held != session.ids_counted:
                self._count_ids(session)

    def _count_ids(self, session: SessionQueue) -> None:
        """Count the ids in memory; if they are too many, the logs that were not used for longest forget theirs."""
        surplus: list[SessionQueue] = []
        with self._owner, self._lock:
            self._ids += session.writer.ids_held - session.ids_counted
            session.ids_counted = session.writer.ids_held
            if self._ids > self._max_ids:
                # Count again: some logs were closed, and some sessions are no longer kept. If there are too many, half
                # go, so that it is long until it happens again.
                self._ids = 0
                for other in sorted(self._known(), key=attrgetter("used"), reverse=True):
                    other.ids_counted = other.writer.ids_held
                    self._ids += other.ids_counted
                    if self._ids > self._max_ids // 2 and other.ids_counted and other is not session:
                        surplus.append(other)
                surplus = surplus if self._ids > self._max_ids else []
        for other in surplus:
            other.queue.try_alone(partial(self._forget_ids, other))

    def _forget_ids(self, session: SessionQueue) -> None:
        session.writer.forget_ids()
        with self._owner, self._lock:
            self._ids -= session.ids_counted
            session.ids_counted = 0

    def _note(self, session: SessionQueue) -> None:
        """Remember whether a log is open, and close the one that was not used for longest if they are too many.

        Only the thread that has the turn of a log opens, closes or notes it.
        """
        with self._owner, self._lock:
            session.is_noted = session.writer.is_open
            if session.is_noted:
                self._open[session] = None
            else:
                self._open.pop(session, None)
            surplus: list[SessionQueue] = []
            if len(self._open) > self._max_open:
                others = [other for other in list(self._open) if other is not session]
                surplus = nsmallest(len(self._open) - self._max_open, others, key=attrgetter("used"))
        for other in surplus:
            other.queue.try_alone(partial(self._close, other))

    def _close(self, session: SessionQueue) -> None:
        """Close a log that is idle; one whose flush fails stays open, and says so when it is used."""
        if session.writer.is_sound:
            try:
                session.writer.close()
            except StoreError:
                logger.exception("a log could not be flushed and stays open")
        session.is_noted = session.writer.is_open
        with self._owner, self._lock:
            if not session.is_noted:
                self._open.pop(session, None)
