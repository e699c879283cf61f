"""A bound on the number of root's processes, which RLIMIT_NPROC does not bound: a control group."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Sequence

_PLACES = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_PREFIX = "nacre-"
_PATIENCE = 2.0
_PAUSE = 0.002
_JOIN = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


def make(most: int) -> str | None:
    """A new group for at most so many processes; None where none is needed, or none can be had."""
    if os.geteuid() != 0:
        return None
    for place in _PLACES:
        group = f"{place}/{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            _remove_deserted(place)
            os.mkdir(group)
            if _bound(group, most):
                return group
            remove(group)
    return None


def joined(command: Sequence[str], group: str | None) -> Sequence[str]:
    """The command, in the group from its first moment."""
    return command if group is None else ["/bin/sh", "-c", _JOIN, group, *command]


def remove(group: str | None) -> None:
    """Remove a group, once the last of its dying processes is out of it."""
    until = time.monotonic() + _PATIENCE
    while group is not None and os.path.isdir(group) and time.monotonic() < until:
        try:
            os.rmdir(group)
        except OSError:
            time.sleep(_PAUSE)


def _remove_deserted(place: str) -> None:
    """Remove the groups of agents that were killed."""
    for name in os.listdir(place):
        owner = name.removeprefix(_PREFIX).partition("-")[0] if name.startswith(_PREFIX) else ""
        if owner.isdigit() and not os.path.isdir(f"/proc/{owner}"):
            with contextlib.suppress(OSError):
                os.rmdir(f"{place}/{name}")


def _bound(group: str, most: int) -> bool:
    try:
        # Not "w": where this is no control group, that would make a file.
        with open(f"{group}/pids.max", "r+", encoding="ascii") as file:
            file.write(str(most))
    except OSError:
        return False
    return True
