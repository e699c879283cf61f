"""Planned failures of system calls, and what a process meets when it is killed or stuck."""

from __future__ import annotations

import errno as codes
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["error", "short", "kill", "lie"]


class Killed(BaseException):
    """The simulated process got SIGKILL: no handler of its own may catch this."""


class WouldBlockForever(AssertionError):
    """A lock was waited for that no one can ever release: the simulation has one thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From the `nth` call of this name on, `count` calls fail (None: for ever).

    `"*"` stands for every call that changes or syncs. The modes:
    `error` raises `errno`, and a sync then drops what it should have written;
    `short` does half of a write or a read, and with ENOSPC refuses the write after it;
    `kill` kills the process before the call, or after half of a write;
    `lie` lets a sync return without syncing.
    A mode that means nothing for a call leaves that call alone.
    """

    call: str
    nth: int = 1
    errno: int = codes.EIO
    count: int | None = 1
    mode: Mode = "error"

    def names(self, call: str, *, ticks: bool) -> bool:
        """Whether this fault is about that call."""
        return self.call == call or (ticks and self.call == "*")

    def strikes(self, seen: int) -> bool:
        """Whether the call that is number `seen` of its name fails."""
        return seen >= self.nth and (self.count is None or seen < self.nth + self.count)

    def once_full(self) -> Fault:
        """What is left of this fault when a short write has used up the last free space."""
        count = None if self.count is None else max(1, self.count - 1)
        return replace(self, call="write", nth=1, count=count, mode="error")


class Faults:
    """The failures planned for one disk, each with its own count of the calls it has seen."""

    __slots__ = ("_planned",)

    def __init__(self) -> None:
        self._planned: list[tuple[Fault, int]] = []

    def plan(self, fault: Fault) -> None:
        """Add a failure; its calls are counted from now on."""
        self._planned.append((fault, 0))

    def clear(self) -> None:
        """Drop every planned failure."""
        self._planned.clear()

    def meet(self, call: str, *, ticks: bool) -> Fault | None:
        """Count this call, and give the first failure that strikes it."""
        struck: Fault | None = None
        for index, (fault, seen) in enumerate(self._planned):
            if not fault.names(call, ticks=ticks):
                continue
            self._planned[index] = (fault, seen + 1)
            if struck is None and fault.strikes(seen + 1):
                struck = fault
                if call == "write" and fault.mode == "short" and fault.errno == codes.ENOSPC:
                    self._planned[index] = (fault.once_full(), 0)
        return struck
