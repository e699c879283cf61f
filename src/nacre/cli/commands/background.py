"""Sessions in which nobody talks: those of delegated tasks and of schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.messages import SessionInfo
    from nacre.sessions import Sessions

_SCHEDULE = "schedule:"


def talks(sessions: Sessions, *, folder: str | None = None) -> Iterator[SessionInfo]:
    """The active sessions in which a person talks, newest first, all or those of a folder and below it.

    No more are read than are taken.
    """
    cursor: str | None = None
    while True:
        page = sessions.page(folder=folder, cursor=cursor)
        for info in page.items:
            if not info.key.startswith(_SCHEDULE) and not _is_delegate(info.key, info.meta):
                yield info
        if page.cursor is None:
            return
        cursor = page.cursor


def _is_delegate(key: str, meta: dict[str, object]) -> bool:
    """Tell by its meta whether a session works for another; people may choose keys that look like that."""
    parent = meta.get("parent")
    return isinstance(parent, str) and key.startswith(f"{parent}/")
