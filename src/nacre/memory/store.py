"""The session that holds memory: read into a state, added to by one process at a time, and rewritten to erase lines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from threading import RLock
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.errors import SessionBusy
from nacre.memory.text_match import normal, salient, stems
from nacre.records import AppendRecord, SetMeta
from nacre.sessions import Sessions
from nacre.storage.system import System

MEMORY_PAGE = "MEMORY.md"
TOP = "^"
FACT, DAILY, LINE, PENDING = "x.fact", "x.daily", "x.line", "x.pending"
STRIKE, CURSOR = "x.strike", "x.cursor"

Why = Literal["replaced", "edited", "removed", "forgotten", "restored"]


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where something was learned: a session, the first and the last message of a turn, and when that ended."""

    key: str
    n: int
    upto: int = 0
    at: str = ""

    @property
    def tag(self) -> str:
        return f"[{' '.join(self.key.split())} {self.n}]"


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a page; `text` is what it says, and `raw` how a person wrote it.

    `subject` is what the fact is about, `turn` which turn a daily line stands for, and `after` the line
    that it follows where that is not the last of ours. A fact that is `pending` holds once a person confirms it.
    `outside` says of a daily line that by then the conversation had words in it that are not the user's own.
    """

    id: str
    page: str
    text: str = ""
    raw: str | None = None
    subject: str = ""
    source: Source | None = None
    at: str = ""
    after: str = ""
    turn: str = ""
    pending: bool = False
    outside: bool = False

    @property
    def is_ours(self) -> bool:
        """False for what a person wrote."""
        return self.raw is None


class RenderedLine(NamedTuple):
    """A line as it is in a file."""

    id: str
    text: str


class Strike(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line no longer holds: another took its place, or someone took it out; or it holds again: `restored`."""

    id: str
    why: Why
    by: str = ""


class Cursor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a conversation has been gone through: a message and its time; `turns` are those that were erased.

    `outside` is as in a line.
    """

    key: str = ""
    n: int = 0
    at: str = ""
    turns: tuple[str, ...] = ()
    begun: str = ""
    outside: bool = False


Part = Line | Strike | Cursor
_SHAPES: dict[str, type[Part]] = {FACT: Line, DAILY: Line, LINE: Line, PENDING: Line, STRIKE: Strike, CURSOR: Cursor}


def note_of(part: Part) -> AppendRecord:
    """The record that holds a part."""
    kind = STRIKE if isinstance(part, Strike) else CURSOR
    if isinstance(part, Line):
        kind = LINE if not part.is_ours else FACT if part.page == MEMORY_PAGE else DAILY
        # Pending is a kind of its own: a version that knows no such facts must not take it for one that holds.
        kind = PENDING if part.pending else kind
    return AppendRecord(kind, msgspec.to_builtins(part))


def part_of(kind: str, data: Any) -> Part | None:
    """What a record holds; None if it is of another kind, or in a shape that this version does not know."""
    try:
        return msgspec.convert(data, _SHAPES[kind])
    except (KeyError, msgspec.ValidationError):
        return None


def skeleton(page: str) -> list[Line]:
    """The lines that a page begins with."""
    if page == MEMORY_PAGE:
        about = "<!-- What nacre remembers. Edit it: lines that you change, add or take out are taken in. -->"
        heads = ["# Memory", "", about, ""]
    else:
        heads = [f"# {page.rpartition('/')[2].removesuffix('.md')}", ""]
    return [Line(id=f"{page}{TOP}{at}", page=page, raw=raw) for at, raw in enumerate(heads)]


class State:
    """All that memory holds after its records so far; `version` changes whenever a line does, and its page's too."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.strikes: dict[str, Strike] = {}
        self.pages: dict[str, list[str]] = {}
        self.cursors: dict[str, Cursor] = {}
        self.turns: set[str] = set()
        self.outside: set[str] = set()
        self.unwanted: set[str] = set()
        self.begun = ""
        self.version = 0
        self.versions: dict[str, int] = {}
        self._ours: dict[str, str] = {}
        self._kept: tuple[int, tuple[list[Line], list[Line]]] = (-1, ([], []))

    def copy(self) -> State:
        """The same, to try something on."""
        other = State()
        vars(other).update({name: copy(value) for name, value in vars(self).items()})
        other.pages = {page: list(ids) for page, ids in self.pages.items()}
        return other

    def add(self, part: Part) -> None:
        match part:
            case Line():
                self._add_line(part)
            case Cursor():
                self._add_cursor(part)
            case Strike(id=id, why="restored"):
                self.strikes.pop(id, None)
            case Strike(id=id):
                self.strikes[id] = part
        if isinstance(part, Strike):
            line = self.lines.get(part.id)
            # What someone took out is not learned again, unless they take it back.
            if line is not None and line.text and part.why in ("removed", "forgotten"):
                self.unwanted.add(normal(line.text))
            elif line is not None and part.why == "restored":
                self.unwanted.discard(normal(line.text))
            self._touch(line.page if line is not None else part.id.partition(TOP)[0])

    @property
    def facts(self) -> list[Line]:
        """What holds now, oldest first."""
        return self._held()[0]

    @property
    def pending(self) -> list[Line]:
        """What waits for a person to confirm it, oldest first."""
        return self._held()[1]

    def _held(self) -> tuple[list[Line], list[Line]]:
        if self._kept[0] != self.version:
            ids = self.pages.get(MEMORY_PAGE, ())
            found = [self.lines[id] for id in ids if id not in self.strikes and self.lines[id].text]
            facts = [line for line in found if not line.pending]
            self._kept = (self.version, (facts, [line for line in found if line.pending]))
        return self._kept[1]

    @property
    def days(self) -> Iterator[Line]:
        """The daily lines that hold, day by day."""
        for page in sorted(self.pages):
            if page != MEMORY_PAGE:
                yield from (line for line in self.page_lines(page) if line.text and line.id not in self.strikes)

    def page_lines(self, page: str) -> list[Line]:
        """The lines of a page, those that are struck through too."""
        ids = self.pages.get(page)
        lines = skeleton(page) if ids is None else [self.lines[id] for id in ids]
        strikes = self.strikes
        return [line for line in lines if line.id not in strikes or strikes[line.id].why == "replaced"]

    def history(self, id: str) -> list[Line]:
        """The versions of a line, oldest first: what it took the place of, and what took its place."""
        links: dict[str, set[str]] = {}
        for strike in self.strikes.values():
            if strike.by:
                links.setdefault(strike.id, set()).add(strike.by)
                links.setdefault(strike.by, set()).add(strike.id)
        found, waiting = {id}, [id]
        while waiting:
            more = links.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        order = {known: at for at, known in enumerate(self.lines)}
        return [self.lines[one] for one in sorted(found & order.keys(), key=order.__getitem__)]

    def survivors(self, doomed: set[str]) -> Iterator[Part]:
        """Everything but some lines, in an order in which every line follows one that is known."""
        for page in self.pages:
            before = TOP
            for line in (self.lines[id] for id in self.pages[page] if id not in doomed):
                if line.raw is None or not line.id.startswith(f"{page}{TOP}"):
                    yield replace(line, after=before)
                before = line.id
        for strike in self.strikes.values():
            if strike.id not in doomed and strike.by not in doomed:
                yield strike
        # The turns of erased lines are kept, so that they are not learned from again.
        erased = {self.lines[id].turn for id in doomed} - {""}
        turns = erased | (self.turns - {line.turn for line in self.lines.values()})
        yield Cursor(begun=self.begun, turns=tuple(sorted(turns)))
        for cursor in self.cursors.values():
            yield replace(cursor, outside=cursor.key in self.outside)

    def _add_line(self, line: Line) -> None:
        ids = self.pages.get(line.page)
        if ids is None:
            heads = skeleton(line.page)
            self.lines |= {head.id: head for head in heads}
            ids = self.pages[line.page] = [head.id for head in heads]
        if line.id not in self.lines:
            after = line.after or self._ours.get(line.page, "")
            if after == TOP:
                ids.insert(0, line.id)
            elif not after or ids[-1] == after or after not in ids:
                ids.append(line.id)
            else:
                ids.insert(ids.index(after) + 1, line.id)
        self.lines[line.id] = line
        if line.is_ours:
            self._ours[line.page] = line.id
        if line.turn:
            self.turns.add(line.turn)
        if line.turn and line.is_ours and line.source is not None:
            self._add_cursor(Cursor(key=line.source.key, n=line.source.upto, at=line.source.at, outside=line.outside))
        self._touch(line.page)

    def _touch(self, page: str) -> None:
        self.version += 1
        self.versions[page] = self.version

    def _add_cursor(self, cursor: Cursor) -> None:
        self.turns.update(cursor.turns)
        self.begun = self.begun or cursor.begun
        if cursor.key:
            self.cursors[cursor.key] = replace(cursor, turns=(), begun="", outside=False)
        if cursor.outside:
            self.outside.add(cursor.key)


