"""A directory of logs: the store that is used where nothing else is said."""

from __future__ import annotations

import logging
import os
import resource
import stat as modes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

# For the log too, which loads it when it needs it: a signal handler that raises while a module is being loaded leaves
# every thread that needs the module waiting. So it is loaded before there is anybody to wait.
from hashlib import sha256
from itertools import groupby, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec.structs import replace

from nacre.errors import (
    Conflict,
    DurabilityUnknown,
    LogDamaged,
    Refused,
    SessionBusy,
    SessionNotFound,
    StoreError,
    describe_error,
)
from nacre.messages import (
    DiskUsage,
    Finding,
    GenerationInfo,
    Leftover,
    Load,
    QuarantineEntry,
    Receipt,
    Redaction,
    Report,
    Settlement,
    TrashedSession,
    Version,
    describe_quarantine,
)
from nacre.records import ImportedRecord, Losses, Rules, TakeOver, Transaction, View
from nacre.storage import blobs
from nacre.storage.change_marks import Marks
from nacre.storage.group_commit import Pending
from nacre.storage.lines import Lines
from nacre.storage.locks import KeyLock, TurnLease
from nacre.storage.log import Log
from nacre.storage.paths import (
    SessionPaths,
    TrashedPaths,
    is_emptied,
    is_strange,
    key_of,
    make_folder,
    settle_names,
    stem,
    uids_in,
    unlink_if_there,
)
from nacre.storage.plain_names import has_plain_name, path_now
from nacre.storage.protocol import (
    MAX_LATER_BYTES,
    BegunRedaction,
    Document,
    FindCopies,
    Generation,
    Journal,
    Later,
    Lease,
    Listed,
    Status,
)
from nacre.storage.quarantine import IN_PLACE, Quarantine, entries, set_aside, settle
from nacre.storage.recovery import Survey
from nacre.storage.seal import Seal
from nacre.storage.session_files import unshare
from nacre.storage.system import System, is_from_system, opened, wrap_error
from nacre.storage.verify import findings
from nacre.storage.view import LogView, LongEnds, Reading, fence_of, reading, settled
from nacre.storage.writer_pool import SessionQueue, Writers
from nacre.user_files import standby_documents

if TYPE_CHECKING:
    from nacre.storage.file_transfer import FileTransfer
    from nacre.storage.redaction import Redactor
    from nacre.storage.trash_folder import Trash
    from nacre.storage.watch import Watch

logger = logging.getLogger(__name__)

T = TypeVar("T")

Durability = Literal["commit", "relaxed"]
"""When a write returns: once it is flushed, or before that."""

_MIN_OPEN, _MAX_OPEN = 64, 512


