"""The queue of messages that wait for an answer: in order within a session, round robin between sessions."""

from __future__ import annotations

from collections import deque

from nacre.channels.channel import InboundMessage


class Queue:
    """Of each session only the first message is taken, and the next one when the session was released."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[InboundMessage]] = {}
        self._next: deque[str] = deque()
        self._taken: set[str] = set()

    def length(self, key: str) -> int:
        """The number of messages that wait in a session."""
        return len(self._waiting.get(key, ()))

    def add(self, key: str, arrived: InboundMessage) -> None:
        """Add a message to the queue of its session."""
        line = self._waiting.setdefault(key, deque())
        line.append(arrived)
        if len(line) == 1 and key not in self._taken:
            self._next.append(key)

    def take(self) -> tuple[str, InboundMessage] | None:
        """The message whose session has waited longest; None if none can be taken."""
        if not self._next:
            return None
        key = self._next.popleft()
        line = self._waiting[key]
        arrived = line.popleft()
        if not line:
            del self._waiting[key]
        self._taken.add(key)
        return key, arrived

    def is_taken(self, key: str) -> bool:
        """Tell whether a message of a session was taken and its session not released yet."""
        return key in self._taken

    def release(self, key: str) -> None:
        """Release a session: its next message goes after those of other sessions."""
        self._taken.discard(key)
        if key in self._waiting:
            self._next.append(key)
