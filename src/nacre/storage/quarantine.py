"""Damaged bytes are never thrown away: they are set aside before the log is touched, and reported until settled.

A generation's quarantine file is one JSON line for each piece of at most 1 MiB. The pieces of one repair have the same
number `e` and are one entry. A line with `settled` ends the report of the entries that it names. Each line is sealed
with its own checksum; one that is not what was written is an entry of its own, so that it is reported too.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nacre.codec import EPOCH, parse_time, timestamp
from nacre.errors import FormatTooNew, StoreError
from nacre.messages import QuarantineEntry, QuarantineRecord
from nacre.records import Record
from nacre.storage.format import escaped, salvage, unseal
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import (
    SessionPaths,
    key_of,
    make_folder,
    replace_file,
    settle_names,
    stem,
    uids_in,
    write_all,
)
from nacre.storage.system import System, is_from_system, opened, unlock_and_close, wrap_error

TORN = "torn"
"""The end of a write that was cut short: it was never acknowledged, so it need not be reported."""
EMPTIED = "emptied"
MISSING = "missing"
UNSURE = "torn or rotten"
ROTTEN = "rotten"
IN_PLACE = "in place"
"""Damage in a file that no repair changes: what was moved out, what a fork shares, a large payload."""
UNREADABLE = "unreadable"
"""A line of the quarantine file that is itself damaged."""

_MAX_PART = 1024 * 1024
_SEAL_SIZE = len(',"seal":"xxxxxxxx"}')
_WITH_CONTENT = frozenset(("msg", "sum", "meta", "use", "tool"))
_B64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")
_NO_TIME = "1970-01-01T00:00:00.000Z"


class Aside(NamedTuple):
    """One entry: everything that one repair set aside; `settled` is "restored", "discarded" or empty."""

    n: int
    uid: str
    key: str
    kind: str
    detail: str
    ts: str
    regions: tuple[bytes, ...]
    settled: str

    @property
    def size(self) -> int:
        return sum(map(len, self.regions))

    @property
    def same(self) -> tuple[str, str, bytes]:
        """What it has in common with its copy in another store."""
        return self.kind, self.detail, b"\n".join(self.regions)

    def records(self) -> Iterator[tuple[Record, bytes]]:
        """The whole records that hold content of someone's, with their lines; not what only said what is live."""
        for region in self.regions:
            for raw in region.split(b"\n"):
                for line in [raw] if _unseal(raw) is not None else [raw[start:end] for start, end in salvage(raw)]:
                    record = _unseal(line)
                    if record is not None and (record.t in _WITH_CONTENT or record.t.startswith("x.")):
                        yield record, line


class _Part(NamedTuple):
    """One line of the file that holds bytes; number 0: it has none of its own."""

    n: int
    key: str
    kind: str
    detail: str
    ts: str
    off: int
    data: bytes


