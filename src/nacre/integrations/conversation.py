"""One conversation in several frameworks: each reads its own messages exactly, and those of others as chat messages.

An adapter stores a message as a `Message` that anyone can read, and in `extra`, under the name of its framework, what
that cannot say. Where the name is missing, another framework or nacre's own agent has written the message, or its
content was erased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from nacre.checks import is_unicode
from nacre.codec import encode_message
from nacre.errors import InvalidMessage
from nacre.history.pairing import as_shown, attach_results, pair
from nacre.messages import Message, ToolCall, is_erased

T = TypeVar("T")


def is_own(message: Message, framework: str) -> bool:
    """Tell whether a framework wrote a message: anybody may have used its name for something else than a mapping."""
    return isinstance(message.extra.get(framework), dict)


def mend_erased(messages: Iterable[Message], framework: str, mend: Callable[[Message], Message]) -> Iterator[Message]:
    """A conversation in which `mend` makes erased messages those of a framework again.

    They no longer say who wrote them. A call and its results are read as what is left of them was written: if others
    wrote it, they stay as they are.
    """
    groups: list[list[Message]] = []
    for message in messages:
        if message.role != "tool" or not groups:
            groups.append([])
        groups[-1].append(message)
    for group in groups:
        is_ours = next((is_own(one, framework) for one in group if not is_erased(one)), True)
        for one in group:
            yield mend(one) if is_ours and is_erased(one) and not is_own(one, framework) and one.role else one


def is_exact(message: Message) -> bool:
    """Tell whether a log gives a message back as it is: it refuses some, such as NaN, and half characters are lost."""
    try:
        return not encode_message(message).lossy
    except InvalidMessage:
        return False


def is_exact_json(value: Any, depth: int = 90) -> bool:
    """Tell whether a log gives a JSON value back as it is, a tuple as a list; one that is nested deeper is not."""
    kind = type(value)
    if kind is str:
        return is_unicode(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is float:
        return math.isfinite(value)
    if depth == 0:
        return False
    if kind is dict:
        return all(
            type(name) is str and is_unicode(name) and is_exact_json(one, depth - 1) for name, one in value.items()
        )
    return kind in {list, tuple} and all(is_exact_json(one, depth - 1) for one in value)


def read_conversation(
    messages: Iterable[Message],
    framework: str,
    own: Callable[[Message], T],
    foreign: Callable[[dict[str, Any]], Iterable[T]],
) -> Iterator[T]:
    """The messages of a framework: its own by `own`, all others by `foreign`, in the shape of OpenAI's chat."""
    for message, is_ours in with_results(messages, framework):
        if is_ours:
            yield own(message)
        else:
            yield from foreign(message.to_openai())


def with_results(messages: Iterable[Message], framework: str) -> Iterator[tuple[Message, bool]]:
    """Each message, and whether the framework wrote it; those of others as every model takes them.

    Among those of others every call is followed by its result, or by one that says that it was interrupted. Between
    them and those of the framework calls and results stay as they are: erasing one message of the framework leaves
    its call, or its results, on the other side.

    in the log   call 1 (others)   reply (own)   result 1 (others)
    read         call 1 (others)   result 1 (others)   reply (own)
    """
    stored = list(messages)
    whose = [is_own(message, framework) for message in stored]
    if all(whose):
        yield from ((message, True) for message in stored)
        return
    order = order_read(stored, whose)
    messages, whose = [stored[at] for at in order], [whose[at] for at in order]
    crossing = find_crossing(messages, whose)
    # Those that cross are runs of their own.
    for (is_ours, crosses), places in groupby(
        range(len(messages)), key=lambda at: (whose[at], at if at in crossing else None)
    ):
        run = [messages[at] for at in places]
        if is_ours:
            yield from ((message, True) for message in run)
        elif crosses is not None:
            yield from ((message, False) for message in show_alone(run[0], crossing[crosses]))
        else:
            yield from ((message, False) for message in pair([message for message in run if message.role]))


def order_read(messages: Sequence[Message], whose: Sequence[bool]) -> list[int]:
    """The places of messages in the order in which they are read, from which of them the framework wrote.

    A result that others stored stands with their call, or with their result that it replaces.
    """
    found: list[list[int]] = [[] for _ in messages]
    # By the id of a call: where others made it, or first gave its result.
    places: dict[str, int] = {}
    for at, (message, is_ours) in enumerate(zip(messages, whose, strict=True)):
        place = at
        for call in message.tool_calls:
            places.pop(call.id, None)
            if not is_ours:
                places[call.id] = at
        if message.role == "tool" and message.tool_call_id:
            if is_ours:
                places.pop(message.tool_call_id, None)
            else:
                place = places.setdefault(message.tool_call_id, at)
                # An erased call no longer says whose it was: the results right after it keep their order.
                if is_erased(messages[place]) and all(messages[n].role == "tool" for n in range(place + 1, at)):
                    place = at
        found[place].append(at)
    return [at for places_here in found for at in places_here]


def lacks_call(messages: Iterable[Message]) -> bool:
    """Tell whether the end of a history has a result whose call comes before it, so that more is to be read."""
    asked: set[str] = set()
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in asked:
            return True
        asked.update(call.id for call in message.tool_calls)
    return False


def find_crossing(messages: Sequence[Message], whose: Sequence[bool]) -> dict[int, str]:
    """The places of those calls and results of others whose other half is own, with the name of what was called."""
    asked: dict[str, tuple[int, str]] = {}
    answers: dict[tuple[int, str], tuple[int, str]] = {}
    for at, message in enumerate(messages):
        asked.update((call.id, (at, call.name)) for call in message.tool_calls)
        if message.role == "tool" and (id := message.tool_call_id or "") in asked:
            call, name = asked[id]
            known, _ = answers.setdefault((call, id), (at, name))
            # The first result of a call belongs to it; of those that only others wrote, the last.
            if not (whose[known] or whose[at]):
                answers[call, id] = at, name
    found = {call: "" for (call, _), (at, _) in answers.items() if whose[at] and not whose[call]}
    calls = set(found)
    found.update(
        (at, name) for (call, _), (at, name) in answers.items() if not whose[at] and (whose[call] or call in calls)
    )
    return found


def show_alone(message: Message, name: str) -> list[Message]:
    """A message with calls, or a result of the tool `name`, as every model takes it; its other half is elsewhere."""
    if message.role == "tool":
        call = ToolCall(id=message.tool_call_id or "", name=name)
        return attach_results([Message(role="assistant", tool_calls=(call,)), message]).messages[1:]
    shown = as_shown(message)
    return [] if shown is None else [shown]
