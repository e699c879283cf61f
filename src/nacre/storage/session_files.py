"""The files of a session besides its log: those that a fork shares with it, and how all of them are erased.

A fork is a new log on top of another's, which it shares by hard links and never copies if that can be helped.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from nacre.records import FORMAT, Record, State
from nacre.storage import blobs
from nacre.storage.format import seal
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths, settle_names, unlink_if_there, write_all
from nacre.storage.recovery import Header, Level
from nacre.storage.rewrite import Successor
from nacre.storage.system import System, opened

_BLOCK = 1024 * 1024
# Logs first: what was interrupted must leave no log without what belongs to it.
_FOLDERS = ("trash", "archive", "cold", "base", "blobs", "quarantine", "ids")
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class Root(NamedTuple):
    """Where a fork grows from: whose record, its state, and the logs below it."""

    key: str
    uid: str
    n: int
    state: State
    levels: tuple[Level, ...]
    holes: bool = False


def start_fork(root: Root, *, key: str, uid: str, ts: str) -> Successor:
    """A log that holds nothing yet but where it came from."""
    levels = [(level.n, level.last, level.log, level.cold) for level in root.levels]
    base = {"key": root.key, "uid": root.uid, "n": root.n, "levels": levels}
    if any(level.cold for level in root.levels):
        base["moved"] = [level.moved for level in root.levels]
    n = root.n + 1
    holes = 1 if root.holes else None
    # Nobody has the turn of a session that begins.
    state = replace(root.state, fence=0)
    record = Record(v=FORMAT, n=n, t="open", ts=ts, sid=key, uid=uid, holes=holes, base=base, st=state)
    line = seal(record)
    header = Header(uid=uid, sid=key, n=n, base=root.levels, created=ts, holes=root.holes, raw=line[:-1])
    return Successor(header, n, state, [line])


def share(system: System, path: str, goal: str, length: int) -> None:
    """Give a file another name; where the file system cannot, copy the part of it that counts."""
    try:
        system.link(path, goal)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
    with opened(system, path) as source, opened(system, goal, flags) as target:
        lines = Lines(system, source, length)
        for start in range(0, length, _BLOCK):
            write_all(system, target, lines.read(start, min(start + _BLOCK, length)))
        system.fsync(target)


def unshare(system: System, goal: SessionPaths, uid: str) -> None:
    """Remove the names that were made for a fork which did not come to be."""
    with suppress(OSError):
        folder = os.path.dirname(goal.base(uid, 0))
        for file in system.listdir(folder):
            if file.startswith(f"{goal.name}.{uid}."):
                system.unlink(f"{folder}/{file}")
        for _, link in blobs.links(system, goal, uid):
            blobs.release(system, link)


def erase_rest(system: System, place: SessionPaths, *, upto: str) -> None:
    """Remove a session's moved-out, quarantined, archived and trashed files, durably; its log comes after them.

    Those of generations later than `upto` stay. Only with the lock of the key: it keeps others from beginning or
    moving a generation meanwhile.
    """
    for folder in (f"{place.root}/{name}" for name in _FOLDERS):
        try:
            files = system.listdir(folder)
        except FileNotFoundError:
            continue
        for file in files:
            name, _, rest = file.partition(".")
            path = f"{folder}/{file}"
            if name == place.name and path != place.log and rest.partition(".")[0] <= upto:
                (blobs.release if folder == place.blobs else unlink_if_there)(system, path)
        if folder == place.blobs:
            for path in list(blobs.unused(system, place.root)):
                unlink_if_there(system, path)
        # Also with nothing left to remove: the process that removed it may have been killed before settling it.
        settle_names(system, folder)
