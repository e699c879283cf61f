"""The session that holds memory: read into a state, added to by one process at a time, and written anew to erase."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from nacre.entries import Describe, Note
from nacre.errors import SessionBusy
from nacre.log.ops import Ops
from nacre.memory.model import Part, State, note_of, part_of
from nacre.sessions import Sessions

KEY = "nacre:memory"
TITLE = "what nacre remembers"
_NEXT = "nacre:memory.next"
_LOCK = "nacre:memory.lock"
_PATIENCE = 30.0
_PAUSE = 0.02
_MOST_EPOCHS = 256
_PIECE = 256


class Ledger:
    """Memory's records and the state they add up to; safe for threads, and for processes while it is `held`.

    An epoch is the life of the log between two erasures; it tells a log that was written anew from the one before.
    """

    def __init__(self, sessions: Sessions, ops: Ops) -> None:
        self.state = State()
        self._sessions = sessions.with_internal_keys()
        self._ops = ops
        self._known = ("", 0)
        self._epochs: tuple[str, ...] = ()
        self._lock = RLock()
        self._depth = 0

    @property
    def epoch(self) -> str:
        return self._known[0]

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written; cheaper to tell than to read what was."""
        return not self._seen()[1]

    def has_been(self, epoch: str) -> bool:
        """Tell whether an epoch is this one, or one before it."""
        return epoch == self.epoch or epoch in self._epochs

    def new_id(self) -> str:
        return self._ops.random(5).hex()

    @contextmanager
    def held(self) -> Iterator[State]:
        """The state as it is now, for as long as nobody else changes it; raises SessionBusy after a while."""
        with self._lock:
            hold = self._sessions.hold(_LOCK)
            if not self._depth:
                _wait(hold)
            self._depth += 1
            try:
                self._refresh(is_held=True)
                yield self.state
            finally:
                self._depth -= 1
                if not self._depth:
                    hold.close()

    def now(self) -> State:
        """The state as it is now."""
        with self._lock:
            self._refresh(is_held=self._depth > 0)
            return self.state

    def now_if_free(self) -> State | None:
        """The state as it is now; None while another thread is at it, which whoever asks need not wait for."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.now()
        finally:
            self._lock.release()

    def write(self, parts: Sequence[Part], *, id: str | None = None) -> None:
        """Add parts, all or none; only while held. Raises Conflict if the id was used before."""
        begins = [] if self._known[1] else [Describe({"title": TITLE, "epoch": self._ops.random(8).hex()})]
        entries: list[Note | Describe] = [*begins, *map(note_of, parts)]
        number = self._sessions.submit(KEY, entries, id=id).result()
        if begins or number != self._known[1] + len(parts):
            self._refresh(is_held=True)
            return
        for part in parts:
            self.state.add(part)
        self._known = (self.epoch, number)

    def erase(self, doomed: set[str]) -> None:
        """Write the log anew without some lines, and delete the old one; only while held.

        The new log stands beside the old one before that is deleted, so that a crash at any point loses nothing
        that is to stay; whoever comes next finishes.
        """
        epochs = [*self._epochs, self.epoch][-_MOST_EPOCHS:]
        meta = {"title": TITLE, "epoch": self._ops.random(8).hex(), "epochs": epochs}
        parts = list(self.state.survivors(doomed))
        notes = [note_of(part) for part in parts]
        self._fill(_NEXT, notes, meta)
        self._sessions.delete(KEY)
        self._fill(KEY, notes, meta)
        self._sessions.delete(_NEXT)
        self._take(parts, self._seen())

    def _refresh(self, *, is_held: bool) -> None:
        """Read what others wrote, if they did."""
        seen = self._seen()
        if seen == self._known and seen[0]:
            return
        if not seen[0] or (is_held and seen[0] != self.epoch):
            # A log without an epoch may be one that is being written anew.
            seen = self._finished(seen, is_held=is_held)
        if seen != self._known:
            self._read(seen)

    def _finished(self, seen: tuple[str, int], *, is_held: bool) -> tuple[str, int]:
        """Finish an erasure that was killed: only then is there another log beside this one."""
        if not self._sessions.snapshot(_NEXT, last=0).n:
            return seen
        if not is_held:
            with self.held():
                return self._seen()
        self._finish()
        return self._seen()

    def _finish(self) -> None:
        """Let the log beside this one take its place; one that is not whole is dropped."""
        new = self._sessions.snapshot(_NEXT, last=0).meta
        if new.get("epoch") and self._meta().get("epoch") != new["epoch"]:
            self._sessions.delete(KEY)
            entries = self._sessions.records(_NEXT)
            self._fill(KEY, [Note(entry.kind, entry.data) for entry in entries if entry.kind.startswith("x.")], new)
        self._sessions.delete(_NEXT)

    def _fill(self, key: str, notes: Sequence[Note], meta: dict[str, Any]) -> None:
        """Write a log in pieces, since whoever opens one reads the last piece; with its meta it is whole."""
        self._sessions.delete(key)
        for at in range(0, len(notes), _PIECE):
            self._sessions.submit(key, notes[at : at + _PIECE]).result()
        self._sessions.submit(key, [Describe(meta)]).result()

    def _read(self, seen: tuple[str, int]) -> None:
        found = (part_of(entry.kind, entry.data) for entry in self._sessions.records(KEY))
        self._take((part for part in found if part is not None), seen)

    def _take(self, parts: Iterable[Part], seen: tuple[str, int]) -> None:
        """Let these parts be all that there is."""
        state = State()
        for part in parts:
            state.add(part)
        # A later version than any before it, so that nobody takes the new state for the old one.
        state.version += self.state.version + 1
        state.versions = dict.fromkeys(state.versions, state.version)
        self.state, self._known = state, seen
        self._epochs = tuple(self._meta().get("epochs") or ())

    def _seen(self) -> tuple[str, int]:
        now = self._sessions.snapshot(KEY, last=0)
        return (str(now.meta.get("epoch", "")), now.n)

    def _meta(self) -> dict[str, Any]:
        return self._sessions.snapshot(KEY, last=0).meta


def _wait(hold: Any) -> None:
    """Take a hold that others have for moments only."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            hold.take()
        except SessionBusy:
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return
