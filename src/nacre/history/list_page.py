"""A list of sessions in parts: which ones are wanted, in which order, and where a part ends."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from nacre.codec import sortable
from nacre.errors import InvalidArgument
from nacre.keys import is_internal
from nacre.messages import Page, SessionInfo

Order = Literal["updated", "created", "bytes", "messages", "key"]
"""What a list is sorted by: the newest or largest first, keys from the first one on."""

Which = Literal["active", "archived", "all"]
"""Which sessions a page shows."""

LARGEST = (1 << 63) - 1
"""The largest number that an index can hold."""


class Wanted(NamedTuple):
    """Which sessions are listed, and in which order.

    Newest or largest first, by key where they are equal; with `order` "key" in the order of their keys.
    """

    which: Which = "active"
    prefix: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    folder: str | None = None
    internal: bool = False
    order: Order = "updated"
    reverse: bool = False
    limit: int | None = None
    after: Place | None = None

    def takes(self, info: SessionInfo) -> bool:
        """Tell whether a session is wanted, wherever it is in the list."""
        return (
            self.which in ("all", "archived" if info.archived else "active")
            and (self.internal or not is_internal(info.key))
            and info.key.startswith(self.prefix)
            and (not self.text or self.text in info.key.casefold() or self.text in info.title.casefold())
            and all(tag in info.tags for tag in self.tags)
            and (info.pinned or not self.pinned)
            and (self.folder is None or is_below(info.cwd, self.folder))
        )


class Place(NamedTuple):
    """Where a session is in a list: what it is sorted by, then its key and its generation."""

    order: str
    reverse: bool
    value: str | int
    key: str
    generation: str


def page_of(infos: Iterable[SessionInfo], wanted: Wanted) -> Page:
    """The part of a list that is wanted, of sessions in any order."""
    found = sorted(filter(wanted.takes, infos), key=lambda info: (info.key, info.generation))
    found.sort(key=lambda info: place_of(info, wanted).value, reverse=wanted.order != "key")
    if wanted.reverse:
        found.reverse()
    after = wanted.after
    rest = found if after is None else [info for info in found if _is_after(place_of(info, wanted), after)]
    return cut(rest, wanted, total=len(found))


def cut(found: list[SessionInfo], wanted: Wanted, *, total: int) -> Page:
    """A page of what was found after the last one, with a cursor if there is more."""
    items = found[: wanted.limit]
    has_more = bool(items) and len(items) < len(found)
    cursor = urlsafe_b64encode(msgspec.json.encode(place_of(items[-1], wanted))).decode() if has_more else None
    return Page(items=items, total=total, cursor=cursor)


def place_of(info: SessionInfo, wanted: Wanted) -> Place:
    """Where a session is in a list."""
    value = getattr(info, wanted.order)
    value = sortable(value) if isinstance(value, datetime) else value
    return Place(wanted.order, wanted.reverse, value, info.key, info.generation)


def parse_cursor(cursor: str, *, order: str, reverse: bool) -> Place:
    """The place that a cursor names; raises InvalidArgument if it is none of a list in this order."""
    try:
        place = msgspec.json.decode(urlsafe_b64decode(cursor.encode()), type=Place)
    except (ValueError, msgspec.MsgspecError):
        place = None
    # What a list is sorted by; numbers have 63 bits.
    is_number = order in ("bytes", "messages")
    if (
        place is None
        or (place.order, place.reverse) != (order, reverse)
        or not isinstance(place.value, int if is_number else str)
        or (isinstance(place.value, int) and abs(place.value) > LARGEST)
    ):
        raise InvalidArgument(f"cursor must be the cursor of an earlier page in the same order, not {cursor!r:.100}")
    return place


def is_below(cwd: str, folder: str) -> bool:
    """Tell whether a chat's folder is another, or below it."""
    return bool(cwd) and f"{cwd}/".startswith(f"{folder.rstrip('/')}/")


def _is_after(place: Place, other: Place) -> bool:
    tie, before = (place.key, place.generation), (other.key, other.generation)
    if place.value == other.value or place.order == "key":
        return tie < before if place.reverse else tie > before
    goes_up = place.reverse
    return (place.value > other.value) == goes_up  # type: ignore[operator] # both are of the same order
