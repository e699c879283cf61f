"""Find the reply to a message by the id of the message, also where neither is live any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import dropwhile, pairwise, takewhile

from nacre.codec import message_of
from nacre.errors import Conflict
from nacre.messages import Message, is_erased
from nacre.records import Record, Records

ANSWERS = "answers"
"""In `extra` of a reply: the ids of the messages that it answers, first the one that began its turn."""


class Taken(Conflict):
    """An id under which another message was stored, or a message that was undone before it was answered."""


def is_final(message: Message) -> bool:
    """Tell whether a message ends a turn."""
    return message.role == "assistant" and not message.tool_calls


def id_of(message: Message) -> str | None:
    """The id that a channel or a client gave to its message; None if it gave none."""
    origin = message.extra.get("origin")
    return origin.get("id") if isinstance(origin, dict) else None


def ids_answered(reply: Message) -> list[str]:
    """The ids of the messages that a reply answers; empty if it does not say, as in an older log."""
    ids = reply.extra.get(ANSWERS)
    return ids if isinstance(ids, list) else []


def ids_waiting(messages: Sequence[Message]) -> list[str]:
    """The ids of the messages since the last reply, in their order."""
    since = takewhile(lambda message: not is_final(message), reversed(messages))
    return [id for id in map(id_of, since) if id][::-1]


def ids_to_answer(messages: Sequence[Message], first: str | None) -> list[str]:
    """The ids of the messages that a turn answers which message `first` begins; None if the turn is resumed."""
    waiting = ids_waiting(messages)
    if first is None:
        return waiting
    # What waited before it had an error. One that is not in memory any more came before all that are.
    return (list(dropwhile(lambda one: one != first, waiting)) or [first, *waiting]) if first else []


def place_of_id(messages: Sequence[Message], id: str) -> int | None:
    """The position of the message with an id; None if there is none, or the id is empty."""
    return next((at for at, message in enumerate(messages) if id_of(message) == id), None) if id else None


class MessagesById:
    """Finds messages of a list by their ids, as `place_of_id` does, while it grows at its end and loses its beginning.

    `add` what is appended, and `drop` what is no longer there.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        # Counted from the first message that was ever added; of an id that several have, the others come later.
        self._first = self._end = 0
        self._places: dict[str, int] = {}
        self._later: dict[str, list[int]] = {}
        self.add(messages)

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if id := id_of(message):
                if id in self._places:
                    self._later.setdefault(id, []).append(self._end)
                else:
                    self._places[id] = self._end
            self._end += 1

    def drop(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if id := id_of(message):
                later = self._later.get(id)
                if later:
                    self._places[id] = later.pop(0)
                else:
                    del self._places[id]
            self._first += 1

    def place(self, id: str) -> int | None:
        """The position of the message with an id; None if there is none, or the id is empty."""
        at = self._places.get(id)
        return None if at is None else at - self._first


def reply_among(
    messages: Sequence[Message], content: object, *, id: str, ends: Callable[[Message], bool] = is_final
) -> Message | None:
    """Find the reply to the message with an id among messages that are in memory; None if there is none.

    `ends` tells a reply from what leads to it. Raises Taken if the message with the id has another content.
    """
    at = place_of_id(messages, id)
    return None if at is None else reply_to(messages[at:], content, id=id, ends=ends)


def find_reply(
    view: Records, content: object, *, id: str, ends: Callable[[Message], bool] = is_final
) -> Message | None:
    """Find the reply to the message that was stored under an id in all records of a log; None if it has none yet.

    It is what names the id in `answers`, or in an older log the first reply after the message. Raises Taken as
    `reply_among`, and if the message was undone before it was answered.
    """
    found = _message_and_later(view, id)
    reply = reply_to((message_of(record, view) for record in found.values()), content, id=id, ends=ends)
    if reply is None and view.state.hd not in found:
        raise Taken(f"the message with the id {id!r} was undone before it was answered")
    return reply


def reply_to(
    messages: Iterable[Message], content: object, *, id: str, ends: Callable[[Message], bool] = is_final
) -> Message | None:
    """The first reply to the first of these messages, which has an id; raises Taken if its content is another."""
    rest = iter(messages)
    first = next(rest, None)
    # What was erased cannot be compared.
    if first is None or (first.content != content and not is_erased(first)):
        raise Taken(f"another message was sent with the id {id!r}")
    return next(filter(ends, rest), None)


def _message_and_later(view: Records, id: str) -> dict[int, Record]:
    """The last message that was stored under an id, all that was ever said after it, and its reply, by number.

    An answer may have been stored with its message, under the same id.
    """
    found: dict[int, Record] = {}
    group = range(0)
    for record in view.all():
        if record.id == id:
            first, count = record.tx or (record.n, 1)
            group = range(first, first + count)
        is_answer = record.m is not None and record.m.role == "assistant"
        if record.t == "msg" and record.n in group and not (is_answer and record.p in found):
            found = {record.n: record}
        elif record.p in found or (found and record.m is not None and id in ids_answered(record.m)):
            # A reply that names the id is found also where what was between them is lost.
            found[record.n] = record
    return found


def last_words(view: Records) -> Message | None:
    """The user's newest message, also where a summary covers it; None if there is none."""
    record = view.find(view.state.hd)
    while record is not None and (record.m is None or record.m.role != "user"):
        record = view.find(record.p) if record.p else None
    return message_of(record, view) if record is not None else None


def turn_starts(roles: Iterable[str]) -> list[int]:
    """The places of the messages that began a turn: a user's, unless it is after a tool's result, inside a turn."""
    return [at for at, (before, role) in enumerate(pairwise(["", *roles])) if role == "user" and before != "tool"]
