"""The messages of one branch of a session by their place on it, read without those around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from nacre.entries import Past, Record, State
from nacre.history import live
from nacre.web.moved import with_moved

_MOST_BRANCHES = 200
_MOST_SUMMARIES = 50


class Segment(Struct, frozen=True):
    """Messages that were written one after the other: behind `parent`, from record `since` on, up to `end`."""

    since: int
    parent: int
    end: State


class Bar(Struct, frozen=True, kw_only=True):
    """A summary, the record that holds it, and how many messages of the branch it stands for."""

    n: int
    covers: int
    text: str


def between(past: Past, state: State, first: int, last: int) -> list[Record]:
    """The messages from place `first` to place `last` of a branch; those that are lost are left out."""
    first, last = max(first, 1), min(last, state.i)
    if first > last:
        return []
    records = _between(past, state, first, last)
    if len(records) == last - first + 1 or not _has_moved_out(past):
        return records
    return _between(with_moved(past), state, first, last)


def place_of(past: Past, state: State, n: int) -> int:
    """The place of message `n` on a branch; 0 if it is not on it."""
    record = found(past, n)
    if record is None or record.t != "msg" or record.st.i > state.i:
        return 0
    here = between(past, state, record.st.i, record.st.i)
    return record.st.i if here and here[0].n == n else 0


def found(past: Past, n: int) -> Record | None:
    """A record, wherever it is kept; None if there is no such record."""
    record = _at_hand(past, n)
    return record if record is not None or not _has_moved_out(past) else with_moved(past).find(n)


def state_at(past: Past, tip: int) -> State | None:
    """Where the session stood after a record; None if there is no such record."""
    record = found(past, tip)
    return record.st if record is not None else None


def segments(past: Past) -> list[Segment]:
    """Every stretch of messages since the history was first rewound, newest first; of many only the newest.

    What compaction has moved out is left alone: it would have to be read from end to end.
    """
    found: list[Segment] = []
    end = past.state
    while len(found) < _MOST_BRANCHES:
        if not end.br:
            found.append(Segment(0, 0, end))
            return found
        mark = _at_hand(past, end.br)
        if mark is None:
            return found
        found.append(Segment(mark.n, mark.st.hd, end))
        before = next(past.back(mark.n - 1), None)
        if before is None:
            return found
        end = before.st
    return found


def alternatives(past: Past, state: State) -> dict[int, list[int]]:
    """Where a branch parts from others: behind which message, and the tips of all branches there, oldest first.

    The tips are numbers of records; the branch's own is among them as the number of its head.
    """
    known = [one for one in reversed(segments(past)) if one.end.hd != one.parent and _at_hand(past, one.end.hd)]
    own = list(_pieces(past, state))
    found: dict[int, list[int]] = {}
    for parent in dict.fromkeys(segment.parent for segment in known):
        tips = [segment.end.hd for segment in known if segment.parent == parent]
        holder = _holder(known, parent)
        if holder is not None:
            tips.insert(0, holder.end.hd)
        if len(tips) > 1 and _is_beside(parent, own):
            found[parent] = tips
    return found


def chosen(past: Past, state: State, parent: int, tips: list[int]) -> int:
    """Which of the branches behind a message is this one, counted from 0; -1 if none of them."""
    after = _after(past, state, parent)
    for at, tip in enumerate(tips):
        other = state_at(past, tip)
        if other is not None and after and _after(past, other, parent) == after:
            return at
    return -1


def bars(past: Past, state: State) -> list[Bar]:
    """The summaries of a branch, newest first; the first is in force."""
    found: list[Bar] = []
    number, branch = state.sp, state.br
    while number and len(found) < _MOST_SUMMARIES:
        record = _at_hand(past, number)
        if record is None or record.t != "sum" or (found and record.st.br != branch):
            break
        found.append(Bar(n=record.n, covers=record.st.i - record.st.live, text=record.text or ""))
        before = next(past.back(record.n - 1), None)
        number = before.st.sp if before is not None else 0
    return found


def _between(past: Past, state: State, first: int, last: int) -> list[Record]:
    head = state.hd if last == state.i else _number(past, state, last)
    found = list(live.chain(past, State(hd=head, i=last, live=last - first + 1)))
    found.reverse()
    return found


def _number(past: Past, state: State, place: int) -> int:
    """The number of the message at a place, in as many steps as the branch has turns, and a few; 0 if it is lost."""
    for piece in _pieces(past, state):
        mark = found(past, piece.since) if piece.since else None
        if place > (mark.st.i if mark is not None else 0):
            start = _Mark(piece.since, mark.st.i if mark is not None else 0)
            return _search(past, place, start, _Mark(piece.end.hd, piece.end.i))
    return 0


class _Mark(NamedTuple):
    """A record, and how long the branch is after it."""

    n: int
    place: int


def _search(past: Past, place: int, low: _Mark, high: _Mark) -> int:
    """The first record behind `low` after which the branch is so long: places only grow along a segment.

    They grow nearly evenly, so every other guess is in proportion, and those between are in the middle.
    """
    is_even = True
    while high.n - low.n > 1:
        share = (place - low.place) / (high.place - low.place + 1) if is_even else 0.5
        guess = low.n + min(max(int((high.n - low.n) * share), 1), high.n - low.n - 1)
        is_even = not is_even
        record = next(past.back(guess), None)
        if record is None or record.n <= low.n:
            low = _Mark(guess, low.place)
        elif record.st.i < place:
            low = _Mark(guess, record.st.i)
        else:
            high = _Mark(record.n, record.st.i)
    return high.n


def _pieces(past: Past, state: State) -> Iterator[Segment]:
    """The segments that a branch is made of, newest first, each cut off where the branch leaves it."""
    end = state
    while end.hd:
        if end.hd <= end.br:
            head = found(past, end.hd)
            if head is None or head.st.br >= end.br:
                return
            end = head.st
            continue
        mark = found(past, end.br) if end.br else None
        parent = mark.st.hd if mark is not None else 0
        yield Segment(end.br, parent, end)
        if mark is None:
            return
        end = mark.st


def _holder(known: list[Segment], parent: int) -> Segment | None:
    """The segment in whose middle a message is."""
    return next((one for one in known if one.since < parent < one.end.hd), None)


def _is_beside(parent: int, pieces: Sequence[Segment]) -> bool:
    """Tell whether a branch passes a message; all pass what is before the first."""
    return parent == 0 or any(piece.since < parent <= piece.end.hd for piece in pieces)


def _after(past: Past, state: State, parent: int) -> int:
    """The number of the message behind another on a branch; 0 if there is none."""
    place = place_of(past, state, parent) if parent else 0
    if parent and not place:
        return 0
    found = between(past, state, place + 1, place + 1)
    return found[0].n if found else 0


def _at_hand(past: Past, n: int) -> Record | None:
    record = next(past.back(n), None) if n else None
    return record if record is not None and record.n == n else None


def _has_moved_out(past: Past) -> bool:
    header = getattr(past, "header", None)
    return header is not None and bool(header.cold or header.base)
