"""A transcript as a page shows it: a few messages around one place of a branch, and where the others are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.codec import message_of, time_of
from nacre.history import branches, session_state
from nacre.history.branches import Bar
from nacre.messages import Entry, Stored
from nacre.records import Losses, Record, State, View

CHUNK = 40
FAILED = "x.failed"
"""The record that says why the message before it has no answer."""
_AROUND = 1
_MAX_RUN = 64
_FOR_PLOT = 600


class Wanted(Struct, frozen=True, kw_only=True):
    """What was asked for: a message by its number or a place, a branch by its tip, with summarised messages or not."""

    at: int = 0
    place: int = 0
    tip: int = 0
    is_all: bool = False
    generation: str = ""


class Fork(Struct, frozen=True, kw_only=True):
    """Branches that part after a message: their tips, and which of them is shown."""

    parent: int
    tips: Sequence[int]
    chosen: int


class Chunk(Struct, frozen=True, kw_only=True):
    """Messages next to each other, and the place of each; `number` counts chunks of a branch from 0."""

    number: int
    places: Sequence[int]
    stored: Sequence[Stored]


class Transcript(Struct, frozen=True, kw_only=True):
    """A part of a branch, and what stands around it.

    Its places go from `low` to `high`; those up to `hidden` are no longer live. `n` is the session's last record,
    `tip` is 0 where the branch is the current one, `anchor` the message that was asked for, `place` where it is.
    `failure` says why the last message has no answer, "" if it has one or nobody knows.
    """

    key: str
    generation: str = ""
    generations: Sequence[str] = ()
    meta: dict[str, Any] = {}
    n: int = 0
    low: int = 1
    high: int = 0
    live: int = 0
    hidden: int = 0
    tip: int = 0
    is_all: bool = False
    anchor: int = 0
    place: int = 0
    bars: Sequence[Bar] = ()
    forks: Sequence[Fork] = ()
    chunks: Sequence[Chunk] = ()
    uses: Sequence[Entry] = ()
    is_archived: bool = False
    losses: Losses = Losses()
    failure: str = ""

    @property
    def title(self) -> str:
        title = self.meta.get("title", "")
        return title if isinstance(title, str) else ""


def open_at(view: View, wanted: Wanted) -> Transcript:
    """The part of a session around what is wanted."""
    state, tip = _state(view, wanted)
    # 1. The message that was asked for may be on this branch, or only on another.
    if wanted.at and (record := view.find(wanted.at)) is not None:
        head = record.st.hd
        if place := branches.place_of(view, state, head):
            is_all = wanted.is_all or place <= state.i - state.live
            wanted = replace(wanted, at=head, place=place, is_all=is_all)
        else:
            ends = (one.end.hd for one in branches.segments(view) if one.since < head <= one.end.hd)
            wanted = replace(wanted, at=head, place=record.st.i, tip=next(ends, head), is_all=True)
            state, tip = _state(view, wanted)
    # 2. The chunks around it.
    centre = wanted.place or state.i
    middle = max(min(centre, state.i) - 1, 0) // CHUNK
    numbers = range(middle - _AROUND, middle + _AROUND + 1)
    shown = _transcript(view, state, tip=tip, wanted=wanted, numbers=numbers)
    placed = {place: one.n for chunk in shown.chunks for place, one in zip(chunk.places, chunk.stored, strict=True)}
    # 3. What it has cost lately.
    recent = takewhile(lambda record: record.n > view.n - _FOR_PLOT, view.back(view.n))
    uses = [
        Entry(generation=view.uid, n=record.n, ts=time_of(record), kind=record.t, data=record.data)
        for record in recent
        if record.t in {"use", "sum"}
    ]
    return replace(
        shown,
        anchor=wanted.at or placed.get(wanted.place, 0),
        place=wanted.place,
        uses=uses[::-1],
        failure="" if tip else _failure(view),
        losses=view.losses,
    )


def part(view: View, wanted: Wanted, *, number: int) -> Transcript:
    """One chunk of a branch, with as much as is needed to show it."""
    state, tip = _state(view, wanted)
    return _transcript(view, state, tip=tip, wanted=wanted, numbers=[number])


def outline(view: View, wanted: Wanted) -> tuple[Transcript, State]:
    """What stands around the messages of a branch, and its state, by which `stretch` finds them at any later time."""
    state, tip = _state(view, wanted)
    return _transcript(view, state, tip=tip, wanted=wanted, numbers=()), state


def stretch(view: View, state: State, first: int, *, max_bytes: int) -> tuple[int, Sequence[Stored]]:
    """The next few messages of a branch from place `first` on, and the place after them.

    Those with large payloads have at most `max_bytes` together, but there is one at least.
    """
    found: list[Stored] = []
    size = 0
    for record in branches.between(view, state, first, first + CHUNK - 1):
        one = _stored(view, record)
        size += len(msgspec.json.encode(one.message.to_mapping())) if record.blobs is not None else 0
        if size > max_bytes and found:
            return record.st.i, found
        found.append(one)
    return first + CHUNK, found


def message(view: View, n: int) -> Stored | None:
    """Message `n`, on whichever branch it is; None if there is none."""
    record = view.find(n)
    return _stored(view, record) if record is not None and record.t == "msg" else None


def _failure(view: View) -> str:
    """Why the last message has no answer, if a page has stored that after it."""
    for record in takewhile(lambda record: record.t not in {"msg", "head"}, view.back(view.n)):
        match record.data if record.t == FAILED else None:
            case {"after": n, "reason": str(reason)} if n == view.state.hd:
                return reason
    return ""


def _state(view: View, wanted: Wanted) -> tuple[State, int]:
    """The branch that is wanted; 0 with the current one."""
    found = view.find(wanted.tip) if wanted.tip and wanted.tip != view.state.hd else None
    return (view.state, 0) if found is None else (found.st, wanted.tip)


def _transcript(view: View, state: State, *, tip: int, wanted: Wanted, numbers: Sequence[int]) -> Transcript:
    hidden = state.i - state.live
    low = 1 if wanted.is_all or tip else hidden + 1
    shown = [number for number in numbers if number * CHUNK < state.i and (number + 1) * CHUNK >= low and number >= 0]
    # Chunks next to each other, read at once, so cut that no result is apart from the message that called for it.
    chunks: list[Chunk] = []
    records: Sequence[Record] = ()
    if shown:
        first, last = shown[0] * CHUNK + 1 - _MAX_RUN, (shown[-1] + 1) * CHUNK + _MAX_RUN
        records = branches.between(view, state, max(first, low), last)
    for number in shown:
        start, end = _bound(records, max(number * CHUNK + 1, low)), _bound(records, (number + 1) * CHUNK + 1)
        found = [record for record in records if start <= record.st.i < end]
        stored = [_stored(view, record) for record in found]
        chunks.append(Chunk(number=number, places=[record.st.i for record in found], stored=stored))
    return Transcript(
        key=view.key,
        generation=view.uid,
        meta=session_state.meta(view, view.state),
        n=view.n,
        low=low,
        high=state.i,
        live=session_state.count(view),
        hidden=hidden,
        tip=tip,
        is_all=low == 1 and hidden > 0,
        bars=branches.bars(view, state),
        forks=[
            Fork(parent=parent, tips=tips, chosen=branches.index_of(view, state, parent, tips))
            for parent, tips in branches.alternatives(view, state).items()
        ],
        is_archived=view.is_archived,
        chunks=chunks,
    )


def _bound(records: Sequence[Record], place: int) -> int:
    """The place, or the first after it that parts no call from its result; both chunks at it find the same."""
    callers: dict[str, int] = {}
    apart: set[int] = set()
    for record in records:
        at = record.st.i
        if record.m is None or not place - _MAX_RUN < at < place + _MAX_RUN:
            continue
        callers.update((call.id, at) for call in record.m.tool_calls)
        if record.m.role == "tool":
            apart.update(range(callers.get(record.m.tool_call_id or "", at) + 1, at + 1))
    return next((at for at in range(place, place + _MAX_RUN) if at not in apart), place)


def _stored(view: View, record: Record) -> Stored:
    return Stored(generation=view.uid, n=record.n, ts=time_of(record), message=message_of(record, view))
