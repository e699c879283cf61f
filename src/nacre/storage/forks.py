"""A fork: a new log on top of another's, which it shares by hard links and never copies if that can be helped."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import NamedTuple

from nacre.errors import LogDamaged
from nacre.records import FORMAT, Record, State
from nacre.storage import blobs
from nacre.storage.format import START, seal
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths, put_away, uids_in, write_all
from nacre.storage.recovery import Header, Level
from nacre.storage.rewrite import Successor
from nacre.storage.system import System

_BLOCK = 1024 * 1024
_NO_FORK, _SECOND = START + b"1,", 2
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
    record = Record(v=FORMAT, n=n, t="open", ts=ts, sid=key, uid=uid, holes=holes, base=base, st=root.state)
    line = seal(record)
    header = Header(uid=uid, sid=key, n=n, base=root.levels, created=ts, holes=root.holes, raw=line[:-1])
    return Successor(header, n, root.state, [line])


def share(system: System, path: str, goal: str, length: int) -> None:
    """Give a file another name; where the file system cannot, copy the part of it that counts."""
    try:
        system.link(path, goal)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(system, path, goal, length)


def refuse_forks(system: System, place: SessionPaths, lines: Lines) -> None:
    """Raise LogDamaged for a log without a header that may be a fork's: what it shares would be lost with it."""
    forks = frozenset(uids_in(system, f"{place.root}/base", place.name))
    may_be = place.archived in forks if place.archived else bool(forks - put_away(system, place))
    if may_be and not _begins_anew(lines):
        raise LogDamaged(
            f"the log of session {place.key or place.name!r} has lost its header, which names what it shares with "
            f"another session; it was not changed: {place.log}"
        )


def _begins_anew(lines: Lines) -> bool:
    """Tell whether the beginning of a log is not a fork's: the numbers of that go on with those that it shares."""
    if lines.read(0, len(_NO_FORK)) == _NO_FORK:
        return True
    first = next((piece.record for piece in lines.forward() if piece.record is not None), None)
    return first is not None and first.n <= _SECOND


def unshare(system: System, goal: SessionPaths, uid: str) -> None:
    """Remove the names that were made for a fork which did not come to be."""
    with suppress(OSError):
        folder = os.path.dirname(goal.base(uid, 0))
        for file in system.listdir(folder):
            if file.startswith(f"{goal.name}.{uid}."):
                system.unlink(f"{folder}/{file}")
        for _, link in blobs.links(system, goal, uid):
            blobs.release(system, link)


def _copy(system: System, path: str, goal: str, length: int) -> None:
    source = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        target = system.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            lines = Lines(system, source, length)
            for start in range(0, length, _BLOCK):
                write_all(system, target, lines.read(start, min(start + _BLOCK, length)))
            system.fsync(target)
        finally:
            system.close(target)
    finally:
        system.close(source)
