"""Opening a log: only what is a plain file of this user."""

from __future__ import annotations

import os
import stat as modes

from nacre.errors import LogDamaged
from nacre.log.ops import Ops


def open_log(ops: Ops, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a log that must be a plain file of ours; a link, a pipe or a stranger's file is refused."""
    try:
        # Without O_NONBLOCK the open of a pipe would wait for its other end.
        fd = ops.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _explained(ops, error, path) from error
    try:
        found = ops.fstat(fd)
    except BaseException:
        ops.close(fd)
        raise
    if modes.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return fd, found
    ops.close(fd)
    raise LogDamaged(f"{path} is not a regular file of this user; it was not changed")


def _explained(ops: Ops, error: OSError, path: str) -> Exception:
    try:
        is_link = modes.S_ISLNK(ops.stat(path).st_mode)
    except OSError:
        is_link = False
    return LogDamaged(f"{path} is a symbolic link; it was not changed") if is_link else error
