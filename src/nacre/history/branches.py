"""The messages of one branch of a session by their place on it, read without those around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from nacre.history import session_state
from nacre.records import Record, Records, State

_MAX_BRANCHES = 200
_MAX_SUMMARIES = 50


class Segment(Struct, frozen=True):
    """Messages that were written one after the other: after `parent`, from record `since` on, up to `end`."""

    since: int
    parent: int
    end: State


class Bar(Struct, frozen=True, kw_only=True):
    """A summary, the record that holds it, and how many messages of the branch it stands for."""

    n: int
    covers: int
    text: str


def between(view: Records, state: State, first: int, last: int) -> list[Record]:
    """The messages from place `first` to place `last` of a branch; those that are lost are left out."""
    first, last = max(first, 1), min(last, state.i)
    if first > last:
        return []
    end = state if last == state.i else _end_at(view, state, last)
    return list(session_state.chain(view, State(hd=end.hd, i=end.i, live=end.i - first + 1)))[::-1]


def place_of(view: Records, state: State, n: int) -> int:
    """The place of message `n` on a branch; 0 if it is not on it."""
    record = view.find(n)
    if record is None or record.t != "msg" or record.st.i > state.i:
        return 0
    here = between(view, state, record.st.i, record.st.i)
    return record.st.i if here and here[0].n == n else 0


def segments(view: Records) -> list[Segment]:
    """Every stretch of messages since the history was first rewound, newest first; of many only the newest.

    What compaction has moved out is left alone: it would have to be read from end to end.
    """
    found: list[Segment] = []
    end = view.state
    while len(found) < _MAX_BRANCHES:
        if not end.br:
            found.append(Segment(0, 0, end))
            return found
        mark = _at_hand(view, end.br)
        if mark is None:
            return found
        found.append(Segment(mark.n, mark.st.hd, end))
        before = next(view.back(mark.n - 1), None)
        if before is None:
            return found
        end = before.st
    return found


def alternatives(view: Records, state: State) -> dict[int, list[int]]:
    """Where a branch parts from others: after which message, and the tips of all branches there, oldest first.

    The tips are numbers of records; the branch's own is among them as the number of its head.
    """
    known = [one for one in reversed(segments(view)) if one.end.hd != one.parent and _at_hand(view, one.end.hd)]
    own = list(_pieces(view, state))
    found: dict[int, list[int]] = {}
    for parent in dict.fromkeys(segment.parent for segment in known):
        # The segment in whose middle the message is goes on from it, too.
        holder = [one.end.hd for one in known if one.since < parent < one.end.hd][:1]
        tips = [*holder, *(one.end.hd for one in known if one.parent == parent)]
        # Every branch passes what is before the first message.
        passes = parent == 0 or any(piece.since < parent <= piece.end.hd for piece in own)
        if len(tips) > 1 and passes:
            found[parent] = tips
    return found


def index_of(view: Records, state: State, parent: int, tips: list[int]) -> int:
    """Which of the branches after a message is this one, counted from 0; -1 if none of them."""
    after = _after(view, state, parent)
    for at, tip in enumerate(tips):
        other = view.find(tip)
        if other is not None and after and _after(view, other.st, parent) == after:
            return at
    return -1


def bars(view: Records, state: State) -> list[Bar]:
    """The summaries of a branch, newest first; the first is in force."""
    found: list[Bar] = []
    number, branch = state.sp, state.br
    while number and len(found) < _MAX_SUMMARIES:
        record = _at_hand(view, number)
        if record is None or record.t != "sum" or (found and record.st.br != branch):
            break
        found.append(Bar(n=record.n, covers=record.st.i - record.st.live, text=record.text or ""))
        before = next(view.back(record.n - 1), None)
        number = before.st.sp if before is not None else 0
    return found


def _end_at(view: Records, state: State, place: int) -> State:
    """A branch as it was when it ended at a place, found in as many steps as it has turns, and a few.

    Where the message there is lost, it ends at another that is lost, too: `chain` finds the way from there.
    """

    def at_hand(n: int, _: int) -> Record | None:
        return next(view.back(n), None)

    def anywhere(n: int, above: int) -> Record | None:
        return next((record for at in range(n, above, -1) if (record := view.find(at)) is not None), None)

    for piece in _pieces(view, state):
        mark = view.find(piece.since) if piece.since else None
        start = mark.st.i if mark is not None else 0
        if place <= start:
            continue
        end = view.find(piece.end.hd) or next(view.back(piece.end.hd), None)
        if end is None or end.n <= piece.since:
            break
        if end.st.i <= place:
            return end.st
        found = _search(at_hand, place, (piece.since, start), end)
        if found.st.i != place:
            # What compaction has moved out is read only if it must be.
            found = _search(anywhere, place, (piece.since, start), end)
        is_lost = found.st.i != place and found.p is not None
        return State(hd=found.p or 0, i=found.st.i - 1) if is_lost else found.st
    return State()


def _search(look: Callable[[int, int], Record | None], place: int, low: tuple[int, int], high: Record) -> Record:
    """The first record after `low`, a number and a place, after which the branch is so long.

    Places only grow along a segment. They grow nearly evenly, so every other guess is in proportion, and those
    between are in the middle. `look` gives the newest record up to a number and after another.
    """
    n, before = low
    is_even = True
    while high.n - n > 1:
        share = (place - before) / (high.st.i - before + 1) if is_even else 0.5
        guess = n + min(max(int((high.n - n) * share), 1), high.n - n - 1)
        is_even = not is_even
        record = look(guess, n)
        if record is None or record.n <= n:
            n = guess
        elif record.st.i < place:
            n, before = guess, record.st.i
        else:
            high = record
    return high


def _pieces(view: Records, state: State) -> Iterator[Segment]:
    """The segments that a branch is made of, newest first, each cut off where the branch leaves it."""
    end = state
    while end.hd:
        if end.hd <= end.br:
            head = view.find(end.hd) or next(view.back(end.hd), None)
            if head is None or head.st.br >= end.br:
                return
            end = head.st
            continue
        mark = view.find(end.br) if end.br else None
        parent = mark.st.hd if mark is not None else 0
        yield Segment(end.br, parent, end)
        if mark is None:
            return
        end = mark.st


def _after(view: Records, state: State, parent: int) -> int:
    """The number of the message after another on a branch; 0 if there is none."""
    place = place_of(view, state, parent) if parent else 0
    if parent and not place:
        return 0
    found = between(view, state, place + 1, place + 1)
    return found[0].n if found else 0


def _at_hand(view: Records, n: int) -> Record | None:
    record = next(view.back(n), None) if n else None
    return record if record is not None and record.n == n else None
