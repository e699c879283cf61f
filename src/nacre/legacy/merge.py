"""What an earlier agent's file adds to a session that is in the store already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from nacre.entries import Message, Past, Record, Say, Summarise, Truncate, Wish, message_of, say
from nacre.errors import Conflict
from nacre.history import live
from nacre.legacy.documents import NOTE, Base, Legacy
from nacre.legacy.message_shapes import is_same, moment
from nacre.log.ops import Ops
from nacre.log.place import Place
from nacre.log.reader import reading
from nacre.sessions import Sessions
from nacre.store.files import Files


class Continuation(NamedTuple):
    """What is to be appended, how many messages of it, and the state on which all of it rests."""

    wishes: tuple[Wish, ...] = ()
    added: int = 0
    expect: int | None = None


def continuation(past: Past, legacy: Legacy, now: str) -> Continuation | None:
    """What a file adds to a session; None if the file is not this session gone on.

    It is if it says so itself, or begins with what is live, or with what came from it before, or with messages that the
    session has with the same times; and it adds nothing if the session begins with all of it. A file that is only a
    summary is not, unless the session has had that summary.
    """
    theirs = legacy.messages
    if legacy.base is not None and _rests_on(past, legacy.base, theirs):
        return _from_base(past, legacy, legacy.base, now)
    if not theirs and not _has_had(past, legacy.summary):
        return None
    ours = live.history(past)
    if ours and begins(theirs[legacy.dropped :], ours):
        return _added(legacy, legacy.dropped + len(ours), now, before=live.summary(past, past.state))
    came, known = _came_before(past, theirs), _known(past, theirs)
    if came is not None or known:
        return _added(legacy, max(came or 0, known), now)
    return Continuation() if rests_in(past, legacy) else None


def rests_in(past: Past, legacy: Legacy) -> bool:
    """Tell whether a session begins with every message of a file, or all of them came from it before, or are in it."""
    theirs = legacy.messages
    if begins(_said(past), theirs, swap=True) or _came_before(past, theirs) == len(theirs):
        return True
    return bool(theirs) and _known(past, theirs) == len(theirs)


def holds(past: Past, legacy: Legacy, src: dict[str, Any]) -> bool:
    """Tell whether all of a file is in a session: what it was founded with, or what was appended to it."""
    said: list[Message] = []
    for record in past.all():
        if record.t == "msg":
            said.append(message_of(record, past))
        if _is_from(record.src, src):
            return rests_in(past, legacy)
        if record.t == NOTE and _is_from(record.data, src):
            added = record.data["added"]
            return begins(said[len(said) - added :], legacy.messages[len(legacy.said) - added :], swap=True)
    return False


def knows(past: Past, src: dict[str, Any]) -> bool:
    """Tell whether a session says that it was founded with a file, or that one was appended to it."""
    return any(_is_from(record.src, src) or (record.t == NOTE and _is_from(record.data, src)) for record in past.all())


def begins(messages: Sequence[Message], with_: Sequence[Message], *, swap: bool = False) -> bool:
    """Tell whether theirs begin with ours; swapped, whether ours begin with theirs."""
    if len(messages) < len(with_):
        return False
    pairs = zip(with_, messages, strict=False)
    return all(is_same(right, left) if swap else is_same(left, right) for left, right in pairs)


def _said(past: Past) -> list[Message]:
    return [message_of(record, past) for record in past.all() if record.t == "msg"]


def _is_from(told: Any, src: dict[str, Any]) -> bool:
    return isinstance(told, dict) and all(told.get(field) == src[field] for field in ("file", "sha256", "n"))


def _came_before(past: Past, theirs: Sequence[Message]) -> int | None:
    """How many messages at the beginning of a file came from it before; None if it does not begin with such ones.

    A session was founded with the first of them. What was appended since may stand behind words that were said here,
    or have come from another file.
    """
    brought = _brought(past)
    if not brought or not begins(theirs, brought[0]):
        return None
    count = len(brought[0])
    for messages in brought[1:]:
        if begins(theirs[count:], messages):
            count += len(messages)
    return count


def _known(past: Past, theirs: Sequence[Message]) -> int:
    """How many messages at the beginning of a file are in a session, each with the time that the file says."""
    ours: dict[datetime | None, list[Message]] = {}
    for message in _said(past):
        ours.setdefault(message.created, []).append(message)
    for count, message in enumerate(theirs):
        same = ours.get(message.created, []) if message.created is not None else []
        found = next((place for place, one in enumerate(same) if is_same(one, message)), None)
        if found is None:
            return count
        # One that the session has once is known once.
        del same[found]
    return len(theirs)


def _brought(past: Past) -> list[list[Message]]:
    """What a session was founded with, and what was appended from files since; nothing if it began here."""
    header = past.find(1)
    if header is None or header.src is None or "n" not in header.src:
        return []
    said: list[Message] = []
    appended: list[list[Message]] = []
    for record in past.all():
        if record.t == "msg":
            said.append(message_of(record, past))
        elif record.t == NOTE:
            appended.append(said[len(said) - record.data["added"] :])
    return [said[: header.src["n"]], *appended]


def _has_had(past: Past, summary: str) -> bool:
    return not summary or any(record.t == "sum" and record.text == summary for record in past.all())


def _rests_on(past: Past, base: Base, theirs: Sequence[Message]) -> bool:
    header: Record | None = past.find(1)
    return header is not None and header.uid == base.uid and base.kept <= len(theirs)


def _from_base(past: Past, legacy: Legacy, base: Base, now: str) -> Continuation:
    """What was said since; and if nobody has written meanwhile, what was dropped and summarised since, too."""
    if past.state.h != base.h:
        return _added(legacy, base.kept, now)
    found = _added(legacy, base.kept, now, before=live.summary(past, past.state))
    cut = (Truncate(base.kept),) if base.kept < past.state.live else ()
    return found._replace(wishes=(*cut, *found.wishes), expect=base.h)


def _added(legacy: Legacy, count: int, now: str, before: str | None = None) -> Continuation:
    """The messages behind the first `count`; and the summary, if the one before it is given and another."""
    rest = list(zip(legacy.said, legacy.times(now), strict=True))[count:]
    messages = legacy.messages[count:]
    wishes: list[Wish] = [_timed(said, message, ts) for (said, ts), message in zip(rest, messages, strict=True)]
    if before is not None and legacy.summary and legacy.summary != before:
        wishes.append(Summarise(legacy.summary))
    return Continuation(tuple(wishes), len(rest))


def _timed(said: Say, message: Message, ts: str) -> Say:
    """A message with its time, since its record will have another."""
    return said if message.created is not None else say(replace(message, created=moment(ts)))


Outcome = Literal["migrated", "separate", "appended", "finished", "empty", "unreadable", "failed"]

_LONGEST = 1000
_MOST_KEYS = 10_000


class Plan(NamedTuple):
    """What is to be done with a file, and under which key."""

    outcome: Outcome
    key: str
    more: Continuation = Continuation()


class Planner:
    """Looks at the store and decides; changes nothing.

    With `follows_names` a session whose key is another name of one in the store is that one gone on.
    """

    def __init__(self, store: Files, now: str, *, follows_names: bool = False) -> None:
        self._store = store
        self._now = now
        self._names = Sessions(store) if follows_names else None
        self._planned: dict[str, Legacy] = {}

    def plan(self, legacy: Legacy, src: dict[str, Any]) -> Plan:
        """Decide what to do with a session that came from `src`."""
        if self._names is not None and (key := self._names.resolve(legacy.key)) != legacy.key:
            legacy = replace(legacy, key=key, base=self._store.read(key, _nothing_of))
        if legacy.is_empty and (legacy.base is None or not self._is_active(legacy.key)):
            # A document that goes on from a log, and has nothing, says that all of it was dropped.
            return Plan("empty", legacy.key)
        for key in _keys(legacy.key):
            plan = self._under(key, legacy, src)
            if plan is not None:
                return plan if key == legacy.key or plan.outcome != "migrated" else plan._replace(outcome="separate")
        raise Conflict(f"every key like {legacy.key!r} is taken; rename one of those sessions")

    def _under(self, key: str, legacy: Legacy, src: dict[str, Any]) -> Plan | None:
        """What to do under a key; None if it is another session's."""
        if any(self._store.generations(key, lambda generation: knows(generation.past, src))):
            return Plan("finished", key)
        if legacy.is_archived:
            return Plan("migrated", key)
        if not self._is_active(key):
            return Plan("finished", key) if self._was_archived(key, legacy) else self._free(key, legacy)

        def more_of(past: Past) -> Continuation | None:
            return continuation(past, legacy, self._now)

        more = self._store.read(key, more_of)
        if more is None:
            return None
        return Plan("appended" if more.wishes else "finished", key, more)

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

    def _was_archived(self, key: str, legacy: Legacy) -> bool:
        """Tell whether an archived generation begins with all of a file; only times tell that from another talk."""
        if not legacy.said or not all(message.created for message in legacy.messages):
            return False
        return any(self._store.generations(key, lambda generation: rests_in(generation.past, legacy)))

    def _is_active(self, key: str) -> bool:
        with reading(ops_of(self._store), Place.of(self._store.location, key)) as found:
            return found.past is not None


def _nothing_of(past: Past) -> Base | None:
    """What a document goes on from that was written without knowing the session: everything in it is new."""
    header = past.find(1)
    return Base(uid=header.uid, h=-1, kept=0) if header is not None and header.uid else None


def ops_of(store: Files) -> Ops:
    """The system calls of a store; what is done beside its logs goes through them, too."""
    return store.ops


def _keys(key: str) -> Iterator[str]:
    """The key, and the ones that it gets where it is taken."""
    yield key
    yield from (f"{key[:_LONGEST]} ({number})" for number in range(2, _MOST_KEYS))
