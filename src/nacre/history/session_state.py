"""The live history of a session, and how each operation changes it.

The state after the last record says it all: the live messages are those on the chain from `hd`
whose ordinal is above `i - live`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, assert_never

from msgspec import Raw
from msgspec.structs import replace

from nacre import records
from nacre.codec import message_of
from nacre.errors import Conflict
from nacre.messages import Message
from nacre.records import FORMAT, AppendMessage, MemoryView, Operation, Record, Records, RecordStamp, Rules, State

_FAR = 32
_BEFORE_ALL = Record(v=FORMAT, n=0, t="", ts="", st=State())


def apply(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:  # noqa: PLR0911 - one per kind
    """Return the record that an operation becomes on top of a state; None if it would change nothing.

    In a group it becomes a record without an effect, so that the others of the group are stored, and known by it.
    Raises Conflict if the operation does not fit the state.
    """
    if isinstance(operation, AppendMessage):
        # Made without detours: most records are messages.
        return Record(
            v=FORMAT,
            n=stamp.n,
            b=stamp.b,
            tx=stamp.tx,
            r=stamp.r,
            t="msg",
            ts=stamp.ts,
            id=stamp.id,
            p=state.hd,
            m=operation.raw,  # type: ignore[arg-type] # the encoder takes the canonical bytes as they are
            lossy=operation.lossy,
            bin=operation.bin,
            st=_after_saying(stamp.n, state),
        )
    st = _after(operation, stamp.n, state, view)
    if st is None and stamp.tx is None:
        return None
    st = st or state
    match operation:
        case records.Summarise(text, upto):
            return _record(stamp, "sum", st, text=text, upto=upto)
        case records.Truncate(keep):
            return _record(stamp, "trunc", st, keep=max(keep, 0))
        case records.Rewind(to, keeps_summary):
            return _record(stamp, "head", st, to=to, sum=keeps_summary)
        case records.Pop():
            return _record(stamp, "head", st, pop=1)
        case records.SetMeta(fields, names_fields):
            # None takes a field away.
            merged = {**meta(view, state), **fields}
            found = {name: value for name, value in merged.items() if value is not None}
            return _record(stamp, "meta", st, meta=found, set=sorted(fields) if names_fields else None)
        case records.AppendRecord(kind, data, has_bytes):
            return _record(stamp, kind, st, data=data, bin=has_bytes)
        case records.TakeOver(who):
            return _record(stamp, "turn", st, who=who)
        case records.Delete():
            return _record(stamp, "del", st)
        case records.Restore(record, source):
            # A record from quarantine at its new place; its time is the old one.
            p = state.hd if record.t == "msg" else None
            place = {"n": stamp.n, "b": stamp.b, "tx": stamp.tx, "r": stamp.r, "id": stamp.id, "p": p}
            return replace(record, **place, restored_from=source, st=st, br=None, fence=None)
        case _:
            assert_never(operation)


def replay(record: Record, state: State, view: Records) -> tuple[int | None, State]:
    """Return the link and state of a written record when it follows another state than it did."""
    operation: Operation
    match record.t if record.t == "msg" or record.restored_from is None else "":
        case "msg":
            operation = AppendMessage(raw=Raw())
        case "sum":
            operation = records.Summarise(record.text or "", record.upto)
        case "trunc":
            operation = records.Truncate(record.keep or 0)
        case "head":
            operation = records.Pop() if record.pop else records.Rewind(record.to or 0, record.sum)
        case "meta":
            operation = records.SetMeta({})
        case "turn":
            operation = records.TakeOver(record.who or "")
        case _:
            # Other kinds leave the state as it is, and so does what was restored, unless it is a message.
            return record.p, state
    try:
        st = _after(operation, record.n, state, view) or state
    except Conflict:
        # What it built on is gone; the record stays, without effect.
        st = state
    return state.hd if record.t == "msg" else None, st


def keeps_ids(view: Records, state: State) -> bool:
    """Tell whether a session asks that its ids count without limit."""
    return meta(view, state).get("keep_ids") is True


RULES = Rules(apply=apply, replay=replay, keeps_ids=keeps_ids)


def chain(view: Records, state: State) -> Iterator[Record]:
    """The live messages of a state, newest first: the links are followed back from the head.

        record    4      5      6      7      8      9        7 is a rewind to 5: c is on another branch
        message   a <--- b <--- c             d <--- e
                         ^--------------------'
        ordinal   1      2      3             3      4        head 9, ordinal 4, 3 live: e, d, b

    `older` goes back record by record; `want` is the number of the next message, `ordinal` its place in the chain.
    """
    floor = state.i - state.live
    want, ordinal = state.hd, state.i
    older = view.back(want)
    while want and ordinal > floor:
        record = next(older, _BEFORE_ALL)
        # 1. It went past the wanted message, which is not in the log. It may have been moved out: a fork can go back to
        #    what had been moved out of the log that it shares.
        if record.n < want:
            while want > record.n and ordinal > floor and (moved := view.find(want)) is not None:
                yield moved
                want, ordinal = moved.p or 0, moved.st.i - 1
        # 2. This one is not on the chain, or not a message. If the link leads far away, search by number.
        if record.n > want:
            if record.n - want > _FAR:
                older = view.back(want)
            continue
        # 3. The wanted message is lost. Bridge the gap: before it came what was last when this record was written.
        #    If that has no smaller ordinal, it is another branch, and where this one came from is lost too.
        if record.n < want:
            if record.st.i >= ordinal:
                return
            want, ordinal = record.st.hd, record.st.i
            if record.n != want:
                continue
        # 4. This is the wanted message.
        if ordinal > floor:
            yield record
        want, ordinal = record.p or 0, record.st.i - 1


def on_chain(view: Records, state: State) -> Callable[[int], bool]:
    """Return what tells whether a message is on the chain of a state; it must be asked for greater numbers first.

    After a record that went back, every message follows the one before it. So those between the
    last such record and the head are on the chain, and where that record went back to, it goes on.
    So it takes as many steps as the chain has branches.
    """
    head, branch = state.hd, state.br
    numbers: set[int] | None = None

    def is_on(n: int) -> bool:
        nonlocal head, branch, numbers
        while n <= head and numbers is None:
            if branch < n:
                return True
            record = view.find(min(head, branch))
            if record is None:
                # Lost or moved out: only the long way tells.
                numbers = {message.n for message in chain(view, state)}
            else:
                head, branch = (head, record.st.br) if head <= branch else (record.st.hd, branch)
        return numbers is not None and n in numbers

    return is_on


def newest(view: Records, count: int | None = None) -> Iterator[Record]:
    """The records of the live messages, newest first; all, or the last few."""
    newest_first = chain(view, view.state)
    return newest_first if count is None else islice(newest_first, max(count, 0))


def count(view: Records) -> int:
    """How many messages are live: as the state says, or counted where some of those were lost."""
    return sum(1 for _ in chain(view, view.state)) if view.has_holes else view.state.live


def history(view: Records, count: int | None = None) -> list[Message]:
    """The live messages, oldest first; all, or the last few."""
    # One by one: thousands of records that are kept for a moment longer make the garbage collector look at them all.
    found = [message_of(record, view) for record in newest(view, count)]
    found.reverse()
    return found


def popped(view: Records, n: int, id: str | None) -> Message | None:
    """The message that record `n`, a pop under an id or none, took off; None if it is no such record."""
    record = view.find(n)
    if record is None or not record.pop or record.id != id:
        return None
    before = view.find(n - 1) or next(view.back(n - 1), _BEFORE_ALL)
    message = next(chain(view, before.st), None)
    return message_of(message, view) if message is not None else None


def summary(view: Records, state: State) -> str:
    """The summary in force, "" if none; where its record is lost, the one before it."""
    record = _latest(view, state, "sum")
    return record.text or "" if record is not None else ""


def meta(view: Records, state: State) -> dict[str, Any]:
    """The session's meta as last described; where that record is lost, as described before."""
    record = _latest(view, state, "meta")
    return record.meta or {} if record is not None else {}


