"""What compaction moved out of a log: its lines, in zstd frames of about 128 kB, each with a checksum.

A damaged frame affects no other: reading resumes at the next one. Earlier versions wrote frames without a
checksum and did not count records; such files are read and appended to as they are.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from nacre.errors import StoreError
from nacre.records import Record
from nacre.storage.format import number
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import make_folder, replace_file, settle_names, write_all
from nacre.storage.system import System, opened

logger = logging.getLogger(__name__)

_FRAME = 128 * 1024
_STEP = 64 * 1024
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x50\x2a\x4d\x18"
_EMPTY_BLOCK = 3
_SKIPPED_HEAD = len(_SKIPPED) + 4
_LEVELS = (3, 19, 22, 12, 9, 15, 6, 1)


class Extent(NamedTuple):
    """The part of a cold file that counts: its first `length` bytes, and how many records were written to them.

    `records` is None if an earlier version wrote the log's header, which did not count them.
    """

    length: int
    records: int | None


class Frame(NamedTuple):
    """One frame, and how many lines are in it."""

    data: bytes
    lines: int


def frames(lines: Iterable[bytes]) -> Iterator[Frame]:
    """Pack lines into frames, each of whole lines."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) > _FRAME:
            yield _pack(held)
            held, size = [], 0
        held.append(line)
        size += len(line)
    if held:
        yield _pack(held)


def pieces(system: System, path: str, length: int | None) -> Iterator[Piece]:
    """The records in the first `length` bytes of a cold file, with no length in all of it, and its damage.

    Each piece has the place of its frame. A damaged frame gives the records in it that can still be read,
    then one piece of damage. A file that should be longer, or there, is damage too.
    """
    try:
        fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        if length:
            yield Piece(0, length, b"", None)
        return
    try:
        size = system.fstat(fd).st_size
        yield from _unpack(system, Lines(system, fd, size if length is None else min(size, length)))
        if length is not None and size < length:
            yield Piece(size, length, b"", None)
    finally:
        system.close(fd)


def back(system: System, path: str, *, length: int, n: int, last: int) -> Iterator[Record]:
    """The records from `n` down in the one frame that should have it, found by a search; `last` is the greatest number.

    What one compaction moved out is in order, and what the next one did comes after it, but for a few numbers. So a
    search nearly always finds the frame; a caller that misses a record there must read all of them. A frame that is
    damaged gives nothing, or only what is above the damage.
    """
    with suppress(FileNotFoundError), opened(system, path) as fd:
        file = Lines(system, fd, min(length, system.fstat(fd).st_size))
        text, low, low_n, high, high_n = b"", 0, 0, file.size, last + 1
        halve = False
        # Every other guess is in proportion, as numbers grow with offsets; those between are in the middle.
        while low < high:
            share = (high - low) * (n - low_n) // max(1, high_n - low_n)
            guess = (low + high) // 2 if halve else low + min(max(share - _STEP // 4, 0), high - low - 1)
            halve = not halve
            at = _next_frame(file, guess)
            found, end = _decompress(file, at) if at < high else (b"", None)
            first = number(found[: found.find(b"\n")])
            if at < high and (end is None or not first):
                return
            if at >= high or first > n:
                # There is no frame between the guess and it.
                high, high_n = guess, first or high_n
            else:
                text, low, low_n = found, end or high, first
        lines = Lines.of(system, text)
        for record in lines.records(lines.bound(n, last)):
            if lines.damaged:
                return
            yield record


def measure(system: System, path: str, length: int | None = None) -> Extent:
    """Count the records in the first `length` bytes of a cold file; with no length, in all of it.

    What was cut off it cannot be counted. It counts as one record, so that it is noticed ever after.
    """
    end = records = 0
    for piece in pieces(system, path, length):
        end = piece.end
        records += piece.record is not None
    try:
        is_cut = length is not None and system.stat(path).st_size < length
    except FileNotFoundError:
        is_cut = bool(length)
    return Extent(end if length is None else length, records + is_cut)