class _Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file: a part of an entry, or with `settled` the end of the report of the entries `ends`."""

    kind: str = ""
    e: int = 0
    sid: str = ""
    detail: str = ""
    settled: str = ""
    ends: tuple[int, ...] = ()
    off: int = 0
    len: int = 0
    crc: str = ""
    ts: str
    gone: int = 0
    raw: str | None = None
    b64: str | None = None

    @property
    def data(self) -> bytes:
        return (self.raw or "").encode() if self.b64 is None else base64.b64decode(self.b64)


_decode = msgspec.json.Decoder(_Note).decode


# ---- writing


def set_aside(  # noqa: PLR0913 - what there is to say of a piece
    system: System,
    place: SessionPaths,
    uid: str,
    lines: Lines | None,
    bad: Iterable[Piece],
    *,
    reason: str,
    detail: str = "",
) -> None:
    """Append pieces of a log to its quarantine file, as one entry, and wait until they are durable.

    Nothing is appended if an unsettled entry has the same: its writer was killed before the log was changed.
    """
    folder = f"{place.root}/quarantine"
    make_folder(system, folder)
    parts = [(0, b"")]
    if lines is not None:
        cuts = ((at, piece.end) for piece in bad for at in range(piece.start, piece.end, _MAX_PART))
        parts = [(at, lines.read(at, min(at + _MAX_PART, end))) for at, end in cuts]
    with _appending(system, place.quarantine(uid), os.O_CREAT) as (fd, known, settled):
        same = {(part.kind, part.detail, part.off, part.data) for part in known if part.n not in settled}
        if not all((reason, detail, start, raw) in same for start, raw in parts):
            # A number that no entry of any generation of the session has.
            uids = uids_in(system, folder, place.name)
            numbers = [part.n for one in uids for part in _parse(_read(system, place.quarantine(one)))[0]]
            about = _Note(kind=reason, e=max(numbers, default=0) + 1, sid=place.key, detail=detail, ts=_now(system))
            for start, raw in parts:
                write_all(system, fd, _seal(_filled(about, start, raw)))
        system.fsync(fd)
    settle_names(system, folder)


def _filled(about: _Note, start: int, raw: bytes) -> _Note:
    note = replace(about, off=start, len=len(raw), crc=f"{crc32(raw):08x}")
    try:
        return replace(note, raw=raw.decode())
    except UnicodeDecodeError:
        return replace(note, b64=base64.b64encode(raw).decode())


def add(system: System, place: SessionPaths, uid: str, asides: Iterable[Aside]) -> None:
    """Append the entries of another store to a quarantine file, durably; those that are there already are left out.

    They keep their numbers if these are free. One that was settled in the other store is settled here too.
    """
    folder = f"{place.root}/quarantine"
    path = place.quarantine(uid)
    make_folder(system, os.path.dirname(path))
    others = [f"{folder}/{place.name}.{one}.jsonl" for one in uids_in(system, folder, place.name)]
    taken = {part.n for other in others if other != path for part in _parse(_read(system, other))[0]}
    with _appending(system, path, os.O_CREAT) as (fd, parts, _):
        here = {aside.same: aside for aside in entries(system, place, uid)}
        taken |= {part.n for part in parts}
        for aside in asides:
            there = here.get(aside.same)
            n = there.n if there is not None else aside.n
            if there is None:
                n = n if n and n not in taken else max(taken, default=0) + 1
                taken.add(n)
                about = _Note(kind=aside.kind, e=n, sid=aside.key or place.key, detail=aside.detail, ts=aside.ts)
                start = 0
                for region in aside.regions or (b"",):
                    for at in range(0, len(region) or 1, _MAX_PART):
                        write_all(system, fd, _seal(_filled(about, start + at, region[at : at + _MAX_PART])))
                    # They were not next to each other.
                    start += len(region) + 1
            if aside.settled and not (there is not None and there.settled):
                write_all(system, fd, _seal(_Note(settled=aside.settled, ends=(n,), ts=_now(system))))
        system.fsync(fd)
    settle_names(system, os.path.dirname(path))


def settle(system: System, place: SessionPaths, uid: str, numbers: Sequence[int], how: str) -> None:
    """Note durably that entries are settled; they stay in the file."""
    with _appending(system, place.quarantine(uid), 0) as (fd, _, settled):
        left = tuple(n for n in numbers if n not in settled)
        if left:
            write_all(system, fd, _seal(_Note(settled=how, ends=left, ts=_now(system))))
        system.fsync(fd)


@contextmanager
def _appending(system: System, path: str, flags: int) -> Iterator[tuple[int, list[_Part], dict[int, str]]]:
    """The file, locked, and what is in it; the next line will have a line of its own, even after a torn one."""
    fd = _open_locked(system, path, flags)
    try:
        data = _content(system, fd)
        if data and not data.endswith(b"\n"):
            write_all(system, fd, b"\n")
        yield fd, *_parse(data)
    finally:
        unlock_and_close(system, fd)


def _open_locked(system: System, path: str, flags: int) -> int:
    """Open and lock the file that has the name, also if another was given the name while its lock was waited for."""
    while True:
        fd = system.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600)
        is_named = False
        try:
            system.flock(fd, wait=True)
            with suppress(FileNotFoundError):
                is_named = os.path.samestat(system.fstat(fd), system.stat(path))
        finally:
            if not is_named:
                unlock_and_close(system, fd)
        if is_named:
            return fd


def blank(system: System, path: str, change: Callable[[bytes], bytes], *, dry_run: bool = False) -> int:
    """Let the bytes in a quarantine file become others of the same length; returns how many lines that changes.

    Entries, and what is said of them, stay. With `dry_run` nothing is written.
    """
    try:
        fd = _open_locked(system, path, 0)
    except FileNotFoundError:
        return 0
    try:
        lines = _content(system, fd).split(b"\n")
        new = [_blank(line, change) for line in lines]
        changed = sum(before != after for before, after in zip(lines, new, strict=True))
        if changed and not dry_run:
            replace_file(system, path, [b"\n".join(new)])
        return changed
    finally:
        unlock_and_close(system, fd)


def _blank(line: bytes, change: Callable[[bytes], bytes]) -> bytes:
    note = _read_note(line)
    if note is None:
        # A damaged line, in which the bytes are escaped once more, or in Base64.
        plain = line.replace(b'\\"', b'"').replace(b"\\\\", b"\\")
        with suppress(ValueError):
            plain += b"\n" + base64.b64decode(max(_B64.findall(line), key=len, default=b""))
        return line if change(plain) == plain else b" " * len(line)
    data = change(note.data)
    if data == note.data:
        return line
    crc, gone = f"{crc32(data):08x}", sum(one != other for one, other in zip(data, note.data, strict=True))
    try:
        note = replace(note, crc=crc, gone=gone, raw=data.decode(), b64=None)
    except UnicodeDecodeError:
        note = replace(note, crc=crc, gone=gone, b64=base64.b64encode(data).decode())
    return _seal(note)[:-1]


def _seal(note: _Note) -> bytes:
    body = escaped(msgspec.json.encode(note))[:-1]
    return b'%b,"seal":"%08x"}\n' % (body, crc32(body))


def _now(system: System) -> str:
    return timestamp(system.now())


# ---- reading


def entries(system: System, place: SessionPaths, uid: str) -> list[Aside]:
    """The entries of one generation, settled ones too, in the order of the file; none if it has no such file."""
    parts, settled = _parse(_read(system, place.quarantine(uid)))
    found: dict[int, list[_Part]] = {}
    for part in parts:
        found.setdefault(part.n, []).append(part)
    asides = []
    for n, of in found.items():
        # The bytes of an entry, with what was adjacent in the log joined again.
        regions: list[list[bytes]] = []
        end = -1
        for part in of:
            if part.off != end or part.kind == UNREADABLE:
                regions.append([])
            regions[-1].append(part.data)
            end = part.off + len(part.data)
        joined, first = tuple(map(b"".join, regions)), of[0]
        key = first.key or place.key
        asides.append(Aside(n, uid, key, first.kind, first.detail, first.ts, joined, settled.get(n, "")))
    return asides


def _read(system: System, path: str) -> bytes:
    try:
        # A pipe of that name must not make us wait.
        with opened(system, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
            if not modes.S_ISREG(system.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            return _content(system, fd)
    except FileNotFoundError:
        return b""


def _content(system: System, fd: int) -> bytes:
    size = system.fstat(fd).st_size
    return Lines(system, fd, size).read(0, size)


def _parse(data: bytes) -> tuple[list[_Part], dict[int, str]]:
    """The parts in a file, and how entries were settled.

    Lines without a number, because they are damaged or from before there were numbers, get free ones in their order;
    later entries have greater numbers, so these stay what they are.
    """
    parts: list[_Part] = []
    settled: dict[int, str] = {}
    ts = _NO_TIME
    for line in filter(None, data.split(b"\n")):
        note = _read_note(line)
        if note is None:
            parts.append(_Part(0, "", UNREADABLE, "", ts, 0, line))
        elif note.settled:
            settled |= dict.fromkeys(note.ends, note.settled)
        else:
            ts = note.ts
            parts.append(_Part(note.e, note.sid, note.kind, note.detail, ts, note.off, note.data))
    taken = {part.n for part in parts}
    last = 0
    for at, part in enumerate(parts):
        if not part.n:
            last = next(n for n in count(last + 1) if n not in taken)
            parts[at] = part._replace(n=last)
    return parts, settled


def _read_note(line: bytes) -> _Note | None:
    """What a line says; None if it is not what was written."""
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        note = _decode(line)
        # Lines from before there were numbers have only the checksum of their bytes.
        is_sealed = line[-_SEAL_SIZE:] == b',"seal":"%08x"}' % crc32(line[:-_SEAL_SIZE])
        is_older = not note.e and not note.settled and note.crc == f"{crc32(note.data):08x}"
        datetime.fromisoformat(note.ts)
        if is_sealed or is_older:
            return note
    return None


def _unseal(line: bytes) -> Record | None:
    try:
        return unseal(line)
    except FormatTooNew:
        return None


# ---- the list of a store: one folder is listed, and no log is opened

_NAME = re.compile(r"([^.]+)\.([0-9a-f]{32})\.jsonl\Z")
_MAX_TEXT = 400
_REASONS = {
    TORN: "the end of a write that a crash cut short; it was never acknowledged",
    UNSURE: "damaged at the end of the log: torn by a crash or rotten, which cannot be known",
    ROTTEN: "damaged in the middle of the log",
    MISSING: "{detail}, and not a byte of what is missing is left",
    IN_PLACE: "damage that cannot be repaired: {detail}",
    EMPTIED: "the log was found empty (0 bytes); what was in it is gone",
    UNREADABLE: "a line of the quarantine file is damaged itself",
}


class Quarantine:
    """The quarantine files of a store; one that has not changed is not read again."""

    def __init__(self, system: System, root: str, key_in: Callable[[SessionPaths], str | None]) -> None:
        self._system = system
        self._root = root
        self._key_in = key_in
        self._known: dict[str, tuple[tuple[int, int, int], list[QuarantineEntry]]] = {}

    def entries(self, key: str | None) -> list[QuarantineEntry]:
        """All entries of a session, or of all, settled ones too, by session and number."""
        name = None if key is None else stem(key)
        files: list[str] = []
        with wrap_error(StoreError, f"the quarantine of {self._root} cannot be read"), suppress(FileNotFoundError):
            files = self._system.listdir(f"{self._root}/quarantine")
        named = [match for file in files if (match := _NAME.match(file)) is not None and name in (None, match[1])]
        found = [entry for match in named for entry in self._of(SessionPaths(self._root, "", match[1], match[2]))]
        return sorted(found, key=lambda entry: (entry.key, entry.n, entry.generation))

    def _of(self, place: SessionPaths) -> Sequence[QuarantineEntry]:
        path = place.quarantine(place.archived)
        try:
            found = self._system.stat(path)
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            if path not in self._known or self._known[path][0] != state:
                asides = entries(self._system, place, place.archived)
                key = next((aside.key for aside in asides if aside.key), "") or self._key_of(place)
                self._known[path] = (state, [entry_of(aside, key) for aside in asides])
        except FileNotFoundError:
            # Erased meanwhile.
            return ()
        except OSError as error:
            if not is_from_system(error):
                raise
            # What one session has in quarantine must not hide what others have.
            self._known.pop(path, None)
            uid, reason = place.archived, f"{path} cannot be read: {error}"
            key = self._key_of(place)
            return [QuarantineEntry(key=key, n=0, generation=uid, ts=EPOCH, kind=UNREADABLE, reason=reason, bytes=0)]
        return self._known[path][1]

    def _key_of(self, place: SessionPaths) -> str:
        """The key of a session whose entries do not name it, as those of earlier versions."""
        return key_of(place.name) or self._key_in(place) or self._key_in(place._replace(archived="")) or place.name


def entry_of(aside: Aside, key: str) -> QuarantineEntry:
    """An entry as people see it."""
    records = []
    for record, _ in aside.records():
        # What it says: its text, or its content as JSON.
        content = record.m.content if record.m is not None else record.text or None
        if not isinstance(content, str):
            content = msgspec.json.encode(record.m or record.meta or record.data).decode()
        records.append(QuarantineRecord(n=record.n, ts=parse_time(record.ts), kind=record.t, text=content))
    settled = "torn" if aside.kind == TORN else aside.settled
    reason = _REASONS.get(aside.kind, "{kind}").format(kind=aside.kind, detail=aside.detail)
    beginning = b"".join(aside.regions)[:_MAX_TEXT].decode(errors="replace")
    return QuarantineEntry(
        key=key,
        n=aside.n,
        generation=aside.uid,
        ts=parse_time(aside.ts),
        kind=aside.kind,
        reason=reason,
        bytes=aside.size,
        records=tuple(records),
        text=beginning,
        settled=settled,
    )
