"""One conversation in several frameworks: each reads its own messages exactly, and those of others as chat messages.

An adapter stores a message as a `Message` that anyone can read, and in `extra`, under the name of its framework, what
that cannot say. Where the name is missing, another framework or nacre's own agent has written the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, TypeVar

from nacre.history.pairing import pair
from nacre.messages import Message, is_erased

T = TypeVar("T")


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
        is_own = next((framework in one.extra for one in group if not is_erased(one)), True)
        for one in group:
            yield mend(one) if is_own and is_erased(one) and framework not in one.extra and one.role else one


def read_conversation(
    messages: Iterable[Message],
    framework: str,
    own: Callable[[Message], T],
    foreign: Callable[[dict[str, Any]], Iterable[T]],
) -> Iterator[T]:
    """The messages of a framework: its own by `own`, all others by `foreign`, in the shape of OpenAI's chat.

    Among those of others every call is followed by its result, or by one that says that it was interrupted.
    """
    for is_own, run in groupby(messages, key=lambda message: framework in message.extra):
        if is_own:
            yield from map(own, run)
        else:
            for message in pair([one for one in run if one.role]):
                yield from foreign(message.to_openai())
