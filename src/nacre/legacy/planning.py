"""What is to be done with an earlier session, by what the store has under its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from nacre.entries import Past
from nacre.errors import Conflict
from nacre.legacy.continuation import Continuation, begins, continuation, knows, rests_in
from nacre.legacy.documents import Base, Legacy
from nacre.log.ops import Ops
from nacre.log.place import Place
from nacre.log.reader import reading
from nacre.sessions import Sessions
from nacre.store.files import Files

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
