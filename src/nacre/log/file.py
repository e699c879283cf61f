"""The one writer that a process has on a log: lock, look, write, flush, let go."""

from __future__ import annotations

import logging
import os
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from nacre.entries import End, Founding, Past, Receipt, Record, Rules, State, Unit, timestamp
from nacre.errors import Conflict, DurabilityUnknown, LogDamaged, Refused, SessionBusy, SessionNotFound, StoreError
from nacre.log import blobs, cold
from nacre.log.batch import Batch, Ticket
from nacre.log.erase import erase_rest
from nacre.log.forking import Root, forked, share
from nacre.log.founding import founded
from nacre.log.ids import Ids, Seen
from nacre.log.lines import Lines, Piece
from nacre.log.ops import Ops
from nacre.log.past import LogPast
from nacre.log.place import Place, make_folder, new_uid, settle_names, uids_in, unlink_if_there, write_all
from nacre.log.quarantine import set_aside
from nacre.log.scratch import Scratch
from nacre.log.successor import Closing, Successor, brought_back, compacted, dead, mended, redone, renewed
from nacre.log.survey import Survey
from nacre.log.tail import Header, Level, Tail, examine, state_of

logger = logging.getLogger(__name__)

_MOST_UNSYNCED = 1024 * 1024
_ALL = "~"


class Known(NamedTuple):
    """What a writer knew of its log when it was closed."""

    inode: tuple[int, int]
    size: int
    mtime: int
    header: Header
    n: int
    state: State
    ids: Ids


