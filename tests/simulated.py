"""A store on a simulated disk, what it says, and what a power cut leaves of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Never

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import Durability, FileStore
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.testing import Disk, Fault, Process, images
from tests.paths import log_of

ROOT = "/store"
LOG = str(log_of(ROOT, "k"))
SCRATCH = SessionPaths.of(ROOT, "k").scratch


def store(system: System, *, durability: Durability = "commit", max_open: int = 2, marks: bool = False) -> FileStore:
    return FileStore(
        ROOT, rules=RULES, system=system, durability=durability, compact_at=1, max_open=max_open, marks=marks
    )


def opened(disk: Disk, *, durability: Durability = "commit", max_open: int = 2, marks: bool = False) -> nacre.Sessions:
    """The store as a new process opens it; without marks, the calls that a test counts are those for the logs."""
    return nacre.Sessions(store(disk.process(), durability=durability, max_open=max_open, marks=marks))


def say(sessions: nacre.Sessions, *texts: str, key: str = "k") -> None:
    """Append messages, each acknowledged on its own."""
    for text in texts:
        sessions.add_message(key, "user", text)


def said(sessions: nacre.Sessions, key: str = "k") -> list[Any]:
    """The live messages."""
    return [message.content for message in sessions.get_history(key)]


def settled(disk: Disk, key: str = "k") -> list[Any]:
    """The live messages after a power cut that leaves nothing but what was flushed."""
    return said(opened(next(images(disk.snapshot(), random.Random(0), 0))), key)


def fail_after(disk: Disk, call: str, fault: Fault) -> None:
    """Plan a failure for when the first such call has been made."""

    def watch(made: str, arguments: tuple[Any, ...]) -> None:
        if made == call:
            disk.before = None
            disk.fail(fault)

    disk.before = watch


def names(disk: Disk, folder: str) -> list[str]:
    return sorted(disk.process().listdir(f"{ROOT}/{folder}"))


def interrupt(disk: Disk, *calls: str) -> None:
    """Have a signal handler raise TimeoutError at the last of these changing calls, once the others were made."""
    left = list(calls)

    def watch(made: str, _: tuple[Any, ...]) -> None:
        if made == left[0]:
            del left[0]
        if not left:
            disk.before = None
            raise TimeoutError("the turn took too long")

    disk.before = watch


def interrupt_once(process: Process, call: str) -> None:
    """Have a signal handler raise TimeoutError at the next such call of a process, of whatever kind it is."""

    def strike(*_: object, **__: object) -> Never:
        delattr(process, call)
        raise TimeoutError("the turn took too long")

    setattr(process, call, strike)


def first(process: Process, call: str, act: Callable[[], object]) -> None:
    """Have something happen right before the next such call of a process."""
    really = getattr(process, call)

    def come_first(*args: object, **keywords: object) -> object:
        delattr(process, call)
        act()
        return really(*args, **keywords)

    setattr(process, call, come_first)
