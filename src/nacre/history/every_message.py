"""Every message of one generation by number, live or not: a page of them, and how many there are.

Numbers that are not in the log are those of records that were moved out of it, or lost. The states around them tell
whether a message is among them, so a page is read without all that is before and after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from nacre.history import session_state
from nacre.records import FORMAT, Record, State, View

_BEFORE_ALL = Record(v=FORMAT, n=0, t="", ts="", st=State())


def newest(view: View, limit: int, *, before: Record | None = None) -> Iterator[Record]:
    """The last few messages, or the last before a record, newest first; no more is read than is taken."""
    left = limit
    if _is_sound(view):
        for record in _back(view, before):
            if record is None:
                break
            before = record
            if record.t == "msg":
                yield record
                left -= 1
            if not left:
                return
        else:
            return
    # Some are lost, or not where they should be: read everything, which tells what is lost.
    messages = (record for record in view.all() if record.t == "msg" and (before is None or record.n < before.n))
    yield from reversed(deque(messages, maxlen=left))


def count(view: View) -> int:
    """How many messages there are.

    Between two rewinds each message has the next ordinal, so the states at both ends tell how many came between.
    Where something is known to be lost they are counted one by one.
    """
    total, end = 0, view.state
    is_known = _is_sound(view) and not view.losses
    while is_known and end.br:
        mark, before = view.find(end.br), view.find(end.br - 1)
        if mark is None or before is None:
            is_known = False
        else:
            total += end.i - mark.st.i
            end = before.st
    return total + end.i if is_known else sum(1 for record in view.all() if record.t == "msg")


def is_live(view: View) -> Callable[[Record], bool]:
    """Return what tells whether a message is in the history now; it must be asked for newer ones first."""
    if not view.is_newest:
        return lambda _: False
    state = view.state
    if not _is_sound(view):
        # Which message followed a lost one only the links tell.
        numbers = {record.n for record in session_state.chain(view, state)}
        return lambda record: record.n in numbers
    is_on = session_state.on_chain(view, state)
    return lambda record: record.st.i > state.i - state.live and is_on(record.n)


def _is_sound(view: View) -> bool:
    """Tell whether the states of records can be relied on: not where some are known to be lost, or the log's end is."""
    return not view.has_holes and view.highest == view.n


def _back(view: View, above: Record | None) -> Iterator[Record | None]:
    """The records before another, newest first, moved-out ones too; None where one may be missing, and then no more."""
    in_log = view.back(above.n - 1 if above is not None else view.n)
    if above is None:
        above = next(in_log)
        yield above
    below = next(in_log, _BEFORE_ALL)
    while above.n > 1:
        if below.n == above.n - 1 or not _may_miss(below, above):
            above, below = below, next(in_log, _BEFORE_ALL)
            yield above
            continue
        # What is between was moved out; what is found of it must follow on what is above it.
        start = above.n
        for record in view.moved(above.n - 1):
            if record.n <= below.n or (record.n < above.n - 1 and _may_miss(record, above)):
                break
            above = record
            yield above
        if above.n == start:
            break
    else:
        return
    yield None


def _may_miss(below: Record, above: Record) -> bool:
    """Tell whether messages may have been between two records: not if their ordinals follow on the same branch."""
    before = above.st.i - (above.t == "msg")
    return above.t == "head" or below.st.br != above.st.br or below.st.i != before