KEY = "nacre:memory"
TITLE = "what nacre remembers"
_NEXT = "nacre:memory.next"
_LOCK = "nacre:memory.lock"
# Longer than a lease of a process that died lasts in a database.
_TIMEOUT = 60.0
_PAUSE, _MAX_PAUSE = 0.02, 0.5
_MAX_EPOCHS = 256
_BATCH = 256


class FactStore:
    """Memory's records and the state they add up to; safe for threads, and for processes within `hold`.

    An epoch is the life of the log between two erasures; it tells a log that was rewritten from the one before.
    """

    def __init__(self, sessions: Sessions, system: System) -> None:
        self.state = State()
        self._sessions = self._writable = sessions.with_internal_keys()
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
            end, pause = time.monotonic() + _TIMEOUT, _PAUSE
            while not self._depth:
                try:
                    hold.take()
                    break
                except SessionBusy:
                    if time.monotonic() > end:
                        raise
                    time.sleep(pause)
                    pause = min(2 * pause, _MAX_PAUSE)
            if not self._depth and self._sessions.is_shared:
                # One that was stopped for too long meanwhile must not change what is another's by then.
                self._writable = self._sessions.with_internal_keys(held=hold)
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
        number = self._writable.submit(KEY, entries, id=id).result()
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
        self._writable.delete(KEY)
        self._fill(KEY, notes, meta)
        self._writable.delete(_NEXT)
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
                    self._writable.delete(KEY)
                    entries = (entry for entry in self._sessions.records(_NEXT) if entry.kind.startswith("x."))
                    self._fill(KEY, [AppendRecord(entry.kind, entry.data) for entry in entries], new)
                self._writable.delete(_NEXT)
                now = self._position()
            else:
                with self.hold():
                    now = self._position()
        if now != self._known:
            found = (part_of(entry.kind, entry.data) for entry in self._sessions.records(KEY))
            self._load((part for part in found if part is not None), now)

    def _fill(self, key: str, notes: Sequence[AppendRecord], meta: dict[str, Any]) -> None:
        """Write a log in batches, since opening one reads the last batch; with its meta it is complete."""
        self._writable.delete(key)
        for at in range(0, len(notes), _BATCH):
            self._writable.submit(key, notes[at : at + _BATCH]).result()
        self._writable.submit(key, [SetMeta(meta)]).result()

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
