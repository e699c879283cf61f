"""The writers of a directory of logs: one per session, few of them open."""

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

from nacre.entries import Load
from nacre.errors import StoreError
from nacre.log.batch import Ticket
from nacre.log.group_commit import Committer, Nested
from nacre.log.log import LogFile
from nacre.log.names import stem

logger = logging.getLogger(__name__)

T = TypeVar("T")
_FLUSHERS = 16
_MOST_IDLE = 1024


class Writer:
    """The log of one session, and the queue before it."""

    __slots__ = ("__weakref__", "is_noted", "log", "queue", "used")

    def __init__(self, log: LogFile, writers: Writers) -> None:
        self.log = log
        self.queue = Committer(partial(writers.commit, self), writers.pool.run, log.free)
        self.used = 0
        self.is_noted = False

    def let_go(self) -> None:
        """Close the log; one whose flush fails stays open, and says so when it is used."""
        if self.log.is_sound:
            try:
                self.log.close()
            except StoreError:
                logger.exception("a log could not be flushed and stays open")
        self.is_noted = self.log.is_open


class Pool:
    """Threads that flush for those who do not wait; made when first needed.

    An executor of the standard library costs half as much again for each hand-over, and four times as much for some.
    """

    def __init__(self, lock: AbstractContextManager[bool] | None = None) -> None:
        self._lock = lock or RLock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._busy = 0

    def run(self, work: Callable[[], None]) -> None:
        """Have it done by a thread, or do it here if none can be started."""
        with self._lock:
            if len(self._threads) < min(self._busy + 1, _FLUSHERS):
                self._start()
            if self._threads:
                self._busy += 1
                self._work.put(work)
                return
        # Whoever waits for it is told what went wrong.
        with suppress(Exception):
            work()

    def finish(self) -> None:
        """Wait until nothing is left to do."""
        with self._lock:
            threads, self._threads = self._threads, []
            work, self._work = self._work, SimpleQueue()
        work.put(None)
        for thread in threads:
            thread.join()
        atexit.unregister(self.finish)

    def drop(self) -> None:
        """Forget the threads, which are the parent's."""
        atexit.unregister(self.finish)

    def _start(self) -> None:
        thread = Thread(target=self._serve, args=(self._work,), name="nacre-flush", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            # The machine has no more; those who are there do it, or whoever asked.
            return
        self._threads.append(thread)
        if len(self._threads) == 1:
            # A program may end with something under way; daemons would be cut off in the middle of it.
            atexit.register(self.finish)

    def _serve(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
        while (work := queue.get()) is not None:
            # Whoever waits for it is told what went wrong.
            with suppress(BaseException):
                work()
            with self._lock:
                self._busy -= 1
        # For the next: one that was interrupted when it was started serves too, and nobody counted it.
        queue.put(None)


class Writers:
    """All writers of a store.

    At most `max_open` logs stay open between writes, and as many are written at once; `before` is
    called ahead of the first write, and again until it does not raise.
    """

    def __init__(self, make: Callable[[str], LogFile], *, max_open: int, before: Callable[[], None]) -> None:
        self._make = make
        self._max_open = max_open
        self._before = before
        self._clock = 0
        self._closed = False
        self._is_ready = False
        self._begin()

    def _begin(self) -> None:
        # Re-entrant as in the pool; and what may change in the middle of a loop is copied before.
        self._lock = RLock()
        self.pool = Pool(self._lock)
        self._writers: dict[str, Writer] = {}
        # Those too that are no longer at hand, for as long as anyone uses them: there is one to a session.
        self._all: WeakValueDictionary[str, Writer] = WeakValueDictionary()
        self._open: dict[Writer, None] = {}
        # A queue of permits: the semaphore of the standard library costs ten times as much.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._max_open):
            self._permits.put(None)

    def of(self, key: str) -> Writer:
        """The writer of a session; refused to whoever interrupts its own thread while that holds the lock.

        What it wants to write would be left to threads that wait for the lock, and so for ever if it waits for them.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            raise Nested("nothing was done: this thread is in the middle of another write")
        name = stem(key)
        writer = self._writers.get(name)
        return writer if writer is not None else self._new(key, name)

    def alone(self, key: str, work: Callable[[Writer], T]) -> T:
        """Do something other than appending, between two batches."""
        self.get_ready()
        writer = self.of(key)

        def noted() -> T:
            try:
                return work(writer)
            finally:
                self._note(writer)

        return writer.queue.alone(noted)

    def together(self, keys: Sequence[str], work: Callable[[Sequence[Writer]], T]) -> T:
        """Do something with several sessions; turns are taken in one order, so that nobody waits for ever."""
        writers = [self.of(key) for key in keys]

        def take(rest: Sequence[str]) -> T:
            return self.alone(rest[0], lambda _: take(rest[1:])) if rest else work(writers)

        return take(sorted(set(keys), key=stem))

    def get_ready(self) -> None:
        """Do what comes before the first write."""
        if not self._is_ready:
            self._before()
            self._is_ready = True

    def load(self) -> Load:
        with self._lock:
            unsound = sum(not writer.log.is_sound for writer in list(self._open))
            return Load(len(self._open), self._clock, unsound)

    def close(self) -> None:
        """Write what waits, flush, and let go of every log; raises the first flush that failed.

        Raises Refused in the middle of a write by this thread, as in a signal handler.
        """
        with self._lock:
            writers = self._known()
            for writer in writers:
                writer.queue.refuse_nested()
            self._closed = True
            self._writers = {}
        self.pool.finish()
        errors: list[StoreError] = []
        for writer in writers:
            try:
                writer.queue.alone(writer.log.close)
            except StoreError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def begin_in_child(self) -> None:
        """Forget what the parent was doing: its locks are shared with us and must not be let go."""
        for writer in self._known():
            writer.log.drop()
        self.pool.drop()
        self._begin()

    def _known(self) -> Sequence[Writer]:
        """Every writer that is at hand or in use."""
        return list(dict.fromkeys([*self._writers.values(), *self._all.values()]))

    def _new(self, key: str, name: str) -> Writer:
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            if len(self._writers) > _MOST_IDLE:
                known = list(self._writers.items())
                self._writers = {name: writer for name, writer in known if writer.log.is_open}
            writer = self._writers.setdefault(name, self._all.get(name) or Writer(self._make(key), self))
            self._all[name] = writer
            return writer

    def commit(self, writer: Writer, tickets: Sequence[Ticket]) -> None:
        permit: list[None] = []
        try:
            # In one step: a signal between taking and having one would lose it.
            permit.extend(map(self._permits.get, (True,)))
            if not self._is_ready:
                self.get_ready()
            writer.log.commit(tickets)
        finally:
            if permit:
                self._permits.put(None)
            self._clock = writer.used = self._clock + 1
            if not writer.is_noted:
                self._note(writer)

    def _note(self, writer: Writer) -> None:
        """Remember that a log is open, and close the one that was not used for longest if they are too many.

        Only who has the turn of a log opens, closes or notes it.
        """
        with self._lock:
            writer.is_noted = writer.log.is_open
            if writer.is_noted:
                self._open[writer] = None
            else:
                self._open.pop(writer, None)
            surplus: list[Writer] = []
            if len(self._open) > self._max_open:
                others = [other for other in list(self._open) if other is not writer]
                surplus = nsmallest(len(self._open) - self._max_open, others, key=attrgetter("used"))
        for other in surplus:
            other.queue.try_alone(partial(self._let_go, other))

    def _let_go(self, writer: Writer) -> None:
        writer.let_go()
        with self._lock:
            if not writer.is_noted:
                self._open.pop(writer, None)
