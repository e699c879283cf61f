"""Whether a store's directory may hold earlier sessions: told by names alone, since every start asks."""

from __future__ import annotations

import os

from nacre.log.ops import Ops

LOCK = "migrating.lock"
DONE = b"done\n"
_EARLIER = (".json", ".jsonl.archived")
_CLAIMED = ".jsonl.migrating"


def is_due(ops: Ops, root: str) -> bool:
    """Tell whether a name in a store's root or `sessions` may be an earlier session's.

    Our logs have names that earlier ones may have, too: they count until they have been looked through once.
    """
    ours = _names(ops, f"{root}/sessions")
    others = [name for name in ours if not name.endswith(".jsonl")]
    if any(name.endswith(_EARLIER) or _CLAIMED in name for name in others):
        return True
    if any(name.endswith((*_EARLIER, ".jsonl")) for name in _names(ops, root)):
        return True
    return bool(ours) and not is_looked_through(ops, root)


def is_looked_through(ops: Ops, root: str) -> bool:
    """Tell whether every name in `sessions` that looks like a log's has been seen to be one."""
    try:
        fd = ops.open(f"{root}/{LOCK}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return ops.pread(fd, len(DONE), 0) == DONE
    finally:
        ops.close(fd)


def _names(ops: Ops, folder: str) -> list[str]:
    try:
        return ops.listdir(folder)
    except OSError:
        # Whoever reads it will hear what is wrong with it.
        return []
