"""The one writer that a process has on a log: lock, look, number, write, flush, unlock.

`LogWriter.commit` is how every message is stored; read it first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, NoReturn

from nacre.codec import timestamp
from nacre.errors import Conflict, DurabilityUnknown, SessionBusy, StoreError
from nacre.messages import Version
from nacre.records import AppendMessage, Record, RecordStamp, Rules, State, Transaction
from nacre.storage import blobs, compaction, rewrite
from nacre.storage.change_marks import Marks
from nacre.storage.format import seal
from nacre.storage.kept_ids import KeptIds
from nacre.storage.lines import Lines, Piece
from nacre.storage.locks import KeyLock
from nacre.storage.paths import (
    SessionPaths,
    is_being_born,
    new_uid,
    open_log,
    put_away,
    settle_names,
    uids_in,
    unlink_if_there,
    write_all,
)
from nacre.storage.plain_names import drop_plain_name, rename_plain
from nacre.storage.quarantine import EMPTIED, MISSING, ROTTEN, TORN, UNSURE, set_aside
from nacre.storage.recovery import Header, Survey, Tail, examine, state_of, was_cut_short
from nacre.storage.rewrite import Closing, Scratch, Successor, relink
from nacre.storage.seal import Seal
from nacre.storage.session_files import erase_rest
from nacre.storage.system import System, ignore_failure, is_from_system
from nacre.storage.transaction import WINDOW, Batch, Ids, PendingCommit, Seen, refusal
from nacre.storage.view import LogView, archived_fence, reading, refuse_forks

logger = logging.getLogger(__name__)

_MAX_UNSYNCED = 1024 * 1024
_OTHER_FOLDERS = ("cold", "blobs", "quarantine")
ALL = "~"
"""Sorts after every uid."""


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


class Unflushed(NamedTuple):
    """What was written and could not be flushed: records `first` to `n`, their lines and ids, and what follows them."""

    header: Header
    first: int
    n: int
    state: State
    lines: Sequence[bytes]
    ids: dict[str, Seen]


class LogWriter:
    """Writes one log, from one thread at a time; other processes may write it too.

    `commit` stores messages. What is done to a log as a whole, in `nacre.storage.log`, happens under `hold`.
    """

    # How the log ends, as far as we know: `size` is where the next record goes, -1 if it must be read again.
    inode: tuple[int, int]
    size: int
    header: Header
    n: int
    state: State
    _ids: Ids
    # How many ids it has in memory, as of the last transaction with one.
    ids_held: int
    _indexes: dict[str, KeptIds]
    # Whether its content and its name are flushed; why a flush failed; how many bytes relaxed batches left unflushed.
    _settled: bool
    _named: bool
    _poisoned: str
    _unsynced: int
    # The size at which compaction last found too little to move out.
    tried: int

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
        self._system = system
        self._place = place
        self._path = place.log
        self._key = KeyLock(system, place)
        self._took_key = False
        self._marks = marks
        self._mark = place.path
        self._seal = seal or Seal(system, place.root)
        self._rules = rules
        self._relaxed = relaxed
        self._known: Known | None = None
        self._fd = -1
        self._is_written = False
        self.staged: Sequence[Record] = ()
        # How many pieces of damage were moved to quarantine.
        self.set_aside = 0
        # The log was found without a byte, though its creation had finished.
        self.is_emptied = False
        # The log is opened only to be deleted, so what it shares need not be known.
        self.is_erasing = False
        self._forget()

    # ---- the write path

    def commit(self, commits: Sequence[PendingCommit]) -> None:
        """Store transactions with one write and one flush; each commit gets its number or its error.

        Raises for all of them: Refused if nothing was stored; DurabilityUnknown if a crash may or may not undo it;
        Conflict if the session was deleted meanwhile; LogDamaged or FormatTooNew if the log cannot be continued.
        """
        try:
            if len(commits) == 1 and self._append_message(commits[0]):
                return
            creates = commits[0].transaction.creates or any(commit.transaction.creates for commit in commits)
            # 1. Lock the log, so that no other process writes. Look whether it is as we left it, which one stat tells.
            #    If not, recover: read how it ends and repair it. An error up to the write is Refused.
            if self._enter(create=creates, wait=True):
                # 2. Flush what another process may have written and not flushed: what is built on it must not outlive
                #    it. If that fails, everything moves to a new file, on which the flush works.
                self.settle()
                # 3. Number the transactions and seal their lines, then one write and one flush.
                self.append(commits)
            else:
                # There is no such session, and no transaction creates it. It was archived, if one is a retry.
                batch = Batch(self, rules=self._rules, now=self._system.now())
                for commit in commits:
                    commit.number = batch.take(commit)
                self._forget()
            # 4. Unlock. What was stored stays so: an error here only closes the file.
            self._leave(None)
        except BaseException as error:
            self._leave(error)
            raise

    def append(self, commits: Sequence[PendingCommit]) -> None:
        """Number, write and flush transactions; only under the lock, on a log that is settled. Raises like `commit`."""
        # 1. Bring back moved-out records to which a transaction rewinds. The error of one, whatever it is, is not that
        #    of the others, unless the log itself is in doubt.
        for commit in commits:
            if commit.transaction.needs is not None:
                try:
                    self.bring_back(commit.transaction)
                except Exception as error:
                    if self.size < 0 or self._poisoned:
                        raise
                    commit.error = refusal(self.key, error)

        # 2. Number the transactions and seal their lines, in memory. One that is refused leaves no trace in the batch.
        try:
            batch = Batch(self, rules=self._rules, now=self._system.now(), relaxed=self._unsynced > 0)
            numbers = list(map(batch.take, commits))
        finally:
            # What was not stored must not be seen after what others store meanwhile.
            self.staged = ()

        if batch.lines:
            # 3. Make durable what the new records refer to: their large payloads, and that an old log was lost.
            if self.is_emptied:
                self.note_emptied(batch.header.uid)
            if batch.payloads:
                blobs.keep(self._system, self._place, batch.header.uid, batch.payloads)

            # 4. One write. If it fails, cut off what got through: Refused.
            data = b"".join(batch.lines)
            self._is_written = True
            try:
                write_all(self._system, self._fd, data)
            except OSError as error:
                self._refuse_write(error)

            # 5. One flush. If it fails, the kernel may drop the data and report no further error: move everything to a
            #    new file, and tell the callers that nobody knows: DurabilityUnknown. Relaxed logs are flushed later.
            if self._relaxed:
                self._unsynced += len(data)
            else:
                try:
                    self._flush_file()
                except OSError as error:
                    first = batch.records[0].n
                    self._doubt(error, Unflushed(batch.header, first, batch.n, batch.state, batch.lines, batch.ids))

            # 6. Remember how the log ends. The size comes last: a writer that was interrupted before that, by whatever
            #    error, reads the log again.
            if not self.n:
                self._end_birth()
            self._ids.add(batch.ids, after=self.n, upto=batch.n)
            self._take(batch.header, batch.n, batch.state)
            self.size += len(data)
        elif not self.n and not self.is_emptied:
            # All were refused, and the file is new: it goes again.
            self.remove()
        for commit, number in zip(commits, numbers, strict=True):
            commit.number = number

    def _append_message(self, commit: PendingCommit) -> bool:
        """Store one message, on which there is no condition, in a log that is as it was left; False if it is not so.

        So are the writes of a program that stores message by message, with a turn's lease that is not lost or without
        one. These are the steps of `commit` and `append` that have something to do then: what a
        write costs is how much code it touches, since the caches go cold while a flush is waited for. If it returns
        False, nothing was written, and the log may be locked.
        """
        # 1. Is it such a transaction, and is there nothing to recover, to settle or to rescue, as far as we know?
        transaction = commit.transaction
        operations = transaction.operations
        if (
            len(operations) != 1
            or type(operations[0]) is not AppendMessage
            or transaction.id is not None
            or transaction.expect is not None
            or transaction.fence not in (None, self.state.fence)
            or transaction.needs is not None
            or not (self._settled and self._named and self.n > 1)
            or self._poisoned
            or self._relaxed
        ):
            return False

        # 2. Lock the log, and look whether it is as we left it.
        system = self._system
        self._is_written = False
        system.flock(self._fd, wait=True)
        if self._marks is not None:
            self._marks.leave(self._mark)
        self._seal.check()
        if not self._is_as_known():
            return False

        # 3. Number the message and seal its line. What does not fit into a line is taken apart by a batch.
        stamp = RecordStamp(self.n + 1, timestamp(system.now()))
        record = self._rules.apply(operations[0], stamp, self.state, self)
        if record is None:
            return False
        line = seal(record)
        if len(line) > blobs.LARGEST:
            return False

        # 4. One write and one flush.
        self._is_written = True
        try:
            write_all(system, self._fd, line)
        except OSError as error:
            self._refuse_write(error)
        try:
            self._flush_file()
        except OSError as error:
            self._doubt(error, Unflushed(self.header, record.n, record.n, record.st, [line], {}))

        # 5. Remember how the log ends, the size last, and unlock it.
        self._ids.add({}, after=self.n, upto=record.n)
        self.n, self.state = record.n, record.st
        self.size += len(line)
        commit.number = record.n
        self._unlock()
        return True

    def settle(self) -> None:
        """Make durable what we are about to build on; its writer may have been killed before its flush."""
        if self._poisoned:
            self._rescue()
        if not self._settled and self.size:
            self._flush_all()
        self._settled = True
        if self._unsynced >= _MAX_UNSYNCED:
            self._flush_all()

    def sync(self) -> None:
        """Settle the log, and flush what relaxed batches left unflushed."""
        self.settle()
        if self._unsynced:
            self._flush_all()

    def flush(self) -> None:
        """Wait until everything written is durable; this is how a relaxed log catches up."""
        if self._unsynced or self._poisoned:
            # What was acknowledged before the store was sealed is flushed all the same.
            with self.hold(create=False, may_be_sealed=True) as is_there:
                if is_there:
                    self.sync()

    # ---- lock and unlock

    def hold(self, *, create: bool, wait: bool = True, may_be_sealed: bool = False) -> _Hold:
        """Hold the lock of the log that has the name now; gives False if there is none and `create` is false.

        Raises SessionBusy if it is locked and `wait` is false, Refused if the store is sealed and may not be.
        """
        return _Hold(self, create=create, wait=wait, may_be_sealed=may_be_sealed)

    def _enter(self, *, create: bool, wait: bool, may_be_sealed: bool = False) -> bool:
        """Lock the log and know how it ends; False if there is none and none is created."""
        self._is_written = False
        while True:
            try:
                if self._fd < 0 and not self._open(create=create, wait=wait):
                    return False
                if not self._system.flock(self._fd, wait=wait):
                    raise self._busy()
                if self._marks is not None:
                    self._marks.leave(self._mark)
                if not may_be_sealed:
                    self._seal.check()
                if not self._is_as_known() and not self._recover():
                    continue
                if create and not self.n:
                    self._require_key()
            except _NeedsKey:
                # A generation begins or ends here. Its key is locked before the log; what there is may be another now.
                if self._fd >= 0:
                    self._unlock()
                # First: if we are interrupted in between, it must not stay locked.
                self._took_key = True
                if not self._key.take(wait=wait):
                    raise self._busy() from None
            else:
                return True

    def _is_as_known(self) -> bool:
        """True if the log that has the name is ours and has the size we know: nobody else has written to it."""
        try:
            named = self._system.stat(self._path)
        except FileNotFoundError:
            return False
        return named.st_size == self.size and (named.st_dev, named.st_ino) == self.inode

    def look(self) -> tuple[Version, State] | None:
        """How the log ends if it is as this writer left it, which one stat tells; any thread may ask."""
        if (known := self._known) is not None:
            # It was closed, to keep few open. Anything that is written to it changes one of these.
            found = self._system.stat(self._path)
            is_same = known.inode == (found.st_dev, found.st_ino)
            is_same = is_same and (known.size, known.mtime) == (found.st_size, found.st_mtime_ns)
            return (Version(known.n, known.header.uid), known.state) if is_same else None
        state, version = self.state, Version(self.n, self.header.uid)
        # If it is written at this moment, the size is not that of this state, or the state is another afterwards.
        is_same = self._fd >= 0 and self._is_as_known() and self.state is state and self.n == version.n
        return (version, state) if is_same else None

    def _require_key(self) -> None:
        if not self._key.is_held:
            raise _NeedsKey

    def _leave(self, error: BaseException | None) -> None:
        """Unlock, and say what an error means.

        An error of the system before the write: nothing was stored. After it every error of ours says what became of
        the write; any other came from a signal handler.
        """
        try:
            if self._fd >= 0:
                self._unlock()
        finally:
            if self._took_key:
                if self._key.is_held:
                    self._key.release()
                self._took_key = False
        if error is None:
            return
        if not isinstance(error, StoreError):
            # Interrupted somewhere between looking and flushing: the next writer looks again.
            self.size = -1
        if not self._is_written:
            if is_from_system(error):
                raise refusal(self.key, error) from error
        elif isinstance(error, StoreError) and not isinstance(error, DurabilityUnknown):
            raise DurabilityUnknown(f"interrupted while it was written: {error!r}") from error

    def _busy(self) -> SessionBusy:
        return SessionBusy(f"session {self.key!r} is being written by another process")

    def _unlock(self) -> None:
        try:
            self._system.unlock(self._fd)
        except BaseException as error:
            # What cannot be unlocked is closed, which unlocks it too.
            self.release()
            if not is_from_system(error):
                raise
            logger.warning("a log could not be unlocked and is closed", exc_info=True)

    def _open(self, *, create: bool, wait: bool) -> bool:
        """Open the log, or create it; False if there is none and none is created."""
        if self._open_named():
            return True
        if self._place.plain:
            # An earlier version may have named it otherwise.
            rename_plain(self._system, self._place, wait=wait)
            if self._open_named():
                return True
        if not create:
            return False
        self._require_key()
        self._begin_birth()
        self._fd, _ = open_log(self._system, self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        return True

    def _open_named(self) -> bool:
        try:
            self._fd, _ = open_log(self._system, self._path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return False
        return True

    # ---- recover

    def _recover(self) -> bool:
        """Learn what happened to the log since we last held it, and repair it; False if it must be opened again."""
        found = self._system.fstat(self._fd)
        inode = (found.st_dev, found.st_ino)
        lines = Lines(self._system, self._fd, found.st_size)

        # 1. Another process rewrote, archived or deleted it: this file has lost its name.
        if not self._has_the_name(found):
            last = examine(lines, key=self.key).last
            self.release()
            if last is not None and last.t == "del":
                raise Conflict(f"session {self.key!r} was deleted meanwhile; nothing was stored")
            return False
        if found.st_nlink > 1:
            drop_plain_name(self._system, self._place, found)
        self._named = self._named and inode == self.inode
        self._settled = self.is_emptied = False
        self.inode = inode

        # 2. It is as it was when this writer closed it: there is nothing to read.
        known, self._known = self._known, None
        if known is not None and (known.inode, known.size, known.mtime) == (inode, found.st_size, found.st_mtime_ns):
            self._take(known.header, known.n, known.state)
            self._ids = known.ids
            self.size = known.size
            self._settled = self._named = True
            return True

        # 3. It ends in a deletion, whose process was killed: finish that.
        tail = examine(lines, key=self.key)
        if tail.last is not None and tail.last.t == "del":
            self._require_key()
            # The record may not be flushed yet; nothing is removed before it is durable.
            self._system.fdatasync(self._fd)
            # No generation is later than an active log that ends like this; than an archived one it may be.
            erase_rest(self._system, self._place, upto=self._place.archived or ALL)
            self.remove()
            return False

        # 4. Repair what is damaged. A log without a byte was emptied, unless it is just being created.
        self.is_emptied = not found.st_size and not is_being_born(self._system, self._place)
        if tail.last is not None:
            self._end_birth()
        if tail.is_whole or not found.st_size:
            self._take_tail(tail)
        else:
            self._mend(lines, tail)
        return True

    def _has_the_name(self, found: os.stat_result) -> bool:
        try:
            return os.path.samestat(self._system.stat(self._path), found)
        except FileNotFoundError:
            return False

    def _take(self, header: Header, n: int, state: State) -> None:
        if header.uid != self.header.uid and self.header.uid:
            self._ids = Ids()
        self.header, self.n, self.state = header, n, state

    def _take_tail(self, tail: Tail) -> None:
        self._take(tail.header, tail.last.n if tail.last is not None else 0, state_of(tail.last))
        self.size = tail.end

    def _mend(self, lines: Lines, tail: Tail) -> None:
        """Move damaged bytes to quarantine, then cut them off; if they are not all at the end, rewrite the log."""
        # 1. Nothing is changed before the damage is durable in quarantine.
        header = tail.header
        if not header.uid:
            # What can be known of a session whose header is lost; all of its cold file still counts.
            if not self.is_erasing:
                refuse_forks(self._system, self._place, lines)
            uid = self.likely_uid()
            length, records = compaction.measure(self._system, self._place.cold(uid))
            high = tail.last.n if tail.last is not None and length else 0
            # Messages after it may be lost as well: nothing says which number was the first.
            header = Header(uid=uid, sid=self.key, cold=length, high=high, moved=records, holes=True)
        if tail.bad:
            self._set_aside(lines, tail.bad, header.uid, TORN if was_cut_short(tail) else UNSURE)
        # 2. A torn end is cut off.
        if tail.last is None or (tail.torn and tail.headed):
            if not tail.end:
                self._begin_birth()
            self._system.ftruncate(self._fd, tail.end)
            self._take_tail(tail)
            return
        # 3. Anything else is rewritten: what is beyond doubt as it is, what is in doubt linked again.
        sure = Lines(self._system, self._fd, tail.start)
        before = tail.before.n if tail.before is not None else 0
        if tail.before is not None and tail.first > before + 1:
            # What is missing there was acknowledged, since what follows it was written.
            header = header._replace(holes=True)
        view = LogView(
            sure, header=header, n=before, state=state_of(tail.before), system=self._system, place=self._place
        )
        ending, state = relink(tail, view, self._rules)
        self.rebuild(Survey(sure), ending, closing=Closing(tail.last.n, state, self.now()), header=header)

    def next_uid(self) -> str:
        """A uid that sorts after those of all earlier generations; it stays so only under the key's lock."""
        return new_uid(self._system, after=put_away(self._system, self._place))

    def earlier_fence(self) -> int:
        """The fence of the newest archived generation, which holds in the next one too."""
        return 0 if self._place.archived else archived_fence(self._system, self._place)

    def likely_uid(self) -> str:
        """The uid of a log that does not say it: that of the session's other files, or a new one."""
        if self._place.archived:
            return self._place.archived
        root, name = self._place.root, self._place.name
        others = put_away(self._system, self._place)
        found = [uid for folder in _OTHER_FOLDERS for uid in uids_in(self._system, f"{root}/{folder}", name)]
        return max((uid for uid in found if uid not in others), default="") or self.next_uid()

    def _set_aside(self, lines: Lines | None, bad: Sequence[Piece], uid: str, reason: str, detail: str = "") -> None:
        set_aside(self._system, self._place, uid, lines, bad, reason=reason, detail=detail)
        self.set_aside += len(bad) or 1
        log = logger.info if reason == TORN else logger.warning
        path = self._place.quarantine(uid)
        log("damage of a log was noted in quarantine", extra={"quarantine": path, "reason": reason, "pieces": len(bad)})

    def note_emptied(self, uid: str) -> None:
        """Note in quarantine that a log has lost everything, before another session begins in it."""
        self._set_aside(None, (), uid, EMPTIED)
        self.is_emptied = False

    def _begin_birth(self) -> None:
        self._system.close(self._system.open(self._place.birth, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))

    def _end_birth(self) -> None:
        """Remove what says that the log is being created; if that fails, it is done when the log is next opened."""
        with ignore_failure():
            unlink_if_there(self._system, self._place.birth)

    # ---- when a write or a flush fails

    def _flush_file(self) -> None:
        self._system.fdatasync(self._fd)
        if not self._named:
            settle_names(self._system, self._place.folder)
            self._named = True

    def _flush_all(self) -> None:
        """Flush, or move everything to a new file if the flush fails."""
        try:
            self._flush_file()
        except OSError as error:
            if not is_from_system(error):
                raise
            self._poisoned = str(error)
            self._rescue()
        self._unsynced = 0

    def _refuse_write(self, error: OSError) -> NoReturn:
        """Cut off what got through of a write that failed: Refused."""
        if not is_from_system(error):
            raise error
        self._roll_back()
        self._is_written = False
        raise refusal(self.key, error) from error

    def _doubt(self, error: OSError, written: Unflushed) -> NoReturn:
        """Move everything to a new file after a flush that failed; what was written is DurabilityUnknown."""
        if not is_from_system(error):
            raise error
        self._poisoned = str(error)
        self._rescue_or_hide(written)
        raise DurabilityUnknown(
            f"session {self.key!r}: the flush failed ({error}); records {written.first} to {written.n} "
            "may or may not survive a crash; retry with the same id"
        ) from error

    def _roll_back(self) -> None:
        """Cut a failed write off the file; if even that fails, leave the file for a new one."""
        try:
            self._system.ftruncate(self._fd, self.size)
            self._system.fdatasync(self._fd)
        except OSError as error:
            if not is_from_system(error):
                raise
            self._poisoned = str(error)
            try:
                self._rescue()
            except (OSError, StoreError) as failure:
                raise DurabilityUnknown(
                    f"session {self.key!r}: a failed write could not be removed: {error}"
                ) from failure

    def _rescue(self, written: Unflushed | None = None) -> None:
        """Write everything to a new file: the lines of the old one, checked, and what was not flushed from memory.

        After a failed flush nothing on the old file can be trusted to reach the disk.
        """
        survey = Survey(self._lines())
        if written is not None:
            before, ids = self.n, self._ids
            closing = Closing(written.n, written.state, self.now())
            self.rebuild(survey, written.lines, closing=closing, header=written.header)
            ids.add(written.ids, after=before, upto=written.n)
        elif self.n:
            self.rebuild(survey)
        else:
            self.install(Successor(Header(), 0, State(), ()))
        self._poisoned = ""

    def _rescue_or_hide(self, written: Unflushed) -> None:
        """Rescue what was not flushed, or else cut it off, so that other processes do not build on it."""
        try:
            self._rescue(written)
        except (OSError, StoreError):
            logger.exception("a log could not be moved after a failed flush")
            try:
                self._system.ftruncate(self._fd, self.size)
            except OSError:
                self.size = -1

    # ---- rewrite

    def rebuild(
        self,
        survey: Survey,
        ending: Sequence[bytes] = (),
        *,
        closing: Closing | None = None,
        header: Header | None = None,
    ) -> None:
        """Write the log again from what was surveyed and an ending; what is damaged goes to quarantine before."""
        header = header or self.header
        if survey.missing:
            header = header._replace(holes=True)
        bad = survey.bad + survey.repeated()
        if bad:
            self._set_aside(survey.source, bad, header.uid, ROTTEN)
        elif survey.missing:
            self._set_aside(None, (), header.uid, MISSING, survey.missing)
        closing = closing or self.closing()
        self.install(rewrite.rebuild(survey, ending, header=header, closing=closing, key=self.key))
        logger.warning("a log was rewritten", extra={"log": self._place.log})

    def install(self, new: Successor) -> None:
        """Write the new content of the log to a file, flush it, and give it the log's name."""
        if self.is_emptied and new.header.uid:
            self.note_emptied(new.header.uid)
        scratch = Scratch(self._system, self._place)
        try:
            scratch.write(new.lines)
            scratch.install()
            if self._fd >= 0:
                # Others who wait for the old one will see that it has lost its name.
                with ignore_failure():
                    self._system.unlock(self._fd)
        except BaseException:
            scratch.discard()
            raise
        old, self._fd, self.size = self._fd, scratch.fd, -1
        with ignore_failure():
            self._system.close(old)
        found = self._system.fstat(self._fd)
        if new.n and not self.n:
            self._end_birth()
        self._take(new.header, new.n, new.state)
        self._named, self._settled, self._unsynced = False, True, 0
        self.size, self.inode = scratch.size, (found.st_dev, found.st_ino)
        try:
            settle_names(self._system, self._place.folder)
        except OSError as error:
            self._poisoned = str(error)
            raise
        self._named = True

    def replace_lines(self, lines: Mapping[int, bytes]) -> None:
        """Write the log again with other lines for some of its records, and a mark: others see that it has changed."""
        survey = self.survey()
        mark = self.closing().mark(kept=survey.count)
        changed = (lines.get(n, line) for n, line in survey.lines())
        self.install(Successor(self.header, mark.n, self.state, chain(changed, [seal(mark)])))
        # Fingerprints of what these records were are forgotten, too.
        self.forget_ids()

    def bring_back(self, transaction: Transaction) -> None:
        """Put moved-out records to which a transaction rewinds into the log again."""
        if transaction.needs is None or transaction.reach is None or transaction.reach > self.header.high:
            return
        view = self.view()
        survey = Survey(self._lines())
        missing = transaction.needs(view) - set(survey.numbers())
        found = ((piece.record, piece.raw) for piece in view.cold())
        moved = {record.n: raw + b"\n" for record, raw in found if record is not None and record.n in missing}
        if moved:
            self.install(rewrite.bring_back(survey, moved, header=self.header, closing=self.closing()))

    def closing(self) -> Closing:
        return Closing(self.n, self.state, self.now())

    def now(self) -> str:
        return timestamp(self._system.now())

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

    @property
    def holds_session(self) -> bool:
        """False for a log with only a header: it was never fully created."""
        return self.n > 1

    def find(self, n: int) -> Record | None:
        return self.view().find(n)

    def back(self, n: int) -> Iterator[Record]:
        return self.view().back(n)

    def all(self) -> Iterator[Record]:
        return self.view().all()

    def whole(self, record: Record) -> Record:
        return self.view().whole(record)

    def view(self) -> LogView:
        """The log as it is known, and what is staged after it; only under the lock."""
        return LogView(
            self._lines(),
            header=self.header,
            n=self.n,
            state=self.state,
            system=self._system,
            place=self._place,
            staged=self.staged,
        )

    def survey(self) -> Survey:
        return Survey(self._lines())

    def _lines(self) -> Lines:
        return Lines(self._system, self._fd, self.size)

    def window(self) -> dict[str, Seen]:
        """The idempotency keys that still count."""
        seen = self._ids.window(self.view(), self._earlier_ids)
        self.ids_held = len(seen)
        return seen

    def forget_ids(self) -> None:
        """Read the idempotency keys again when they are needed: records that they tell of were changed."""
        self._ids = Ids()
        self.ids_held = 0
        if self._known is not None:
            self._known = self._known._replace(ids=Ids())

    def _earlier_ids(self) -> dict[str, Seen]:
        """The ids of the newest archived generation; none if it was deleted or cannot be read."""
        archived = uids_in(self._system, f"{self._place.root}/archive", self._place.name)
        if self._place.archived or not archived:
            return {}
        try:
            with reading(self._system, self._place._replace(archived=archived[-1])) as found:
                return Ids().window(found.view) if found.view is not None else {}
        except (OSError, StoreError):
            # A reader of that generation gets the error.
            return {}

    def kept(self, id: str, state: State, rules: Rules) -> Seen | None:
        """What was stored under an id that counts without limit, in this generation or an archived one."""
        # The last records are in the window. The index leaves out those that a repair could still take back.
        if self.n > WINDOW and self._ids.are_kept(self, state, rules):
            index, least = self._index_of(self.uid), self.n - WINDOW
            seen = index.find(id, self.view(), least=least, upto=self.n - WINDOW // 2, flush=self._flush_relaxed)
            if seen is not None:
                return seen
        for uid in self._find_keepers(rules):
            place = self._place._replace(archived=uid)
            with reading(self._system, place) as found:
                view = found.view
                seen = self._index_of(uid).find(id, view, least=view.n, upto=view.n) if view is not None else None
            # Its log is not locked. If a message was erased there meanwhile, which a mark shows, the index may have
            # been made of what it was; if one is erased from now on, the index goes after the log.
            with suppress(FileNotFoundError):
                if self._system.stat(place.log).st_size != found.size:
                    unlink_if_there(self._system, place.ids(uid))
            if seen is not None:
                return seen
        return None

    def _find_keepers(self, rules: Rules) -> Sequence[str]:
        """The archived generations that keep their ids, the newest first; those that cannot be read are left out."""
        if self._ids.keepers is None:
            keepers: list[str] = []
            uids = (
                () if self._place.archived else uids_in(self._system, f"{self._place.root}/archive", self._place.name)
            )
            for uid in reversed(uids):
                with (
                    suppress(OSError, StoreError),
                    reading(self._system, self._place._replace(archived=uid)) as found,
                ):
                    if found.view is not None and rules.keeps_ids(found.view, found.view.state):
                        keepers.append(uid)
            self._ids.keepers = keepers
        return self._ids.keepers

    def _index_of(self, uid: str) -> KeptIds:
        if uid not in self._indexes:
            self._indexes[uid] = KeptIds(self._system, self._place.ids(uid), uid)
        return self._indexes[uid]

    def _flush_relaxed(self) -> None:
        """Flush what relaxed batches left, before an index says that it is there."""
        if self._unsynced:
            try:
                self._flush_file()
            except OSError as error:
                self._poisoned = str(error)
                raise

    # ---- close

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def is_sound(self) -> bool:
        """False after a failed flush, until the log has been moved to a new file."""
        return not self._poisoned

    def close(self) -> None:
        """Flush and close; the writer may be used again, and if nothing has changed by then it need not read."""
        self.flush()
        self._known = None
        if self._fd >= 0 and self._settled and self._named and not self._poisoned:
            try:
                found = self._system.fstat(self._fd)
            except OSError:
                found = None
            if found is not None and (found.st_dev, found.st_ino, found.st_size) == (*self.inode, self.size):
                ids = self._ids if self._ids.is_light else Ids()
                self._known = Known(self.inode, self.size, found.st_mtime_ns, self.header, self.n, self.state, ids)
        self.release()
        self.ids_held = len(self._known.ids) if self._known is not None else 0

    def remove(self) -> None:
        """Remove the log and what an unfinished creation or rewrite left of it, durably."""
        for path in (*self._place.scratches, self._place.log, self._place.birth):
            unlink_if_there(self._system, path)
        settle_names(self._system, self._place.folder)
        self.release()

    def release(self) -> None:
        """Unlock and close the file without a flush."""
        self._forget()
        if self._fd >= 0:
            # First: if we are interrupted between this and the end, a file stays open, but no lock.
            with ignore_failure():
                self._system.unlock(self._fd)
            self._close()

    def drop(self) -> None:
        """Close the descriptor in a forked child, which shares the parent's lock and must not release it."""
        self._forget()
        if self._fd >= 0:
            self._close()
        if self._took_key:
            self._key.abandon()
            self._took_key = False

    def free(self) -> None:
        """Release the locks of the log and its key, wherever the thread that held them was interrupted."""
        if self._fd >= 0:
            self._unlock()
        self._key.abandon()
        self._took_key = False

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        # What must be durable has been flushed by now; a failing close has nothing left to tell.
        with ignore_failure():
            self._system.close(fd)

    def _forget(self) -> None:
        self.inode = (0, 0)
        self.size = -1
        self.n = 0
        self.state = State()
        self.header = Header()
        self._settled = self._named = False
        self._poisoned = ""
        self._unsynced = 0
        self.tried = 0
        self._ids = Ids()
        self.ids_held = 0
        self._indexes = {}


class _Hold:
    """The lock of a log, for as long as a with statement lasts.

    A class, not a generator: one that a signal parts from its with statement would unlock the log at some later time,
    when another thread may have the lock.
    """

    __slots__ = ("_create", "_may_be_sealed", "_wait", "_writer")

    def __init__(self, writer: LogWriter, *, create: bool, wait: bool, may_be_sealed: bool) -> None:
        self._writer = writer
        self._create = create
        self._wait = wait
        self._may_be_sealed = may_be_sealed

    def __enter__(self) -> bool:
        enter = self._writer._enter  # noqa: SLF001 - this module's own
        try:
            return enter(create=self._create, wait=self._wait, may_be_sealed=self._may_be_sealed)
        except BaseException as error:
            self._writer._leave(error)  # noqa: SLF001
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._writer._leave(error)  # noqa: SLF001
