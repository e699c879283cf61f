"""What whoever goes on from a session would stumble over: calls and results that do not pair, a history cut short.

None of it is damage: a turn that was interrupted leaves a call without a result, and `pairing` makes up for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from nacre.entries import Message, Records
from nacre.history import session_state

UNANSWERED = "call-without-result"
UNASKED = "result-without-call"
REPEATED = "duplicate-result"
STALE = "stale-head"
HOLE = "lost-messages"


class Snag(Struct, frozen=True, kw_only=True):
    """Something to stumble over, and the record in which it is."""

    kind: str
    n: int
    detail: str


def snags(view: Records) -> list[Snag]:
    """What is in the way of going on from the live history of one generation of a session."""
    records = list(session_state.chain(view, view.state))
    records.reverse()
    return [
        *_head(view),
        *_hole(view, len(records)),
        *_pairs((record.n, record.m) for record in records if record.m is not None),
    ]


def _head(view: Records) -> Iterator[Snag]:
    """The history must end with the message that was written last, unless it was taken back."""
    newest = 0
    for record in view.all():
        if record.t == "msg":
            newest = record.n
        elif record.t == "head":
            newest = record.st.hd
    if view.state.hd != newest:
        detail = f"the history ends with message {view.state.hd}, though message {newest} is the last"
        yield Snag(kind=STALE, n=view.n, detail=detail)


def _hole(view: Records, found: int) -> Iterator[Snag]:
    if found < view.state.live:
        detail = f"the history has {view.state.live} messages, but only {found} were found"
        yield Snag(kind=HOLE, n=view.state.hd, detail=detail)


def _pairs(messages: Iterable[tuple[int, Message]]) -> Iterator[Snag]:
    calls = _Calls()
    for n, message in messages:
        if message.role == "tool":
            yield from calls.take(n, message)
        elif message.tool_calls:
            calls.add(n, message)
        elif message.role == "assistant":
            # A model that has answered waits for nothing that was called before.
            yield from calls.close()
    yield from calls.close()


class _Calls:
    """The calls since the model last answered without one: those that wait for a result, and those that have it."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, str]]] = {}
        self._answered: set[str] = set()

    def add(self, n: int, message: Message) -> None:
        for call in message.tool_calls:
            self._waiting.setdefault(call.id, []).append((n, call.name))

    def take(self, n: int, result: Message) -> Iterator[Snag]:
        """Give a result to its call; one without an id goes to the newest call."""
        id = result.tool_call_id or next(reversed(self._waiting), "")
        waiting = self._waiting.get(id)
        if waiting is not None:
            waiting.pop()
            self._answered.add(id)
            if not waiting:
                del self._waiting[id]
        elif id in self._answered:
            yield Snag(kind=REPEATED, n=n, detail=f"call {id!r} has its result already")
        else:
            yield Snag(kind=UNASKED, n=n, detail=f"no call {id!r} waits for this result")

    def close(self) -> Iterator[Snag]:
        """What is left waiting will not be answered any more."""
        for id, waiting in self._waiting.items():
            for n, name in waiting:
                yield Snag(kind=UNANSWERED, n=n, detail=f"call {id!r} of {name!r} has no result")
        self._waiting.clear()
        self._answered.clear()
