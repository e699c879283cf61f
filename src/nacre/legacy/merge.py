"""What an earlier agent's file adds to a session that is in the store already."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from nacre.codec import encode_message, message_of
from nacre.errors import Conflict
from nacre.history import session_state
from nacre.legacy.documents import NOTE, Base, Legacy, is_same, moment
from nacre.messages import Message
from nacre.records import Operation, Summarise, Truncate, View
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.paths import SessionPaths
from nacre.storage.view import reading


class Continuation(NamedTuple):
    """What is to be appended, how many messages of it, and the state that it depends on."""

    operations: tuple[Operation, ...] = ()
    added: int = 0
    expect: int | None = None


def continuation(view: View, legacy: Legacy, now: str) -> Continuation | None:
    """What a file adds to a session; None if the file is not this session gone on.

    It is if it says so itself, or begins with what is live, or with what came from it before, or with messages that the
    session has with the same times; and it adds nothing if the session begins with all of it. A file that is only a
    summary is not, unless the session has had that summary.
    """
    theirs, ours = legacy.messages, session_state.history(view)
    header, base = view.find(1), legacy.base
    summary = session_state.summary(view, view.state)
    if base is not None and header is not None and header.uid == base.uid and base.kept <= len(theirs):
        # What was said since; and if nobody has written meanwhile, what was dropped and summarised since, too.
        if view.state.h != base.h:
            return _continue_after(legacy, base.kept, now)
        found = _continue_after(legacy, base.kept, now, before=summary)
        cut = (Truncate(base.kept),) if base.kept < view.state.live else ()
        return found._replace(operations=(*cut, *found.operations), expect=base.h)
    summaries = (record.text for record in view.all() if record.t == "sum")
    if not theirs and legacy.summary and legacy.summary not in summaries:
        return None
    if ours and begins(theirs[legacy.dropped :], ours):
        return _continue_after(legacy, legacy.dropped + len(ours), now, before=summary)
    brought, known = _count_brought(view, theirs), _count_known(view, theirs)
    if brought is not None or known:
        return _continue_after(legacy, max(brought or 0, known), now)
    return Continuation() if is_contained(view, legacy) else None


def is_contained(view: View, legacy: Legacy) -> bool:
    """Tell whether a session begins with every message of a file, or all of them came from it before, or are in it."""
    theirs = legacy.messages
    if begins(_messages(view), theirs, swap=True) or _count_brought(view, theirs) == len(theirs):
        return True
    return bool(theirs) and _count_known(view, theirs) == len(theirs)


def holds(view: View, legacy: Legacy, src: dict[str, Any]) -> bool:
    """Tell whether all of a file is in a session: what it was founded with, or what was appended to it."""
    said: list[Message] = []
    for record in view.all():
        if record.t == "msg":
            said.append(message_of(record, view))
        if _is_from(record.src, src):
            return is_contained(view, legacy)
        if record.t == NOTE and _is_from(record.data, src):
            added = record.data["added"]
            return begins(said[len(said) - added :], legacy.messages[len(legacy.said) - added :], swap=True)
    return False


def knows(view: View, src: dict[str, Any]) -> bool:
    """Tell whether a session says that it was founded with a file, or that one was appended to it."""
    return any(_is_from(record.src, src) or (record.t == NOTE and _is_from(record.data, src)) for record in view.all())


def begins(messages: Sequence[Message], with_: Sequence[Message], *, swap: bool = False) -> bool:
    """Tell whether theirs begin with ours; swapped, whether ours begin with theirs."""
    if len(messages) < len(with_):
        return False
    pairs = zip(with_, messages, strict=False)
    return all(is_same(right, left) if swap else is_same(left, right) for left, right in pairs)


def _messages(view: View) -> list[Message]:
    return [message_of(record, view) for record in view.all() if record.t == "msg"]


def _is_from(origin: Any, src: dict[str, Any]) -> bool:
    return isinstance(origin, dict) and all(origin.get(field) == src[field] for field in ("file", "sha256", "n"))


def _count_brought(view: View, theirs: Sequence[Message]) -> int | None:
    """How many messages at the beginning of a file came from it before; None if it does not begin with such ones.

    A session was founded with the first of them. What was appended since may come after messages that were written
    here, or have come from another file.
    """
    # 1. What the session was founded with, and what was appended from files since; nothing if it began here.
    header = view.find(1)
    if header is None or header.src is None or "n" not in header.src:
        return None
    said: list[Message] = []
    appended: list[list[Message]] = []
    for record in view.all():
        if record.t == "msg":
            said.append(message_of(record, view))
        elif record.t == NOTE:
            appended.append(said[len(said) - record.data["added"] :])
    brought = [said[: header.src["n"]], *appended]
    # 2. How much of it the file begins with.
    if not begins(theirs, brought[0]):
        return None
    count = len(brought[0])
    for messages in brought[1:]:
        if begins(theirs[count:], messages):
            count += len(messages)
    return count


def _count_known(view: View, theirs: Sequence[Message]) -> int:
    """How many messages at the beginning of a file are in a session, each with the time that the file says."""
    ours: dict[datetime | None, list[Message]] = {}
    for message in _messages(view):
        ours.setdefault(message.created, []).append(message)
    for count, message in enumerate(theirs):
        same = ours.get(message.created, []) if message.created is not None else []
        found = next((place for place, one in enumerate(same) if is_same(one, message)), None)
        if found is None:
            return count
        # One that the session has once is known once.
        del same[found]
    return len(theirs)


def _continue_after(legacy: Legacy, count: int, now: str, before: str | None = None) -> Continuation:
    """The messages after the first `count`; and the summary, if the one before it is given and another."""
    operations: list[Operation] = []
    rest = list(zip(legacy.said, legacy.messages, legacy.times(now), strict=True))[count:]
    for said, message, ts in rest:
        # A message has its own time, since its record will have another.
        operations.append(said if message.created is not None else encode_message(replace(message, created=moment(ts))))
    if before is not None and legacy.summary and legacy.summary != before:
        operations.append(Summarise(legacy.summary))
    return Continuation(tuple(operations), len(rest))


Outcome = Literal["migrated", "separate", "appended", "finished", "empty", "unreadable", "failed"]

_MAX_KEY = 1000
_MAX_KEYS = 10_000


class Plan(NamedTuple):
    """What is to be done with a file, and under which key."""

    outcome: Outcome
    key: str
    more: Continuation = Continuation()


class Planner:
    """Looks at the store and decides; changes nothing.

    With `follows_names` a session whose key is another name of one in the store is that one gone on.
    """

    def __init__(self, store: FileStore, now: str, *, follows_names: bool = False) -> None:
        self._store = store
        self._now = now
        self._names = Sessions(store) if follows_names else None
        self._planned: dict[str, Legacy] = {}

    def plan(self, legacy: Legacy, src: dict[str, Any]) -> Plan:
        """Decide what to do with a session that came from `src`."""
        if self._names is not None and (key := self._names.resolve(legacy.key)) != legacy.key:
            # It was written without knowing the session: everything in it is new.
            uid = self._store.read(key, lambda view: getattr(view.find(1), "uid", ""))
            legacy = replace(legacy, key=key, base=Base(uid=uid, h=-1, kept=0) if uid else None)
        if legacy.is_empty and (legacy.base is None or not self._is_active(legacy.key)):
            # A document that goes on from a log, and has nothing, says that all of it was dropped.
            return Plan("empty", legacy.key)
        # Where the key is taken, the session gets it with a number.
        numbered = (f"{legacy.key[:_MAX_KEY]} ({number})" for number in range(2, _MAX_KEYS))
        for key in chain([legacy.key], numbered):
            plan = self._under(key, legacy, src)
            if plan is not None:
                return plan if key == legacy.key or plan.outcome != "migrated" else plan._replace(outcome="separate")
        raise Conflict(f"every key like {legacy.key!r} is taken; rename one of those sessions")

    def _under(self, key: str, legacy: Legacy, src: dict[str, Any]) -> Plan | None:
        """What to do under a key; None if it is another session's."""
        if any(self._store.generations(key, lambda generation: knows(generation.view, src))):
            return Plan("finished", key)
        if legacy.is_archived:
            return Plan("migrated", key)
        if self._is_active(key):
            more = self._store.read(key, lambda view: continuation(view, legacy, self._now))
            return Plan("appended" if more.operations else "finished", key, more) if more is not None else None
        # An archived generation may begin with all of the file; only times tell that from another conversation.
        is_timed = bool(legacy.said) and all(message.created for message in legacy.messages)
        if is_timed and any(self._store.generations(key, lambda found: is_contained(found.view, legacy))):
            return Plan("finished", key)
        return self._free(key, legacy)

    def _free(self, key: str, legacy: Legacy) -> Plan | None:
        """What to do under a key that no session has; a dry run may have planned to give it to another file."""
        other = self._planned.setdefault(key, legacy)
        if other is legacy:
            return Plan("migrated", key)
        theirs, ours = legacy.messages, other.messages
        if not theirs and legacy.summary not in ("", other.summary):
            return None
        if begins(theirs, ours):
            return Plan("appended", key, Continuation(added=len(theirs) - len(ours)))
        return Plan("finished", key) if begins(ours, theirs) else None

    def _is_active(self, key: str) -> bool:
        with reading(self._store.system, SessionPaths.of(self._store.location, key)) as found:
            return found.view is not None
