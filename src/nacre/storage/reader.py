"""Reading a log: what was whole in it when it was opened, or when no writer was at it."""

from __future__ import annotations

from typing import NamedTuple

from nacre.storage.forks import refuse_forks
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths
from nacre.storage.plain_names import is_named, open_to_read
from nacre.storage.recovery import glance, state_of, was_cut_short
from nacre.storage.system import System
from nacre.storage.view import LogView


class Reading(NamedTuple):
    """A log as it was found: its past, None if it holds no session; whether it ends in a deletion.

    `is_damaged` is true of one that holds no session because of damage that is not the end of a torn write. `end` is
    where its whole header ends, if it has nothing else.
    """

    view: LogView | None = None
    is_deleted: bool = False
    is_damaged: bool = False
    end: int = 0
    size: int = 0
    updated: str = ""


class reading:  # noqa: N801 - used as `with reading(…) as found`
    """A log that is open for as long as its past is read; a torn end, or a group being written, is left out."""

    __slots__ = ("_fd", "_place", "_system")

    def __init__(self, system: System, place: SessionPaths) -> None:
        self._system = system
        self._place = place
        self._fd = -1

    def __enter__(self) -> Reading:
        try:
            size = self._open()
        except FileNotFoundError:
            return Reading()
        try:
            return _look(self._system, self._fd, size, self._place)
        except BaseException:
            self._system.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._system.close(self._fd)

    def _open(self) -> int:
        """Open the log and tell its size."""
        self._fd, found = open_to_read(self._system, self._place)
        return found.st_size


class settled(reading):  # noqa: N801 - as above
    """The same, up to its size while no writer was at it: what one has written it may yet take back."""

    __slots__ = ()

    def _open(self) -> int:
        size: int | None = None
        while size is None:
            super()._open()
            try:
                size = self._size_between_writes()
            finally:
                if size is None:
                    self._system.close(self._fd)
                    self._fd = -1
        return size

    def _size_between_writes(self) -> int | None:
        """Wait for the writer; None if the log lost its name meanwhile."""
        self._system.flock(self._fd, wait=True)
        found = self._system.fstat(self._fd)
        has_name = is_named(self._system, self._place, found)
        self._system.unlock(self._fd)
        return found.st_size if has_name else None


def _look(system: System, fd: int, size: int, place: SessionPaths) -> Reading:
    lines = Lines(system, fd, size)
    tail = glance(lines, key=place.key)
    last = tail.last
    if last is not None and last.t == "del":
        return Reading(is_deleted=True, size=size)
    if size and not tail.header.uid:
        refuse_forks(system, place, lines)
    # What may be rot is for its readers to mend, since it is reported from then on; a writer may be at a torn end.
    # A file without any record of ours is nobody's to change but a writer's.
    is_damaged = last is not None and bool(tail.bad) and not was_cut_short(tail)
    if last is None or (last.t == "open" and last.base is None):
        # A log with only a header was never fully created, except a fork, which has a past.
        return Reading(size=size, is_damaged=is_damaged, end=tail.end if tail.torn and tail.headed else 0)
    if tail.torn:
        lines.size = tail.end
    # Nobody will write to an archived log, so it is for its readers to mend even a torn end.
    lines.damaged = is_damaged or not tail.torn or not tail.headed or bool(place.archived and tail.bad)
    view = LogView(lines, header=tail.header, n=last.n, state=state_of(last), system=system, place=place)
    return Reading(view=view, size=size, updated=last.ts)
