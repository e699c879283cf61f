"""One generation of a session at one moment: its log, what was moved out, and what is about to be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from nacre.errors import LogDamaged, StoreError
from nacre.records import Losses, Record, State
from nacre.storage import blobs, compaction
from nacre.storage.format import START, unseal
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import SessionPaths, put_away, uids_in
from nacre.storage.plain_names import is_named, open_to_read
from nacre.storage.recovery import Gaps, Header, Survey, examine_end, state_of, was_cut_short
from nacre.storage.system import System, opened

_NO_FORK, _SECOND = START + b"1,", 2
_LONG_END = 64
_MAX_LONG_ENDS = 256


class LogView:
    """Reads by record number over the bytes of a log.

    `staged` are records that are numbered but not yet on disk. `level` is that of a log below a fork.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a reader must know
        self,
        lines: Lines,
        *,
        header: Header,
        n: int,
        state: State,
        system: System,
        place: SessionPaths,
        staged: Sequence[Record] = (),
        level: int | None = None,
    ) -> None:
        self.header = header
        self.n = n
        self.state = state
        self.staged = staged
        self.is_newest = True
        self.moved_lost = 0
        """How many of the records that were moved out the last read of them did not find."""
        self._is_cold_damaged = False
        self.lines = lines
        self._system = system
        self._place = place
        self._last = n
        self._level = level
        self._base: LogView | None = None
        self._payloads: dict[str, str | None] = {}

    @property
    def uid(self) -> str:
        return self.header.uid

    @property
    def key(self) -> str:
        return self._place.key or self.header.sid

    @property
    def created(self) -> str:
        return self.header.created

    @property
    def is_archived(self) -> bool:
        return bool(self._place.archived)

    @property
    def has_holes(self) -> bool:
        return self.header.holes

    @property
    def highest(self) -> int:
        return max(self.n, self.header.high)

    @property
    def damaged(self) -> bool:
        """True once a read has met bytes that are not what was written."""
        return self.lines.damaged or self._is_cold_damaged

    @property
    def losses(self) -> Losses:
        """What the reads so far have not found besides the log: moved out, shared by a fork, or a large payload.

        No repair changes these files. In a deletion they go before the log.
        """
        payloads = sum(text is None for text in self._payloads.values())
        # Older headers do not count what was moved out.
        found = Losses(self.moved_lost, payloads, self._is_cold_damaged and not self.moved_lost)
        if self._base is not None:
            found += self._base.losses + Losses(is_more=self._base.lines.damaged)
        return found

    @property
    def base(self) -> LogView | None:
        """The past that a fork shares with the session it came from."""
        if self._base is None and self.header.base:
            # The nearest log below begins where the next below it no longer counts.
            level, *rest = self.header.base
            depth = 0 if self._level is None else self._level + 1
            system, place, uid = self._system, self._place, self.header.uid
            lines = _BaseLines(system, place.base(uid, depth), level.log)
            ending = lines.last()
            if ending is None or ending.record is None or ending.record.n != level.last:
                # Bytes were put in or taken out, so what counts ends elsewhere; what was added later has greater
                # numbers.
                lines.size = max(level.log, system.stat(place.base(uid, depth)).st_size)
            n = rest[0].n + 1 if rest else 1
            header = Header(uid=uid, sid=self.header.sid, n=n, base=tuple(rest), cold=level.cold, moved=level.moved)
            below = LogView(lines, header=header, n=level.n, state=State(), system=system, place=place, level=depth)
            below._last = level.last
            self._base = below
        return self._base

    def find(self, n: int) -> Record | None:
        if n < self.header.n and self.base is not None:
            return self.base.find(n)
        for look in (self.back, self.moved):
            record = next(look(n), None)
            if record is not None and record.n == n:
                return record
        return unseal(self._moved[n]) if n in self._moved else None

    def moved(self, n: int) -> Iterator[Record]:
        if n < self.header.n and self.base is not None:
            return self.base.moved(n)
        if not self.header.cold:
            return iter(())
        path = self._cold_path
        return compaction.back(self._system, path, length=self.header.cold, n=n, last=self.header.high or self._last)

    @cached_property
    def _moved(self) -> dict[int, bytes]:
        """The lines of what compaction moved out, by number."""
        return {piece.record.n: piece.raw for piece in self.cold() if piece.record is not None}

    def back(self, n: int) -> Iterator[Record]:
        yield from (record for record in reversed(self.staged) if record.n <= n)
        end = self.lines.size if n >= self._last else self.lines.bound(n, self._last)
        below = n + 1
        for record in self.lines.records(end):
            if record.n < below - 1 and self._is_disordered:
                # The rest, sorted, last first.
                self.lines.damaged = True
                found = (piece.record for piece in self._sorted())
                yield from reversed([record for record in found if record is not None and record.n < below])
                break
            if record.n < below:
                below = record.n
                yield record
            else:
                self.lines.damaged = True
        if self.base is not None:
            yield from self.base.back(min(n, self.base.n))

    def all(self) -> Iterator[Record]:
        return (piece.record for piece in self.pieces() if piece.record is not None)

    def all_lines(self) -> Iterator[tuple[Record, bytes]]:
        return ((piece.record, piece.raw + b"\n") for piece in self.pieces() if piece.record is not None)

    def after(self, n: int, limit: int) -> list[Record]:
        # 1. What was moved out is in no order, and what a fork shares may be in none: both are read whole, as one part.
        edge = max(self.header.high, self.base.n if self.base is not None else 0)
        if n < edge:
            found = [record for record in takewhile(lambda record: record.n <= edge, self.all()) if record.n > n]
            if found:
                return found
            n = edge
        # 2. Past that, numbers follow each other from where `n` ends.
        found = []
        for piece in self.lines.forward(self.lines.bound(n, self._last)):
            last = found[-1].n if found else n
            if piece.record is None or piece.record.n <= last:
                self.lines.damaged = True
                continue
            if piece.record.n > last + 1:
                # Records are lost here: only a reading of all of them tells whether that is known.
                return found + [record for record in self.all() if record.n > last]
            found.append(piece.record)
            if len(found) >= limit or piece.record.n >= self.n:
                break
        return found

    def whole(self, record: Record) -> Record:
        return blobs.whole(record, self.payload)

    def payload(self, name: str) -> str | None:
        """A large payload that a record names, None if it is lost; read once, however many records name it."""
        if name not in self._payloads:
            self._payloads[name] = blobs.read(self._system, self._place, self.header.uid, name)
        return self._payloads[name]

    def pieces(self) -> Iterator[Piece]:
        """Every record by number with its bytes; where one is both moved out and in the log, the one in the log."""
        if self.base is not None:
            yield from self.base.pieces()
        moved = {piece.record.n: piece for piece in self.cold() if piece.record is not None}
        waiting = sorted(moved, reverse=True)
        gaps = Gaps()
        last = 0
        for piece in self._sorted() if self._is_disordered else self.lines.forward():
            if piece.record is None or piece.record.n <= last:
                self.lines.damaged = True
                continue
            last = piece.record.n
            if last > self.n:
                break
            gaps.see(piece.record)
            while waiting and waiting[-1] < last:
                yield moved[waiting.pop()]
            if waiting and waiting[-1] == last:
                waiting.pop()
            yield piece
        else:
            self.lines.damaged = self.lines.damaged or bool(gaps.found)
        for n in reversed(waiting):
            yield moved[n]

    @cached_property
    def _is_disordered(self) -> bool:
        """True for a log below a fork whose lines are not in order: nobody mends that, so it is read sorted."""
        if self._level is None:
            return False
        self._survey = Survey(self.lines)
        return not self._survey.in_order

    def _sorted(self) -> Iterator[Piece]:
        for _, line in self._survey.lines():
            yield Piece(0, 0, line[:-1], unseal(line[:-1]))

    def cold(self) -> Iterator[Piece]:
        """What compaction moved out, in no particular order."""
        left = self.header.moved or 0
        if self.header.cold:
            for piece in compaction.pieces(self._system, self._cold_path, self.header.cold):
                self._is_cold_damaged = self._is_cold_damaged or piece.record is None
                left -= piece.record is not None
                # What was said in a log below a fork when the fork had already left it does not count.
                if piece.record is None or self._level is None or piece.record.n <= self.n:
                    yield piece
            self.moved_lost = max(0, left)
            self._is_cold_damaged = self._is_cold_damaged or left > 0

    @property
    def _cold_path(self) -> str:
        uid = self.header.uid
        return self._place.cold(uid) if self._level is None else f"{self._place.base(uid, self._level)}.zst"