def keep(view: Records) -> set[int]:
    """The records that compaction must leave in the log: what is live or in force, and where its branches began."""
    live = {n for record in chain(view, view.state) for n in (record.n, record.st.br)}
    in_force = (_latest(view, view.state, "sum"), _latest(view, view.state, "meta"))
    return (live | {record.n for record in in_force if record is not None} | {view.state.br}) - {0}


def after(view: Records, n: int) -> int:
    """The record to rewind to for what was said up to record `n`: the last that was stored with it.

    A reply is stored together with its usage, and a session can continue only after both. If another message was
    stored with it there is no such record, and it is `n` itself.
    """
    record = view.find(n)
    last = view.find(record.tx[0] + record.tx[1] - 1) if record is not None and record.tx is not None else None
    return last.n if record is not None and last is not None and last.st.hd == record.st.hd else n


def before(view: Records, n: int) -> int:
    """The record to go back to so that message `n` is the next to be said.

    Raises Conflict if there is no such message, or if it was stored together with one before it.
    """
    record = view.find(n)
    if record is None or record.t != "msg":
        raise Conflict(f"there is no message {n} to go back to")
    first = record.tx[0] if record.tx is not None else n
    earlier = view.find(first - 1) or next(view.back(first - 1), None)
    if earlier is None or earlier.st.i != record.st.i - 1:
        raise Conflict(f"message {n} was stored together with others and cannot be taken back alone")
    return earlier.n