class FileStore:
    """Sessions as files below one directory.

    At most `max_open` logs stay open between writes: 64, up to 512 where the process may have many files open, or fewer
    where it may have few.
    Writers leave `marks` for the index unless that is False: then the index finds their changes when it compares logs.
    """

    is_durable = True
    is_shared = False

    def __init__(  # noqa: PLR0913 - what a test or an operator may set
        self,
        root: str,
        *,
        rules: Rules,
        system: System | None = None,
        marks: bool = True,
        durability: Durability = "commit",
        max_open: int | None = None,
        compact_at: int = 256 * 1024,
    ) -> None:
        self._root = root
        self._rules = rules
        self._system = system or System()
        self._seal = Seal(self._system, root, is_watched=marks)
        self._marks = Marks(self._system, root, self._seal) if marks else None
        self._relaxed = durability == "relaxed"
        self._compact_at = compact_at
        self._warned: set[tuple[str, Losses]] = set()
        self._ends = LongEnds()
        self._quarantine = Quarantine(self._system, root, self._key_in)
        self._writers = Writers(
            lambda key: self._log(SessionPaths.of(root, key)),
            max_open=_logs_to_keep_open() if max_open is None else max_open,
            before=self._settle_folders,
        )
        _prepare(self._system, root)
        _stores.add(self)

    @property
    def location(self) -> str:
        return self._root

    @property
    def system(self) -> System:
        """Every call to the operating system goes through it."""
        return self._system

    @property
    def marks(self) -> Marks | None:
        """What the index reads to find the logs that changed; None if writers leave none."""
        return self._marks

    @property
    def load(self) -> Load:
        """How much there is to write, and whether it can be."""
        return self._writers.load()

    # ---- everyday

    def run(self, key: str, transaction: Transaction) -> int:
        return self._writers.of(key).queue.run(transaction)

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        return self._writers.of(key).queue.submit(transaction, pending)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        active = SessionPaths.of(self._root, key)
        while True:
            found, value = self._read(active, get)
            if found.view is not None or found.is_deleted:
                return value
            archived = self._archived(active)
            newest = self._newest(archived)
            value = self._read(newest, get)[1] if newest is not None else None
            if self._peek(active).view is None and self._archived(active) == archived:
                return value
            # A generation was begun, moved or deleted between the looks.

    def is_at(self, key: str, version: Version) -> bool:
        with suppress(OSError):
            found = self._writers.look(key)
            return found is not None and found[0] == version
        return False

    def close(self) -> None:
        """Write what waits, flush, and close every log; raises the first flush that failed."""
        try:
            self._writers.close()
        finally:
            if self._marks is not None:
                self._marks.close()

    # ---- upkeep

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        return self._read_each(key, lambda view: get(Generation(view.header.uid, view)))

    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        active = SessionPaths.of(self._root, key)
        place = active._replace(archived=uid)

        def get_active(view: LogView) -> tuple[T] | None:
            return (get(view),) if view.uid == uid else None

        def get_archived(view: LogView) -> tuple[T]:
            view.is_newest = found.view is None and newest == place
            return (get(view),)

        found, value = self._read(active, get_active)
        if value is None and not found.is_deleted:
            # A deletion begins with the newest log, and takes the others with it.
            archived = self._archived(active)
            newest = self._newest(archived)
            value = self._read(place, get_archived)[1] if newest is not None and place in archived else None
            # It may have been brought back between the looks.
            value = value or self._read(active, get_active)[1]
        return None if value is None else value[0]

    def status(self, key: str) -> Status:
        place = SessionPaths.of(self._root, key)
        with wrap_error(StoreError, f"{place.log} cannot be read"):
            if path_now(self._system, place):
                return "active"
        if is_emptied(self._system, place):
            return "emptied"
        return "archived" if self._archived(place) else ""

    def each(self, *, archived: bool) -> Iterator[Listed]:
        for place in self._all_places(archived=archived):
            try:
                with reading(self._system, place) as found:
                    if found.view is not None:
                        header = found.view.header
                        size = found.size + header.cold
                        key = _key(place, found.view)
                        yield Listed(key, found.view, header.created, found.updated, size, archived)
            except (OSError, StoreError) as error:
                logger.warning("a session cannot be listed", extra={"file": place.log, "error": describe_error(error)})

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        place = SessionPaths.of(self._root, key)

        def work(session: SessionQueue) -> bool:
            with KeyLock(self._system, place):
                if archive:
                    return session.log.archive(expect)
                # First, since it finishes a deletion that was not finished.
                is_free = session.log.make_way()
                newest = self._newest(self._archived(place))
                if newest is None:
                    return False
                if not is_free:
                    raise Conflict(f"session {key!r} is active; archive or delete it before unarchiving the other one")
                with self._briefly(newest) as log:
                    log.unarchive(place, expect)
                return True

        if not self._writers.alone(key, work):
            raise SessionNotFound(f"there is no {'active' if archive else 'archived'} session {key!r}")

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:
        place = SessionPaths.of(self._root, key)

        def work(session: SessionQueue) -> None:
            with KeyLock(self._system, place):
                if held is not None:
                    held.check()
                with suppress(Conflict, LogDamaged):
                    # A second log, of an earlier version that was used meanwhile, goes too.
                    session.log.take_in()
                originals = self._originals(key)
                # Readers of the index must know which archived logs are about to go.
                if self._marks is not None:
                    for archived in self._archived(place):
                        self._marks.leave(archived.path)
                self._erase(place, session.log, expect)
                for original in originals:
                    unlink_if_there(self._system, original)
                if self._marks is not None:
                    self._marks.forget(place.path, f"archive/{place.name}.")
            session.queue.refuse_waiting(Conflict(f"session {key!r} was deleted; nothing was stored"))

        with wrap_error(DurabilityUnknown, f"session {key!r} was deleted, but not the file it came from"):
            self._writers.alone(key, work)

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
        return self._writers.alone(key, lambda session: session.log.compact(keep, least=self._compact_at))

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        """Share the past of a session with a new one, whose key is locked until the new one is there."""
        goal = SessionPaths.of(self._root, new_key)

        def work(sessions: Sequence[SessionQueue]) -> None:
            source, target = sessions[0].log, sessions[-1].log
            # Before the other key is locked: a deletion that was not finished needs the key of its session.
            source.exists()
            with KeyLock(self._system, goal):
                # This also finishes a deletion that was not, which would take what is shared now.
                if target.exists():
                    if not source.exists():
                        raise SessionNotFound(f"there is no active session {key!r} to fork")
                    raise Conflict(f"session {new_key!r} exists already; fork under another key")
                uid = target.writer.next_uid()
                try:
                    target.grow_from(source.share(goal, uid=uid, transaction=transaction), uid=uid)
                except BaseException as error:
                    # Remove what is shared, unless the fork has come to be all the same.
                    found = self._peek(goal)
                    if found.view is None or found.view.header.uid != uid:
                        unshare(self._system, goal, uid)
                    elif isinstance(error, StoreError):
                        what = f"session {new_key!r} was forked, but a power failure may undo it"
                        raise DurabilityUnknown(what) from error
                    raise

        def work_until_free(sessions: Sequence[SessionQueue]) -> None:
            # Where the source was being deleted by a process that was killed just now, finishing that needs its key,
            # for which nobody waits with another one.
            while True:
                with suppress(SessionBusy):
                    return work(sessions)

        with wrap_error(Refused, f"session {key!r} was not forked"):
            self._writers.together((key, new_key), work_until_free)

    def import_session(
        self,
        key: str,
        records: Sequence[ImportedRecord],
        *,
        src: dict[str, Any],
        created: str = "",
        archived: bool = False,
    ) -> bool:
        """Bring a session in from elsewhere, whole or not at all; False if its key has an active session.

        It was `created` when it says so, else with its first record.
        """
        active = SessionPaths.of(self._root, key)
        created = created or records[0].ts

        def work(session: SessionQueue) -> bool:
            with KeyLock(self._system, active):
                if not archived:
                    return session.log.import_session(records, src=src, created=created)
                # A deletion that was not finished would take the new generation.
                session.log.exists()
                place = active._replace(archived=session.log.writer.next_uid())
                make_folder(self._system, place.folder)
                with self._briefly(place) as log:
                    return log.import_session(records, src=src, created=created)

        with wrap_error(Refused, "nothing was stored"):
            return self._writers.alone(key, work)

    def take_in(self, key: str) -> None:
        """Keep a second log, that an earlier version began under the plain name, as a generation of the session."""
        place = SessionPaths.of(self._root, key)

        def work(session: SessionQueue) -> None:
            with KeyLock(self._system, place):
                session.log.take_in()

        self._writers.alone(key, work)

    def _originals(self, key: str) -> Sequence[str]:
        """The files from which a session was or would be brought in, and which are still there.

        They are an earlier agent's, or were written while the store could not be used.
        """
        found = standby_documents(self._root, key)
        try:
            sources = self.source_of(key)
        except LogDamaged:
            # What cannot be read cannot say where it came from, and may be erased all the same.
            return found
        for source in sources:
            folder, _, name = f"{self._root}/{source.get('file', '')}".rpartition("/")
            with suppress(OSError):
                files = [file for file in self._system.listdir(folder) if file.startswith(f"{name}.migrated")]
                paths = [f"{folder}/{file}" for file in files]
                found += [path for path in paths if _digest(self._system, path) == source.get("sha256")]
        return found

    def source_of(self, key: str) -> Sequence[dict[str, Any]]:
        """Where the generations of a session came from, of those that came from elsewhere; a fork did not."""
        headers = self._read_each(key, lambda view: view.find(view.header.n))
        return [header.src for header in headers if header is not None and header.src is not None]

    def hold(self, key: str) -> Lease:
        place = SessionPaths.of(self._root, key)

        def fence() -> int:
            # Most turns are in a session that this process has open.
            with suppress(OSError):
                if (found := self._writers.look(key)) is not None:
                    return found[1].fence
            return fence_of(self._system, place)

        def take_over(who: str) -> int | None:
            n = self.run(key, Transaction((TakeOver(who),)))
            record = self.read(key, lambda view: view.find(n))
            return record.st.fence if record is not None and record.t == "turn" else None

        return TurnLease(self._system, place, fence=fence, take_over=take_over)

    def watch(self) -> Watch:
        from nacre.storage.watch import Watch  # noqa: PLC0415 - brings ctypes along, which few need

        return Watch(f"{self._root}/sessions")

    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        def get_later(view: LogView) -> Later:
            header = view.header
            start = after if uid in ("", header.uid) else 0
            most = MAX_LATER_BYTES
            edge = max([header.high, *(level.n for level in header.base if level.cold)])
            if start < edge:
                # Going back would not meet what was moved out; it can only be read whole. So that this is not done
                # over and over, as much may be given as was read for it.
                upto = edge
                most = max(most, view.lines.size + header.cold + sum(level.log + level.cold for level in header.base))
                found = [
                    record for record in takewhile(lambda record: record.n <= edge, view.all()) if record.n > start
                ]
            else:
                # The last batch was read to know that it is whole: all of it, or a part, costs the same.
                newest = next(view.back(view.n))
                upto = max(start, min(start + max(limit, newest.n - newest.batch + 1), view.n))
                found = list(takewhile(lambda record: record.n > start, view.back(upto)))[::-1]
            records = blobs.whole_up_to(most, found, view)
            upto = upto if len(records) == len(found) else records[-1].n
            return Later(header.uid, upto, records, upto >= view.n)

        _, found = self._read(SessionPaths.of(self._root, key), get_later, settled)
        return found or Later(uid, after)

    def verify(self, key: str | None) -> Report:
        places = self._known_places(key) if key is not None else [*self._all_places(), *self._all_places(archived=True)]
        found = [finding for place in places for finding in self._findings(place)]
        for entry in self._reported(key):
            what = describe_quarantine([entry])
            detail = f"{what}: {entry.reason}" if entry.bytes else what
            found.append(Finding(key=entry.key, kind="quarantine", where=entry.ref, detail=detail))
        for file in self._redactor().damaged():
            name, uid, n, *_ = (*file.split("."), "", "")
            if key is None or SessionPaths.of(self._root, key).name == name:
                about = key or key_of(name) or self._key_in(SessionPaths(self._root, "", name)) or name
                detail = f"the note that record {n} of generation {uid} is to be erased is damaged; erase it again"
                found.append(Finding(key=about, kind="redaction", where=f"redacting/{file}", detail=detail))
        return Report(findings=tuple(found))

    def repair(self, key: str) -> Receipt:
        receipts = []
        for place in self._known_places(key):
            receipts += [self._repair(place, wait=True), self._note_in_place(place)]
        return Receipt(
            key=key,
            kept=sum(receipt.kept for receipt in receipts),
            set_aside=sum(receipt.set_aside for receipt in receipts),
            quarantine=next((receipt.quarantine for receipt in receipts if receipt.quarantine), None),
        )

    # ---- erasing one record

    def redact(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:
        self._seal.check_now()
        found = self._redactor().begin(key, n, uid=uid, find_copies=find_copies, has_copies=has_copies)
        return replace(found, originals=tuple(self._originals(key)))

    def end_redaction(self, redaction: Redaction, *, are_copies_left: bool = False) -> None:
        found = redaction
        self._redactor().end(found.key, found.generation, found.n, are_copies_left=are_copies_left)

    def begun_redactions(self) -> list[BegunRedaction]:
        """Redactions that were cut short; notes that are damaged are only reported."""
        redactor = self._redactor()
        for file in redactor.damaged():
            logger.warning("a note of what is to be erased is damaged; erase it again", extra={"file": file})
        return [
            BegunRedaction(
                Redaction(key=intent.key, generation=intent.uid, n=intent.n), intent.has_copies, intent.is_stored
            )
            for intent in redactor.pending()
        ]

    def resume_redaction(self, redaction: Redaction) -> None:
        self._redactor().resume(redaction.key, redaction.generation, redaction.n)

    def _redactor(self) -> Redactor:
        from nacre.storage.redaction import Redactor  # noqa: PLC0415 - few ever need it

        return Redactor(self._system, self._root, self._writers, self._briefly)

    # ---- housekeeping, of which most processes need nothing

    def generation(self, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
        from nacre.storage.maintenance import generation  # noqa: PLC0415 - for people who tidy up

        with wrap_error(StoreError, f"session {key!r} cannot be read"):
            return generation(self._system, SessionPaths.of(self._root, key, uid), is_pinned=is_pinned)

    def disk_usage(self, keys: Sequence[str]) -> DiskUsage:
        from nacre.storage.maintenance import measure  # noqa: PLC0415 - the same

        with wrap_error(StoreError, f"{self._root} cannot be read"):
            return measure(self._system, self._root, keys)

    def log_size(self, key: str) -> int:
        from nacre.storage.maintenance import log_size  # noqa: PLC0415 - the same

        with wrap_error(StoreError, f"session {key!r} cannot be read"):
            return log_size(self._system, self._root, key)

    def kept_size(self, key: str, keep: Callable[[View], set[int]]) -> int:
        def get(view: LogView) -> int:
            return Survey(view.lines).size_of(keep(view))

        return self._read(SessionPaths.of(self._root, key), get)[1] or 0

    def key_of_file(self, path: str) -> str | None:
        from nacre.storage.maintenance import key_of_file  # noqa: PLC0415 - the same

        return key_of_file(self._system, path)

    def has_other_logs(self, keys: Sequence[str]) -> bool:
        from nacre.storage.maintenance import has_other_logs  # noqa: PLC0415 - the same

        with wrap_error(StoreError, f"{self._root} cannot be read"):
            return has_other_logs(self._system, self._root, keys)

    def remove_leftovers(self, *, dry_run: bool) -> list[Leftover]:
        from nacre.storage.maintenance import leftovers, remove  # noqa: PLC0415 - the same

        with wrap_error(StoreError, f"what is left over in {self._root} cannot be removed"):
            found = leftovers(self._system, self._root)
            return [one for one in found if dry_run or remove(self._system, one.path)]

    def journal(self, name: str) -> Journal:
        from nacre.storage.maintenance import JournalFile  # noqa: PLC0415 - the same

        return JournalFile(self._system, self._root, name)

    def document(self, name: str, *, held: Lease | None = None) -> Document:
        from nacre.storage.documents import FileDocument, path_of  # noqa: PLC0415 - the same

        return FileDocument(path_of(self._root, name), self._system, held=held, seal=self._seal)

    def move_to_trash(self, key: str, uid: str | None) -> None:
        self._trash().put(key, uid)

    def list_trash(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        return self._trash().sessions(title_of)

    def key_in_trash(self, id: str) -> str:
        return self._trash().key_of(id)

    def restore_from_trash(self, id: str) -> None:
        self._trash().restore(id)

    def erase_from_trash(self, id: str) -> bool:
        return self._trash().erase(id)

    def _trash(self) -> Trash:
        from nacre.storage.trash_folder import Trash  # noqa: PLC0415 - the same

        return Trash(self)

    def transfer(self) -> FileTransfer:
        """The store's part of moving sessions to another one."""
        from nacre.storage.file_transfer import Files, FileTransfer  # noqa: PLC0415 - once in the life of a store

        return FileTransfer(
            Files(
                root=self._root,
                system=self._system,
                marks=self._marks,
                seal=self._seal,
                writers=self._writers,
                open_log=self._briefly,
                places=lambda archived: self._all_places(archived=archived),
                mend=self._read,
            )
        )

    # ---- quarantine

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        return self._quarantine.entries(key)

    def restore(self, key: str, n: int | None) -> Settlement:
        active = SessionPaths.of(self._root, key)

        def work(uid: str, numbers: Sequence[int]) -> Settlement:
            # Into the log of their generation, wherever that is; if it is gone, into the active one.
            found = self._writers.alone(key, lambda session: session.log.restore(uid, numbers, create=False))
            archived = active._replace(archived=uid)
            if found is None and archived in self._archived(active):
                with self._briefly(archived) as log:
                    found = log.restore(uid, numbers, create=False)
            if found is None:
                found = self._writers.alone(key, lambda session: session.log.restore(uid, numbers, create=True))
            return found or Settlement(key=key)

        return self._settle(key, n, work, is_restored=True)

    def discard(self, key: str, n: int | None) -> Settlement:
        place = SessionPaths.of(self._root, key)

        def work(uid: str, numbers: Sequence[int]) -> Settlement:
            self._seal.check_now()
            settle(self._system, place, uid, numbers, "discarded")
            return Settlement(key=key, entries=tuple(numbers))

        return self._settle(key, n, work)

    def _settle(
        self, key: str, n: int | None, work: Callable[[str, Sequence[int]], Settlement], *, is_restored: bool = False
    ) -> Settlement:
        """Settle the entries of a session, or one, generation by generation; what is settled already stays so.

        If none of them has a whole record there is nothing to restore, and they stay reported.
        """
        everything = self.quarantine(key)
        for entry in everything:
            if not entry.n:
                raise StoreError(f"session {key!r}: {entry.reason}")
        known = [entry for entry in everything if n in (None, entry.n)]
        if n is not None and not known:
            raise SessionNotFound(f"session {key!r} has no quarantine entry {n}")
        if is_restored and not any(entry.records for entry in known):
            return Settlement(key=key)
        numbers: dict[str, list[int]] = {}
        for entry in known:
            if not entry.settled:
                numbers.setdefault(entry.generation, []).append(entry.n)
        done: list[Settlement] = []
        try:
            done.extend(work(uid, numbers[uid]) for uid in sorted(numbers))
        except OSError as error:
            if not is_from_system(error):
                raise
            kind = DurabilityUnknown if done else Refused
            rest = "not all entries are settled" if done else "nothing was done"
            raise kind(f"the quarantine of session {key!r} cannot be changed, {rest}: {error}") from error
        return Settlement(
            key=key,
            entries=tuple(number for one in done for number in one.entries),
            numbers=tuple(number for one in done for number in one.numbers),
        )

    def _reported(self, key: str | None) -> Sequence[QuarantineEntry]:
        return [entry for entry in self.quarantine(key) if not entry.settled]

    def _key_in(self, place: SessionPaths) -> str | None:
        """The key that a log names; None if there is none."""
        found = self._peek(place)
        return found.view.header.sid if found.view is not None else None

    # ---- writing

    def _log(self, place: SessionPaths) -> Log:
        # The index knows nothing of the trash.
        marks = None if isinstance(place, TrashedPaths) else self._marks
        return Log(self._system, place, rules=self._rules, relaxed=self._relaxed, marks=marks, seal=self._seal)

    @contextmanager
    def _briefly(self, place: SessionPaths) -> Iterator[Log]:
        """A log for one piece of work, which is not left open whatever comes of that."""
        log = self._log(place)
        try:
            yield log
            log.writer.close()
        finally:
            log.writer.drop()

    def _repair(self, place: SessionPaths, *, wait: bool) -> Receipt:
        with self._briefly(place) as log:
            return log.repair(wait=wait)

    def _note_in_place(self, place: SessionPaths) -> Receipt:
        """Note in the quarantine what is still wrong after a repair, so that a person can settle it.

        Cold files, payloads and what a fork shares are not changed by a repair.
        """
        with reading(self._system, place) as found:
            if found.view is None:
                return Receipt(key=place.key, kept=0, set_aside=0, quarantine=None)
            uid = found.view.uid
            left = [_describe(one) for one in findings(found.view, key=place.key, rules=self._rules)]
        noted = self._noted_in_place(place, uid)
        new = [detail for detail in dict.fromkeys(left) if detail not in noted]
        for detail in new:
            set_aside(self._system, place, uid, None, (), reason=IN_PLACE, detail=detail)
        return Receipt(key=place.key, kept=0, set_aside=len(new), quarantine=place.quarantine(uid) if new else None)

    def _noted_in_place(self, place: SessionPaths, uid: str) -> set[str]:
        """Damage that is in the quarantine already, and is reported from there until it is settled."""
        return {entry.detail for entry in entries(self._system, place, uid) if entry.kind == IN_PLACE}

    def _settle_folders(self) -> None:
        """Before the first write of this process, settle the directory and those above it.

        The process that created them may have been killed before it did.
        """
        folder = self._root
        try:
            settle_names(self._system, folder)
            while folder != os.path.dirname(folder):
                folder = os.path.dirname(folder)
                settle_names(self._system, folder)
        except PermissionError:
            # Not ours to sync, so not ours to have made.
            logger.debug("a directory above the store cannot be synced", extra={"folder": folder})
        except OSError as error:
            if not is_from_system(error):
                raise
            raise Refused(f"{folder} cannot be synced, nothing was stored: {error}") from error

    # ---- places

    def _known_places(self, key: str) -> Sequence[SessionPaths]:
        """Where the generations of a session are, emptied logs too; raises SessionNotFound if nothing of it is left."""
        active = SessionPaths.of(self._root, key)
        places = list(self._places(key).values())
        if not self._peek(active).is_deleted:
            logs = [*self._archived(active), active]
            places = [place for place in logs if place in places or is_emptied(self._system, place)]
        if not places and not self._reported(key):
            raise SessionNotFound(f"there is no session {key!r}")
        return places

    def _places(self, key: str) -> dict[str, SessionPaths]:
        """Where the generations of a session are, by uid and oldest first; the active one may have none yet."""
        active = SessionPaths.of(self._root, key)
        found = self._peek(active)
        archived = self._archived(active)
        newest = None
        if not found.size:
            newest = self._newest(archived)
            # It may have been brought back in between.
            found = self._peek(active)
        if found.is_deleted or (not found.size and newest is None):
            return {}
        # Only archived generations that began after the last deletion count; what that left is removed.
        for at in range(len(archived) - 1, -1, -1):
            if self._peek(archived[at]).is_deleted:
                try:
                    with self._briefly(archived[at]) as log:
                        log.exists(wait=False)
                except (SessionBusy, Conflict):
                    # Another process is deleting it, or has finished.
                    logger.debug("a deletion is being finished", extra={"file": archived[at].log})
                except StoreError as error:
                    logger.warning("a deletion was not finished", extra={"error": describe_error(error)})
                archived = archived[at + 1 :]
                break
        # A crash while the log was moved may have left it under both names.
        uid = found.view.header.uid if found.view is not None else ""
        others = {place.archived: place for place in archived if place.archived != uid}
        return {**others, uid: active} if found.size else others

    def _peek(self, place: SessionPaths) -> Reading:
        """See what a log holds without reading or mending it."""
        try:
            with reading(self._system, place) as found:
                return found
        except (OSError, StoreError):
            # Something is there; a reader of it gets the error.
            return Reading(size=1)

    def _archived(self, active: SessionPaths) -> list[SessionPaths]:
        with wrap_error(StoreError, f"the archive of {self._root} cannot be read"):
            uids = uids_in(self._system, f"{self._root}/archive", active.name)
        return [active._replace(archived=uid) for uid in uids]

    def _newest(self, archived: Sequence[SessionPaths]) -> SessionPaths | None:
        """The newest of archived generations; None if there is none, or it was deleted."""
        for place in reversed(archived):
            found = self._peek(place)
            # Nothing is left in an empty file; `verify` reports it, and what is older can still be read.
            if found.size:
                return None if found.is_deleted else place
        return None

    def _all_places(self, *, archived: bool = False) -> Iterator[SessionPaths]:
        """Every log in the store; the key is not known before its header is read."""
        files: list[str] = []
        with wrap_error(StoreError, f"{self._root} cannot be read"), suppress(FileNotFoundError):
            files = self._system.listdir(f"{self._root}/{'archive' if archived else 'sessions'}")
        # Under both its names, or next to a file of an earlier agent, a log is still one.
        logs = dict.fromkeys(
            SessionPaths.of_file(self._root, file) for file in sorted(files) if file.endswith(".jsonl")
        )
        places = [place for place in logs if bool(place.archived) == archived]
        if not archived:
            yield from places
            return
        for _, same_name in groupby(places, key=attrgetter("name")):
            generations = list(same_name)
            active = self._peek(generations[0]._replace(archived=""))
            if active.is_deleted:
                # A deletion has yet to remove them.
                continue
            # One that a move which was cut short left in the archive as well is active.
            uid = active.view.header.uid if active.view is not None else ""
            is_alone = len(generations) == 1
            ends = [at for at, place in enumerate(generations) if not is_alone and self._peek(place).is_deleted]
            yield from (place for place in generations[ends[-1] + 1 if ends else 0 :] if place.archived != uid)

    # ---- reading

    def _read(
        self, place: SessionPaths, get: Callable[[LogView], T], read: type[reading] = reading
    ) -> tuple[Reading, T | None]:
        """Read a log; if it turns out to be damaged, mend it, unless a writer is at it, and read again.

        What seems to be lost may have gone with a session that was deleted or moved meanwhile: then look again.
        """
        found, value = self._read_once(place, get, read)
        is_damaged = found.view.damaged if found.view is not None else found.is_damaged
        if is_damaged:
            try:
                self._repair(place, wait=False)
            except StoreError as error:
                extra = {"file": place.log, "error": describe_error(error)}
                logger.warning("a damaged log could not be repaired", extra=extra)
            else:
                found, value = self._read_once(place, get, read)
        view = found.view
        losses = view.losses if view is not None else None
        if view is not None and losses and (view.uid, losses) not in self._warned:
            # Log once what of a session cannot be read, unless a person has settled it.
            self._warned.add((view.uid, losses))
            is_reported = any(not entry.settled for entry in entries(self._system, place, view.uid))
            if is_reported or self._findings(place):
                from shlex import quote  # noqa: PLC0415 - hardly ever needed

                advice = f"`nacre sessions verify {quote(place.key)}` shows where"
                logger.warning("session %r: %s; %s", place.key, losses.text, advice, extra={"losses": losses})
        return found, value

    def _read_once(
        self, place: SessionPaths, get: Callable[[LogView], T], read: type[reading]
    ) -> tuple[Reading, T | None]:
        while True:
            found = Reading()
            try:
                with read(self._system, place, self._ends) as found:
                    value = get(found.view) if found.view is not None else None
                if not (found.view is not None and found.view.losses and self._is_over(place, found.view)):
                    return found, value
            except OSError as error:
                if not is_from_system(error):
                    raise
                if found.view is None or not self._is_over(place, found.view):
                    raise StoreError(f"{place.log} cannot be read: {error}") from error

    def _is_over(self, place: SessionPaths, view: LogView) -> bool:
        """Tell whether a generation that was read is no longer there: deleted, or moved."""
        now = self._peek(place)
        return not now.size or now.is_deleted or (now.view is not None and now.view.uid != view.uid)

    def _read_each(self, key: str, get: Callable[[LogView], T]) -> list[T]:
        """What is read of every generation of a session, oldest first, without those that have nothing of it."""
        active = SessionPaths.of(self._root, key)
        while not self._archived(active):
            # Most sessions have one generation, and its log is opened once.
            value = self._read(active, get)[1]
            if not self._archived(active):
                return [value] if value is not None else []

        def get_earlier(view: LogView) -> T:
            view.is_newest = False
            return get(view)

        places = self._places(key)
        while True:
            newest = next(reversed(places), None)
            values = [self._read(place, get if uid == newest else get_earlier)[1] for uid, place in places.items()]
            now = self._places(key)
            if now == places:
                return [value for value in values if value is not None]
            # A generation was begun, moved or deleted meanwhile.
            places = now

    def _findings(self, place: SessionPaths) -> Sequence[Finding]:
        """What is wrong with a log; nothing if it was deleted meanwhile, which takes away what belongs to it."""
        key = place.key or place.name
        view: LogView | None = None
        wrong: list[Finding] = []
        try:
            if other := has_plain_name(self._system, place):
                wrong.append(Finding(key=key, kind=other, where=place.plain, detail=_PLAIN_NAME[other]))
            with reading(self._system, place) as found:
                view = found.view
                if found.is_deleted:
                    return wrong
                if view is not None:
                    key = _key(place, view)
                    noted = self._noted_in_place(place, view.uid)
                    here = findings(view, key=key, rules=self._rules)
                    wrong += (finding for finding in here if _describe(finding) not in noted)
                if not found.size and is_emptied(self._system, place):
                    detail = "the log is empty (0 bytes); what was in it is gone"
                    wrong.append(Finding(key=key, kind="emptied", where=place.log, detail=detail))
                end = view.lines.size if view is not None else found.end
                if end < found.size:
                    where = f"bytes {end} to {found.size}"
                    torn = Finding(key=key, kind="torn", where=where, detail="no whole record")
                    strange = Finding(key=key, kind="stranger", where=place.log, detail=_STRANGE)
                    wrong.append(strange if not end and is_strange(self._system, place.log) else torn)
        except (OSError, StoreError) as error:
            wrong.append(Finding(key=key, kind="unreadable", where=place.log, detail=str(error)))
        # Nothing is wrong with a generation that is neither active nor archived any more.
        return () if wrong and view is not None and self._is_erased(place, view) else wrong

    def _is_erased(self, place: SessionPaths, view: LogView) -> bool:
        elsewhere = place._replace(archived="" if place.archived else view.uid)
        return self._is_over(place, view) and self._is_over(elsewhere, view)

    # ---- moving and erasing

    def _erase(self, place: SessionPaths, log: Log, expect: int | Version | None) -> None:
        archived = self._archived(place)
        is_there = True
        if archived:
            with suppress(LogDamaged):
                is_there = log.exists()
        if not is_there:
            # An interrupted rewrite or creation of an earlier generation may have left these.
            log.make_way()
            for leftover in (place.scratch, place.birth):
                unlink_if_there(self._system, leftover)
            # The record of the deletion goes into the newest log, which is then the last to go.
            with self._briefly(archived[-1]) as last:
                last.erase(expect)
            return
        try:
            log.erase(expect)
        except Conflict:
            # Another process was quicker; what it has not yet removed is removed here. Or it is not as expected, still.
            log.erase(expect)

    def begin_in_child(self) -> None:
        """After a fork, in the child."""
        if self._marks is not None:
            self._marks.begin_in_child()
        self._writers.begin_in_child()


def _describe(finding: Finding) -> str:
    return f"{finding.where}: {finding.detail}"


def _digest(system: System, path: str) -> str:
    with opened(system, path) as fd:
        return sha256(Lines(system, fd, 1 << 62).read(0, 1 << 62)).hexdigest()


def _prepare(system: System, root: str) -> None:
    """Make the store's directories; raises if the place cannot be one."""
    try:
        for folder in (root, f"{root}/sessions"):
            _make(system, folder)
            found = system.stat(folder)
            if modes.S_ISLNK(found.st_mode):
                raise StoreError(f"{folder} is a symbolic link; use the directory that it points to")
            if not modes.S_ISDIR(found.st_mode):
                raise StoreError(f"{folder} is not a directory")
            if found.st_uid != os.geteuid():
                raise StoreError(f"{folder} belongs to another user (uid {found.st_uid})")
    except OSError as error:
        raise Refused(f"a store cannot be opened at {root}: {error}") from error


def _make(system: System, path: str) -> None:
    """Make a directory and those above it, unless they are there; the first write settles their names."""
    try:
        system.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make(system, os.path.dirname(path))
        system.mkdir(path, 0o700)


def _key(place: SessionPaths, view: LogView) -> str:
    """The true key of a log that was met by its name."""
    key = place.key or view.header.sid or key_of(place.name)
    if key is None or stem(key) != place.name:
        raise LogDamaged(f"{place.log} does not name its session, or names another")
    return key


_STRANGE = "not a log of nacre; it was not changed, and should be moved out of the store"
_PLAIN_NAME = {
    "second": "a second log of this session, begun by an earlier version; the next start keeps both as generations",
    "stranger": "not a log of nacre; it was not changed. The next start imports a session of an earlier agent; "
    "anything else should be moved out of the store",
}


def _logs_to_keep_open() -> int:
    """A sixteenth of the files that the process may have open, but 64 to 512; of very few files a quarter.

    To open a log again costs much. A process may have several stores, and files for other things.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_OPEN
    return max(1, min(files // 4, _MIN_OPEN), min(files // 16, _MAX_OPEN))


_stores: weakref.WeakSet[FileStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.begin_in_child()


os.register_at_fork(after_in_child=_after_fork)
