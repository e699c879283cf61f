"""The records of memory: lines on pages, strikes and cursors, and the state that they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.entries import AppendRecord
from nacre.memory.text_match import normal

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
