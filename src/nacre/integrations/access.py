"""The sessions that an adapter was given, as its methods need them: to call, or to await.

Both are looked up when a method runs: `AsyncSessions` may be given before they are opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TypeAlias, TypeVar, cast

from nacre.async_sessions import AsyncSessions
from nacre.checks import show
from nacre.errors import Conflict, InvalidArgument
from nacre.messages import Snapshot
from nacre.sessions import Sessions

T = TypeVar("T")
AnySessions: TypeAlias = Sessions | AsyncSessions
_AWAITED = "_awaited_by_integrations"

_MAX_TRIES = 4
"""While nothing changes: what another process has deleted is reported once for each session, also if it was seen."""


def check_sessions(sessions: object) -> AnySessions:
    """What an adapter is given; raises InvalidArgument if it is something else."""
    if not isinstance(sessions, Sessions | AsyncSessions):
        raise InvalidArgument(f"sessions must be Sessions or AsyncSessions, not {show(sessions)}")
    return sessions


def blocking(sessions: AnySessions) -> Sessions:
    """The sessions for a method that may wait."""
    return sessions if isinstance(sessions, Sessions) else sessions.blocking


def awaited(sessions: AnySessions) -> AsyncSessions:
    """The sessions for a coroutine, which must not block the event loop."""
    if isinstance(sessions, AsyncSessions):
        return sessions
    # With the sessions, so that both are forgotten together: each has the other, and a dictionary elsewhere would keep
    # them for good. Of several threads that make one at once, all get that of the first.
    kept = vars(sessions)
    if _AWAITED not in kept:
        kept.setdefault(_AWAITED, AsyncSessions.of(sessions))
    return cast("AsyncSessions", kept[_AWAITED])


def read_active(plain: Sessions, key: str, *, last: int | None = None) -> Snapshot:
    """What a framework finds under a key: nothing if the session is archived, since a write begins a new generation."""
    now = plain.snapshot(key, last=last)
    return Snapshot() if now.archived else now


def change(plain: Sessions, key: str, work: Callable[[], T], *further: str) -> T:
    """Call `work`, which reads a session and then changes what it has read; once more for each Conflict.

    Each time somebody else has written, deleted or archived in between, there or in the `further` sessions that `work`
    may be about. Raises Conflict if nobody has.
    """
    before: object = None
    tries = 0
    while True:
        try:
            return work()
        except Conflict:
            now = [plain.read(one, lambda view: (view.uid, view.n, view.is_archived)) for one in (key, *further)]
            tries = tries + 1 if now == before else 1
            if tries == _MAX_TRIES:
                raise
            before = now


async def finish(sessions: AsyncSessions, work: Callable[[Sessions], T]) -> T:
    """Make a change in a thread; if the caller is cancelled, wait until it is made, or is sure never to be.

    So what the caller does next comes after it.
    """
    running = Lock()
    is_dropped = False

    def run(plain: Sessions) -> T:
        with running:
            if is_dropped:
                raise asyncio.CancelledError
            return work(plain)

    try:
        return await sessions.call(run)
    except asyncio.CancelledError:
        is_dropped = True

        def wait_for_end() -> None:
            with running:
                pass

        ending = asyncio.ensure_future(asyncio.to_thread(wait_for_end))
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({ending})
        raise
