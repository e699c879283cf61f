"""A log, and what is done to it as a whole: founded, forked, compacted, repaired, moved, erased."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from zlib import crc32

from nacre.entries import End, Founding, Past, Receipt, Restore, Settlement, Unit
from nacre.errors import Conflict, DurabilityUnknown, Refused, SessionNotFound
from nacre.log import blobs, cold
from nacre.log.batch import Ticket
from nacre.log.erase import erase_rest
from nacre.log.forks import Root, forked, share
from nacre.log.founding import founded
from nacre.log.ops import is_from_system
from nacre.log.place import Place, make_folder, settle_names
from nacre.log.plain import archive_second
from nacre.log.quarantine import Aside, entries, settle
from nacre.log.recovery import Level
from nacre.log.rewrite import compacted, dead, renewed
from nacre.log.survey import Survey
from nacre.log.writer import ALL, Writer

logger = logging.getLogger(__name__)


class LogFile(Writer):
    """One log: its writer, and what is done to it as a whole."""

    def found(self, records: Sequence[Founding], *, src: dict[str, Any], created: str) -> bool:
        """Put a session that comes from elsewhere in place, whole or not at all; False if there is one already.

        It has at least one record, since a header alone is no session. An archived one is new, so it needs no lock.
        """
        with self._locked(create=not self._place.archived):
            if self._holds_session:
                return False
            uid = self._place.archived or self.next_uid()
            successor, payloads = founded(records, key=self.key, uid=uid, src=src, created=created, rules=self._rules)
            if payloads:
                blobs.keep(self._ops, self._place, uid, payloads)
            self._install(successor)
            return True

    def share(self, goal: Place, *, uid: str, unit: Unit) -> Root:
        """Let the fork `uid` of another session keep this one's past up to record `unit.reach`.

        Raises SessionNotFound if there is no session, Conflict if there is no such record to fork at.
        """
        with self._locked(create=False) as held:
            if not held or not self._holds_session:
                raise SessionNotFound(f"there is no active session {self.key!r} to fork")
            self._settle()
            self._sync()
            self._bring_back(unit)
            at = self.n if unit.reach is None else unit.reach
            record = self.find(at)
            if record is None or (record.tx is not None and at != record.tx[0] + record.tx[1] - 1):
                raise Conflict(f"session {self.key!r} has no record {at} to fork at, or it is inside a group")
            here = Level(at, self.n, self._end, self.header.cold, self.header.moved)
            levels = (here, *(level._replace(n=min(level.n, at)) for level in self.header.base))
            self._share_files(goal, uid, levels)
            return Root(self.key, self.uid, at, record.st, levels, self.has_holes)

    def _share_files(self, goal: Place, uid: str, levels: tuple[Level, ...]) -> None:
        make_folder(self._ops, os.path.dirname(goal.base(uid, 0)))
        for depth, level in enumerate(levels):
            log = self._place.base(self.uid, depth - 1) if depth else self._path
            moved = f"{log}.zst" if depth else self._place.cold(self.uid)
            share(self._ops, log, goal.base(uid, depth), level.log)
            if level.cold:
                share(self._ops, moved, f"{goal.base(uid, depth)}.zst", level.cold)
        settle_names(self._ops, os.path.dirname(goal.base(uid, 0)))
        payloads = list(blobs.links(self._ops, self._place, self.uid))
        for name, path in payloads:
            share(self._ops, path, goal.blob(uid, name), self._ops.stat(path).st_size)
        if payloads:
            settle_names(self._ops, goal.blobs)

    def grow_from(self, root: Root, *, uid: str) -> None:
        """Become a fork; only with the key's lock, under which its uid was chosen.

        Raises Conflict if there is a session already.
        """
        with self._locked(create=True):
            if self._holds_session:
                raise Conflict(f"session {self.key!r} exists already; fork under another key")
            self._install(forked(root, key=self.key, uid=uid, ts=self._now()))

    def compact(self, keep: Callable[[Past], set[int]], *, least: int) -> bool:
        """Move what need not be at hand to the cold file, if that frees `least` bytes and half the log."""
        with self._locked(create=False) as held:
            if not held:
                return False
            self._sync()
            if not self._seems_worth_it(least):
                return False
            self._settle()
            return self._compact(keep, least)

    def _seems_worth_it(self, least: int) -> bool:
        """Guess from counts alone whether most of the log is dead."""
        records = max(1, self.header.kept + self.n - self.header.high)
        dead_bytes = self._end * max(0, records - self.state.live) // records
        return dead_bytes >= max(least, self._end - dead_bytes) and self._end >= self._tried + least

    def _compact(self, keep: Callable[[Past], set[int]], least: int) -> bool:
        survey = Survey(self._lines())
        if not survey.is_whole:
            self._rebuild(survey, (), self._closing())
            survey = Survey(self._lines())
        wanted = keep(self._past()) & set(survey.numbers())
        live_bytes = survey.size_of(wanted)
        if self._end - live_bytes < max(least, live_bytes):
            self._tried = self._end
            return False
        path = self._place.cold(self.uid)
        before = cold.Extent(self.header.cold, self.header.moved if self.header.cold else 0)
        lines = dead(survey, wanted, self.header)
        extent = cold.append(self._ops, path, before, lines, is_at_hand=survey.holds)
        header = renewed(self.header, extent, high=self.n, kept=len(wanted))
        self._install(compacted(survey, wanted, header=header, closing=self._closing(), ids=self.window()))
        return True

    def repair(self, *, wait: bool) -> Receipt:
        """Set every damaged piece aside and write the log anew without it.

        Raises SessionBusy if the log is locked and `wait` is false.
        """
        before = self._aside
        kept = 0
        with self._locked(create=False, wait=wait) as held:
            path = self._place.quarantine(self.uid)
            if held and self._is_emptied:
                uid = self._place.archived or self._likely_uid()
                path = self._place.quarantine(uid)
                self._note_emptied(uid)
                self._remove_log()
            elif held:
                survey = Survey(self._lines())
                kept = survey.count
                if not survey.is_whole:
                    self._settle()
                    self._rebuild(survey, (), self._closing())
        aside = self._aside - before
        return Receipt(key=self._place.key, kept=kept, set_aside=aside, quarantine=path if aside else None)

    def restore(self, uid: str, numbers: Sequence[int], *, create: bool) -> Settlement | None:
        """Append the whole records of quarantine entries of generation `uid` as one group, and settle the entries.

        None if this log is not of that generation; with `create` it may be of another, or new. The entries are
        settled last. If that is cut short, the next restore finds the records in the log and does not repeat them.
        """
        with self._locked(create=create) as held:
            if not held or (self.uid != uid and not create):
                return None
            self._settle()
            known = entries(self._ops, self._place, uid)
            left = [entry for entry in known if entry.n in numbers and not entry.settled]
            wishes = list(self._restorations(uid, left).values())
            last = 0
            if wishes:
                ticket = Ticket(Unit(wishes=wishes))
                self._store([ticket])
                if ticket.error is not None:
                    raise ticket.error
                last = ticket.number or 0
            elif create and not self._holds_session and not self._is_emptied:
                self._remove_log()
            try:
                settle(self._ops, self._place, uid, [entry.n for entry in left], "restored")
            except OSError as error:
                if not wishes or not is_from_system(error):
                    raise
                raise DurabilityUnknown(
                    f"session {self.key!r}: the records were restored, but not noted as settled ({error}); "
                    "restoring again does not repeat them"
                ) from error
            return Settlement(
                key=self.key,
                entries=tuple(entry.n for entry in left),
                numbers=tuple(range(last - len(wishes) + 1, last + 1)),
            )

    def _restorations(self, uid: str, asides: Sequence[Aside]) -> dict[tuple[int, str], Restore]:
        """The records in entries that are not in the log, neither as they were nor restored, by number and checksum."""
        found: dict[tuple[int, str], Restore] = {}
        for record, line in (pair for aside in asides for pair in aside.records()):
            name = (record.n, f"{crc32(line):08x}")
            if record.blobs is not None:
                record = blobs.whole(record, partial(blobs.read, self._ops, self._place, uid))  # noqa: PLW2901
            found.setdefault(name, Restore(record, (uid, *name)))
        pieces = ((piece.record, piece.raw) for piece in self._past().pieces()) if found else ()
        for record, line in ((record, line) for record, line in pieces if record is not None):
            found.pop((record.n, f"{crc32(line):08x}"), None)
            if record.restored_from is not None and record.restored_from[0] == uid:
                found.pop(record.restored_from[1:], None)
        return found

    def archive(self) -> bool:
        """Move the log to the archive under its uid; False if there is none."""
        with self._locked(create=False) as held:
            if not held or not self._holds_session:
                return False
            self._settle()
            self._sync()
            goal = self._place._replace(archived=self.uid)
            make_folder(self._ops, goal.folder)
            self._leave_mark(goal)
            self._give_name(goal)
            # Whoever took the mark before the log had that name has found nothing under it.
            self._leave_mark(goal)
            with self._begun("archiving"):
                self._close()
                settle_names(self._ops, goal.folder)
                settle_names(self._ops, self._place.folder)
            return True

    def _leave_mark(self, goal: Place) -> None:
        """Say that the log is about to get another name, too."""
        if self._marks is not None:
            self._marks.leave(goal.path)

    def _give_name(self, goal: Place) -> None:
        """Give the log another name instead of its own.

        A crash in an earlier move may have left it under both, and then rename would do nothing. As soon
        as its own name is free another process may take it, so nothing may be done to that afterwards.
        """
        try:
            there = self._ops.stat(goal.log)
            has_both = (there.st_dev, there.st_ino) == self._inode
        except FileNotFoundError:
            has_both = False
        if has_both:
            self._ops.unlink(self._path)
        else:
            # What may have that name is an older copy of this very generation.
            self._ops.rename(self._path, goal.log)

    def unarchive(self, goal: Place) -> None:
        """Give an archived log its active name again; raises if that name is taken."""
        with self._locked(create=False) as held:
            if held:
                self._leave_mark(goal)
                self._ops.link(self._place.log, goal.log)
                self._leave_mark(goal)
                with self._begun("unarchiving"):
                    settle_names(self._ops, goal.folder)
                    self._ops.unlink(self._place.log)
                    settle_names(self._ops, self._place.folder)
        self._close()

    def take_in(self) -> None:
        """Keep a second log, which an earlier version began under the plain name, as a generation of this session.

        The younger of both is active. Killed at any point it leaves both, and is done by doing it again. Only with the
        key's lock.
        """
        if not self._place.plain:
            return
        with self._locked(create=False) as held:
            is_younger = held and archive_second(self._ops, self._place, self.uid, self._marks)
        if is_younger and (self.archive() or self.makes_way()):
            # Opening it gives it the name that is free now.
            self.exists()

    def exists(self, *, wait: bool = True) -> bool:
        """Tell whether there is a session in the log; if it ends in a deletion, finish that.

        Raises SessionBusy if it is locked and `wait` is false.
        """
        with self._locked(create=False, wait=wait) as held:
            return held and self._holds_session

    def makes_way(self) -> bool:
        """Remove a log that holds no session, as a crash at its creation may leave; False if it holds one."""
        with self._locked(create=False) as held:
            if held and not self._holds_session:
                self._clear_away()
                return True
            return not held

    def _clear_away(self) -> None:
        """Remove a log that holds no session; that one was emptied stays reported."""
        if self._is_emptied:
            self._note_emptied(self._place.archived or self._likely_uid())
        self._remove_log()

    def erase(self) -> None:
        """Write that the session ends, then remove every file that it has; only with the key's lock."""
        self._ends = True
        try:
            self._erase()
        finally:
            self._ends = False

    def _erase(self) -> None:
        with self._locked(create=False) as held:
            if held and self.n:
                try:
                    self._settle()
                    self._store([Ticket(Unit(wishes=(End(),)))])
                except Refused:
                    # No room even for that. The log goes last, so a crash leaves a session to be deleted again.
                    logger.warning("a session is being deleted without a deletion record")
            with self._begun("deleting"):
                erase_rest(self._ops, self._place, upto=ALL)
                # Also without a log: a creation that was cut short before it may have left something beside it.
                self._remove_log()
