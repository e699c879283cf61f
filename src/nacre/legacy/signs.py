"""Whether a store's directory may hold earlier sessions: told by names alone, since every start asks."""

from __future__ import annotations

import os
from contextlib import suppress

from nacre.log.names import is_log_name
from nacre.log.ops import Ops
from nacre.log.place import folder_state

LOCK = "migrating.lock"
DONE = b"done 2\n"
_EARLIER = (".json", ".jsonl.archived")
_CLAIMED = ".jsonl.migrating"
_LONGEST = 100


def is_due(ops: Ops, root: str) -> bool:
    """Tell whether a name in a store's root or `sessions` may be an earlier session's.

    Names that logs have today count until they have been looked through once. A folder that has not changed since its
    names were last seen is not listed again, however many there are.
    """
    if any(name.endswith((*_EARLIER, ".jsonl")) for name in _names(ops, root)):
        return True
    folder = f"{root}/sessions"
    seen, now = _seen(ops, root), _state(ops, folder)
    if now and seen == DONE + now:
        return False
    ours = _names(ops, folder)
    others = [name for name in ours if not is_log_name(name.removesuffix(".jsonl"))]
    if any(name.endswith((*_EARLIER, ".jsonl")) or _CLAIMED in name for name in others):
        return True
    if not seen.startswith(DONE):
        return bool(ours)
    if now:
        _remember(ops, root, DONE + now)
    return False


def _state(ops: Ops, folder: str) -> bytes:
    """What changes when a name comes into a folder; nothing if it is too young to tell, or cannot be asked."""
    try:
        found = folder_state(ops, folder)
    except OSError:
        return b""
    return b"%d %d\n" % found if found is not None else b""


def _seen(ops: Ops, root: str) -> bytes:
    """What was written down of the names in `sessions` when they were last looked through."""
    try:
        fd = ops.open(f"{root}/{LOCK}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        return ops.pread(fd, _LONGEST, 0)
    finally:
        ops.close(fd)


def _remember(ops: Ops, root: str, seen: bytes) -> None:
    """Write down that names were looked through; what comes of it not being written is that they are listed again."""
    with suppress(OSError):
        fd = ops.open(f"{root}/{LOCK}", os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        try:
            if ops.flock(fd, wait=False):
                ops.ftruncate(fd, 0)
                ops.write(fd, seen)
        finally:
            ops.close(fd)


def _names(ops: Ops, folder: str) -> list[str]:
    try:
        return ops.listdir(folder)
    except OSError:
        # Whoever reads it will hear what is wrong with it.
        return []
