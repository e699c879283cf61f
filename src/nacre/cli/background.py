"""Sessions in which nobody talks: those of delegated tasks and of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.errors import StoreError

if TYPE_CHECKING:
    from nacre.sessions import Sessions

_SCHEDULE = "schedule:"


def is_background(sessions: Sessions, key: str) -> bool:
    """Tell whether a session was begun by a schedule, or by a call of another session."""
    if is_scheduled(key):
        return True
    if "/" not in key:
        return False
    try:
        return is_delegate(key, sessions.get_meta(key))
    except StoreError:
        # A session that cannot be read belongs to whoever its key says; `verify` reports what is wrong.
        return False


def is_scheduled(key: str) -> bool:
    """Tell whether a session is one of the clock's."""
    return key.startswith(_SCHEDULE)


def is_delegate(key: str, meta: dict[str, object]) -> bool:
    """Tell by its meta whether a session works for another; people may choose keys that look like that."""
    parent = meta.get("parent")
    return isinstance(parent, str) and key.startswith(f"{parent}/")
