"""Sessions whose `save` moves records to the cold file, however few they are."""

from __future__ import annotations

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore


def open_saving(place: str) -> nacre.Sessions:
    """Open sessions; in a database `save` moves nothing, since rows that are not live cost nothing to pass over."""
    if "://" in place:
        return nacre.open(place)
    return nacre.Sessions(FileStore(place, rules=RULES, compact_at=1))


def save(sessions: nacre.Sessions, key: str) -> None:
    """Save a session; in files, see that most of its log was moved."""
    before = sessions.log_size(key)
    sessions.save(key)
    assert sessions.is_shared or sessions.log_size(key) < before / 2
