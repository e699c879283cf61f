"""The session that holds memory: read into a state, added to by one process at a time, and rewritten to erase lines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from nacre.entries import AppendRecord, SetMeta
from nacre.errors import SessionBusy
from nacre.memory.model import MEMORY_PAGE, Line, Part, State, note_of, part_of
from nacre.memory.text_match import salient, stems
from nacre.sessions import Sessions
from nacre.storage.system import System

KEY = "nacre:memory"
TITLE = "what nacre remembers"
_NEXT = "nacre:memory.next"
_LOCK = "nacre:memory.lock"
_TIMEOUT = 30.0
_PAUSE = 0.02
_MAX_EPOCHS = 256
_BATCH = 256


class FactStore:
    """Memory's records and the state they add up to; safe for threads, and for processes within `hold`.

    An epoch is the life of the log between two erasures; it tells a log that was rewritten from the one before.
    """

    def __init__(self, sessions: Sessions, system: System) -> None:
        self.state = State()
        self._sessions = sessions.with_internal_keys()
        self._system = system
        self._known = ("", 0)
        self._epochs: tuple[str, ...] = ()
        self._lock = RLock()
        self._depth = 0

    @property
    def epoch(self) -> str:
        return self._known[0]

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written; cheaper to find out than to read what was."""
        return not self._position()[1]

    def is_known_epoch(self, epoch: str) -> bool:
        """Tell whether an epoch is this one, or one before it."""
        return epoch == self.epoch or epoch in self._epochs

    def new_id(self) -> str:
        return self._system.random(5).hex()

    @contextmanager
    def hold(self) -> Iterator[State]:
        """The state as it is now, for as long as nobody else changes it; raises SessionBusy after a while."""
        with self._lock:
            hold = self._sessions.hold(_LOCK)
            # Others have it for moments only.
            end = time.monotonic() + _TIMEOUT
            while not self._depth:
                try:
                    hold.take()
                    break
                except SessionBusy:
                    if time.monotonic() > end:
                        raise
                    time.sleep(_PAUSE)
            self._depth += 1
            try:
                self._refresh()
                yield self.state
            finally:
                self._depth -= 1
                if not self._depth:
                    hold.close()

    def read(self) -> State:
        """The state as it is now."""
        with self._lock:
            self._refresh()
            return self.state

    def read_if_free(self) -> State | None:
        """The state as it is now; None while another thread is at it, so that the caller need not wait for it."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.read()
        finally:
            self._lock.release()

    def write(self, parts: Sequence[Part], *, id: str | None = None) -> None:
        """Add parts, all or none; only within `hold`. Raises Conflict if the id was used before."""
        begins = [] if self._known[1] else [SetMeta({"title": TITLE, "epoch": self._system.random(8).hex()})]
        entries: list[AppendRecord | SetMeta] = [*begins, *map(note_of, parts)]
        number = self._sessions.submit(KEY, entries, id=id).result()
        if begins or number != self._known[1] + len(parts):
            self._refresh()
            return
        for part in parts:
            self.state.add(part)
        self._known = (self.epoch, number)

    def erase(self, doomed: set[str]) -> None:
        """Rewrite the log without some lines, and delete the old one; only within `hold`.

        The new log is complete under another key before the old one is deleted, so that a crash at any point loses
        nothing that is to stay; the next one to read finishes.
        """
        epochs = [*self._epochs, self.epoch][-_MAX_EPOCHS:]
        meta = {"title": TITLE, "epoch": self._system.random(8).hex(), "epochs": epochs}
        parts = list(self.state.survivors(doomed))
        notes = [note_of(part) for part in parts]
        self._fill(_NEXT, notes, meta)
        self._sessions.delete(KEY)
        self._fill(KEY, notes, meta)
        self._sessions.delete(_NEXT)
        self._load(parts, self._position())

    def _refresh(self) -> None:
        """Read what others wrote, if they did."""
        now, is_held = self._position(), self._depth > 0
        if now == self._known and now[0]:
            return
        # A log without an epoch may be one that is being rewritten: then there is another log next to it.
        is_doubtful = not now[0] or (is_held and now[0] != self.epoch)
        if is_doubtful and self._sessions.snapshot(_NEXT, last=0).n:
            if is_held:
                # Let the log of an erasure that was killed take the place of this one; an incomplete one is dropped.
                new = self._sessions.snapshot(_NEXT, last=0).meta
                if new.get("epoch") and now[0] != new["epoch"]:
                    self._sessions.delete(KEY)
                    entries = (entry for entry in self._sessions.records(_NEXT) if entry.kind.startswith("x."))
                    self._fill(KEY, [AppendRecord(entry.kind, entry.data) for entry in entries], new)
                self._sessions.delete(_NEXT)
                now = self._position()
            else:
                with self.hold():
                    now = self._position()
        if now != self._known:
            found = (part_of(entry.kind, entry.data) for entry in self._sessions.records(KEY))
            self._load((part for part in found if part is not None), now)

    def _fill(self, key: str, notes: Sequence[AppendRecord], meta: dict[str, Any]) -> None:
        """Write a log in batches, since opening one reads the last batch; with its meta it is complete."""
        self._sessions.delete(key)
        for at in range(0, len(notes), _BATCH):
            self._sessions.submit(key, notes[at : at + _BATCH]).result()
        self._sessions.submit(key, [SetMeta(meta)]).result()

    def _load(self, parts: Iterable[Part], position: tuple[str, int]) -> None:
        """Make these parts all that there is."""
        state = State()
        for part in parts:
            state.add(part)
        # A later version than any before it, so that nobody takes the new state for the old one.
        state.version += self.state.version + 1
        state.versions = dict.fromkeys(state.versions, state.version)
        self.state, self._known = state, position
        self._epochs = tuple(self._sessions.snapshot(KEY, last=0).meta.get("epochs") or ())

    def _position(self) -> tuple[str, int]:
        """The epoch of the log, and the number of its last record."""
        now = self._sessions.snapshot(KEY, last=0)
        return (str(now.meta.get("epoch", "")), now.n)


def with_earlier(state: State, ids: set[str], whys: tuple[str, ...] = ("edited",)) -> set[str]:
    """Lines, and what they were before they were edited, or changed in other ways."""
    found = set(ids)
    while more := {id for id, strike in state.strikes.items() if strike.why in whys and strike.by in found} - found:
        found |= more
    return found


def with_related(state: State, ids: set[str]) -> set[str]:
    """Lines, their earlier versions, and for facts the daily lines that are about them."""
    found = with_earlier(state, ids, ("edited", "replaced"))
    facts = [line for id in found if (line := state.lines[id]).page == MEMORY_PAGE and line.text]
    daily = [line for line in state.lines.values() if line.page != MEMORY_PAGE and line.text]
    return found | {line.id for line in daily if any(_is_about(line, fact) for fact in facts)}


def _is_about(daily: Line, fact: Line) -> bool:
    """Tell whether a daily line is of the turn that a fact was learned in, or has all that the fact says."""
    wanted = salient(fact.text)
    at, learned = daily.source, fact.source
    if at is not None and learned is not None and at.key == learned.key and at.n <= learned.n <= max(at.n, at.upto):
        # A session that was archived begins again with the same numbers: only the time tells its turns apart.
        if learned.at and learned.at == at.at:
            return True
        # A fact that a model was asked to keep came before the end of its turn, whose time it does not have.
        if not learned.at and fact.at <= at.at and not wanted.isdisjoint(stems(daily.text)):
            return True
    rarest = max(wanted, key=len, default="")
    # The stems of a line are made only if it may have them all.
    return bool(wanted) and rarest[:4] in daily.text.casefold() and wanted <= stems(daily.text)
