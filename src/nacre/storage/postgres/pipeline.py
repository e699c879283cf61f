"""Those who store something at the same moment share one round trip and one commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from nacre.storage.postgres.connections import ConnectionLost, Connections, Failed, Link, Request, Result

_MAX_JOBS = 64
_LANES = 4


class _Job:
    """The statements of one caller, and what came of them; `latch` holds the caller until there is something to do."""

    __slots__ = ("error", "found", "latch", "leads", "requests")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.found: list[Result | Failed] | None = None
        self.error: Exception | None = None
        self.leads = False
        self.latch = Lock()
        self.latch.acquire()

    def wake(self, *, leads: bool = False) -> None:
        """Wake the caller: there is a result, or it is to send what waits. Twice is harmless."""
        # Not `or`: another thread may set it between the reading and the writing.
        if leads:
            self.leads = True
        with suppress(RuntimeError):
            self.latch.release()


class Pipeline:
    """Whoever comes when a connection is free sends what waits, and the next one of those who wait sends the rest.

    What is sent together is one transaction: one flush for all. In it rows are locked in the order of their sessions,
    so that two processes never wait for each other in a circle. If a statement fails, nothing was stored, and each
    caller's statements are sent by themselves: one caller's mistake is not that of the others.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._leaders = 0
        # Connections that are kept, one for each leader: to take one from the pool costs as much as to encode a record.
        self._links: list[Link] = []
        self.round_trips = 0

    def send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements as one transaction; they begin with the session's sid. Raises as `Connections.send` does."""
        with self._lock:
            is_free = not self._waiting and self._leaders < _LANES
            self._leaders += is_free
        if is_free:
            try:
                return self._send(requests)
            finally:
                with self._lock:
                    self._pass_on()
        job = _Job(requests)
        try:
            with self._lock:
                self._waiting.append(job)
                if self._leaders < _LANES:
                    self._leaders += 1
                    job.wake(leads=True)
            job.latch.acquire()
            while job.leads:
                self._lead(job)
                if job.found is None and job.error is None:
                    # Another one has taken it along, and is not done yet.
                    job.latch.acquire()
        except BaseException:
            # A signal: nobody must wait for this thread.
            with self._lock:
                if job in self._waiting:
                    self._waiting.remove(job)
                if job.leads:
                    self._pass_on()
            raise
        if job.error is not None:
            raise job.error
        return job.found or []

    def _lead(self, own: _Job) -> None:
        """Send what waits, and let one of those who came meanwhile send the rest."""
        jobs: list[_Job] = []
        try:
            with self._lock:
                own.leads = False
                while self._waiting and len(jobs) < _MAX_JOBS:
                    jobs.append(self._waiting.popleft())
            if jobs:
                self._run(jobs)
        except BaseException as failure:
            for job in jobs:
                if job.found is None:
                    job.error = failure if isinstance(failure, Exception) else ConnectionLost("interrupted")
            if not isinstance(failure, Exception):
                raise
        finally:
            for job in jobs:
                if job is not own:
                    job.wake()
            with self._lock:
                self._pass_on()

    def _pass_on(self) -> None:
        """Let the first of those who wait send next; only with the lock.

        Not one who has been told already, and has not begun yet: two leaders would become one, for ever.
        """
        following = next((job for job in self._waiting if not job.leads), None)
        if following is not None:
            following.wake(leads=True)
        else:
            self._leaders -= 1

    def _run(self, jobs: list[_Job]) -> None:
        if len(jobs) > 1:
            jobs.sort(key=lambda job: str(job.requests[0][1][0]))
            found = self._send([request for job in jobs for request in job.requests])
            if any(isinstance(one, Failed) for one in found):
                for job in jobs:
                    try:
                        job.found = self._send(job.requests)
                    except Exception as error:  # noqa: BLE001 - its caller gets it
                        job.error = error
                return
        else:
            found = self._send(jobs[0].requests)
        at = 0
        for job in jobs:
            job.found = found[at : at + len(job.requests)]
            at += len(job.requests)

    def _send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Send statements over a connection that is kept, or a new one."""
        self.round_trips += 1
        link = self._take()
        is_sound = False
        try:
            found = link.send(requests)
            is_sound = True
            return found
        finally:
            if is_sound:
                self._links.append(link)
            else:
                self._connections.give_back(link, is_sound=False)

    def _take(self) -> Link:
        """A connection that is kept, unless its server has gone, or one of the pool."""
        # Another thread may have taken the last one since it was looked at.
        with suppress(IndexError):
            while (link := self._links.pop()).is_stale():
                link.close()
                self._connections.give_back(link)
            return link
        return self._connections.take()

    def close(self) -> None:
        """Give the connections back."""
        while self._links:
            self._connections.give_back(self._links.pop())
