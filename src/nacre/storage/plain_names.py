"""Logs that still have the name that earlier versions gave them, `sessions/<plain key>.jsonl`.

Earlier agents give their own files such names, so a file counts as a log of ours only if there is a record in it; any
other is the earlier agent's, and is neither read nor changed here. A log gets its name of today under its lock:

    1. link it: both names are one file; if the process is killed here, the next writer goes on with 2
    2. flush the folder: the new name survives a power cut
    3. unlink the plain name
    4. flush the folder: what replaces the log later must not bring the old one back under that name
"""

from __future__ import annotations

import errno
import os
from typing import Literal, NamedTuple

from nacre.errors import LogDamaged, SessionBusy
from nacre.storage.change_marks import Marks
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths, make_folder, open_log, settle_names, unlink_if_there
from nacre.storage.recovery import examine_end
from nacre.storage.system import System, unlock_and_close

_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class _Plain(NamedTuple):
    """An open log that was found under the plain name."""

    fd: int
    stat: os.stat_result
    uid: str


def open_to_read(system: System, place: SessionPaths) -> tuple[int, os.stat_result]:
    """Open a log under its name of today, else under its plain one; raises FileNotFoundError if there is none."""
    try:
        return open_log(system, place.log, os.O_RDONLY)
    except FileNotFoundError:
        if not place.plain:
            raise
    opened = _open_plain(system, place)
    # If it was not there it may just have been renamed.
    return (opened.fd, opened.stat) if opened is not None else open_log(system, place.log, os.O_RDONLY)


def rename_plain(system: System, *places: SessionPaths, wait: bool = True) -> None:
    """Give logs that have the plain name their name of today, where that is free; all are in one folder.

    Raises SessionBusy if one is locked and `wait` is false.
    """
    locked: list[int] = []
    linked: list[SessionPaths] = []
    try:
        for place in places:
            opened = _open_plain(system, place)
            if opened is None:
                continue
            locked.append(opened.fd)
            if not system.flock(opened.fd, wait=wait):
                raise SessionBusy(f"session {place.key!r} is being written by another process")
            if _names(system, place.plain, opened.stat) and _link(system, place, opened.stat):
                linked.append(place)
        if linked:
            settle_names(system, linked[0].folder)
            for place in linked:
                unlink_if_there(system, place.plain)
            settle_names(system, linked[0].folder)
    finally:
        for fd in locked:
            unlock_and_close(system, fd)


def drop_plain_name(system: System, place: SessionPaths, log: os.stat_result) -> None:
    """Take the plain name off a log that has its name of today too, because a rename was cut short; under its lock."""
    if place.plain and _names(system, place.plain, log):
        settle_names(system, place.folder)
        system.unlink(place.plain)
        settle_names(system, place.folder)


def is_named(system: System, place: SessionPaths, log: os.stat_result) -> bool:
    """Tell whether an open log still has one of its names."""
    return _names(system, place.log, log) or bool(place.plain and _names(system, place.plain, log))


def archive_second(system: System, place: SessionPaths, uid: str, marks: Marks | None) -> bool:
    """Archive a second log, which has the plain name, if it is older than the active one, whose uid is given.

    Returns True if it is younger. One that has lost its uid, or has the same, stays where it is.
    """
    opened = _open_plain(system, place)
    if opened is None:
        return False
    try:
        system.flock(opened.fd, wait=True)
        if opened.uid >= uid or not opened.uid or not _names(system, place.plain, opened.stat):
            return opened.uid > uid
        goal = place._replace(archived=opened.uid)
        make_folder(system, goal.folder)
        if _names(system, goal.log, opened.stat):
            # An unarchiving that was cut short left it under both names, and then rename would do nothing.
            system.unlink(place.plain)
        else:
            system.rename(place.plain, goal.log)
        if marks is not None:
            marks.leave(place.plain[len(place.root) + 1 :])
            marks.leave(goal.path)
        settle_names(system, goal.folder)
        settle_names(system, place.folder)
    finally:
        unlock_and_close(system, opened.fd)
    return False


def path_now(system: System, place: SessionPaths) -> str:
    """The path that the log of a session has now; "" if there is none."""
    if _is_there(system, place.log):
        return place.log
    opened = _open_plain(system, place) if place.plain else None
    if opened is None:
        return ""
    system.close(opened.fd)
    return place.plain


def has_plain_name(system: System, place: SessionPaths) -> Literal["", "second", "stranger"]:
    """What has the plain name of a session next to its log: a second log, or a file that is none of ours."""
    if not place.plain or not _is_there(system, place.plain):
        return ""
    opened = _open_plain(system, place)
    if opened is None:
        return "stranger"
    system.close(opened.fd)
    return "second" if _is_there(system, place.log) and not _names(system, place.log, opened.stat) else ""


def _open_plain(system: System, place: SessionPaths) -> _Plain | None:
    """Open what has the plain name, if that is a log of ours."""
    try:
        fd, found = open_log(system, place.plain, os.O_RDONLY)
    except (FileNotFoundError, LogDamaged):
        return None
    try:
        tail = examine_end(Lines(system, fd, found.st_size), key=place.key)
    except BaseException:
        system.close(fd)
        raise
    if tail.last is not None:
        return _Plain(fd, found, tail.header.uid)
    system.close(fd)
    return None


def _link(system: System, place: SessionPaths, log: os.stat_result) -> bool:
    """Give a log its name of today, unless a rename that was cut short has done so; False if another log has it."""
    try:
        system.link(place.plain, place.log)
    except FileExistsError:
        return _names(system, place.log, log)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links; that the name is free was looked at first.
        system.rename(place.plain, place.log)
    return True


def _names(system: System, path: str, log: os.stat_result) -> bool:
    try:
        named = system.stat(path)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (log.st_dev, log.st_ino)


def _is_there(system: System, path: str) -> bool:
    try:
        return system.stat(path).st_size > 0
    except FileNotFoundError:
        return False
