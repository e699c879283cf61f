"""The ids that a session keeps without limit: an index of its records, which may be lost or damaged at any time.

The file is a sequence of pages of 4 KiB, each with a checksum. Some of them are a hash table, a *run*; the page after a
run, its footer, lists all runs, and says up to which record they have every id:

    page page page footer | page footer | page page footer        the last footer counts

Pages are only appended: the run, a flush, the footer, a flush. A file with many runs is written again as one. What is
missing, damaged, or does not fit the log, is written again from the records; what it says of an id is compared with
the record itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from nacre.records import Record, Records
from nacre.storage.paths import make_folder, settle_names, unlink_if_there, write_all
from nacre.storage.system import System, opened
from nacre.storage.transaction import Seen, print_of, units

_PAGE = 4096
_MAGIC = b"nacreid1"
_FOOTER = Struct("<8s32sQ8sQ")
_RUN = Struct("<QQ")
_COUNT = Struct("<I")
_SLOT = Struct("<QQ8s")
_SLOTS = (_PAGE - 8) // _SLOT.size
_MAX_RUNS = 8
_BLOCK = 256


class _Unusable(Exception):
    """The file is missing or damaged, or of another log than this."""


class _Footer(NamedTuple):
    """What the file knows: every id up to record `covered`, in some runs, each with its first page and their count.

    `anchor` is a hash of that record, by which another past under the same name is noticed.
    """

    covered: int
    anchor: bytes
    runs: tuple[tuple[int, int], ...]
    pages: int


class KeptIds:
    """The index of the ids of one generation; one that is being written to is used only under its lock."""

    def __init__(self, system: System, path: str, uid: str) -> None:
        self._system = system
        self._path = path
        self._uid = uid.encode()
        self._checked: tuple[int, bytes] | None = None

    def find(
        self, id: str, view: Records, *, least: int, upto: int, flush: Callable[[], None] = lambda: None
    ) -> Seen | None:
        """What was stored under an id, as far as record `least`; None if nothing was.

        If it does not know that much, it is extended up to record `upto`, after a flush of what it will depend on.
        """
        name = _hash(id.encode())
        try:
            with opened(self._system, self._path) as fd:
                footer = self._read_footer(fd, view)
                found = list(self._look(fd, footer, name)) if footer.covered >= least else None
            if found is None:
                flush()
                footer = self._extend(footer, view, upto)
        except (_Unusable, FileNotFoundError):
            flush()
            found, footer = None, self._replace(_index(view.all(), upto, view))
        if found is None:
            with opened(self._system, self._path) as fd:
                found = list(self._look(fd, footer, name))
        for number, content in sorted(found, reverse=True):
            if _is_stored_under(id, number, view):
                # Of what was erased there is no fingerprint.
                return number, content.hex() if any(content) else ""
        return None

    # ---- read

    def _read_footer(self, fd: int, view: Records) -> _Footer:
        """The last footer, if the file is of this log; raises _Unusable."""
        size = self._system.fstat(fd).st_size
        page = self._read_page(fd, size // _PAGE - 1)
        if size % _PAGE:
            raise _Unusable
        magic, uid, covered, anchor, count = _FOOTER.unpack_from(page)
        if (magic, uid) != (_MAGIC, self._uid) or covered > view.n or count > _MAX_RUNS:
            raise _Unusable
        runs = tuple(_RUN.iter_unpack(page[_FOOTER.size : _FOOTER.size + count * _RUN.size]))
        if self._checked != (covered, anchor):
            if _anchor(view, covered) != anchor:
                raise _Unusable
            self._checked = (covered, anchor)
        return _Footer(covered, anchor, runs, size // _PAGE)

    def _look(self, fd: int, footer: _Footer, name: int) -> Iterator[tuple[int, bytes]]:
        """The numbers and fingerprints that are there for the hash of an id."""
        packed = name.to_bytes(8, "little")
        for start, pages in footer.runs:
            page, is_full = name, True
            # A page that is full goes on with the next; the table is half empty, so one is not.
            while is_full:
                slots = self._read_slots(fd, start + page % pages)
                # Most pages do not have it, and need not be taken apart.
                if packed in slots:
                    yield from ((number, content) for hash, number, content in _SLOT.iter_unpack(slots) if hash == name)
                page, is_full = page + 1, len(slots) == _SLOTS * _SLOT.size

    def _read_slots(self, fd: int, number: int) -> bytes:
        page = self._read_page(fd, number)
        return page[_COUNT.size : _COUNT.size + _COUNT.unpack_from(page)[0] * _SLOT.size]

    def _read_page(self, fd: int, number: int) -> bytes:
        page = self._system.pread(fd, _PAGE, number * _PAGE) if number >= 0 else b""
        if len(page) < _PAGE or page[:4] != _COUNT.pack(crc32(page[4:])):
            raise _Unusable
        return page[4:]

    # ---- write

    def _extend(self, footer: _Footer, view: Records, upto: int) -> _Footer:
        """Append a run with the ids of the records that came since, or write all of them again as one."""
        later = list(takewhile(lambda record: record.n > footer.covered, view.back(upto)))[::-1]
        # Some were moved out of the log meanwhile, or lost.
        records = later if len(later) == upto - footer.covered else view.all()
        new = _index((record for record in records if record.n > footer.covered), upto, view)
        if len(footer.runs) == _MAX_RUNS:
            return self._replace(new._replace(slots=[*self._all_slots(footer), *new.slots]))
        run = _run_of(new.slots)
        runs = (*footer.runs, (footer.pages, len(run))) if run else footer.runs
        with opened(self._system, self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW) as fd:
            write_all(self._system, fd, b"".join(run))
            self._system.fdatasync(fd)
            write_all(self._system, fd, self._seal_footer(new, runs))
            self._system.fdatasync(fd)
        return _Footer(new.covered, new.anchor, runs, footer.pages + len(run) + 1)

    def _all_slots(self, footer: _Footer) -> Iterator[bytes]:
        with opened(self._system, self._path) as fd:
            numbers = (start + page for start, pages in footer.runs for page in range(pages))
            for slots in (self._read_slots(fd, number) for number in numbers):
                yield from (slots[at : at + _SLOT.size] for at in range(0, len(slots), _SLOT.size))

    def _replace(self, new: _New) -> _Footer:
        """Write a new file, and give it the name when all of it is on the disk."""
        run = _run_of(new.slots)
        runs = ((0, len(run)),) if run else ()
        pages = [*run, self._seal_footer(new, runs)]
        folder, scratch = os.path.dirname(self._path), f"{self._path}.{self._system.random(4).hex()}.tmp"
        make_folder(self._system, folder)
        try:
            with opened(
                self._system, scratch, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            ) as fd:
                for at in range(0, len(pages), _BLOCK):
                    write_all(self._system, fd, b"".join(pages[at : at + _BLOCK]))
                self._system.fsync(fd)
            self._system.rename(scratch, self._path)
        except BaseException:
            unlink_if_there(self._system, scratch)
            raise
        settle_names(self._system, folder)
        return _Footer(new.covered, new.anchor, runs, len(pages))

    def _seal_footer(self, new: _New, runs: Sequence[tuple[int, int]]) -> bytes:
        self._checked = (new.covered, new.anchor)
        footer = _FOOTER.pack(_MAGIC, self._uid, new.covered, new.anchor, len(runs))
        return _seal_page(footer + b"".join(_RUN.pack(*run) for run in runs))


class _New(NamedTuple):
    """The ids of some records: their slots, and up to which record they are all."""

    slots: Iterable[bytes]
    covered: int
    anchor: bytes


def _index(records: Iterable[Record], upto: int, view: Records) -> _New:
    """The ids of records up to a number; a group that ends after it is left for the next time."""
    slots: list[bytes] = []
    for first, last, parts in units(records):
        if last > upto:
            upto = min(upto, first - 1)
            break
        if parts[0].id is not None:
            slots.append(_SLOT.pack(_hash(parts[0].id.encode()), last, bytes.fromhex(print_of(parts, view))))
    return _New(slots, upto, _anchor(view, upto))


def _run_of(slots: Iterable[bytes]) -> list[bytes]:
    """The pages of a hash table that is half full."""
    found = list(slots)
    pages: list[list[bytes]] = [[] for _ in range(-(-2 * len(found) // _SLOTS))]
    for slot in found:
        at = _SLOT.unpack(slot)[0] % len(pages)
        while len(pages[at]) == _SLOTS:
            at = (at + 1) % len(pages)
        pages[at].append(slot)
    return [_seal_page(_COUNT.pack(len(page)) + b"".join(page)) for page in pages]


def _seal_page(content: bytes) -> bytes:
    page = content.ljust(_PAGE - 4, b"\0")
    return _COUNT.pack(crc32(page)) + page


def _is_stored_under(id: str, number: int, view: Records) -> bool:
    """Compare with the record itself; if that is lost, believe the index, so that nothing is stored twice."""
    last = view.find(number)
    first = view.find(last.tx[0]) if last is not None and last.tx is not None else last
    return first is None or first.id == id


def _anchor(view: Records, n: int) -> bytes:
    record = view.find(n)
    return bytes(8) if record is None else _hash(f"{record.n} {record.t} {record.ts} {record.id}".encode()).to_bytes(8)


def _hash(text: bytes) -> int:
    from hashlib import blake2b  # noqa: PLC0415 - as in nacre.storage.transaction

    return int.from_bytes(blake2b(text, digest_size=8).digest())
