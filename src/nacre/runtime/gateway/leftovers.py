"""Messages that an earlier run left open: one answer may be for several of them, and is then sent once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from nacre.history.replies import id_of, is_final
from nacre.messages import Message
from nacre.sessions import Sessions

_AT_HAND = 256


class Leftovers:
    """The ids of what was left open; words that had joined a turn of others are told from words that began one."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._told: set[str] = set()

    def add(self, id: str) -> None:
        """Add an open message."""
        self._open.add(id)

    def tell(self, id: str) -> None:
        """Add a message whose answer was sent."""
        self._told.add(id)

    def is_told(self, sessions: Sessions, key: str, id: str) -> bool:
        """Whether the answer to words went to somebody whose turn they had joined; if not, it goes to theirs now."""
        if id not in self._open:
            return False
        self._open.discard(id)
        if not self._told.isdisjoint(_before(sessions.get_history(key, last=_AT_HAND), id)):
            return True
        self._told.add(id)
        return False


def _before(messages: list[Message], id: str) -> Iterator[str | None]:
    """The ids of words that came before others in the same turn."""
    places = [at for at, message in enumerate(messages) if id_of(message) == id]
    earlier = reversed(messages[: places[0]] if places else [])
    return (id_of(message) for message in takewhile(lambda message: not is_final(message), earlier))
