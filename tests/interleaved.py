"""A process that is interrupted at a chosen system call, so that another one acts there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import nacre
from nacre.storage.system import System
from nacre.testing import Disk
from nacre.testing.disk import WouldBlockForever
from tests.simulated import store

_NO_CALLS = ("now", "random")


class Interrupted:
    """The system calls of a process on a simulated disk; `rival` acts before call number `at`, counted from `arm`."""

    def __init__(self, disk: Disk) -> None:
        self._system = disk.process()
        self._at = 0
        self._rival: Callable[[], object] | None = None
        self.calls = 0

    def arm(self, at: int, rival: Callable[[], object]) -> None:
        self.calls, self._at, self._rival = 0, at, rival

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._system, name)
        if name in _NO_CALLS:
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at and self._rival is not None:
                self._rival()
            return method(*arguments, **named)

        return call


def interrupted(disk: Disk) -> tuple[nacre.Sessions, Interrupted]:
    """A store that is opened by a process which can be interrupted."""
    process = Interrupted(disk)
    return nacre.Sessions(store(cast("System", process))), process


class Rival:
    """Acts once; what would have to wait for the interrupted process is done when that has finished."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._is_done = False
        self.answer: Any = None

    def try_to(self) -> None:
        try:
            self.answer = self._act()
        except WouldBlockForever:
            return
        self._is_done = True

    def finish(self) -> Any:
        if not self._is_done:
            self.answer = self._act()
        return self.answer
