"""The one writer that a process has on a log: lock, look, write, flush, let go."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from nacre.entries import Record, Rules, State, Unit, timestamp
from nacre.errors import Conflict, DurabilityUnknown, Refused, SessionBusy, StoreError
from nacre.log import blobs, cold
from nacre.log.batch import Batch, Ticket
from nacre.log.erase import erase_rest
from nacre.log.forks import refuse_forks
from nacre.log.idempotency import Ids, Seen
from nacre.log.keylock import KeyLock
from nacre.log.lines import Lines, Piece
from nacre.log.marks import Marks
from nacre.log.opening import open_log
from nacre.log.ops import Ops, ignore_failure, is_from_system
from nacre.log.past import LogPast
from nacre.log.place import Place, is_being_born, new_uid, put_away, settle_names, uids_in, unlink_if_there, write_all
from nacre.log.plain import drop_plain_name, rename_plain
from nacre.log.quarantine import EMPTIED, MISSING, ROTTEN, TORN, UNSURE, set_aside
from nacre.log.reader import reading
from nacre.log.recovery import Header, Tail, examine, state_of, was_cut_short
from nacre.log.rewrite import Closing, Successor, brought_back, mended, redone
from nacre.log.scratch import Scratch
from nacre.log.survey import Survey

logger = logging.getLogger(__name__)

_MOST_UNSYNCED = 1024 * 1024
_BESIDE = ("cold", "blobs", "quarantine")
ALL = "~"
"""Sorts behind every uid."""


class _NeedsKey(Exception):
    """A generation would begin or end, and the lock of its key is not held."""


class Known(NamedTuple):
    """What a writer knew of its log when it was closed."""

    inode: tuple[int, int]
    size: int
    mtime: int
    header: Header
    n: int
    state: State
    ids: Ids


class Writer:
    """Writes one log, from one thread at a time; other processes may write it too."""

    def __init__(
        self, ops: Ops, place: Place, *, rules: Rules, relaxed: bool = False, marks: Marks | None = None
    ) -> None:
        self._ops = ops
        self._place = place
        self._path = place.log
        self._key = KeyLock(ops, place)
        self._took_key = False
        self._marks = marks
        self._mark = place.path
        self.staged: Sequence[Record] = ()
        self._rules = rules
        self._relaxed = relaxed
        self._known: Known | None = None
        self._fd = -1
        self._aside = 0
        self._is_emptied = False
        self._ends = False
        self._is_written = False
        self._inode = (0, 0)
        self._named = False
        self.header = Header()
        self._forget()

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
            self._leave(None)
        except BaseException as error:
            self._leave(error)
            raise

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
        self._forget()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with ignore_failure():
                self._ops.close(fd)
        if self._took_key:
            self._key.abandon()
            self._took_key = False

    def free(self) -> None:
        """Let go of the locks of the log and its key, wherever whoever held them was interrupted."""
        if self._fd >= 0:
            self._unlock()
        self._key.abandon()
        self._took_key = False

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
            if not is_from_system(error):
                raise
            raise DurabilityUnknown(
                f"session {self._place.key!r}: {what} was done, but a power failure may undo it ({error})"
            ) from error

    def _enter(self, *, create: bool, wait: bool) -> bool:
        self._is_written = False
        try:
            return self._find_log(create=create, wait=wait)
        except _NeedsKey:
            # A generation begins or ends here. Its key is locked first, then the log; what there is may be another now.
            if self._fd >= 0:
                self._unlock()
            # First: whoever is interrupted in between must not leave it locked.
            self._took_key = True
            if not self._key.take(wait=wait):
                raise self._busy() from None
            return self._find_log(create=create, wait=wait)

    def _find_log(self, *, create: bool, wait: bool) -> bool:
        """Lock the log that has the name; raises _NeedsKey if a generation would begin or end without its key."""
        while True:
            if self._fd < 0 and not self._open(create=create, wait=wait):
                return False
            if not self._ops.flock(self._fd, wait=wait):
                raise self._busy()
            if self._marks is not None:
                self._marks.leave(self._mark)
            if self._is_as_known() or self._look():
                if create and not self.n and not self._key.is_held:
                    raise _NeedsKey
                return True

    def _busy(self) -> SessionBusy:
        return SessionBusy(f"session {self._place.key!r} is being written by another process")

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
        """Let go of the lock; an error from the system before the write means that nothing was stored.

        Behind it, every error of ours says what became of the write. Any other came from a signal handler.
        """
        try:
            if self._fd >= 0:
                self._unlock()
        finally:
            if self._took_key:
                if self._key.is_held:
                    self._key.release()
                self._took_key = False
        if error is not None and not isinstance(error, StoreError):
            # Interrupted somewhere between looking and flushing: the next writer looks again.
            self._end = -1
        if not self._is_written:
            if error is not None and is_from_system(error):
                raise Refused(f"session {self._place.key!r}: nothing was stored: {error}") from error
        elif isinstance(error, StoreError) and not isinstance(error, DurabilityUnknown):
            raise DurabilityUnknown(f"interrupted while it was written: {error!r}") from error

    def _unlock(self) -> None:
        try:
            self._ops.unlock(self._fd)
        except BaseException as error:
            # What cannot be unlocked is let go by closing it.
            self._close()
            if not is_from_system(error):
                raise
            logger.warning("a log could not be unlocked and is closed", exc_info=True)

    def _open(self, *, create: bool, wait: bool) -> bool:
        """Open the log, or make it; False if there is none and none is to be made."""
        if self._open_named():
            return True
        if self._place.plain:
            # An earlier version may have named it otherwise.
            rename_plain(self._ops, self._place, wait=wait)
            if self._open_named():
                return True
        if not create:
            return False
        if not self._key.is_held:
            raise _NeedsKey
        self._begin_birth()
        self._fd, _ = open_log(self._ops, self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        return True

    def _open_named(self) -> bool:
        try:
            self._fd, _ = open_log(self._ops, self._path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
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
        if found.st_nlink > 1:
            drop_plain_name(self._ops, self._place, found)
        inode = (found.st_dev, found.st_ino)
        self._named = self._named and inode == self._inode
        self._settled = self._is_emptied = False
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
            if not self._key.is_held:
                raise _NeedsKey
            # Whoever wrote that may have been killed before its flush; nothing goes before it is durable.
            self._ops.fdatasync(self._fd)
            # Nothing begins behind an active log that ends like this; behind an archived one it may have.
            erase_rest(self._ops, self._place, upto=self._place.archived or ALL)
            self._remove_log()
            return False
        self._is_emptied = not found.st_size and not is_being_born(self._ops, self._place)
        if tail.last is not None:
            self._end_birth()
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
                try:
                    self._bring_back(ticket.unit)
                except Exception as error:
                    # One unit's error, whatever it is, is not that of the others; unless the log itself is in doubt.
                    if self._end < 0 or self._poisoned:
                        raise
                    ticket.error = self._refusal(error)
        try:
            batch = Batch(self, rules=self._rules, now=self._ops.now(), relaxed=self._unsynced > 0)
            numbers = self._number(batch, tickets)
        finally:
            # What was not stored must not be seen behind what others store meanwhile.
            self.staged = ()
        if batch.lines:
            self._write(batch)
        elif not self.n and not self._is_emptied:
            # All were refused, and the file is new: leave nothing behind.
            self._remove_log()
        for ticket, number in zip(tickets, numbers, strict=True):
            ticket.number = number

    def _number(self, batch: Batch, tickets: Sequence[Ticket]) -> list[int]:
        """Put units into a batch; 0 for one that changes nothing or that is refused, which its ticket then says."""
        numbers: list[int] = []
        for ticket in tickets:
            number, lines = 0, len(batch.lines)
            try:
                if ticket.error is None:
                    number = batch.add(ticket.unit)
            except Exception as error:
                # One unit's error, whatever it is, is not that of the others; if the unit is in, it came from a signal.
                if len(batch.lines) != lines:
                    raise
                ticket.error = self._refusal(error)
            numbers.append(number)
        return numbers

    def _refusal(self, error: Exception) -> Exception:
        """What the caller of a unit is told; an error of the system, as Refused."""
        return Refused(f"session {self._place.key!r}: nothing was stored: {error}") if is_from_system(error) else error

    def _write(self, batch: Batch) -> None:
        if self._is_emptied:
            self._note_emptied(batch.header.uid)
        if batch.payloads:
            blobs.keep(self._ops, self._place, batch.header.uid, batch.payloads)
        data = b"".join(batch.lines)
        self._is_written = True
        try:
            write_all(self._ops, self._fd, data)
        except OSError as error:
            if not is_from_system(error):
                raise
            self._roll_back()
            self._is_written = False
            raise Refused(f"session {self._place.key!r}: nothing was stored: {error}") from error
        if self._relaxed:
            self._unsynced += len(data)
        else:
            try:
                self._flush_file()
            except OSError as error:
                if not is_from_system(error):
                    raise
                self._doubt(batch, error)
        if not self.n:
            self._end_birth()
        self._ids.add(batch.ids, after=self.n, upto=batch.n)
        self._take(batch.header, batch.n, batch.state)
        # Last: whoever is interrupted before it, by whatever error, does not take the log for the one it knows.
        self._end += len(data)

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
            if not is_from_system(error):
                raise
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
            if not is_from_system(error):
                raise
            self._poisoned = str(error)
            try:
                self._rescue()
            except (OSError, StoreError) as failure:
                raise DurabilityUnknown(
                    f"session {self._place.key!r}: a failed write could not be removed: {error}"
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
        header = tail.header if tail.header.uid else self._lost_header(lines, tail)
        if tail.bad:
            self._set_aside(lines, tail.bad, header.uid, TORN if was_cut_short(tail) else UNSURE)
        if tail.last is None or (tail.torn and tail.headed):
            if not tail.end:
                self._begin_birth()
            self._ops.ftruncate(self._fd, tail.end)
            self._take_tail(tail)
            return
        sure = Lines(self._ops, self._fd, tail.start)
        before = tail.before.n if tail.before is not None else 0
        if tail.before is not None and tail.first > before + 1:
            # What is missing there was acknowledged, since what follows it was written.
            header = header._replace(holes=True)
        past = LogPast(sure, header=header, n=before, state=state_of(tail.before), ops=self._ops, place=self._place)
        ending, state = redone(tail, past, self._rules)
        self._rebuild(Survey(sure), ending, Closing(tail.last.n, state, self._now()), header=header)

    def _lost_header(self, lines: Lines, tail: Tail) -> Header:
        """What can be known of a session whose header is gone; all of its cold file still counts."""
        if not self._ends:
            refuse_forks(self._ops, self._place, lines)
        uid = self._place.archived or self._likely_uid()
        length, records = cold.measure(self._ops, self._place.cold(uid))
        high = tail.last.n if tail.last is not None and length else 0
        return Header(uid=uid, sid=self._place.key, cold=length, high=high, moved=records)

    def next_uid(self) -> str:
        """A uid that sorts behind those of all earlier generations; only with the key's lock it stays so."""
        return new_uid(self._ops, after=put_away(self._ops, self._place))

    def _likely_uid(self) -> str:
        """The uid that the session's other files have, or a new one."""
        root, name = self._place.root, self._place.name
        others = put_away(self._ops, self._place)
        beside = [uid for folder in _BESIDE for uid in uids_in(self._ops, f"{root}/{folder}", name)]
        return max((uid for uid in beside if uid not in others), default="") or self.next_uid()

    def _set_aside(self, lines: Lines | None, bad: Sequence[Piece], uid: str, reason: str, detail: str = "") -> None:
        set_aside(self._ops, self._place, uid, lines, bad, reason=reason, detail=detail)
        self._aside += len(bad) or 1
        log = logger.info if reason == TORN else logger.warning
        path = self._place.quarantine(uid)
        log("damage of a log was noted in quarantine", extra={"quarantine": path, "reason": reason, "pieces": len(bad)})

    def _note_emptied(self, uid: str) -> None:
        """Let it be reported that a log has lost everything, before another session begins in it."""
        self._set_aside(None, (), uid, EMPTIED)
        self._is_emptied = False

    def _begin_birth(self) -> None:
        self._ops.close(self._ops.open(self._place.birth, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))

    def _end_birth(self) -> None:
        """Take away what says that the log is being made; if that fails, it is done when the log is next opened."""
        with ignore_failure():
            unlink_if_there(self._ops, self._place.birth)

    def _rebuild(
        self, survey: Survey, ending: Sequence[bytes], closing: Closing, *, header: Header | None = None
    ) -> None:
        """Write the log anew from what was surveyed."""
        header = header or self.header
        if survey.missing:
            header = header._replace(holes=True)
        bad = survey.bad + survey.repeated()
        if bad:
            self._set_aside(survey.source, bad, header.uid, ROTTEN)
        elif survey.missing:
            self._set_aside(None, (), header.uid, MISSING, survey.missing)
        self._install(mended(survey, ending, header=header, closing=closing, key=self._place.key))
        logger.warning("a log was rewritten", extra={"log": self._place.log})

    def _install(self, new: Successor) -> None:
        """Write a successor, flush it and give it the log's name."""
        if self._is_emptied and new.header.uid:
            self._note_emptied(new.header.uid)
        scratch = Scratch(self._ops, self._place)
        try:
            for line in new.lines:
                scratch.add(line)
            scratch.install()
            if self._fd >= 0:
                # Whoever waits for the old one will see that it has lost its name.
                with ignore_failure():
                    self._ops.unlock(self._fd)
        except BaseException:
            scratch.discard()
            raise
        old, self._fd, self._end = self._fd, scratch.fd, -1
        with ignore_failure():
            self._ops.close(old)
        found = self._ops.fstat(self._fd)
        if new.n and not self.n:
            self._end_birth()
        self._take(new.header, new.n, new.state)
        self._named, self._settled, self._unsynced = False, True, 0
        self._end, self._inode = scratch.size, (found.st_dev, found.st_ino)
        try:
            settle_names(self._ops, self._place.folder)
        except OSError as error:
            self._poisoned = str(error)
            raise
        self._named = True

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

    # ---- what a batch sees of the log it will be added to

    @property
    def uid(self) -> str:
        return self.header.uid

    @property
    def key(self) -> str:
        return self._place.key

    @property
    def has_holes(self) -> bool:
        return self.header.holes

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
        return self._ids.window(self._past(), self._earlier_ids)

    def _earlier_ids(self) -> dict[str, Seen]:
        """The ids of the newest archived generation; none if it was deleted or cannot be read."""
        archived = uids_in(self._ops, f"{self._place.root}/archive", self._place.name)
        if self._place.archived or not archived:
            return {}
        try:
            with reading(self._ops, self._place._replace(archived=archived[-1])) as found:
                return Ids().window(found.past) if found.past is not None else {}
        except (OSError, StoreError):
            # Whoever reads that generation will hear what is wrong with it.
            return {}

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

    def _remove_log(self) -> None:
        for leftover in self._place.scratches:
            unlink_if_there(self._ops, leftover)
        unlink_if_there(self._ops, self._place.log)
        unlink_if_there(self._ops, self._place.birth)
        settle_names(self._ops, self._place.folder)
        self._close()

    def _close(self) -> None:
        self._forget()
        if self._fd >= 0:
            # First: whoever is interrupted between this and the end leaves an open file, but no lock.
            with ignore_failure():
                self._ops.unlock(self._fd)
            fd, self._fd = self._fd, -1
            # What must be durable has been flushed by now; a failing close has nothing left to tell.
            with ignore_failure():
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

    def __init__(self, log: Writer, *, create: bool, wait: bool) -> None:
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
