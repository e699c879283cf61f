"""What a folder may hold, known without listing it again for as long as it has not changed."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from nacre.log.ops import Ops

_SETTLED = 2_000_000_000
"""Nanoseconds after which a folder's time tells of every change; clocks of file systems tick slowly."""


class State(NamedTuple):
    """Which folder it is, and when a name last came into it or went."""

    inode: int
    changed: int


class _Stems(NamedTuple):
    """The hashes of what the names in a folder begin with, up to the first dot."""

    state: State
    hashes: frozenset[int]


_seen: WeakKeyDictionary[Ops, dict[str, _Stems]] = WeakKeyDictionary()


def state_of(ops: Ops, folder: str) -> State | None:
    """What changes when a folder does; None if it changed so lately that it may do so again unnoticed."""
    found = ops.stat(folder)
    is_settled = found.st_mtime_ns < ops.now() * 1e9 - _SETTLED
    return State(found.st_ino, found.st_mtime_ns) if is_settled else None


def may_hold(ops: Ops, folder: str, stem: str) -> bool:
    """Tell whether a folder may hold a file whose name begins with a stem and a dot; raises OSError."""
    now = state_of(ops, folder)
    if now is None:
        return True
    known = _seen.setdefault(ops, {})
    if folder not in known or known[folder].state != now:
        known[folder] = _Stems(now, frozenset(hash(name.partition(".")[0]) for name in ops.listdir(folder)))
    return hash(stem) in known[folder].hashes
