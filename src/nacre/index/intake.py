"""The messages of a log that the index does not have yet: only those that count, and that no writer is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from nacre.codec import message_in
from nacre.index.catalog import check, stat_when_free
from nacre.index.database import pack_moment, pack_time
from nacre.index.search_text import Calls, body_of, tools_of
from nacre.messages import Message
from nacre.records import Record
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths
from nacre.storage.plain_names import open_to_read
from nacre.storage.recovery import examine, state_of
from nacre.storage.system import System
from nacre.storage.view import LogView

_LINE_END = 11
_CRC = slice(-10, -2)
_UNSETTLED = -1


class Progress(NamedTuple):
    """How far a log has been read, and how its file was then; a time of -1 says that there is more."""

    device: int = 0
    inode: int = 0
    size: int = 0
    mtime: int = _UNSETTLED
    uid: str = ""
    offset: int = 0
    n: int = 0
    crc: str = ""
    cold: int = 0
    calls: str = "{}"


class Found(NamedTuple):
    """A message on its way into the index.

    `ts` is when it was said; `origin` is the uid of the session in whose log a fork has it from; `may_repeat` says
    that it was stored with that time, as a message is that was stored before.
    """

    n: int
    ts: int
    role: str
    tool: str
    body: str
    origin: str = ""
    may_repeat: bool = False


class Gone(Exception):
    """The log is not where it was."""


@contextmanager
def opened(system: System, place: SessionPaths, progress: Progress) -> Iterator[Intake]:
    """Open a log to read on from where it was left; raises Gone, or OSError or StoreError if it cannot be read."""
    try:
        fd, _ = open_to_read(system, place)
    except FileNotFoundError as error:
        raise Gone(place.log) from error
    try:
        yield Intake(system, place, fd, progress)
    finally:
        system.close(fd)


class Intake:
    """One open log and what was read of it before."""

    def __init__(self, system: System, place: SessionPaths, fd: int, progress: Progress) -> None:
        self._before = progress
        self.is_free, self._file = stat_when_free(system, fd)
        """False if a writer was at the log: there may be more by now."""
        self._lines = Lines(system, fd, self._file.st_size)
        tail = examine(self._lines, key="")
        self._header = tail.header
        last = tail.last
        n = last.n if last is not None else 0
        # Records count before the first number in doubt, and kept ones before a limit. While a writer is at the log,
        # its last batch may be taken back.
        self._first = tail.first
        self._limit = 0 if last is None else n + 1 if self.is_free else last.batch
        self._kept = frozenset(piece.record.n for piece in tail.kept if piece.record is not None)
        check((n,))
        self._view = LogView(self._lines, header=tail.header, n=n, state=state_of(last), system=system, place=place)
        self._calls: Calls = msgspec.json.decode(progress.calls, type=Calls)
        self._at = (progress.offset, progress.n, progress.crc)
        self._is_in_log = False
        self._is_done = False

    def goes_on(self, known: Callable[[], int]) -> bool:
        """Tell whether what was read before still stands, so that only the rest is new.

        `known` counts the messages that were read.
        """
        if not self._before.n or self._before.uid != self._header.uid:
            return False
        if self._is_same_file and self._before.cold == self._header.cold:
            start = self._before.offset - _LINE_END
            return self._lines.read(max(0, start), self._before.offset) == b'%b"}\n' % self._before.crc.encode()
        if self._is_same_file:
            return False
        # A log that was written again must still have just what was read of the old, moved out or not.
        numbers: set[int] = set()
        has_last = False
        for piece in self._view.pieces():
            record = piece.record
            if record is None or record.n > self._before.n:
                continue
            has_last = has_last or (record.n == self._before.n and piece.raw[_CRC] == self._before.crc.encode())
            if record.m is not None:
                numbers.add(record.n)
        return has_last and len(numbers) == known()

    def start_over(self) -> None:
        """Forget what was read before."""
        self._before = Progress()
        self._calls = {}
        self._at = (0, 0, "")

    def messages(self) -> Iterator[Found]:
        """The messages after what was read before."""
        after = self._before.n
        goes_on = after and self._is_same_file
        # 1. What a fork shares and what compaction took out of the log, without what is in the log too.
        if self._view.base is not None and not after:
            # Each header in what a fork shares is that of the session which wrote what follows.
            origin = ""
            for shared in self._view.base.all():
                if shared.t == "open":
                    origin = shared.uid or ""
                elif shared.m is not None:
                    yield self._found(shared, shared.m)._replace(origin=origin)
        if not goes_on and self._header.cold:
            seen = {piece.record.n for piece in self._lines.forward() if piece.record is not None}
            for piece in self._view.cold():
                record = piece.record
                if record is not None and record.m is not None and record.n > after and record.n not in seen:
                    seen.add(record.n)
                    yield self._found(record, record.m)
        # 2. What is in the log.
        self._is_in_log = True
        last = after
        for piece in self._lines.forward(self._before.offset if goes_on else 0):
            record = piece.record
            if record is None or not last < record.n < self._limit:
                continue
            if record.n >= self._first and record.n not in self._kept:
                continue
            last = record.n
            self._at = (piece.end, record.n, piece.raw[_CRC].decode())
            if record.m is not None:
                yield self._found(record, record.m)
        self._is_done = True

    def progress(self) -> Progress:
        """How far the log has been read by now; as before while only what was moved out has been."""
        if not self._is_in_log:
            return self._before
        file, uid, cold = self._file, self._header.uid, self._header.cold
        mtime = file.st_mtime_ns if self._is_done and self.is_free else _UNSETTLED
        calls = msgspec.json.encode(self._calls).decode()
        return Progress(file.st_dev, file.st_ino, file.st_size, mtime, uid, *self._at, cold, calls)

    @property
    def _is_same_file(self) -> bool:
        return (self._before.device, self._before.inode) == (self._file.st_dev, self._file.st_ino)

    def _found(self, record: Record, message: Message) -> Found:
        check((record.n,))
        if record.blobs is not None or record.bin:
            message = message_in(self._view.whole(record)) or message
        said = pack_moment(message.created) if message.created is not None else pack_time(record.ts)
        # Each on a line of its own.
        names = tools_of(message, self._calls)
        tools = "\n".join(("", *names, "")) if names else ""
        return Found(record.n, said, message.kind, tools, body_of(message), may_repeat=message.created is not None)
