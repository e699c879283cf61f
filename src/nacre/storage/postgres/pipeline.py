"""Those who store something at the same moment share one round trip and one commit.

A caller that finds nobody else sending sends its statements itself. Those who come meanwhile wait for a thread, which
sends what waits as one transaction, again and again, until nothing does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread, get_ident

from nacre.storage.postgres.connections import Connections, Failed, Link, Request, Result

_MAX_JOBS = 64
_MAX_THREADS = 4
_SLOW = 0.02
"""Seconds after which those who wait get another thread: the first may wait for a row that somebody has locked."""


class _Job:
    """The statements of one caller, and what came of them; its caller waits at the latch."""

    __slots__ = ("error", "found", "latch", "requests")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.found: list[Result | Failed] = []
        self.error: BaseException | None = None
        self.latch = Lock()
        self.latch.acquire()


class Pipeline:
    """Sends statements that store something, alone or together with those of other callers.

    What is sent together is one transaction: one flush for all. In it rows are locked in the order of their sessions,
    so that two processes never wait for each other in a circle. If a statement fails, nothing was stored, and each
    caller's statements are sent by themselves: one caller's mistake is not that of the others.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        # The threads that are sending. One that a signal has interrupted takes itself out when it comes again.
        self._sending: set[int] = set()
        self._threads: list[Thread] = []
        # What calls a thread; a None ends one.
        self._calls: SimpleQueue[object] = SimpleQueue()
        # Connections that are kept: to take one from the pool costs as much as to encode a record.
        self._links: list[Link] = []
        self.round_trips = 0

    def send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements as one transaction; they begin with the session's sid. Raises as `Connections.send` does."""
        me = get_ident()
        job: _Job | None = None
        with self._lock:
            self._sending.discard(me)
            if self._sending or self._waiting:
                # The one that sends now looks for those who wait when it is done.
                job = _Job(requests)
                self._waiting.append(job)
            else:
                self._sending.add(me)
        if job is None:
            try:
                return self._send(requests)
            finally:
                with self._lock:
                    self._sending.discard(me)
                if self._waiting:
                    self._call()
        # A signal may end the wait: what waits is sent all the same, and nobody waits for this thread.
        while not job.latch.acquire(timeout=_SLOW):
            if self._waiting:
                self._call(is_slow=True)
        if job.error is not None:
            raise job.error
        return job.found

    def _call(self, *, is_slow: bool = False) -> None:
        """Let a thread send what waits; another one if those that do are slow."""
        with self._lock:
            wanted = min(len(self._sending) + 1, _MAX_THREADS) if is_slow else 1
            if len(self._threads) < wanted:
                thread = Thread(target=self._serve, name="nacre-pipeline", daemon=True)
                thread.start()
                self._threads.append(thread)
        self._calls.put(self)

    def _serve(self) -> None:
        """Send what waits, whenever it is called; until the store is closed."""
        me = get_ident()
        while self._calls.get() is not None:
            while True:
                with self._lock:
                    jobs = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_JOBS))]
                    (self._sending.add if jobs else self._sending.discard)(me)
                if not jobs:
                    break
                self._run(jobs)
                for job in jobs:
                    job.latch.release()

    def _run(self, jobs: list[_Job]) -> None:
        """Send the statements of several callers, and give each its results."""
        jobs.sort(key=lambda job: str(job.requests[0][1][0]))
        try:
            found = self._send([request for job in jobs for request in job.requests])
        except BaseException as error:  # noqa: BLE001 - the callers get it
            for job in jobs:
                job.error = error
            return
        if len(jobs) > 1 and any(isinstance(one, Failed) for one in found):
            for job in jobs:
                try:
                    job.found = self._send(job.requests)
                except BaseException as error:  # noqa: BLE001 - its caller gets it
                    job.error = error
            return
        at = 0
        for job in jobs:
            job.found = found[at : at + len(job.requests)]
            at += len(job.requests)

    def _send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Send statements over a connection that is kept, or one of the pool."""
        self.round_trips += 1
        link, is_sound = self._take(), False
        try:
            found = link.send(requests)
            is_sound = True
            return found
        finally:
            # Not the last ones of a small pool: others need connections to read.
            if is_sound and len(self._links) < min(_MAX_THREADS, self._connections.size - _MAX_THREADS):
                self._links.append(link)
            else:
                self._connections.give_back(link, is_sound=is_sound)

    def _take(self) -> Link:
        # Another thread may take the last one between a look and the taking.
        with suppress(IndexError):
            while (link := self._links.pop()).is_stale():
                link.close()
                self._connections.give_back(link)
            return link
        return self._connections.take()

    def close(self) -> None:
        """End the threads, and give the connections back."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join(timeout=self._connections.timeout)
        while self._links:
            self._connections.give_back(self._links.pop())