def append(
    system: System, path: str, before: Extent, lines: Iterable[bytes], *, is_in_log: Callable[[int, bytes], bool]
) -> Extent:
    """Add lines to a cold file, wait until they are durable, return what counts of it then.

    What comes after the part that counts was left by a compaction that did not finish. It is cut off if
    `is_in_log` finds every record of it, by number and line, in the log. Otherwise the length in the
    header was wrong: nothing is cut off, and all of the file counts from now on.
    """
    known = before if before.records is not None else measure(system, path, before.length)
    records = known.records or 0
    make_folder(system, os.path.dirname(path))
    fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    start = None
    try:
        file = Lines(system, fd, system.fstat(fd).st_size)
        if not _is_leftover(system, file, before.length, is_in_log):
            logger.warning("a cold file has more records than its log knows of; all are kept", extra={"file": path})
            records = max(records, measure(system, path).records or 0)
        elif file.size > before.length:
            system.ftruncate(fd, before.length)
        start = system.fstat(fd).st_size
        for frame in frames(lines):
            write_all(system, fd, frame.data)
            records += frame.lines
        system.fsync(fd)
        length = system.fstat(fd).st_size
    except OSError:
        # Give up the room that the failed append took; if that fails, the next one cuts it off.
        with suppress(OSError):
            if start:
                system.ftruncate(fd, start)
            elif start is not None:
                system.unlink(path)
        raise
    finally:
        system.close(fd)
    settle_names(system, os.path.dirname(path))
    return Extent(length, records)


def _is_leftover(system: System, file: Lines, at: int, is_in_log: Callable[[int, bytes], bool]) -> bool:
    """Tell whether the log can do without what comes after `at`: it has every record, and only the end is torn."""
    for piece in _unpack(system, file, at):
        if piece.record is not None:
            if not is_in_log(piece.record.n, piece.raw):
                return False
        elif piece.end < file.size or not _is_torn(file, piece.start):
            return False
    return True


def _is_torn(file: Lines, at: int) -> bool:
    """Tell whether a file ends in a frame that was not written to its end; a power cut may leave zeros there."""
    left = file.read(at, file.size).rstrip(b"\0")
    is_whole = _decompress(file, at)[1] is not None
    if is_whole or not _MAGIC.startswith(left[: len(_MAGIC)]):
        return False
    try:
        _zstd().ZstdDecompressor().decompress(left)
    except _zstd().ZstdError:
        return False
    return True


def replace(
    system: System, path: str, change: Callable[[Piece], bytes], shorten: Callable[[bytes], bytes] = bytes
) -> int:
    """Write a cold file again with other bytes for some of its lines; returns how many there were.

    Its length stays, since the log's header says it: a frame that got smaller is followed by one that readers skip.
    Lines that do not fit are shortened. Of a damaged frame with such a line, what can be read is kept. Raises
    StoreError if something does not fit.
    """
    changed = 0
    with opened(system, path) as fd:
        file = Lines(system, fd, system.fstat(fd).st_size)
        frames: list[tuple[int, bytes]] = []
        for at, end, text, _ in _frames(file):
            pieces = list(Lines.of(system, text).forward())
            lines = list(map(change, pieces))
            count = sum(piece.raw != line for piece, line in zip(pieces, lines, strict=True))
            if count:
                changed += count
                ends = [text[piece.start + len(piece.raw) : piece.end] for piece in pieces]
                # The room of a frame that was made smaller before is that of what readers skip after it, too.
                room = _skip(file, end) - at
                short = [
                    shorten(line) if piece.record is not None and piece.raw != line else line
                    for piece, line in zip(pieces, lines, strict=True)
                ]
                frame = _fit(_join(lines, ends), room) or _fit(_join(short, ends), room)
                if frame is None:
                    raise StoreError(f"{path}: what is left of a frame does not fit into its place")
                frames.append((at, frame))
        if frames:
            replace_file(system, path, _splice(file, frames))
    return changed


def _join(lines: Iterable[bytes], ends: Iterable[bytes]) -> bytes:
    return b"".join(line + end for line, end in zip(lines, ends, strict=True))


