"""Words that were stored before under an id, and what they were answered with, also where neither is live any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from nacre.codec import message_of
from nacre.errors import Conflict
from nacre.messages import Message
from nacre.records import Record, Records


class Taken(Conflict):
    """An id under which other words were stored, or words that were taken back before they were answered."""


def answer_before(view: Records, words: Message, *, id: str, ends: Callable[[Message], bool]) -> Message | None:
    """What words that were stored before under their id were answered with; None if they wait for it.

    `ends` tells an answer from what leads to it. Every record is read. Raises Taken if other words were stored
    under the id, or if these were taken back before they were answered.
    """
    after = _since(view, id)
    said = (message_of(record, view) for record in after.values())
    first = next(said, None)
    if first is None or first.content != words.content:
        raise Taken(f"another message was sent with the id {id!r}")
    answer = next(filter(ends, said), None)
    if answer is None and view.state.hd not in after:
        raise Taken(f"the message with the id {id!r} was undone before it was answered")
    return answer


def last_words(view: Records) -> Message | None:
    """The user's newest message, also where a summary covers it; None if there is none."""
    record = view.find(view.state.hd)
    while record is not None and (record.m is None or record.m.role != "user"):
        record = view.find(record.p) if record.p else None
    return message_of(record, view) if record is not None else None


def is_final(message: Message) -> bool:
    """Tell whether a message ends a turn."""
    return message.role == "assistant" and not message.tool_calls


def id_of(message: Message) -> str | None:
    """The name that a channel or a client gave to its words; None if it gave none."""
    origin = message.extra.get("origin")
    return origin.get("id") if isinstance(origin, dict) else None


def _since(view: Records, id: str) -> dict[int, Record]:
    """The last message that was stored under an id, and all that was ever said after it, by number."""
    found: dict[int, Record] = {}
    unit = range(0)
    for record in view.all():
        if record.id == id:
            first, count = record.tx or (record.n, 1)
            unit = range(first, first + count)
        if record.t == "msg" and record.n in unit:
            found = {record.n: record}
        elif record.p in found:
            found[record.n] = record
    return found


def turn_starts(roles: Iterable[str]) -> list[int]:
    """The places of the messages that began a turn: a user's, unless it is after a tool's result, inside a turn."""
    return [at for at, (before, role) in enumerate(pairwise(["", *roles])) if role == "user" and before != "tool"]
