"""What the list says of sessions beyond the index: how they stand, and what they hold; read anew when they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from nacre.entries import Message, Past, Record, SessionInfo, message_of
from nacre.errors import StoreError
from nacre.history import live
from nacre.render.conversation import text_of
from nacre.render.text import clip, one_line
from nacre.render.usage import usage_of
from nacre.sessions import Sessions
from nacre.web import branch
from nacre.web.reading import backend

T = TypeVar("T")
MOST = 20_000
"""How many sessions, the newest, are looked into for filters and pins."""

_LONGEST = 160
_SMALL = 256 * 1024
_MOST_TAGS = 20


_Kept = tuple[int, datetime, T]
"""How large a session was and when it was written, and what was found in it then."""


class Glance(Struct, frozen=True, kw_only=True):
    """How a session stands: who said what last, with which model, and what people have put on it."""

    state: str = "idle"
    last: str = ""
    role: str = ""
    model: str = ""
    tags: tuple[str, ...] = ()
    is_pinned: bool = False


class Tally(Struct, frozen=True, kw_only=True):
    """What a session holds up to record `n` of one of its lives, on all its branches."""

    uid: str = ""
    n: int = 0
    calls: int = 0
    failed: int = 0
    given: int = 0
    made: int = 0
    branches: int = 1


class Glances:
    """What is known of the sessions of one store; asking again costs nothing as long as they are as they were."""

    def __init__(self, sessions: Sessions) -> None:
        self._read = backend(sessions).read
        # Two threads that read the same session at once find the same, so nobody waits for another.
        self._glances: dict[str, _Kept[Glance]] = {}
        self._tallies: dict[str, _Kept[Tally]] = {}

    def glances(self, infos: Sequence[SessionInfo], until: float) -> dict[str, Glance]:
        """What is known of sessions, newest first; those not known are read until the clock says so."""
        return self._known(infos[:MOST], self._glances, self._glance, until)

    def tallies(self, infos: Sequence[SessionInfo], until: float) -> dict[str, Tally]:
        """What sessions hold; a large one is read from end to end the first time, and only if there is time."""
        is_hurried = until - time.monotonic() < 1
        chosen = [info for info in infos if not is_hurried or info.bytes <= _SMALL or self._is_current(info)]
        return self._known(chosen, self._tallies, self._tally, until)

    def _is_current(self, info: SessionInfo) -> bool:
        known = self._tallies.get(info.key)
        return known is not None and known[0] == info.bytes and known[1] == info.updated

    def _known(
        self,
        infos: Iterable[SessionInfo],
        kept: dict[str, _Kept[T]],
        read: Callable[[SessionInfo], T],
        until: float,
    ) -> dict[str, T]:
        found: dict[str, T] = {}
        is_late = False
        for info in infos:
            known = kept.get(info.key)
            if known is None or known[0] != info.bytes or known[1] != info.updated:
                is_late = is_late or time.monotonic() > until
                if is_late:
                    continue
                known = kept[info.key] = (info.bytes, info.updated, read(info))
            found[info.key] = known[2]
        return found

    def _glance(self, info: SessionInfo) -> Glance:
        if info.archived:
            # Of an archived key that was begun anew the newest life is read, which is another.
            return Glance(state="archived")
        try:
            return self._read(info.key, _glance) or Glance()
        except StoreError:
            return Glance(state="damaged")

    def _tally(self, info: SessionInfo) -> Tally:
        known = self._tallies.get(info.key)
        try:
            return self._read(info.key, lambda past: _tally(past, known[2] if known else Tally())) or Tally()
        except StoreError:
            return Tally()


def glances_of(sessions: Sessions) -> Glances:
    """What is known of a store in this process."""
    with _lock:
        return _by_store.setdefault(sessions, Glances(sessions))


def _glance(past: Past) -> Glance:
    record = next(live.newest(past, 1), None)
    meta = live.meta(past, past.state)
    tags = meta.get("tags")
    named = tuple(str(tag) for tag in tags if isinstance(tag, str))[:_MOST_TAGS] if isinstance(tags, list) else ()
    last = message_of(record, past) if record is not None else None
    if last is None:
        return Glance(tags=named, is_pinned=meta.get("pinned") is True)
    return Glance(
        state=_state(last),
        last=_words(last),
        role=last.role,
        model=last.model or "",
        tags=named,
        is_pinned=meta.get("pinned") is True,
    )


def _state(last: Message) -> str:
    if last.tool_calls or last.role == "tool":
        return "interrupted"
    return "unanswered" if last.role == "user" else "idle"


def _words(last: Message) -> str:
    text, others = text_of(last.content)
    called = ", ".join(one_line(call.name) for call in last.tool_calls)
    return clip(one_line(text) or one_line(" ".join(others)) or called, _LONGEST)


def _tally(past: Past, before: Tally) -> Tally:
    goes_on = before.n and before.uid == past.uid
    counts = [before.calls, before.failed, before.given, before.made] if goes_on else [0, 0, 0, 0]
    for record in _behind(past, before.n) if goes_on else past.all():
        counts = [count + more for count, more in zip(counts, _counted(record), strict=True)]
    branches = sum(one.end.hd != one.parent for one in branch.segments(past)) if past.state.br else 1
    calls, failed, given, made = counts
    return Tally(uid=past.uid, n=past.n, calls=calls, failed=failed, given=given, made=made, branches=max(branches, 1))


def _behind(past: Past, n: int) -> Iterable[Record]:
    for record in past.back(past.n):
        if record.n <= n:
            return
        yield record


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
_by_store: WeakKeyDictionary[Sessions, Glances] = WeakKeyDictionary()
