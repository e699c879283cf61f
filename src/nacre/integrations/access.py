"""The sessions that an adapter was given, as its methods need them: to call, or to await.

Both are looked up when a method runs: `AsyncSessions` may be given before they are opened.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from nacre.async_sessions import AsyncSessions
from nacre.checks import show
from nacre.errors import InvalidArgument
from nacre.sessions import Sessions

AnySessions: TypeAlias = Sessions | AsyncSessions


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
    # They are kept with the sessions, so that both are forgotten together.
    kept = vars(sessions)
    if "awaited" not in kept:
        kept["awaited"] = AsyncSessions.of(sessions)
    return cast("AsyncSessions", kept["awaited"])
