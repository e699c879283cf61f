"""What a confinement needs outside of it: the folder that it shows as /tmp, and a control group for root.

Both are removed after use; those of an agent that was killed are removed by a later start.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress

_SCRATCH_PREFIX = "nacre-sandbox-"
CGROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_CGROUP_PREFIX = "nacre-"
_REMOVE_TIMEOUT = 2.0
_REMOVE_PAUSE = 0.002


class Scratch:
    """A new folder; its lock ends with this process, however that ends."""

    def __init__(self) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), os.stat(self.path, follow_symlinks=False)):
                    return
            os.close(self._lock)  # somebody swept it before it was locked

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _remove_folder(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove the scratch folders that agents of this user left when they were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(_SCRATCH_PREFIX)]
    for path in paths:
        with suppress(OSError):
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            os.chmod(path, stat.S_IRWXU)  # a command may have forbidden everything
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_folder(path)
            finally:
                os.close(folder)


def _remove_folder(folder: str) -> None:
    """Remove a folder whose contents may forbid it."""
    os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
    for path, _folders, _files in os.walk(folder):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def make_cgroup(max_processes: int) -> str | None:
    """A new control group, which bounds root's processes as RLIMIT_NPROC does not.

    None where none is needed, or none can be had.
    """
    if os.geteuid() != 0:
        return None
    for place in CGROUPS:
        group = f"{place}/{_CGROUP_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        with suppress(OSError):
            _remove_deserted(place)
            os.mkdir(group)
            with suppress(OSError):
                # Not "w": where this is no control group, that would make a file.
                with open(f"{group}/pids.max", "r+", encoding="ascii") as file:
                    file.write(str(max_processes))
                return group
            remove_cgroup(group)
    return None


def remove_cgroup(group: str | None) -> None:
    """Remove a group, once the last of its dying processes is out of it."""
    until = time.monotonic() + _REMOVE_TIMEOUT
    while group is not None and os.path.isdir(group) and time.monotonic() < until:
        try:
            os.rmdir(group)
        except OSError:
            time.sleep(_REMOVE_PAUSE)


def _remove_deserted(place: str) -> None:
    """Remove the groups of agents that were killed."""
    for name in os.listdir(place):
        owner = name.removeprefix(_CGROUP_PREFIX).partition("-")[0] if name.startswith(_CGROUP_PREFIX) else ""
        if owner.isdigit() and not os.path.isdir(f"/proc/{owner}"):
            with suppress(OSError):
                os.rmdir(f"{place}/{name}")
