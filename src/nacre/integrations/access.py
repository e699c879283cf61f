"""The sessions that an adapter was given, as its methods need them: to call, or to await.

Both are looked up when a method runs: `AsyncSessions` may be given before they are opened.
"""

from __future__ import annotations

from typing import TypeAlias
from weakref import WeakKeyDictionary

from nacre.async_sessions import AsyncSessions
from nacre.sessions import Sessions

AnySessions: TypeAlias = Sessions | AsyncSessions

_awaited: WeakKeyDictionary[Sessions, AsyncSessions] = WeakKeyDictionary()


def blocking(sessions: AnySessions) -> Sessions:
    """The sessions for a method that may wait."""
    return sessions if isinstance(sessions, Sessions) else sessions.blocking


def awaited(sessions: AnySessions) -> AsyncSessions:
    """The sessions for a coroutine, which must not block the event loop."""
    if isinstance(sessions, AsyncSessions):
        return sessions
    found = _awaited.get(sessions)
    if found is None:
        found = _awaited[sessions] = AsyncSessions.of(sessions)
    return found