def _splice(file: Lines, frames: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """The bytes of a file with other frames at some offsets, as long as those that are there."""
    done = 0
    for at, frame in frames:
        yield file.read(done, at)
        yield frame
        done = at + len(frame)
    yield file.read(done, file.size)


def _fit(text: bytes, size: int) -> bytes | None:
    """A frame of exactly so many bytes, with what readers skip after it; None if there is none."""
    zstd = _zstd()
    for level in _LEVELS:
        # It can do without its checksum, since every line has one, and without its length.
        for checksum, length in ((1, 1), (0, 1), (0, 0)):
            options = {
                zstd.CompressionParameter.compression_level: level,
                zstd.CompressionParameter.checksum_flag: checksum,
                zstd.CompressionParameter.content_size_flag: length,
            }
            frame: bytes = zstd.compress(text, options=options)
            rest = size - len(frame)
            if rest in (0, _EMPTY_BLOCK, 2 * _EMPTY_BLOCK):
                # Too few bytes for what readers skip: blocks of no text, after the header of the frame.
                head = _header_length(frame)
                return frame[:head] + bytes(rest) + frame[head:]
            if rest >= _SKIPPED_HEAD:
                skipped = rest - _SKIPPED_HEAD
                return frame + _SKIPPED + skipped.to_bytes(4, "little") + bytes(skipped)
    return None


def _header_length(frame: bytes) -> int:
    """How long the header of a frame without a dictionary is: RFC 8878, 3.1.1.1."""
    descriptor = frame[len(_MAGIC)]
    is_single = descriptor >> 5 & 1
    length = (is_single, 2, 4, 8)[descriptor >> 6]
    return len(_MAGIC) + 1 + (not is_single) + length


def _frames(file: Lines, at: int = 0) -> Iterator[tuple[int, int, bytes, bool]]:
    """Start, end and text of the frames from an offset on, and whether each is whole; those to skip are left out."""
    while (at := _skip(file, at)) < file.size:
        text, end = _decompress(file, at)
        is_whole = end is not None
        if end is None:
            end = _next_frame(file, at + 1)
        yield at, end, text, is_whole
        at = end


def _skip(file: Lines, at: int) -> int:
    """The offset after the frames that readers skip, if there are any."""
    while at < file.size:
        head = file.read(at, min(at + _SKIPPED_HEAD, file.size))
        after = at + _SKIPPED_HEAD + int.from_bytes(head[len(_SKIPPED) :], "little")
        if not head.startswith(_SKIPPED) or len(head) < _SKIPPED_HEAD or after > file.size:
            break
        at = after
    return at


def _unpack(system: System, file: Lines, at: int = 0) -> Iterator[Piece]:
    for start, end, text, is_whole in _frames(file, at):
        lines = Lines.of(system, text)
        for piece in lines.forward():
            if piece.record is not None:
                yield Piece(start, end, piece.raw, piece.record)
        if lines.damaged or not is_whole or not text:
            yield Piece(start, end, b"", None)


def _next_frame(file: Lines, start: int) -> int:
    """Offset of the next bytes that may begin a frame; the end of the file if there are none."""
    while start < file.size:
        block = file.read(start, min(start + _STEP, file.size))
        at = block.find(_MAGIC)
        if at >= 0:
            return start + at
        if len(block) < _STEP:
            break
        start += len(block) - len(_MAGIC) + 1
    return file.size


def _decompress(file: Lines, start: int) -> tuple[bytes, int | None]:
    """The text of the frame at an offset, and its end; if it is damaged, what can be read of it, and no end."""
    zstd = _zstd()
    reader = zstd.ZstdDecompressor()
    parts: list[bytes] = []
    at = start
    while at < file.size and not reader.eof:
        chunk = file.read(at, min(at + _STEP, file.size))
        if not chunk:
            break
        try:
            parts.append(reader.decompress(chunk))
        except zstd.ZstdError:
            # Byte by byte, up to the damage in its last bytes: what goes in with damage does not come out.
            reader = zstd.ZstdDecompressor()
            parts = [reader.decompress(file.read(start, at))]
            with suppress(zstd.ZstdError, EOFError):
                for index in range(len(chunk)):  # pragma: no branch - it ends in the error that was met before
                    parts.append(reader.decompress(chunk[index : index + 1]))
            return b"".join(parts), None
        at += len(chunk)
    return b"".join(parts), at - len(reader.unused_data) if reader.eof else None


def _pack(lines: list[bytes]) -> Frame:
    zstd = _zstd()
    data = zstd.compress(b"".join(lines), options={zstd.CompressionParameter.checksum_flag: 1})
    return Frame(data, len(lines))


def _zstd() -> Any:
    """The compressor, loaded when something has been moved out: few sessions ever need it."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
