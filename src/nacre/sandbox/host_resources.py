"""The folder that a sandbox shows as /tmp: locked while it is used, and swept by a later start if it was left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile

_PREFIX = "nacre-sandbox-"


class Scratch:
    """A new folder; its lock ends with this process, however that ends."""

    def __init__(self) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if _is_same(self._lock, self.path):
                return
            os.close(self._lock)  # somebody swept it before it was locked

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _remove(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove the folders that agents of this user left behind when they were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        names = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for path in names:
        with contextlib.suppress(OSError):
            _remove_if_left(path)


def _remove_if_left(path: str) -> None:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    os.chmod(path, stat.S_IRWXU)  # a command may have forbidden everything
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(folder)


def _is_same(folder: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(folder), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove(folder: str) -> None:
    """Remove a folder whose contents may forbid it."""
    os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
    for path, _folders, _files in os.walk(folder):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
