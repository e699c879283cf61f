"""Moving sessions from and to a store of files.

A log may have any of its records moved out, but only as many as its last mark does not count. So that a log that is
written here is whole, with the marks that were made elsewhere, the others go into its cold file:

    header | records that the last mark counts | mark | everything after it        the log
    the other records before the mark                                              the cold file

A fork is written with its past: each session below it is a file in `base/` again, which begins with its header.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import chain, pairwise
from typing import NamedTuple, Protocol, TypeVar

from nacre.codec import parse_time, timestamp
from nacre.errors import Conflict, Refused, StoreError
from nacre.records import Record, View
from nacre.storage import blobs, compaction, quarantine
from nacre.storage.change_marks import Marks
from nacre.storage.compaction import Extent
from nacre.storage.documents import FileDocument, path_of
from nacre.storage.format import fields, sealed_fields
from nacre.storage.holes import unpadded
from nacre.storage.lines import Piece
from nacre.storage.locks import KeyLock, wait_for_keys
from nacre.storage.log import Log
from nacre.storage.paths import (
    SessionPaths,
    TrashedPaths,
    is_emptied,
    listed,
    make_folder,
    replace_file,
    settle_names,
    unlink_if_there,
)
from nacre.storage.quarantine import Aside
from nacre.storage.recovery import Header, Level
from nacre.storage.rewrite import Successor
from nacre.storage.seal import Seal
from nacre.storage.system import System, opened, wrap_error
from nacre.storage.transfer import Changed, Held, HeldAs, Keep, Unreadable, lines_of
from nacre.storage.view import LogView, Reading, reading, settled
from nacre.storage.writer_pool import SessionQueue, Writers

T = TypeVar("T")

_TRASHED = re.compile(r"([^.]+)\.([0-9a-f]{32})\.(\d{1,18})(\.archived)?\.jsonl\Z")
_ID_OF_TRASH = re.compile(r"[^.]+\.(?:(\d{1,18})|([0-9a-f]{14})[0-9a-f]{18})\Z")
_PHYSICAL = ("cold", "high", "kept", "moved", "holes")


class Mend(Protocol):
    """Reads a log, and sets aside what is damaged in it."""

    def __call__(
        self, place: SessionPaths, get: Callable[[LogView], None], read: type[reading], /
    ) -> tuple[Reading, None]: ...


class Files(NamedTuple):
    """What is needed of the store: `open_log` opens a log for one piece of work, `places` lists all of them."""

    root: str
    system: System
    marks: Marks | None
    seal: Seal
    writers: Writers
    open_log: Callable[[SessionPaths], AbstractContextManager[Log]]
    places: Callable[[bool], Iterator[SessionPaths]]
    mend: Mend


class FileTransfer:
    """The generations of a store of files, as they are moved."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._system, self._root = files.system, files.root

    @property
    def location(self) -> str:
        return self._root

    # ---- what there is

    def each(self, status: HeldAs) -> Iterator[Held | Unreadable]:
        if status == "trash":
            for file in sorted(listed(self._system, f"{self._root}/trash")):
                for held in self._look(*trashed) if (trashed := self._trashed(file)) is not None else ():
                    # A crash may have left the name of one that is back.
                    if isinstance(held, Unreadable) or self.find(held.key, held.uid) == held:
                        yield held
            return
        for place in self._files.places(status == "archived"):
            yield from self._look(place, Held("", place.archived, status))

    def _look(self, place: SessionPaths, held: Held) -> Iterator[Held | Unreadable]:
        try:
            with reading(self._system, place) as found:
                if found.view is not None:
                    header = found.view.header
                    if header.uid and SessionPaths.of(self._root, header.sid).name == place.name:
                        yield held._replace(key=header.sid, uid=header.uid)
                    else:
                        yield Unreadable(place.name, f"{place.log} does not name its session, or names another")
                elif is_emptied(self._system, place):
                    yield Unreadable(place.name, f"{place.log} is empty (0 bytes); what was in it is gone")
        except (OSError, StoreError) as error:
            yield Unreadable(place.name, str(error))

    def _trashed(self, file: str) -> tuple[SessionPaths, Held] | None:
        match = _TRASHED.match(file)
        if match is None:
            return None
        name, uid, stamp, archived = match.groups()
        place = TrashedPaths(self._root, "", name, file.removeprefix(f"{name}.").removesuffix(".jsonl"))
        removed = timestamp(int(stamp) / 1_000_000)
        return place, Held("", uid, "trash", f"{name}.{stamp}", removed, bool(archived))

    def find(self, key: str, uid: str) -> Held | None:
        active = SessionPaths.of(self._root, key)
        with wrap_error(StoreError, f"session {key!r} cannot be read"):
            for archived in ("", uid):
                with reading(self._system, active._replace(archived=archived)) as found:
                    if found.view is not None and found.view.uid == uid:
                        return Held(key, uid, "archived" if archived else "active")
            for file in listed(self._system, f"{self._root}/trash"):
                if file.startswith(f"{active.name}.{uid}.") and (trashed := self._trashed(file)) is not None:
                    return trashed[1]._replace(key=key)
        return None

    def read(self, held: Held, get: Callable[[View], T]) -> T | None:
        place = self._place(held)

        def read_all(view: LogView) -> None:
            deque(view.all_lines(), 0)

        if held.status == "trash":
            with wrap_error(StoreError, f"{place.log} cannot be read"), reading(self._system, place) as found:
                return get(found.view) if found.view is not None else None
        # Up to where no writer is at it: what one has written it may yet take back.
        self._files.mend(place, read_all, settled)
        with wrap_error(StoreError, f"{place.log} cannot be read"), settled(self._system, place) as found:
            return get(found.view) if found.view is not None and found.view.uid == held.uid else None

    def _place(self, held: Held) -> SessionPaths:
        if held.status != "trash":
            return SessionPaths.of(self._root, held.key, held.uid if held.status == "archived" else "")
        match = _ID_OF_TRASH.match(held.trash)
        # The id of another store may hold the time in another way, or not at all.
        digits, micros = match.groups() if match is not None else (None, None)
        stamp = digits or str(int(micros, 16) if micros else int(parse_time(held.removed).timestamp() * 1_000_000))
        name = SessionPaths.of(self._root, held.key).name
        return TrashedPaths(self._root, held.key, name, f"{held.uid}.{stamp}{'.archived' * held.was_archived}")

    # ---- quarantine

    def asides(self, held: Held) -> list[Aside]:
        return quarantine.entries(self._system, self._place(held), held.uid)

    def add_asides(self, held: Held, asides: Collection[Aside]) -> None:
        with wrap_error(Refused, f"the quarantine of session {held.key!r} cannot be written"):
            quarantine.add(self._system, self._place(held), held.uid, asides)

    def orphans(self) -> list[Held]:
        entries = quarantine.Quarantine(self._system, self._root, lambda _: None).entries(None)
        found = {(entry.key, entry.generation) for entry in entries if entry.n}
        return [Held(key, uid, "archived") for key, uid in sorted(found) if self.find(key, uid) is None]

    # ---- documents

    def documents(self) -> dict[str, bytes]:
        files = listed(self._system, os.path.dirname(path_of(self._root, "")))
        names = (file.removesuffix(".json") for file in files if file.endswith(".json"))
        return {name: self._document(name).read() for name in names}

    def write_document(self, name: str, data: bytes) -> None:
        self._document(name).write(data)

    def _document(self, name: str) -> FileDocument:
        return FileDocument(path_of(self._root, name), self._system)

    # ---- the seal

    def sealed_to(self) -> str:
        return self._files.seal.read()

    def seal(self, to: str) -> None:
        with wrap_error(StoreError, f"{self._root} cannot be sealed"):
            # The steps are those of nacre.storage.seal.
            self._files.seal.put(to)
            wait_for_keys(self._system, self._root)
            Marks(self._system, self._root).end()
            for folder in ("sessions", "archive"):
                for file in listed(self._system, f"{self._root}/{folder}"):
                    with suppress(FileNotFoundError), opened(self._system, f"{self._root}/{folder}/{file}") as fd:
                        self._system.flock(fd, wait=True)

    def unseal(self) -> bool:
        with wrap_error(StoreError, f"{self._root} cannot be unsealed"):
            return self._files.seal.remove()

    # ---- writing

    def write(self, held: Held, view: View, *, after: int, erased: Collection[int], keep: Keep) -> None:
        active, place = SessionPaths.of(self._root, held.key), self._place(held)

        def work(session: SessionQueue) -> None:
            with KeyLock(self._system, active):
                self._bring_here(held, place, session.log)
                if held.status == "active":
                    self._write(session.log, place, held, view, after=after, erased=erased, keep=keep)
                    return
                make_folder(self._system, place.folder)
                with self._files.open_log(place) as log:
                    self._write(log, place, held, view, after=after, erased=erased, keep=keep)
                if self._files.marks is not None and held.status == "archived":
                    self._files.marks.leave(place.path)

        with wrap_error(Refused, f"session {held.key!r} was not copied"):
            self._files.writers.alone(held.key, work)

    def _bring_here(self, held: Held, place: SessionPaths, log: Log) -> None:
        """Move a generation that is held in another way; raises Conflict if an active one is in its place."""
        there = self.find(held.key, held.uid)
        old = self._place(there) if there is not None else place
        if held.status == "active" and old != place and not log.make_way():
            raise _taken(held, self._root)
        if there is None or old == place:
            return
        self._mark(old)
        self._mark(place)
        make_folder(self._system, place.folder)
        followers = ((old.cold(held.uid), place.cold(held.uid)), (old.quarantine(held.uid), place.quarantine(held.uid)))
        if held.status != "trash":
            # They come first, and the log last: so it is where it was, or whole where it is to be.
            _move_all(self._system, followers)
        with opened(self._system, old.log, os.O_RDWR | os.O_NOFOLLOW) as fd:
            self._system.flock(fd, wait=True)
            if not os.path.samestat(self._system.fstat(fd), self._system.stat(old.log)):
                raise Changed(f"session {held.key!r} is being written in {self._root}; run it again")
            # A crash may have left it under both names, and then rename would do nothing.
            self._system.rename(old.log, place.log)
            unlink_if_there(self._system, old.log)
        settle_names(self._system, place.folder)
        settle_names(self._system, old.folder)
        if held.status == "trash":
            _move_all(self._system, followers)
        self._mark(place)

    def _mark(self, place: SessionPaths) -> None:
        if self._files.marks is not None and not isinstance(place, TrashedPaths):
            self._files.marks.leave(place.path)

    def _write(  # noqa: PLR0913 - as above, and where
        self,
        log: Log,
        place: SessionPaths,
        held: Held,
        view: View,
        *,
        after: int,
        erased: Collection[int],
        keep: Keep,
    ) -> None:
        writer, uid = log.writer, held.uid
        with writer.hold(create=held.status == "active"):
            # 1. Is it as it was compared?
            if writer.holds_session and writer.uid != uid:
                raise _taken(held, self._root)
            if after != (writer.n if writer.holds_session else 0):
                raise Changed(f"session {held.key!r} is being written in {self._root}; run it again")
            new = {record.n: line for record, line in lines_of(view) if record.n in erased}
            # 2. What the log needs: payloads, and what is below a fork. Nobody reads that before the log is there.
            self._keep_payloads(place, uid, view, after)
            *below, own = _segments(view)
            levels = writer.header.base if after else tuple(self._write_below(place, uid, view, below))
            # 3. What it does not hold itself. Until the log is replaced, its header says how much of that counts.
            moved = own.moved(keep(view))
            extent = Extent(0, 0)
            if after and writer.header.cold:
                extent = Extent(writer.header.cold, writer.header.moved)
            known = {piece.record.n for piece in writer.view().cold() if piece.record} if extent.length else set()
            lines = (line for record, line in lines_of(view) if record.n in moved - known)
            if moved - known:
                path = place.cold(uid)
                extent = compaction.append(self._system, path, extent, lines, is_in_log=lambda _n, _raw: True)
            # 4. The log, as one step.
            header = _header(own.first, levels, extent, high=own.mark, kept=own.kept, holes=view.has_holes)
            rest = (line for record, line in lines_of(view) if record.n > own.first[0].n and record.n not in moved)
            writer.install(Successor(header, view.n, view.state, chain([header.raw + b"\n"], rest)))
            # 5. What was erased in the other store goes from the other files too; if this is cut short, it is done
            #    when they are compared again.
            if erased:
                self._erase(place, uid, view, new)
                writer.forget_ids()

    def _keep_payloads(self, place: SessionPaths, uid: str, view: View, after: int) -> None:
        for record, _ in lines_of(view):
            for name in blobs.names(record) if record.blobs is not None and record.n > after else ():
                if (text := view.payload(name)) is not None:
                    blobs.keep(self._system, place, uid, {name: text.encode()})

    def _write_below(self, place: SessionPaths, uid: str, view: View, below: list[_Segment]) -> Iterator[Level]:
        """Write the past that a fork shares, the nearest session first."""
        if below:
            make_folder(self._system, os.path.dirname(place.base(uid, 0)))
        for depth, segment in enumerate(reversed(below)):
            path, moved, count = place.base(uid, depth), segment.moved(set()), 0
            size = _Size()
            lines = (line for record, line in lines_of(view) if record.n in segment and record.n not in moved)
            replace_file(self._system, path, size.of(lines))
            cold = _Size()
            if moved:
                lines = (line for record, line in lines_of(view) if record.n in moved)
                frames = compaction.frames(lines)
                replace_file(self._system, f"{path}.zst", cold.of(frame.data for frame in frames))
                count = len(moved)
            yield Level(segment.end, segment.numbers[-1], size.bytes, cold.bytes, count if moved else None)

    def _erase(self, place: SessionPaths, uid: str, view: View, new: Mapping[int, bytes]) -> None:
        """Let lines be others in what was moved out and in what a fork shares; and release payloads."""

        def change(piece: Piece) -> bytes:
            line = new.get(piece.record.n) if piece.record is not None else None
            return piece.raw if line is None else line[:-1]

        base = f"{self._root}/base"
        shared = [f"{base}/{file}" for file in listed(self._system, base) if file.startswith(f"{place.name}.{uid}.")]
        for path in (place.cold(uid), *(path for path in shared if path.endswith(".zst"))):
            with suppress(FileNotFoundError):
                compaction.replace(self._system, path, change, unpadded)
        for path in (path for path in shared if path.endswith(".jsonl")):
            with opened(self._system, path) as fd:
                lines = self._system.pread(fd, self._system.fstat(fd).st_size, 0).split(b"\n")
            numbered = {b'{"v":1,"n":%d,' % n: line[:-1] for n, line in new.items()}
            begins = tuple(numbered)
            changed = [numbered[line[: line.index(b",", 7) + 1]] if line.startswith(begins) else line for line in lines]
            if changed != lines:
                replace_file(self._system, path, [b"\n".join(changed)])
        needed = {name for record, _ in lines_of(view) if record.blobs is not None for name in blobs.names(record)}
        for name, link in list(blobs.links(self._system, place, uid)):
            if name not in needed:
                blobs.release(self._system, link)
        unlink_if_there(self._system, place.ids(uid))


