"""What the kernel needs of sessions, whatever keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from nacre.agent.ports import Entry
from nacre.entries import Describe, Message, Past, Snapshot

T = TypeVar("T")


class TurnLock(Protocol):
    """A lock that one process at a time may have."""

    def take(self) -> None:
        """Take it; raises SessionBusy if another process has it."""

    def close(self) -> None:
        """Let others take it."""


class KernelSessions(Protocol):
    """All that the kernel needs of sessions, whatever keeps them."""

    def submit(self, key: str, entries: Sequence[Entry | Describe], *, id: str | None = None) -> Awaitable[int]:
        """Store entries as one unit; gives the last number once they are durable."""

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        """The session at this moment: its last messages, summary and meta."""

    def get_history(self, key: str, *, last: int | None = None) -> list[Message]:
        """The live messages, or the last few."""

    def exists(self, key: str) -> bool:
        """Tell whether there is such a session."""

    def read(self, key: str, get: Callable[[Past], T]) -> T | None:
        """What a function makes of the records of a session; None if there is none."""

    def hold(self, key: str) -> TurnLock:
        """The lock for a turn of a session."""
