"""A session in a list for programs, on the command line and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nacre.render.text import rfc3339

if TYPE_CHECKING:
    from nacre.history.list_page import Order
    from nacre.index.warm import Listed
    from nacre.messages import SessionInfo

    Info = SessionInfo | Listed

SORTS: dict[str, Order] = {
    "updated": "updated",
    "created": "created",
    "size": "bytes",
    "messages": "messages",
    "key": "key",
}
"""What a list can be sorted by, and the order that this is for `Sessions.page`."""


def session_item(info: Info) -> dict[str, Any]:
    """A session as JSON lists it."""
    return {
        "key": info.key,
        "title": info.title,
        "messages": info.messages,
        "created": rfc3339(info.created),
        "updated": rfc3339(info.updated),
        "bytes": info.bytes,
        "archived": info.archived,
        "pinned": info.pinned,
        "tags": info.tags,
        "cwd": info.cwd,
        "role": info.role,
        "model": info.model,
    }
