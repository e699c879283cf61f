"""What is in the way of continuing a session: calls and results that do not pair, a history cut short.

None of it is damage: a turn that was interrupted leaves a call without a result, and `pairing` makes up for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from nacre.history import session_state
from nacre.records import Record, Records

UNANSWERED = "call-without-result"
UNASKED = "result-without-call"
REPEATED = "duplicate-result"
STALE = "stale-head"
HOLE = "lost-messages"


class Snag(Struct, frozen=True, kw_only=True):
    """Something that is in the way, and the record in which it is."""

    kind: str
    n: int
    detail: str


def snags(view: Records) -> list[Snag]:
    """What is in the way of going on from the live history of one generation of a session."""
    found: list[Snag] = []
    # 1. The history must end with the message that was written last, unless it was taken back.
    newest = 0
    for record in view.all():
        if record.t == "msg":
            newest = record.n
        elif record.t == "head":
            newest = record.st.hd
    head, live = view.state.hd, view.state.live
    if head != newest:
        detail = f"the history ends with message {head}, though message {newest} is the last"
        found.append(Snag(kind=STALE, n=view.n, detail=detail))
    # 2. Every message that counts must be there.
    records = list(session_state.chain(view, view.state))[::-1]
    if len(records) < live:
        detail = f"the history has {live} messages, but only {len(records)} were found"
        found.append(Snag(kind=HOLE, n=head, detail=detail))
    # 3. Every call must have one result.
    return found + _unpaired_calls(records)


def _unpaired_calls(records: Sequence[Record]) -> list[Snag]:
    """Calls without a result and results without a call, by the rule of `pairing`."""
    found: list[Snag] = []
    waiting: dict[str, list[tuple[int, str]]] = {}
    answered: set[str] = set()
    # Those since the last reply without a call, oldest first: a result without an id is for the newest that waits.
    recent: list[str] = []

    def give_up(id: str) -> None:
        for n, name in waiting.pop(id, ()):
            found.append(Snag(kind=UNANSWERED, n=n, detail=f"call {id!r} of {name!r} has no result"))

    messages = ((record.n, record.m) for record in records if record.m is not None)
    for number, message in messages:
        if message.role == "tool":
            id = message.tool_call_id or next((id for id in reversed(recent) if id in waiting), "")
            if id in waiting:
                waiting[id].pop()
                answered.add(id)
                if not waiting[id]:
                    del waiting[id]
            elif id in answered:
                found.append(Snag(kind=REPEATED, n=number, detail=f"call {id!r} has its result already"))
            else:
                found.append(Snag(kind=UNASKED, n=number, detail=f"no call {id!r} waits for this result"))
        elif message.tool_calls:
            # A result is for the newest message that calls with its id.
            for call in message.tool_calls:
                give_up(call.id)
                answered.discard(call.id)
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append((number, call.name))
                recent.append(call.id)
        elif message.role == "assistant":
            recent.clear()
    for id in list(waiting):
        give_up(id)
    return sorted(found, key=lambda snag: snag.n)
