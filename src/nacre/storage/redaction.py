"""Erasing the content of one record from every file of its generation; a marked hole stays.

What is to be erased is noted in `redacting/` before anything is changed, without a word of the content, and the note
goes when all is done: a process that is killed on the way leaves the rest to the next opening of the store. Files are
replaced, never changed in place. The log comes after the others: as long as it has the content, that can be found
elsewhere.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.errors import Conflict, DurabilityUnknown, SessionNotFound, StoreError
from nacre.messages import Redaction
from nacre.records import Record
from nacre.storage import blobs, compaction, quarantine
from nacre.storage.format import START, SUFFIX, unseal
from nacre.storage.holes import Erased, Trace, has_content, hole, plan, unpadded
from nacre.storage.lines import Lines, Piece
from nacre.storage.locks import KeyLock
from nacre.storage.log import Log
from nacre.storage.paths import (
    SessionPaths,
    TrashedPaths,
    listed,
    make_folder,
    replace_file,
    settle_names,
    uids_in,
    unlink_if_there,
)
from nacre.storage.protocol import FindCopies
from nacre.storage.recovery import Level
from nacre.storage.system import System, opened, wrap_error
from nacre.storage.view import reading
from nacre.storage.writer import LogWriter
from nacre.storage.writer_pool import SessionQueue, Writers

logger = logging.getLogger(__name__)

T = TypeVar("T")

FOLDER = "redacting"
_TRASHED = re.compile(r"([^.]+)\.([0-9a-f]{32}\.\d{1,18}(?:\.archived)?)\.jsonl\Z")


class Intent(Struct, frozen=True, kw_only=True):
    """What is being erased: of which session and generation, which records, and which large payloads.

    `has_copies` says that somebody besides the store has copies, which must be erased too before this is done;
    `is_stored` that they are all that is left.
    """

    key: str
    uid: str
    n: int
    also: tuple[int, ...] = ()
    last: int = 0
    payloads: tuple[str, ...] = ()
    sources: tuple[tuple[str, int], ...] = ()
    has_copies: bool = False
    is_stored: bool = False

    @property
    def erased(self) -> Erased:
        return Erased(self.n, self.also, self.last)


class Redactor:
    """Erases records from the files of one store."""

    def __init__(
        self,
        system: System,
        root: str,
        writers: Writers,
        open_log: Callable[[SessionPaths], AbstractContextManager[Log]],
    ) -> None:
        self._system = system
        self._root = root
        self._writers = writers
        self._open_log = open_log

    # ---- what is to be done, noted before it begins

    def pending(self) -> list[Intent]:
        """What was begun and has not come to its end."""
        return [intent for _, intent in self._notes() if intent is not None]

    def damaged(self) -> list[str]:
        """The names of notes that are not what was written: what they say is not done, it might be another record."""
        return [file for file, intent in self._notes() if intent is None]

    def _notes(self) -> Iterator[tuple[str, Intent | None]]:
        folder = f"{self._root}/{FOLDER}"
        # One under another name was being written, before anything was changed.
        for file in sorted(file for file in listed(self._system, folder) if file.endswith(".json")):
            data = b""
            try:
                with opened(self._system, f"{folder}/{file}") as fd:
                    data = Lines(self._system, fd, size := self._system.fstat(fd).st_size).read(0, size)
            except FileNotFoundError:
                continue
            except OSError:
                logger.warning("a note of what is to be erased cannot be read", exc_info=True)
            yield file, _unseal_note(data)

    def note(self, intent: Intent) -> None:
        """Note durably what is to be done, or how far it has come."""
        make_folder(self._system, f"{self._root}/{FOLDER}")
        replace_file(self._system, self._path(intent.key, intent.uid, intent.n), [_seal_note(intent)])

    def end(self, key: str, uid: str, n: int, *, are_copies_left: bool) -> None:
        """Note that everything is done, or everything but what others than the store have to do."""
        with wrap_error(DurabilityUnknown, "the content is erased, but not the note that it is to be"):
            if are_copies_left:
                for intent in self.pending():
                    if (intent.key, intent.uid, intent.n) == (key, uid, n):
                        self.note(replace(intent, is_stored=True))
            else:
                unlink_if_there(self._system, self._path(key, uid, n))
                settle_names(self._system, f"{self._root}/{FOLDER}")

    def _path(self, key: str, uid: str, n: int) -> str:
        return f"{self._root}/{FOLDER}/{SessionPaths.of(self._root, key).name}.{uid}.{n}.json"

    # ---- doing it

    def begin(self, key: str, n: int, *, uid: str, find_copies: FindCopies, has_copies: bool) -> Redaction:
        """Erase a record of a generation, of the newest if none is named; its note stays until `end`.

        Raises SessionNotFound if there is no such generation, Conflict if there is no such record in it.
        """

        def work(writer: LogWriter) -> tuple[Redaction, Intent]:
            planned, intent = self._plan(writer, key, n, find_copies)
            intent = replace(intent, has_copies=has_copies)
            for begun in self.pending():
                if (begun.key, begun.uid, begun.n) == (key, intent.uid, n):
                    # An earlier try that failed knew of more: some of the content may be gone by now.
                    intent = replace(
                        intent,
                        also=tuple({*begun.also, *intent.also}),
                        last=begun.last,
                        payloads=tuple({*begun.payloads, *intent.payloads}),
                        sources=tuple({*begun.sources, *intent.sources}),
                        has_copies=begun.has_copies or has_copies,
                    )
            with _in_doubt(intent):
                self.note(intent)
                return self._erase(writer, planned, intent), intent

        redaction, intent = self._with_log(key, uid, work)
        with _in_doubt(intent):
            # After the log: nobody makes another link to the file that it was.
            self._clean_forks(intent)
        return redaction

    def resume(self, key: str, uid: str, n: int) -> None:
        """Erase what is left; nothing if another process has finished it."""
        for intent in self.pending():
            if (intent.key, intent.uid, intent.n) == (key, uid, n):
                self._resume(intent)

    def _resume(self, intent: Intent) -> None:
        """Erase what is left; of a generation that was deleted meanwhile that is nothing."""
        empty = Redaction(key=intent.key, generation=intent.uid, n=intent.n)

        def work(writer: LogWriter) -> None:
            with _in_doubt(intent):
                self._erase(writer, empty, intent, is_resumed=True)

        with suppress(SessionNotFound):
            self._with_log(intent.key, intent.uid, work)
        with _in_doubt(intent):
            self._clean_forks(intent)

    def _with_log(self, key: str, uid: str, work: Callable[[LogWriter], T]) -> T:
        """Do something to the log of a generation, wherever that is, with the locks of the key and the log."""
        active = SessionPaths.of(self._root, key)

        def hold(log: Log, place: SessionPaths) -> T:
            writer = log.writer
            with writer.hold(create=False) as is_there:
                if not is_there or not writer.holds_session:
                    raise SessionNotFound(f"there is no session {key!r}")
                writer.sync()
                survey = writer.survey()
                if not survey.is_whole:
                    writer.rebuild(survey)
                self._drop_second_names(writer, place)
                return work(writer)

        def find_and_hold(session: SessionQueue) -> T:
            with KeyLock(self._system, active):
                is_there = session.log.exists()
                if is_there and uid in ("", session.log.writer.uid):
                    return hold(session.log, active)
                place = self._find(active, uid)
                if place is None:
                    raise SessionNotFound(f"there is no session {key!r}" + f" with the generation {uid}" * bool(uid))
                self._let_follow(place)
                # The generation after it knows its ids, with fingerprints.
                session.log.writer.forget_ids()
                with self._open_log(place) as log:
                    return hold(log, place)

        return self._writers.alone(key, find_and_hold)

    def _find(self, active: SessionPaths, uid: str) -> SessionPaths | None:
        """An archived generation, else one in the trash; the newest if none is named."""
        archived = [one for one in uids_in(self._system, f"{self._root}/archive", active.name) if uid in ("", one)]
        if archived:
            return active._replace(archived=archived[-1])
        trashed = [place for place in self._trashed(active) if place.archived.startswith(uid)]
        return trashed[-1] if trashed else None

    def _trashed(self, place: SessionPaths) -> list[SessionPaths]:
        """The logs of a session that are in the trash, by generation."""
        matches = map(_TRASHED.match, sorted(listed(self._system, f"{self._root}/trash")))
        return [
            TrashedPaths(place.root, place.key, match[1], match[2])
            for match in matches
            if match is not None and match[1] == place.name
        ]

    def _let_follow(self, place: SessionPaths) -> None:
        """Move what belongs to a log in the trash there, if a crash has left it at home."""
        uid, home = place.archived.partition(".")[0], SessionPaths.of(self._root, place.key)
        for old, new in ((home.cold(uid), place.cold(uid)), (home.quarantine(uid), place.quarantine(uid))):
            if old != new:
                with suppress(FileNotFoundError):
                    self._system.rename(old, new)
                    settle_names(self._system, place.folder)

    def _drop_second_names(self, writer: LogWriter, place: SessionPaths) -> None:
        """Remove other names of a log, and what rewrites of it left, after a crash: they would keep what it was."""
        home = SessionPaths.of(self._root, place.key)
        archived = home._replace(archived=writer.uid)
        trashed = [other for other in self._trashed(home) if other.archived.startswith(writer.uid)]
        for other in (home, archived, *trashed):
            if other != home or place == home:
                for leftover in other.scratches:
                    unlink_if_there(self._system, leftover)
                # There may be no archive, and no trash.
                with suppress(FileNotFoundError):
                    settle_names(self._system, other.folder)
            with suppress(FileNotFoundError):
                found = self._system.stat(other.log)
                if other.log != place.log and (found.st_dev, found.st_ino) == writer.inode:
                    self._system.unlink(other.log)
                    settle_names(self._system, other.folder)

    # ---- what there is to erase

    def _plan(self, writer: LogWriter, key: str, n: int, find_copies: FindCopies) -> tuple[Redaction, Intent]:
        view, uid = writer.view(), writer.uid
        record = view.find(n)
        if record is not None and not has_content(record):
            raise Conflict(
                f"record {n} of session {key!r} is of the kind {record.t!r}, without a content that can be erased"
            )
        if record is None:
            # It may have been damaged, and set aside.
            blank = partial(quarantine.blank, self._system, change=Trace(Erased(n), ()).blank, dry_run=True)
            if not sum(map(blank, self._asides(writer))):
                raise Conflict(f"session {key!r} has no message {n}")
            return Redaction(key=key, generation=uid, n=n), Intent(key=key, uid=uid, n=n)
        found = plan(view, record, find_copies)
        source = ((record.restored_from[0], record.restored_from[1]),) if record.restored_from is not None else ()
        intent = Intent(
            key=key,
            uid=uid,
            n=n,
            also=found.erased.also,
            last=found.erased.last,
            payloads=found.payloads,
            sources=source,
        )
        redaction = Redaction(
            key=key,
            generation=uid,
            n=n,
            kept=found.kept,
            summaries=found.summaries,
            forks=tuple(self._sharers(writer, record)) if record.gone is None else (),
        )
        return redaction, intent

    def _sharers(self, writer: LogWriter, record: Record) -> list[str]:
        """The keys of other sessions that have the same record: forks, and what this one was forked from."""
        found: set[str] = set()
        for place in (*self._forks(), *self._ancestors(writer)):
            try:
                with reading(self._system, place) as other:
                    view = other.view
                    if view is not None and view.uid != writer.uid and view.find(record.n) == record:
                        found.add(view.key)
            except (OSError, StoreError):
                # What cannot be read may have it.
                found.add(place.key or place.name)
        return sorted(found)

    def _forks(self) -> Iterator[SessionPaths]:
        """Every log that may be a fork's: one of a session with files in `base`."""
        base = f"{self._root}/base"
        for name in sorted({file.partition(".")[0] for file in listed(self._system, base)}):
            active = SessionPaths(self._root, "", name)
            yield active
            for uid in uids_in(self._system, f"{self._root}/archive", name):
                yield active._replace(archived=uid)
            yield from self._trashed(active)

    def _ancestors(self, writer: LogWriter) -> Iterator[SessionPaths]:
        """The logs that may be of the sessions that a session was forked from; the files that it shares name them."""
        own = SessionPaths.of(self._root, writer.key)
        for depth in range(len(writer.header.base)):
            first = None
            with suppress(FileNotFoundError), opened(self._system, own.base(writer.uid, depth)) as fd:
                first = Lines(self._system, fd, self._system.fstat(fd).st_size).first()
            if first is not None and first.record is not None and first.record.sid and first.record.uid:
                active = SessionPaths.of(self._root, first.record.sid)
                yield from (active, active._replace(archived=first.record.uid), *self._trashed(active))

    def _asides(self, writer: LogWriter, uid: str = "") -> list[str]:
        """The quarantine files of a generation, at home and in the trash."""
        home = SessionPaths.of(self._root, writer.key)
        return [home.quarantine(uid or writer.uid), *self._followers(home, uid or writer.uid, ".quarantine")]

    def _followers(self, home: SessionPaths, uid: str, ending: str) -> list[str]:
        folder, beginning = f"{self._root}/trash", f"{home.name}.{uid}."
        files = sorted(listed(self._system, folder))
        return [f"{folder}/{file}" for file in files if file.startswith(beginning) and file.endswith(ending)]

    # ---- erasing

    def _erase(self, writer: LogWriter, redaction: Redaction, intent: Intent, *, is_resumed: bool = False) -> Redaction:
        system, erased, uid = self._system, intent.erased, intent.uid
        home, header = SessionPaths.of(self._root, intent.key), writer.header
        lines = [piece.raw for piece in writer.view().pieces() if piece.record and piece.record.n in erased.numbers]
        trace = Trace(erased, lines)

        # 1. The quarantine, where damaged bytes of it may be; a record that was restored was whole there.
        quarantined = sum(quarantine.blank(system, path, trace.blank) for path in self._asides(writer))
        for other, n in intent.sources:
            source = Trace(Erased(n), lines)
            quarantined += sum(quarantine.blank(system, path, source.blank) for path in self._asides(writer, other))

        # 2. What was moved out.
        own = partial(_change, trace, erased, header.n, writer.n)
        for path in (home.cold(uid), *self._followers(home, uid, ".cold.zst")):
            with suppress(FileNotFoundError):
                compaction.replace(system, path, own, unpadded)

        # 3. What a fork shares, of which it gets a copy of its own.
        for depth, level in enumerate(header.base):
            low = header.base[depth + 1].n + 1 if depth + 1 < len(header.base) else 1
            if any(low <= n <= level.n for n in erased.numbers):
                shared = partial(_change, trace, erased, low, level.n)
                self._replace_base(home.base(uid, depth), level, shared)

        # 4. The log, also if it was not there: a process that has the session in memory sees by its end that it changed
        #    and reads it again.
        changed: dict[int, bytes] = {}
        for n, line in writer.survey().lines():
            if n in erased.numbers or b'"t":"ids"' in line:
                new = hole(line[:-1], erased)
                changed |= {n: new + b"\n"} if new is not None else {}
        done = sorted(found.n for raw in lines if (found := unseal(raw)) is not None and hole(raw, erased))
        if changed or done or is_resumed:
            writer.replace_lines(changed)

        # 5. The index of ids, which has a fingerprint of it, and what a rewrite of it left; it is made again when it is
        #    needed.
        folder, name = os.path.split(home.ids(uid))
        for file in listed(system, folder):
            if file.startswith(name):
                unlink_if_there(system, f"{folder}/{file}")
        with suppress(FileNotFoundError):
            settle_names(system, folder)

        # 6. Large payloads that only this had.
        for name in intent.payloads:
            link = home.blob(uid, name)
            unlink_if_there(system, f"{link}.tmp")
            blobs.release(system, link)
        if intent.payloads:
            settle_names(system, home.blobs)
        return replace(redaction, erased=tuple(done), payloads=len(intent.payloads), quarantined=quarantined)

    def _replace_base(self, path: str, level: Level, change: Callable[[Piece], bytes]) -> None:
        """Give a fork its own copy of what it counts of a log, and of what was moved out of that, with other lines."""
        with opened(self._system, path) as fd:
            lines = Lines(self._system, fd, _length(self._system, fd, level))
            # What comes after the bytes of a piece is its newline, or all of a line that is too long to be one of ours.
            parts = (change(one) + lines.read(one.start + len(one.raw), one.end) for one in lines.forward())
            replace_file(self._system, path, parts)
        if level.cold:
            with suppress(FileNotFoundError):
                compaction.replace(self._system, f"{path}.zst", change, unpadded)

    def _clean_forks(self, intent: Intent) -> None:
        """Erase it from the files of forks that do not share it.

        Those in `base` are links to a whole log, of which a fork counts only a part.
        """
        for place in self._forks():
            key, uid = "", ""
            levels: tuple[Level, ...] = ()
            # What cannot be read was named.
            with suppress(OSError, StoreError), reading(self._system, place) as found:
                if found.view is not None:
                    key, uid, levels = found.view.key, found.view.uid, found.view.header.base
            later = [(depth, one) for depth, one in enumerate(levels) if one.n < max(intent.erased.numbers)]
            if later:
                # Its own deletion must not meet a file that comes back.
                with KeyLock(self._system, SessionPaths.of(self._root, key)), suppress(FileNotFoundError):
                    for depth, level in later:
                        self._clean_base(place.base(uid, depth), level, intent)

    def _clean_base(self, path: str, level: Level, intent: Intent) -> None:
        marks = [b"%b%d," % (START, n) for n in intent.erased.numbers if n > level.n]
        with opened(self._system, path) as fd:
            lines = Lines(self._system, fd, self._system.fstat(fd).st_size)
            first = lines.first()
            is_ours = first is None or first.record is None or first.record.uid == intent.uid
            has_it = is_ours and any(mark in lines.read(0, lines.size) for mark in marks)
        change = partial(_change, Trace(intent.erased, ()), intent.erased, level.n + 1, sys.maxsize)
        if has_it:
            self._replace_base(path, level, change)
        if is_ours and level.cold:
            with opened(self._system, f"{path}.zst") as fd:
                lines = Lines(self._system, fd, self._system.fstat(fd).st_size)
                if lines.size > level.cold:
                    replace_file(self._system, f"{path}.zst", [lines.read(0, level.cold)])
            compaction.replace(self._system, f"{path}.zst", change, unpadded)


