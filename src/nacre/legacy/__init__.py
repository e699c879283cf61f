"""The JSON store of earlier agents, and migration from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacre.legacy.migration import Migrated, Migration, migrate, migrate_at_start
    from nacre.legacy.session_manager import Session, SessionManager
    from nacre.legacy.standby import fallback

__all__ = ["Migrated", "Migration", "Session", "SessionManager", "fallback", "migrate", "migrate_at_start"]

_HOMES = {"Session": "session_manager", "SessionManager": "session_manager", "fallback": "standby"}


def __getattr__(name: str) -> Any:
    """Load what is asked for: every start looks for signs of earlier sessions, and few find any."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'migration')}"), name)