def records_needed(view: Records, to: int) -> set[int]:
    """The records that must be in the log to go back to the state after record `to`, or to fork there."""
    whole = MemoryView(view.all())
    target = whole.find(to)
    if target is None:
        return set()
    return {record.n for record in chain(whole, target.st)} | ({target.st.sp, target.st.mp} - {0})


def _after_saying(n: int, state: State) -> State:
    return State(n, state.i + 1, state.live + 1, state.sp, state.mp, n, state.br, state.fence)


def _after(operation: Operation, n: int, state: State, view: Records) -> State | None:  # noqa: PLR0911 - the same
    """The state after an operation that becomes record `n`; None if it would change nothing."""
    hd, i, live, sp, mp, br, fence = state.hd, state.i, state.live, state.sp, state.mp, state.br, state.fence
    match operation:
        case AppendMessage():
            return _after_saying(n, state)
        case records.Summarise(_, upto):
            covered = i - live
            if upto is not None:
                record = view.find(upto)
                if record is None or record.t != "msg" or record.st.i <= covered or not on_chain(view, state)(upto):
                    raise Conflict(f"record {upto} is not a live message")
                covered = record.st.i
            return State(hd, i, i - covered, n, mp, n, br, fence)
        case records.Truncate(count):
            return State(hd, i, max(count, 0), sp, mp, n, br, fence) if max(count, 0) < live else None
        case records.Rewind(0, keeps_summary):
            is_empty = not (hd or sp or keeps_summary)
            return None if is_empty else State(0, 0, 0, sp if keeps_summary else 0, mp, n, n, fence)
        case records.Rewind(to, _):
            record = view.find(to)
            if record is None:
                raise Conflict(f"there is no record {to} to go back to")
            if record.tx is not None and to != record.tx[0] + record.tx[1] - 1:
                raise Conflict(f"record {to} is inside the group {record.tx[0]} to {record.tx[0] + record.tx[1] - 1}")
            st = record.st
            return State(st.hd, st.i, st.live, st.sp, mp, n, n, fence)
        case records.Pop():
            last = next(chain(view, state), None)
            before = last.st.i - 1 if last is not None else 0
            return State(last.p or 0, before, before - (i - live), sp, mp, n, n, fence) if last is not None else None
        case records.SetMeta():
            return State(hd, i, live, sp, n, state.h, br, fence)
        case records.TakeOver():
            # Greater than before, also where the number of an earlier generation goes on.
            return replace(state, fence=max(n, fence + 1))
        case records.AppendRecord() | records.Delete():
            return state
        case records.Restore(record, _):
            return _after_saying(n, state) if record.t == "msg" else state
        case _:
            assert_never(operation)


def _latest(view: Records, state: State, kind: Literal["sum", "meta"]) -> Record | None:
    """The summary or the meta in force; where its record is lost, the one that was in force before it."""
    while n := state.sp if kind == "sum" else state.mp:
        record = view.find(n)
        if record is not None:
            return record if record.t == kind else None
        earlier = next(view.back(n), None)
        state = earlier.st if earlier is not None else State()
    return None


def _record(stamp: RecordStamp, kind: str, st: State, **payload: Any) -> Record:
    return Record(
        v=FORMAT, n=stamp.n, b=stamp.b, tx=stamp.tx, r=stamp.r, t=kind, ts=stamp.ts, id=stamp.id, st=st, **payload
    )
