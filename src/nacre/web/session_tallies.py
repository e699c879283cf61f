"""What sessions hold beyond what the catalogue has: calls, tokens and branches, counted on when they grow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from itertools import takewhile
from threading import Lock
from weakref import WeakKeyDictionary

from msgspec import Struct

from nacre.errors import StoreError
from nacre.history import branches
from nacre.messages import SessionInfo
from nacre.records import Record, View
from nacre.render.usage import usage_of
from nacre.sessions import Sessions

_SMALL = 256 * 1024


class Tally(Struct, frozen=True, kw_only=True):
    """What a session holds up to record `n` of one of its lives, on all its branches."""

    uid: str = ""
    n: int = 0
    calls: int = 0
    failed: int = 0
    given: int = 0
    made: int = 0
    branches: int = 1


class Tallies:
    """What the sessions of one store hold; asking again costs nothing as long as they are as they were."""

    def __init__(self) -> None:
        # How large each was and when it was written, and what was found then. Two threads that read the same session
        # at once find the same, so nobody waits for another.
        self._kept: dict[str, tuple[int, datetime, Tally]] = {}

    def count(self, sessions: Sessions, infos: Iterable[SessionInfo], until: float) -> dict[str, Tally]:
        """What sessions hold; a large one is read from end to end the first time, and only if there is time."""
        is_hurried = until - time.monotonic() < 1
        found: dict[str, Tally] = {}
        for info in infos:
            known = self._kept.get(info.key)
            if known is None or known[:2] != (info.bytes, info.updated):
                if time.monotonic() > until or (is_hurried and info.bytes > _SMALL):
                    continue
                known = self._kept[info.key] = (info.bytes, info.updated, self._tally(sessions, info))
            found[info.key] = known[2]
        return found

    def _tally(self, sessions: Sessions, info: SessionInfo) -> Tally:
        known = self._kept.get(info.key)
        try:
            return sessions.read(info.key, lambda view: _tally(view, known[2] if known else Tally())) or Tally()
        except StoreError:
            return Tally()


def tallies_of(sessions: Sessions) -> Tallies:
    """What is known of a store in this process."""
    with _lock:
        return _by_store.setdefault(sessions, Tallies())


def _tally(view: View, before: Tally) -> Tally:
    goes_on = before.n and before.uid == view.uid
    counts = [before.calls, before.failed, before.given, before.made] if goes_on else [0, 0, 0, 0]
    new = takewhile(lambda record: record.n > before.n, view.back(view.n)) if goes_on else view.all()
    for record in new:
        counts = [count + more for count, more in zip(counts, _counted(record), strict=True)]
    ways = sum(one.end.hd != one.parent for one in branches.segments(view)) if view.state.br else 1
    calls, failed, given, made = counts
    return Tally(uid=view.uid, n=view.n, calls=calls, failed=failed, given=given, made=made, branches=max(ways, 1))


def _counted(record: Record) -> tuple[int, int, int, int]:
    """Calls, failures, tokens in and tokens out of one record."""
    if record.m is not None:
        return len(record.m.tool_calls), int(record.m.extra.get("failed") is True), 0, 0
    if record.t != "use" or not isinstance(record.data, dict):
        return 0, 0, 0, 0
    used = usage_of(record.data)
    given = used.input or _number(record.data.get("prompt"))
    return 0, 0, given, used.output or _number(record.data.get("completion"))


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


_lock = Lock()
_by_store: WeakKeyDictionary[Sessions, Tallies] = WeakKeyDictionary()
