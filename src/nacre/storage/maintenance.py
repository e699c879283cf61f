"""The files of a store, without what is said in them: whose they are, how large, what is left over, a copy."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from nacre.codec import parse_time
from nacre.errors import InvalidKey, StoreError
from nacre.messages import DiskUsage, GenerationInfo, Leftover
from nacre.records import View
from nacre.storage.blobs import unused
from nacre.storage.file_names import key_of, stem, stem_of_log
from nacre.storage.paths import SessionPaths, settle_names
from nacre.storage.plain_names import path_now
from nacre.storage.reader import reading
from nacre.storage.recovery import Survey
from nacre.storage.system import System, is_from_system
from nacre.storage.view import LogView

if TYPE_CHECKING:
    from nacre.storage.file_store import FileStore

FOLDERS = ("sessions", "archive", "cold", "quarantine", "base", "blobs", "trash")
_OF_SESSIONS = ("sessions", "archive", "cold", "quarantine")
_LONGEST_HEADER = 4096
_ANY_LOG = b'{"v":'
_OLD = 3600.0
"""Seconds after which nobody is at a file any more."""


class _Header(msgspec.Struct, frozen=True):
    """What the first line of a log says of its session."""

    sid: str | None = None


@contextmanager
def describing(what: str) -> Iterator[None]:
    """Turn an error of the system into one of the store."""
    try:
        yield
    except OSError as error:
        if not is_from_system(error):
            raise
        raise StoreError(f"{what}: {error}") from error


def listed(system: System, folder: str) -> list[str]:
    """The names in a folder; none if there is no folder."""
    try:
        return system.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


# ---- whose a file is


def key_of_log(system: System, path: str, name: str) -> str | None:
    """The key of the log of a session, as its first line or else its name tells; None if that is another session's."""
    try:
        line = _beginning(system, path, _LONGEST_HEADER).partition(b"\n")[0]
        key = msgspec.json.decode(line, type=_Header).sid or key_of(name)
        return key if key is not None and stem(key) == name else None
    except (OSError, ValueError, msgspec.DecodeError, RecursionError, InvalidKey):
        return key_of(name)


def key_of_file(system: System, path: str) -> str | None:
    """The key of the session that a log in one of the folders of a store is of; None if it does not tell."""
    return key_of_log(system, path, SessionPaths.of_file("", os.path.basename(path)).name)


def is_strange(system: System, path: str) -> bool:
    """Tell whether a file does not begin as our logs do, not even with a log's beginning that was torn."""
    beginning = _beginning(system, path, len(_ANY_LOG))
    # A power cut may leave a file that is empty or all zeros: that was one of ours.
    return not _ANY_LOG.startswith(beginning) and any(beginning)


def has_other_logs(system: System, root: str, keys: Iterable[str]) -> bool:
    """Tell whether there are logs of other sessions than these."""
    names = set(map(stem, keys))
    files = (file for folder in ("sessions", "archive") for file in listed(system, f"{root}/{folder}"))
    return any(file.endswith(".jsonl") and SessionPaths.of_file(root, file).name not in names for file in files)


def _beginning(system: System, path: str, size: int) -> bytes:
    fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return system.pread(fd, size, 0)
    finally:
        system.close(fd)


# ---- how large it is


def generation(files: FileStore, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
    """The active generation of a session, or an archived one; None if it is not there."""
    system, place = files.system, SessionPaths.of(files.location, key, uid)
    path = path_now(system, place)
    changed = system.stat(path).st_ctime if path else 0.0
    with reading(system, place) as found:
        if found.view is None:
            return None
        return GenerationInfo(
            key=key,
            generation=found.view.uid,
            pinned=is_pinned(found.view),
            updated=parse_time(found.updated),
            changed=datetime.fromtimestamp(changed, UTC),
            bytes=found.size + found.view.header.cold,
        )


def measure(system: System, root: str, keys: Iterable[str]) -> DiskUsage:
    """How much room each folder takes, and each of some sessions; a file with several names counts once."""
    sessions = {stem(key): (key, 0) for key in keys}
    folders = dict.fromkeys(FOLDERS, 0)
    seen: set[tuple[int, int]] = set()
    for folder in FOLDERS:
        for path, found in _walk(system, f"{root}/{folder}"):
            if (found.st_dev, found.st_ino) in seen:
                continue
            if found.st_nlink > 1:
                seen.add((found.st_dev, found.st_ino))
            folders[folder] += found.st_size
            owner = os.path.basename(path).partition(".")[0]
            owner = stem_of_log(owner) if folder == "sessions" else owner
            if folder in _OF_SESSIONS and owner in sessions:
                key, size = sessions[owner]
                sessions[owner] = (key, size + found.st_size)
    return DiskUsage(folders=folders, sessions=dict(sessions.values()))


def _walk(system: System, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The paths of the files in a folder and below it."""
    for name in listed(system, folder):
        path = f"{folder}/{name}"
        with suppress(FileNotFoundError):
            found = system.stat(path)
            if modes.S_ISDIR(found.st_mode):
                yield from _walk(system, path)
            elif modes.S_ISREG(found.st_mode):
                yield path, found


def size_of_file(system: System, path: str) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return system.stat(path).st_size
    except FileNotFoundError:
        return 0


def log_size(system: System, root: str, key: str) -> int:
    """Bytes of the active log of a session; 0 if there is none."""
    return size_of_file(system, SessionPaths.of(root, key).log)


def size_of(view: View, numbers: set[int]) -> int:
    """Bytes of the lines of some records in a log."""
    return Survey(view.lines).size_of(numbers) if isinstance(view, LogView) else 0


# ---- what is left over


def leftovers(system: System, root: str) -> Iterator[Leftover]:
    """Rewrites of logs whose writer was killed, long enough ago that nobody is at it still, and unused payloads."""
    for path in unused(system, root):
        yield Leftover(path=path, bytes=size_of_file(system, path), reason="a payload that no session uses")
    for folder in ("sessions", "archive", "blobs"):
        for path, found in sorted(_walk(system, f"{root}/{folder}")):
            is_ours = path.endswith(".tmp") and os.path.dirname(path) == f"{root}/{folder}"
            if is_ours and found.st_mtime < system.now() - _OLD:
                yield Leftover(path=path, bytes=found.st_size, reason="left by a writer that was killed")


def remove(system: System, path: str) -> bool:
    """Remove a leftover unless somebody holds it: a writer locks it from the moment it is made."""
    try:
        fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        if not system.flock(fd, wait=False) or system.fstat(fd).st_ino != system.stat(path).st_ino:
            return False
        system.unlink(path)
        settle_names(system, os.path.dirname(path))
    finally:
        system.close(fd)
    return True