def _seal_note(intent: Intent) -> bytes:
    body = msgspec.json.encode(intent)[:-1]
    return b'%b,"crc":"%08x"}' % (body, crc32(body))


def _unseal_note(data: bytes) -> Intent | None:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if data[-SUFFIX:] == b',"crc":"%08x"}' % crc32(data[:-SUFFIX]):
            return msgspec.json.decode(data, type=Intent)
    return None


def _change(trace: Trace, erased: Erased, low: int, high: int, piece: Piece) -> bytes:
    """The bytes of a piece of a file whose records from `low` to `high` are those of the session."""
    if piece.record is None:
        return trace.blank(piece.raw)
    return (hole(piece.raw, erased) if low <= piece.record.n <= high else None) or piece.raw


def _length(system: System, fd: int, level: Level) -> int:
    """How many bytes of a log count for a fork: as many as it says, unless bytes were put in or taken out."""
    lines = Lines(system, fd, level.log)
    last = lines.last()
    is_right = last is not None and last.record is not None and last.record.n == level.last
    return level.log if is_right else max(level.log, system.fstat(fd).st_size)


def _in_doubt(intent: Intent) -> wrap_error:
    return wrap_error(
        DurabilityUnknown,
        f"session {intent.key!r}: the content of record {intent.n} is not erased everywhere yet; "
        "redact it again, or open the store again, to finish that",
    )
