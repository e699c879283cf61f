"""The pin, tags and folder of listed sessions, read from their logs: the index does not have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, Protocol

from nacre.entries import parse_time
from nacre.errors import StoreError
from nacre.history import live
from nacre.history.labels import labels
from nacre.log.ops import Ops
from nacre.log.place import Place, uids_in
from nacre.log.reader import reading


class Listed(Protocol):
    """What must be known of a session to find its log."""

    @property
    def key(self) -> str: ...
    @property
    def created(self) -> datetime: ...
    @property
    def archived(self) -> bool: ...


class Details(NamedTuple):
    """What a list shows of a session beside what the index has; `cwd` is the folder of a chat, "" if it has none."""

    pinned: bool = False
    tags: tuple[str, ...] = ()
    cwd: str = ""


def details_of(root: str, info: Listed) -> Details:
    """The labels and the folder of a session; none if its log cannot be read, which `verify` tells."""
    ops = Ops()
    for place in _places(ops, root, info):
        try:
            with reading(ops, place) as found:
                if found.past is not None and _is_it(found.past.header.created or found.updated, info):
                    meta = live.meta(found.past, found.past.state)
                    cwd = meta.get("cwd")
                    return Details(*labels(meta), cwd if isinstance(cwd, str) else "")
        except (OSError, StoreError):
            continue
    return Details()


def known_tags(root: str, infos: Iterable[Listed]) -> list[str]:
    """Every tag that some sessions have, in order."""
    return sorted({tag for info in infos for tag in details_of(root, info).tags})


def _places(ops: Ops, root: str, info: Listed) -> Iterator[Place]:
    """Where the log may be: a key may have been archived more than once."""
    place = Place.of(root, info.key)
    if not info.archived:
        yield place
        return
    yield from (place._replace(archived=uid) for uid in uids_in(ops, f"{root}/archive", place.name))


def _is_it(created: str, info: Listed) -> bool:
    return not info.archived or parse_time(created) == info.created
