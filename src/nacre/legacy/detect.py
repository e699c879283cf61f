"""Whether a store's directory may hold earlier sessions: only names are looked at, since every start asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nacre.storage.paths import folder_state, is_log_name
from nacre.storage.system import System

LOCK = "migrating.lock"
DONE = b"done 2\n"
_EARLIER = (".json", ".jsonl.archived")
_CLAIMED = ".jsonl.migrating"
_MAX_BYTES = 100


def is_due(system: System, root: str) -> bool:
    """Tell whether a name in a store's root or `sessions` may be an earlier session's.

    Names that logs have today count until they have been looked through once. A folder that has not changed since its
    names were last seen is not listed again, however many there are.
    """
    if any(name.endswith((*_EARLIER, ".jsonl")) for name in _names(system, root)):
        return True
    folder = f"{root}/sessions"
    # What was written of the names in `sessions` when they were last seen; and what changes when a name is added:
    # nothing if the folder is too young to say, or cannot be read.
    seen, state = b"", None
    with suppress(OSError), open_file(system, f"{root}/{LOCK}", os.O_RDONLY | os.O_NOFOLLOW) as fd:
        seen = system.pread(fd, _MAX_BYTES, 0)
    with suppress(OSError):
        state = folder_state(system, folder)
    now = b"%d %d\n" % state if state is not None else b""
    if now and seen == DONE + now:
        return False
    ours = _names(system, folder)
    others = [name for name in ours if not is_log_name(name.removesuffix(".jsonl"))]
    if any(name.endswith((*_EARLIER, ".jsonl")) or _CLAIMED in name for name in others):
        return True
    if not seen.startswith(DONE):
        return bool(ours)
    if now:
        # If it cannot be written, the names are listed again.
        with suppress(OSError), open_file(system, f"{root}/{LOCK}", os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW) as fd:
            if system.flock(fd, wait=False):
                system.ftruncate(fd, 0)
                system.write(fd, DONE + now)
    return False


@contextmanager
def open_file(system: System, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """A file, until it is closed at the end."""
    fd = system.open(path, flags, mode)
    try:
        yield fd
    finally:
        system.close(fd)


def _names(system: System, folder: str) -> list[str]:
    try:
        return system.listdir(folder)
    except OSError:
        # Reading it will say what is wrong with it.
        return []