class LogFile:
    """One log, written by one thread at a time; other processes may write it too."""

    def __init__(self, ops: Ops, place: Place, *, rules: Rules, relaxed: bool = False) -> None:
        self._ops = ops
        self._place = place
        self._path = place.log
        self.staged: Sequence[Record] = ()
        self._rules = rules
        self._relaxed = relaxed
        self._known: Known | None = None
        self._fd = -1
        self._aside = 0
        self._inode = (0, 0)
        self._named = False
        self.header = Header()
        self._forget()

    # ---- what callers ask for

    def commit(self, tickets: Sequence[Ticket]) -> None:
        """Store the tickets' units with one write and one flush; each ticket gets its number or its error.

        Raises for what befell all of them.
        """
        try:
            creates = tickets[0].unit.creates or any(ticket.unit.creates for ticket in tickets)
            if self._enter(create=creates, wait=True):
                self._settle()
                self._store(tickets)
            else:
                for ticket in tickets:
                    ticket.number = 0
        except BaseException as error:
            self._leave(error)
            raise
        self._leave(None)

    def found(self, records: Sequence[Founding], *, src: dict[str, Any]) -> bool:
        """Put a session that comes from elsewhere in place, whole or not at all; False if there is one already.

        It has at least one record, since a header alone is no session.
        """
        with self._locked(create=True):
            if self._holds_session:
                return False
            uid = self._place.archived or self.next_uid()
            successor, payloads = founded(records, key=self.key, uid=uid, src=src, rules=self._rules)
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
            here = Level(at, self.n, self._end, self.header.cold)
            levels = (here, *(level._replace(n=min(level.n, at)) for level in self.header.base))
            self._share_files(goal, uid, levels)
            return Root(self.key, self.uid, at, record.st, levels)

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

    def grow_from(self, root: Root, *, uid: str) -> bool:
        """Become a fork; False if there is a session already."""
        with self._locked(create=True):
            if self._holds_session:
                return False
            self._install(forked(root, key=self.key, uid=uid, ts=self._now()))
            return True

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

    def repair(self, *, wait: bool) -> Receipt:
        """Set every damaged piece aside and write the log anew without it.

        Raises SessionBusy if the log is locked and `wait` is false.
        """
        before = self._aside
        kept = 0
        with self._locked(create=False, wait=wait) as held:
            if held:
                survey = Survey(self._lines())
                kept = survey.count
                if not survey.is_whole:
                    self._settle()
                    self._rebuild(survey, (), self._closing())
            path = self._place.quarantine(self.uid)
        aside = self._aside - before
        return Receipt(key=self._place.key, kept=kept, set_aside=aside, quarantine=path if aside else None)

    def archive(self) -> bool:
        """Move the log to the archive under its uid; False if there is none."""
        with self._locked(create=False) as held:
            if not held or not self._holds_session:
                return False
            self._settle()
            self._sync()
            goal = self._place._replace(archived=self.uid)
            make_folder(self._ops, goal.folder)
            self._give_name(goal)
            with self._begun("archiving"):
                self._close()
                settle_names(self._ops, goal.folder)
                settle_names(self._ops, self._place.folder)
            return True

    def unarchive(self, goal: Place) -> None:
        """Give an archived log its active name again; raises if that name is taken."""
        with self._locked(create=False) as held:
            if held:
                self._ops.link(self._place.log, goal.log)
                with self._begun("unarchiving"):
                    settle_names(self._ops, goal.folder)
                    self._ops.unlink(self._place.log)
                    settle_names(self._ops, self._place.folder)
        self._close()

    def exists(self) -> bool:
        """Tell whether there is a session in the log."""
        with self._locked(create=False) as held:
            return held and self._holds_session

    def makes_way(self) -> bool:
        """Remove a log that holds no session, as a crash at its creation may leave; False if it holds one."""
        with self._locked(create=False) as held:
            if held and not self._holds_session:
                self._remove_log()
                return True
            return not held

    def erase(self) -> None:
        """Write that the session ends, then remove every file that it has."""
        with self._locked(create=False) as held:
            if held and self.n:
                try:
                    self._settle()
                    self._store([Ticket(Unit(wishes=(End(),)))])
                except Refused:
                    # No room even for that. The log goes last, so a crash leaves a session to be deleted again.
                    logger.warning("a session is deleted without a record of it")
            with self._begun("deleting"):
                erase_rest(self._ops, self._place, upto=self.uid or _ALL)
                if held:
                    self._remove_log()

    def flush(self) -> None:
        """Wait until everything written is durable; the way in which a relaxed log catches up."""
        if self._unsynced or self._poisoned:
            with self._locked(create=False) as held:
                if held:
                    self._settle()
                    self._sync()

    def close(self) -> None:
        """Flush and let go; it may be used again, and if nothing has changed by then it need not look."""
        self.flush()
        self._known = self._what_is_known()
        self._close()

    def drop(self) -> None:
        """Close the descriptor in a forked child, which shares the parent's lock and must not release it."""
        self._close()

    @property
    def _holds_session(self) -> bool:
        """True if there is a record behind the header; a header alone is a creation that did not come to its end."""
        return self.n > 1

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def is_sound(self) -> bool:
        """False after a failed flush, until the log has been moved to a new inode."""
        return not self._poisoned

    # ---- lock and look

    def _locked(self, *, create: bool, wait: bool = True) -> _Hold:
        """Hold the lock of the log that has the name now; gives False if there is none and none is to be made."""
        return _Hold(self, create=create, wait=wait)

    @contextmanager
    def _begun(self, what: str) -> Iterator[None]:
        """Behind the point of no return an error no longer means that nothing was done."""
        try:
            yield
        except OSError as error:
            self._end = -1
            raise DurabilityUnknown(
                f"session {self._place.key!r}: {what} was done, but a power cut may undo it ({error})"
            ) from error

    def _enter(self, *, create: bool, wait: bool) -> bool:
        while True:
            if self._fd < 0 and not self._open(create=create):
                return False
            if not self._ops.flock(self._fd, wait=wait):
                raise SessionBusy(f"session {self._place.key!r} is being written by another process")
            if self._is_as_known() or self._look():
                return True

    def _is_as_known(self) -> bool:
        """True if the log that has the name is the one we know, and nobody has written to it since."""
        try:
            named = self._ops.stat(self._path)
        except FileNotFoundError:
            return False
        return named.st_size == self._end and (named.st_dev, named.st_ino) == self._inode

    def _look(self) -> bool:
        """See what has become of the log; False if it must be opened anew."""
        found = self._ops.fstat(self._fd)
        if not self._has_the_name(found):
            self._abandon(found.st_size)
            return False
        return self._load(found)

    def _leave(self, error: BaseException | None) -> None:
        """Let go of the lock; an error from the system means that nothing was stored, unless it says otherwise."""
        if self._fd >= 0:
            self._unlock()
        if error is not None and not isinstance(error, StoreError):
            # Interrupted somewhere between looking and flushing: the next writer looks again.
            self._end = -1
        if isinstance(error, OSError):
            raise Refused(f"session {self._place.key!r}: nothing was stored: {error}") from error

    def _unlock(self) -> None:
        try:
            self._ops.unlock(self._fd)
        except OSError:
            # What cannot be unlocked is let go by closing it.
            logger.warning("a log could not be unlocked and is closed", exc_info=True)
            self._close()

    def _open(self, *, create: bool) -> bool:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        try:
            self._fd, _ = open_log(self._ops, self._path, flags)
        except FileNotFoundError:
            if create:
                raise
            return False
        return True

    def _has_the_name(self, found: os.stat_result) -> bool:
        try:
            named = self._ops.stat(self._path)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino)

    def _abandon(self, size: int) -> None:
        """Leave a log that lost its name: another process rewrote, archived or deleted it."""
        last = examine(Lines(self._ops, self._fd, size), key=self._place.key).last
        self._close()
        if last is not None and last.t == "del":
            raise Conflict(f"session {self._place.key!r} was deleted meanwhile; nothing was stored")

    def _load(self, found: os.stat_result) -> bool:
        """Learn how the log ends, and mend it if need be; False if it ends in a deletion, which is then finished."""
        inode = (found.st_dev, found.st_ino)
        self._named = self._named and inode == self._inode
        self._settled = False
        self._inode = inode
        known, self._known = self._known, None
        if known is not None and (known.inode, known.size, known.mtime) == (inode, found.st_size, found.st_mtime_ns):
            self._take(known.header, known.n, known.state)
            self._ids = known.ids
            self._end = known.size
            self._settled = self._named = True
            return True
        lines = Lines(self._ops, self._fd, found.st_size)
        tail = examine(lines, key=self._place.key)
        if tail.last is not None and tail.last.t == "del":
            # Whoever wrote that may have been killed before its flush; nothing goes before it is durable.
            self._ops.fdatasync(self._fd)
            erase_rest(self._ops, self._place, upto=tail.header.uid or _ALL)
            self._remove_log()
            return False
        if tail.is_whole or not found.st_size:
            self._take_tail(tail)
        else:
            self._mend(lines, tail)
        return True

    def _take(self, header: Header, n: int, state: State) -> None:
        if header.uid != self.header.uid and self.header.uid:
            self._ids = Ids()
        self.header, self.n, self.state = header, n, state

    def _take_tail(self, tail: Tail) -> None:
        self._take(tail.header, tail.last.n if tail.last is not None else 0, state_of(tail.last))
        self._end = tail.end

    def _settle(self) -> None:
        """Make durable what we are about to build on; its writer may have been killed before its flush."""
        if self._poisoned:
            self._rescue()
        if not self._settled and self._end:
            self._flush_all()
        self._settled = True
        if self._unsynced >= _MOST_UNSYNCED:
            self._sync()

    # ---- write and flush

    def _store(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.unit.needs is not None:
                self._bring_back(ticket.unit)
        batch = Batch(self, rules=self._rules, now=self._ops.now(), relaxed=self._unsynced > 0)
        numbers: list[int] = []
        for ticket in tickets:
            try:
                numbers.append(batch.add(ticket.unit))
            except StoreError as error:
                ticket.error = error
                numbers.append(0)
        self.staged = ()
        if batch.lines:
            self._write(batch)
        elif not self.n:
            # All were refused, and the file is new: leave nothing behind.
            self._remove_log()
        for ticket, number in zip(tickets, numbers, strict=True):
            ticket.number = number

    def _write(self, batch: Batch) -> None:
        if batch.payloads:
            blobs.keep(self._ops, self._place, batch.header.uid, batch.payloads)
        data = b"".join(batch.lines)
        try:
            write_all(self._ops, self._fd, data)
        except OSError as error:
            self._roll_back()
            raise Refused(f"session {self._place.key!r}: nothing was stored: {error}") from error
        if self._relaxed:
            self._unsynced += len(data)
        else:
            try:
                self._flush_file()
            except OSError as error:
                self._doubt(batch, error)
        self._end += len(data)
        self._ids.add(batch.ids, after=self.n, upto=batch.n)
        self._take(batch.header, batch.n, batch.state)

    def _flush_file(self) -> None:
        self._ops.fdatasync(self._fd)
        if not self._named:
            settle_names(self._ops, self._place.folder)
            self._named = True

    def _flush_all(self) -> None:
        """Flush, or move everything to a new inode where the flush fails."""
        try:
            self._flush_file()
        except OSError as error:
            self._poisoned = str(error)
            self._rescue()
        self._unsynced = 0

    def _sync(self) -> None:
        """Flush what relaxed batches left unflushed."""
        if self._unsynced:
            self._flush_all()

    def _roll_back(self) -> None:
        """Take a failed write off the file; where even that fails, leave the file for a new one."""
        try:
            self._ops.ftruncate(self._fd, self._end)
            self._ops.fdatasync(self._fd)
        except OSError as error:
            self._poisoned = str(error)
            try:
                self._rescue()
            except (OSError, StoreError) as failure:
                raise DurabilityUnknown(
                    f"session {self._place.key!r}: a failed write could not be taken back: {error}"
                ) from failure

    def _doubt(self, batch: Batch, error: OSError) -> None:
        """After a failed flush nothing on this inode can be trusted to reach the disk: move to a new one."""
        self._poisoned = str(error)
        try:
            self._rescue(batch)
        except (OSError, StoreError):
            logger.exception("a log could not be moved after a failed flush")
            self._hide_doubtful()
        raise DurabilityUnknown(
            f"session {self._place.key!r}: the flush failed ({error}); records {batch.records[0].n} to {batch.n} "
            "may or may not survive a crash; retry with the same id"
        ) from error

    def _hide_doubtful(self) -> None:
        """Take doubtful bytes from the sight of other processes, which would build on them."""
        try:
            self._ops.ftruncate(self._fd, self._end)
        except OSError:
            self._end = -1

    def _rescue(self, batch: Batch | None = None) -> None:
        """Write everything to a new inode: the file's lines, checked, and a batch from memory."""
        survey = Survey(self._lines())
        if batch is not None:
            before, ids = self.n, self._ids
            self._rebuild(survey, batch.lines, Closing(batch.n, batch.state, self._now()), header=batch.header)
            ids.add(batch.ids, after=before, upto=batch.n)
        elif self.n:
            self._rebuild(survey, (), self._closing())
        else:
            self._install(Successor(Header(), 0, State(), ()))
        self._poisoned = ""

    # ---- mend and rewrite

    def _mend(self, lines: Lines, tail: Tail) -> None:
        """Set damaged bytes aside, then cut them off; where they are not all at the end, write the log anew."""
        header = tail.header if tail.header.uid else self._lost_header(tail)
        if tail.bad:
            self._set_aside(lines, tail.bad, header, "torn or rotten")
        if tail.last is None or (tail.torn and tail.header.uid):
            self._ops.ftruncate(self._fd, tail.end)
            self._take_tail(tail)
            return
        sure = Lines(self._ops, self._fd, tail.start)
        before = tail.before.n if tail.before is not None else 0
        past = LogPast(sure, header=header, n=before, state=state_of(tail.before), ops=self._ops, place=self._place)
        ending, state = redone(tail, past, self._rules)
        self._rebuild(Survey(sure), ending, Closing(tail.last.n, state, self._now()), header=header)

    def _lost_header(self, tail: Tail) -> Header:
        """What can be known of a session whose header is gone; every whole cold frame still counts."""
        uid = self._place.archived or self._likely_uid()
        length = cold.whole_length(self._ops, self._place.cold(uid))
        high = tail.last.n if tail.last is not None and length else 0
        return Header(uid=uid, sid=self._place.key, cold=length, high=high)

    def next_uid(self) -> str:
        """A uid that sorts behind those of earlier generations, even if the clock was set back since."""
        archived = uids_in(self._ops, f"{self._place.root}/archive", self._place.name)
        return max([new_uid(self._ops), *(f"{int(uid, 16) + 1:032x}" for uid in archived[-1:])])

    def _likely_uid(self) -> str:
        """The uid that the session's other files have, or a new one."""
        root, name = self._place.root, self._place.name
        archived = uids_in(self._ops, f"{root}/archive", name)
        beside = uids_in(self._ops, f"{root}/cold", name) + uids_in(self._ops, f"{root}/quarantine", name)
        return max((uid for uid in beside if uid not in archived), default="") or new_uid(self._ops)

    def _set_aside(self, lines: Lines, bad: Sequence[Piece], header: Header, reason: str) -> None:
        path = self._place.quarantine(header.uid)
        set_aside(self._ops, path, lines, bad, reason=reason)
        self._aside += len(bad)
        logger.warning("damaged bytes of a log were set aside", extra={"quarantine": path, "pieces": len(bad)})

    def _rebuild(
        self, survey: Survey, ending: Sequence[bytes], closing: Closing, *, header: Header | None = None
    ) -> None:
        """Write the log anew from what was surveyed."""
        header = header or self.header
        bad = survey.bad + survey.repeated()
        if bad:
            self._set_aside(survey.source, bad, header, "rotten")
        self._install(mended(survey, ending, header=header, closing=closing, key=self._place.key))
        logger.warning("a log was written anew", extra={"log": self._place.log})

    def _install(self, new: Successor) -> None:
        """Write a successor, flush it and give it the log's name."""
        scratch = Scratch(self._ops, self._place)
        try:
            for line in new.lines:
                scratch.add(line)
            scratch.install()
        except BaseException:
            scratch.discard()
            raise
        old, self._fd, self._end = self._fd, scratch.fd, -1
        with suppress(OSError):
            self._ops.close(old)
        found = self._ops.fstat(self._fd)
        self._end, self._inode = scratch.size, (found.st_dev, found.st_ino)
        self._take(new.header, new.n, new.state)
        self._named, self._settled, self._unsynced = False, True, 0
        try:
            settle_names(self._ops, self._place.folder)
        except OSError as error:
            self._poisoned = str(error)
            raise
        self._named = True

    # ---- move out and bring back

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
        length = cold.append(self._ops, path, self.header.cold, dead(survey, wanted, self.header))
        header = renewed(self.header, length=length, high=self.n, kept=len(wanted))
        self._install(compacted(survey, wanted, header=header, closing=self._closing(), ids=self.window()))
        return True

    def _bring_back(self, unit: Unit) -> None:
        """Put moved-out records that a unit goes back to into the log again."""
        if unit.needs is None or unit.reach is None or unit.reach > self.header.high:
            return
        past = self._past()
        survey = Survey(self._lines())
        missing = unit.needs(past) - set(survey.numbers())
        found = ((piece.record, piece.raw) for piece in past.cold())
        moved = {record.n: raw + b"\n" for record, raw in found if record is not None and record.n in missing}
        if moved:
            self._install(brought_back(survey, moved, header=self.header, closing=self._closing()))

    # ---- small things

    # ---- what a batch sees of the log it will be added to

    @property
    def uid(self) -> str:
        return self.header.uid

    @property
    def key(self) -> str:
        return self._place.key

    def find(self, n: int) -> Record | None:
        return self._past().find(n)

    def back(self, n: int) -> Iterator[Record]:
        return self._past().back(n)

    def all(self) -> Iterator[Record]:
        return self._past().all()

    def whole(self, record: Record) -> Record:
        return self._past().whole(record)

    def _past(self) -> LogPast:
        """The log as it is known, and what is staged behind it; only under the lock."""
        return LogPast(
            self._lines(),
            header=self.header,
            n=self.n,
            state=self.state,
            ops=self._ops,
            place=self._place,
            staged=self.staged,
        )

    def _lines(self) -> Lines:
        return Lines(self._ops, self._fd, self._end)

    def window(self) -> dict[str, Seen]:
        return self._ids.window(self._past())

    def _closing(self) -> Closing:
        return Closing(self.n, self.state, self._now())

    def _now(self) -> str:
        return timestamp(self._ops.now())

    def _what_is_known(self) -> Known | None:
        if self._fd < 0 or not (self._settled and self._named) or self._poisoned:
            return None
        try:
            found = self._ops.fstat(self._fd)
        except OSError:
            return None
        if (found.st_dev, found.st_ino, found.st_size) != (*self._inode, self._end):
            return None
        ids = self._ids if self._ids.is_light else Ids()
        return Known(self._inode, self._end, found.st_mtime_ns, self.header, self.n, self.state, ids)

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

    def _remove_log(self) -> None:
        unlink_if_there(self._ops, self._place.scratch)
        unlink_if_there(self._ops, self._place.log)
        settle_names(self._ops, self._place.folder)
        self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        self._forget()
        if fd >= 0:
            # What must be durable has been flushed by now; a failing close has nothing left to tell.
            with suppress(OSError):
                self._ops.close(fd)

    def _forget(self) -> None:
        self._inode = (0, 0)
        self._end = -1
        self.n = 0
        self.state = State()
        self.header = Header()
        self._settled = self._named = False
        self._poisoned = ""
        self._unsynced = 0
        self._tried = 0
        self._ids = Ids()


class _Hold:
    """The lock of a log, for as long as a with statement lasts."""

    __slots__ = ("_create", "_log", "_wait")

    def __init__(self, log: LogFile, *, create: bool, wait: bool) -> None:
        self._log = log
        self._create = create
        self._wait = wait

    def __enter__(self) -> bool:
        try:
            return self._log._enter(create=self._create, wait=self._wait)  # noqa: SLF001 - this module's own
        except BaseException as error:
            self._log._leave(error)  # noqa: SLF001
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._log._leave(error)  # noqa: SLF001


def open_log(ops: Ops, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a log that must be a plain file of ours; a link, a pipe or a stranger's file is refused."""
    try:
        # Without O_NONBLOCK the open of a pipe would wait for its other end.
        fd = ops.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _explained(ops, error, path) from error
    found = ops.fstat(fd)
    if modes.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return fd, found
    ops.close(fd)
    raise LogDamaged(f"{path} is not a plain file of this user; it is left as it is")


def _explained(ops: Ops, error: OSError, path: str) -> Exception:
    try:
        is_link = modes.S_ISLNK(ops.stat(path).st_mode)
    except OSError:
        is_link = False
    return LogDamaged(f"{path} is a symbolic link; it is left as it is") if is_link else error