def _taken(held: Held, place: str) -> Conflict:
    return Conflict(f"{place} has another active session {held.key!r}; archive or remove one of them")


def _move_all(system: System, pairs: Collection[tuple[str, str]]) -> None:
    """Move files that may not be there, or may have been moved before a crash."""
    for old, new in pairs:
        if old != new:
            with suppress(FileNotFoundError):
                make_folder(system, os.path.dirname(new))
                system.rename(old, new)
                settle_names(system, os.path.dirname(new))
                settle_names(system, os.path.dirname(old))


# ---- the parts of a generation


class _Size:
    """Counts bytes on their way."""

    def __init__(self) -> None:
        self.bytes = 0

    def of(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.bytes += len(part)
            yield part


class _Segment:
    """The records of one session in a chain of forks: from its header on, up to where the next one left it."""

    def __init__(self, record: Record, line: bytes) -> None:
        self.first = (record, line)
        self.numbers = array("q")
        # The last mark, and how many records it counts before it.
        self.mark = self.kept = 0
        self.end = 0

    def add(self, record: Record) -> None:
        self.numbers.append(record.n)
        if record.t == "mark" and record.kept is not None:
            self.mark, self.kept = record.n, record.kept

    def __contains__(self, n: int) -> bool:
        return self.first[0].n <= n <= self.end

    def moved(self, keep: set[int]) -> set[int]:
        """The records before the last mark that must not be in the log, since the mark does not count them."""
        before = [n for n in self.numbers if n < self.mark]
        surplus = max(0, len(before) - self.kept)
        # Rather what is not needed to go on; never the header.
        by_need = sorted(before[1:], key=lambda n: (n in keep, n))
        return set(by_need[:surplus])


def _segments(view: View) -> list[_Segment]:
    """The sessions in the chain that a generation ends, the oldest first."""
    found: list[_Segment] = []
    for record, line in lines_of(view):
        if record.t == "open" or not found:
            found.append(_Segment(record, line))
        found[-1].add(record)
    for segment, following in pairwise(found):
        segment.end = following.first[0].n - 1
    if not found or found[-1].first[0].uid != view.uid:
        raise StoreError(f"session {view.key!r} has lost its header, without which it cannot be a file")
    found[-1].end = view.n
    return found


def _header(  # noqa: PLR0913 - what there is to say of its files
    first: tuple[Record, bytes], levels: tuple[Level, ...], extent: Extent, *, high: int, kept: int, holes: bool
) -> Header:
    """The header of a log with what it says of its files; fields that this version does not know stay."""
    record, line = first
    found = {name: value for name, value in fields(line[:-1]).items() if name not in _PHYSICAL}
    if record.base is not None:
        base = {name: value for name, value in record.base.items() if name != "moved"}
        base["levels"] = [(level.n, level.last, level.log, level.cold) for level in levels]
        if any(level.cold for level in levels):
            base["moved"] = [level.moved for level in levels]
        found["base"] = base
    if extent.length:
        found |= {"cold": extent.length, "high": high, "kept": kept, "moved": extent.records}
    if holes:
        found["holes"] = 1
    raw = sealed_fields(found, st=record.st)[:-1]
    cold, moved = extent if extent.length else (0, None)
    return Header(
        uid=record.uid or "",
        sid=record.sid or "",
        n=record.n,
        base=levels,
        created=record.ts,
        cold=cold,
        high=high if cold else 0,
        kept=kept if cold else 0,
        moved=moved,
        holes=holes,
        raw=raw,
    )
