"""Operations on a whole log: import, fork, compact, repair, restore, move, erase. Its writer does the writing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from zlib import crc32

from nacre.errors import Conflict, DurabilityUnknown, Refused, SessionNotFound
from nacre.messages import Receipt, Settlement, Version
from nacre.records import Delete, ImportedRecord, Restore, Rules, Transaction, View
from nacre.storage import blobs, compaction, rewrite
from nacre.storage.change_marks import Marks
from nacre.storage.paths import SessionPaths, make_folder, settle_names
from nacre.storage.plain_names import archive_second
from nacre.storage.quarantine import Aside, entries, settle
from nacre.storage.recovery import Level
from nacre.storage.seal import Seal
from nacre.storage.session_files import Root, erase_rest, share, start_fork
from nacre.storage.system import System, is_from_system
from nacre.storage.transaction import Ids, PendingCommit, check_expect
from nacre.storage.writer import ALL, LogWriter

logger = logging.getLogger(__name__)


class Log:
    """One log: its writer, and what is done to it as a whole."""

    def __init__(  # noqa: PLR0913 - what all logs of a store share
        self,
        system: System,
        place: SessionPaths,
        *,
        rules: Rules,
        relaxed: bool = False,
        marks: Marks | None = None,
        seal: Seal | None = None,
    ) -> None:
        self.writer = LogWriter(system, place, rules=rules, relaxed=relaxed, marks=marks, seal=seal)
        self._system = system
        self._place = place
        self._rules = rules
        self._marks = marks

    # ---- create

    def exists(self, *, wait: bool = True) -> bool:
        """Tell whether there is a session in the log; if it ends in a deletion, finish that.

        Raises SessionBusy if it is locked and `wait` is false.
        """
        with self.writer.hold(create=False, wait=wait) as is_there:
            return is_there and self.writer.holds_session

    def import_session(self, records: Sequence[ImportedRecord], *, src: dict[str, Any], created: str) -> bool:
        """Import a session, whole or not at all; False if there is one already.

        It has at least one record, since a header alone is no session. An archived one is new, so it needs no lock.
        """
        writer, key = self.writer, self._place.key
        with writer.hold(create=not self._place.archived):
            if writer.holds_session:
                return False
            uid = self._place.archived or writer.next_uid()
            successor, payloads = rewrite.import_records(
                records, key=key, uid=uid, src=src, created=created, rules=self._rules
            )
            if payloads:
                blobs.keep(self._system, self._place, uid, payloads)
            writer.install(successor)
            return True

    # ---- fork

    def share(self, goal: SessionPaths, *, uid: str, transaction: Transaction) -> Root:
        """Let the fork `uid` of another session keep this one's past up to record `transaction.reach`.

        Raises SessionNotFound if there is no session, Conflict if there is no such record to fork at or if the session
        is not as the transaction expects it.
        """
        writer, key = self.writer, self._place.key
        with writer.hold(create=False) as is_there:
            if not is_there or not writer.holds_session:
                raise SessionNotFound(f"there is no active session {key!r} to fork")
            check_expect(transaction.expect, writer)
            writer.sync()
            writer.bring_back(transaction)
            at = writer.n if transaction.reach is None else transaction.reach
            record = writer.find(at)
            if record is None or (record.tx is not None and at != record.tx[0] + record.tx[1] - 1):
                raise Conflict(f"session {key!r} has no record {at} to fork at, or it is inside a group")
            here = Level(at, writer.n, writer.size, writer.header.cold, writer.header.moved)
            levels = (here, *(level._replace(n=min(level.n, at)) for level in writer.header.base))
            self._share_files(goal, uid, levels)
            return Root(key, writer.uid, at, record.st, levels, writer.has_holes)

    def _share_files(self, goal: SessionPaths, uid: str, levels: tuple[Level, ...]) -> None:
        """Link this log, those below it, what was moved out of them, and the large payloads to the names of a fork."""
        system, place, own = self._system, self._place, self.writer.uid
        folder = os.path.dirname(goal.base(uid, 0))
        make_folder(system, folder)
        for depth, level in enumerate(levels):
            log = place.base(own, depth - 1) if depth else place.log
            moved = f"{log}.zst" if depth else place.cold(own)
            share(system, log, goal.base(uid, depth), level.log)
            if level.cold:
                share(system, moved, f"{goal.base(uid, depth)}.zst", level.cold)
        settle_names(system, folder)
        payloads = list(blobs.links(system, place, own))
        for name, path in payloads:
            share(system, path, goal.blob(uid, name), system.stat(path).st_size)
        if payloads:
            settle_names(system, goal.blobs)

    def grow_from(self, root: Root, *, uid: str) -> None:
        """Become a fork; only with the key's lock, under which its uid was chosen.

        Raises Conflict if there is a session already.
        """
        writer, key = self.writer, self._place.key
        with writer.hold(create=True):
            if writer.holds_session:
                raise Conflict(f"session {key!r} exists already; fork under another key")
            writer.install(start_fork(root, key=key, uid=uid, ts=writer.now()))

    # ---- compact

    def compact(self, keep: Callable[[View], set[int]], *, least: int) -> bool:
        """Move what is not live to the cold file, if that frees `least` bytes and half the log."""
        writer = self.writer
        with writer.hold(create=False) as is_there:
            if not is_there:
                return False
            # 1. Flush first, whatever follows: `save` promises that to a relaxed store.
            writer.sync()

            # 2. Guess from counts alone whether most of the log is dead.
            records = max(1, writer.header.kept + writer.n - writer.header.high)
            dead_bytes = writer.size * max(0, records - writer.state.live) // records
            if dead_bytes < max(least, writer.size - dead_bytes) or writer.size < writer.tried + least:
                return False

            # 3. Read all of it; if it is damaged, repair it first.
            survey = writer.survey()
            if not survey.is_whole:
                writer.rebuild(survey)
                survey = writer.survey()

            # 4. Now that it is known what is live, decide.
            wanted = keep(writer.view()) & set(survey.numbers())
            live_bytes = survey.size_of(wanted)
            if writer.size - live_bytes < max(least, live_bytes):
                writer.tried = writer.size
                return False

            # 5. The cold file first: a crash in between leaves records in both files, never in none.
            header = writer.header
            before = compaction.Extent(header.cold, header.moved if header.cold else 0)
            lines = rewrite.dead_lines(survey, wanted, header)
            path = self._place.cold(writer.uid)
            extent = compaction.append(self._system, path, before, lines, is_in_log=survey.holds)

            # 6. Then the log, without what was moved.
            header = rewrite.renew_header(header, extent, high=writer.n, kept=len(wanted))
            #    Ids of the generation before stay in that one, where what they tell of a message can be erased with it.
            ids = Ids().window(writer.view())
            writer.install(rewrite.compact(survey, wanted, header=header, closing=writer.closing(), ids=ids))
            return True

    # ---- repair and restore

    def repair(self, *, wait: bool) -> Receipt:
        """Move every damaged piece to quarantine and write the log again without it.

        Raises SessionBusy if the log is locked and `wait` is false.
        """
        writer = self.writer
        before, kept = writer.set_aside, 0
        with writer.hold(create=False, wait=wait) as is_there:
            uid = writer.uid
            if is_there and writer.is_emptied:
                uid = writer.likely_uid()
                writer.note_emptied(uid)
                writer.remove()
            elif is_there:
                survey = writer.survey()
                kept = survey.count
                if not survey.is_whole:
                    writer.settle()
                    writer.rebuild(survey)
        aside = writer.set_aside - before
        path = self._place.quarantine(uid) if aside else None
        return Receipt(key=self._place.key, kept=kept, set_aside=aside, quarantine=path)

    def restore(self, uid: str, numbers: Sequence[int], *, create: bool) -> Settlement | None:
        """Append the whole records of quarantine entries of generation `uid` as one group, and settle the entries.

        None if this log is not of that generation; with `create` it may be of another, or new. The entries are
        settled last. If that is cut short, the next restore finds the records in the log and does not repeat them.
        """
        writer, key = self.writer, self._place.key
        with writer.hold(create=create) as is_there:
            if not is_there or (writer.uid != uid and not create):
                return None
            writer.settle()
            known = entries(self._system, self._place, uid)
            left = [entry for entry in known if entry.n in numbers and not entry.settled]
            operations = self._find_missing(uid, left)
            last = 0
            if operations:
                commit = PendingCommit(Transaction(operations=operations))
                writer.append([commit])
                if commit.error is not None:
                    raise commit.error
                last = commit.number or 0
            elif create and not writer.holds_session and not writer.is_emptied:
                writer.remove()
            try:
                settle(self._system, self._place, uid, [entry.n for entry in left], "restored")
            except OSError as error:
                if not operations or not is_from_system(error):
                    raise
                raise DurabilityUnknown(
                    f"session {key!r}: the records were restored, but not noted as settled ({error}); "
                    "restoring again does not repeat them"
                ) from error
            restored = tuple(range(last - len(operations) + 1, last + 1))
            return Settlement(key=key, entries=tuple(entry.n for entry in left), numbers=restored)

    def _find_missing(self, uid: str, asides: Sequence[Aside]) -> list[Restore]:
        """The records in entries that are not in the log, neither as they were nor restored."""
        # By number and checksum: what the entries hold.
        found: dict[tuple[int, str], Restore] = {}
        for record, line in (pair for aside in asides for pair in aside.records()):
            name = (record.n, f"{crc32(line):08x}")
            if record.blobs is not None:
                record = blobs.whole(record, partial(blobs.read, self._system, self._place, uid))  # noqa: PLW2901
            found.setdefault(name, Restore(record, (uid, *name)))
        # Without what the log has.
        pieces = ((piece.record, piece.raw) for piece in self.writer.view().pieces()) if found else ()
        for record, line in ((record, line) for record, line in pieces if record is not None):
            found.pop((record.n, f"{crc32(line):08x}"), None)
            if record.restored_from is not None and record.restored_from[0] == uid:
                found.pop(record.restored_from[1:], None)
        return list(found.values())

    # ---- move

    def archive(self, expect: int | Version | None = None) -> bool:
        """Move the log to the archive under its uid; False if there is none, Conflict if it is not as expected."""
        writer, system = self.writer, self._system
        with writer.hold(create=False) as is_there:
            if not is_there or not writer.holds_session:
                return False
            check_expect(expect, writer)
            writer.sync()
            goal = self._place._replace(archived=writer.uid)
            make_folder(system, goal.folder)
            self._leave_mark(goal)
            # A crash in an earlier move may have left it under both names, and then rename would do nothing. What else
            # may have that name is an older copy of this very generation. As soon as its own name is free another
            # process may take it, so nothing may be done to that afterwards.
            try:
                there = system.stat(goal.log)
                has_both = (there.st_dev, there.st_ino) == writer.inode
            except FileNotFoundError:
                has_both = False
            if has_both:
                system.unlink(self._place.log)
            else:
                system.rename(self._place.log, goal.log)
            # A reader that took the mark before the log had that name has found nothing under it.
            self._leave_mark(goal)
            with self._doubt_errors("archiving"):
                writer.release()
                settle_names(system, goal.folder)
                settle_names(system, self._place.folder)
            return True

    def unarchive(self, goal: SessionPaths, expect: int | Version | None = None) -> None:
        """Give an archived log its active name again; raises if that name is taken, or it is not as expected."""
        with self.writer.hold(create=False) as is_there:
            if is_there:
                check_expect(expect, self.writer)
                self._leave_mark(goal)
                self._system.link(self._place.log, goal.log)
                self._leave_mark(goal)
                with self._doubt_errors("unarchiving"):
                    settle_names(self._system, goal.folder)
                    self._system.unlink(self._place.log)
                    settle_names(self._system, self._place.folder)
        self.writer.release()

    def take_in(self) -> None:
        """Keep a second log, which an earlier version began under the plain name, as a generation of this session.

        The younger of both is active. Killed at any point it leaves both, and can be repeated. Only with the key's
        lock.
        """
        if not self._place.plain:
            return
        with self.writer.hold(create=False) as is_there:
            is_younger = is_there and archive_second(self._system, self._place, self.writer.uid, self._marks)
        if is_younger and (self.archive() or self.make_way()):
            # Opening it gives it the name that is free now.
            self.exists()

    def _leave_mark(self, goal: SessionPaths) -> None:
        """Say that the log is about to get another name, too."""
        if self._marks is not None:
            self._marks.leave(goal.path)

    @contextmanager
    def _doubt_errors(self, what: str) -> Iterator[None]:
        """After the point of no return an error no longer means that nothing was done."""
        try:
            yield
        except OSError as error:
            self.writer.size = -1
            if not is_from_system(error):
                raise
            raise DurabilityUnknown(
                f"session {self._place.key!r}: {what} was done, but a power failure may undo it ({error})"
            ) from error

    # ---- erase

    def make_way(self) -> bool:
        """Remove a log that holds no session, as a crash at its creation may leave; False if it holds one.

        That a log was emptied stays reported.
        """
        writer = self.writer
        with writer.hold(create=False) as is_there:
            if is_there and not writer.holds_session:
                if writer.is_emptied:
                    writer.note_emptied(writer.likely_uid())
                writer.remove()
                return True
            return not is_there

    def erase(self, expect: int | Version | None = None) -> None:
        """Write that the session ends, then remove every file that it has; only with the key's lock.

        Raises Conflict if the session is not as expected.
        """
        writer = self.writer
        writer.is_erasing = True
        try:
            with writer.hold(create=False) as is_there:
                check_expect(expect, writer if is_there else None)
                if is_there and writer.n:
                    try:
                        writer.settle()
                        writer.append([PendingCommit(Transaction(operations=(Delete(),)))])
                    except Refused:
                        # No room even for that. The log goes last, so a crash leaves a session to be deleted again.
                        logger.warning("a session is being deleted without a deletion record")
                with self._doubt_errors("deleting"):
                    erase_rest(self._system, self._place, upto=ALL)
                    # Also without a log: a creation that was cut short before it may have left a file of it.
                    writer.remove()
        finally:
            writer.is_erasing = False