class _BaseLines(Lines):
    """A log below a fork: opened for each read, since most of what is asked is in the fork itself."""

    def __init__(self, system: System, path: str, size: int) -> None:
        super().__init__(system, -1, size)
        self._path = path

    def read(self, start: int, end: int) -> bytes:
        with opened(self._system, self._path) as self._fd:
            data = super().read(start, end)
        self.damaged = self.damaged or len(data) < end - start
        return data


class Reading(NamedTuple):
    """A log as it was found: its view, None if it holds no session; whether it ends in a deletion.

    `is_damaged` is true of one that holds no session because of damage that is not the end of a torn write. `end` is
    where its whole header ends, if it has nothing else.
    """

    view: LogView | None = None
    is_deleted: bool = False
    is_damaged: bool = False
    end: int = 0
    size: int = 0
    updated: str = ""


class LongEnds:
    """Logs that end in a long group, and were found to be whole: it need not be read again as long as they are so."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int, int]] = {}

    def has(self, path: str, log: os.stat_result) -> bool:
        return self._found.get(path) == _stamp(log)

    def add(self, path: str, log: os.stat_result) -> None:
        if len(self._found) >= _MAX_LONG_ENDS:
            self._found.clear()
        self._found[path] = _stamp(log)


def _stamp(log: os.stat_result) -> tuple[int, int, int]:
    return log.st_ino, log.st_size, log.st_mtime_ns


class reading:  # noqa: N801 - used as `with reading(…) as found`
    """A log that is open for as long as its view is read; a torn end, or a group being written, is left out."""

    __slots__ = ("_ends", "_fd", "_place", "_system")

    def __init__(self, system: System, place: SessionPaths, ends: LongEnds | None = None) -> None:
        self._system = system
        self._place = place
        self._ends = ends
        self._fd = -1

    def __enter__(self) -> Reading:
        try:
            log = self._open()
        except FileNotFoundError:
            return Reading()
        try:
            return self._look(log)
        except BaseException:
            self._system.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._system.close(self._fd)

    def _look(self, log: os.stat_result) -> Reading:
        system, place, ends, size = self._system, self._place, self._ends, log.st_size
        lines = Lines(system, self._fd, size)
        tail = examine_end(lines, key=place.key, is_whole=ends is not None and ends.has(place.log, log))
        last = tail.last
        if ends is not None and tail.is_whole and tail.end == size and len(tail.kept) > _LONG_END:
            ends.add(place.log, log)
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

    def _open(self) -> os.stat_result:
        """Open the log and return what the system tells of it."""
        self._fd, found = open_to_read(self._system, self._place)
        return found


class settled(reading):  # noqa: N801 - as above
    """The same, up to its size while no writer was at it: what one has written it may yet take back."""

    __slots__ = ()

    def _open(self) -> os.stat_result:
        log: os.stat_result | None = None
        while log is None:
            super()._open()
            try:
                # Wait for the writer; the log may lose its name meanwhile.
                self._system.flock(self._fd, wait=True)
                found = self._system.fstat(self._fd)
                has_name = is_named(self._system, self._place, found)
                self._system.unlock(self._fd)
                log = found if has_name else None
            finally:
                if log is None:
                    self._system.close(self._fd)
                    self._fd = -1
        return log


def archived_fence(system: System, place: SessionPaths) -> int:
    """The fence of a session's newest archived generation; 0 if there is none, or it cannot be read."""
    # A reader of that generation gets the error.
    with suppress(OSError, StoreError):
        for uid in uids_in(system, f"{place.root}/archive", place.name)[-1:]:
            with reading(system, place._replace(archived=uid)) as found:
                return found.view.state.fence if found.view is not None else 0
    return 0


def fence_of(system: System, place: SessionPaths) -> int:
    """The fence of a session: of its active generation, or else as the next one will begin; 0 if it cannot be read."""
    try:
        with reading(system, place) as found:
            if found.view is not None:
                return found.view.state.fence
    except (OSError, StoreError):
        return 0
    return archived_fence(system, place)


def refuse_forks(system: System, place: SessionPaths, lines: Lines) -> None:
    """Raise LogDamaged for a log without a header that may be a fork's: what it shares would be lost with it."""
    forks = frozenset(uids_in(system, f"{place.root}/base", place.name))
    may_be = place.archived in forks if place.archived else bool(forks - put_away(system, place))
    if may_be and not _begins_at_one(lines):
        raise LogDamaged(
            f"the log of session {place.key or place.name!r} has lost its header, which names what it shares with "
            f"another session; it was not changed: {place.log}"
        )


def _begins_at_one(lines: Lines) -> bool:
    """Tell whether the beginning of a log is not a fork's: the numbers of that go on with those that it shares."""
    if lines.read(0, len(_NO_FORK)) == _NO_FORK:
        return True
    first = next((piece.record for piece in lines.forward() if piece.record is not None), None)
    return first is not None and first.n <= _SECOND
