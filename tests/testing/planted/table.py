"""The table of planted bugs: stores that are wrong in one way each, and the checks that must notice it.

A bug is a class with `@planted(check, …)` above it, or a function that does the same as `apply` of the rules. Its name
says what is wrong. A class of sessions, or of a store in RAM, is opened by `open_bug`; one that shows only in a place
that keeps its sessions is built on files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from nacre.history.session_state import RULES, apply
from nacre.index import Index
from nacre.records import Operation, Record, Records, RecordStamp, Rules, State
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore

AnyCheck = Callable[..., None]
Planted = TypeVar("Planted", bound=Callable[..., Any])


class Bug(NamedTuple):
    """A store with one fault: what it is, how it is opened at a place, and the checks that must fail on it."""

    name: str
    open: Callable[[Path], Sessions]
    checks: tuple[AnyCheck, ...]


BUGS: list[Bug] = []


def planted(*checks: AnyCheck, files: bool = False) -> Callable[[Planted], Planted]:
    """Put a bug into the table, with the checks that must catch it; with `files` its sessions are kept."""

    def add(bug: Planted) -> Planted:
        BUGS.append(Bug(bug.__name__, lambda root: _open(bug, root, files=files), checks))
        return bug

    return add


def _open(bug: Any, root: Path, *, files: bool) -> Sessions:
    if not inspect.isclass(bug):
        return Sessions(MemoryStore(rules=Rules(apply=bug, replay=RULES.replay)))
    if issubclass(bug, FileStore):
        return Sessions(bug(str(root), rules=RULES), index=lambda: Index(str(root)))
    if issubclass(bug, MemoryStore):
        return Sessions(bug(rules=RULES))
    if issubclass(bug, Index):
        return Sessions(FileStore(str(root), rules=RULES), index=lambda: bug(str(root)))
    assert issubclass(bug, Sessions)
    if files:
        return bug(FileStore(str(root), rules=RULES), index=lambda: Index(str(root)))
    return bug(MemoryStore(rules=RULES))


def apply_with_state(
    operation: Operation, stamp: RecordStamp, state: State, view: Records, **fields: int
) -> Record | None:
    """Do what the rules say, but for some fields of the state afterwards."""
    record = apply(operation, stamp, state, view)
    return record and replace(record, st=replace(record.st, **fields))
