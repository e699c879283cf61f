"""Reading lines: forwards, backwards and by number, through damage, and never past what is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from nacre.records import MAX_LINE_BYTES
from nacre.storage.lines import Lines
from nacre.testing import Disk
from tests.damage.lines import conversation, message

Read = Callable[..., Lines]
HEADER, A, B, C = conversation("k", ["a", "b", "c"])
TOO_LONG = b"z" * (MAX_LINE_BYTES + 2**21) + b"\n"


@pytest.fixture
def read() -> Read:
    """Reads some bytes as a log, of which it may be said that it was longer once."""

    def read(*parts: bytes, gone: int = 0) -> Lines:
        data = b"".join(parts)
        disk = Disk()
        disk.write_durable("/log", data)
        process = disk.process()
        return Lines(process, process.open("/log", os.O_RDONLY), len(data) + gone)

    return read


def numbers(lines: Lines) -> list[int]:
    return [record.n for record in lines.records(lines.size)]


def forward(lines: Lines) -> list[int | None]:
    """The numbers from the first to the last; None for damage."""
    return [piece.record.n if piece.record is not None else None for piece in lines.forward()]


def backward(lines: Lines) -> list[int | None]:
    return [piece.record.n if piece.record is not None else None for piece in lines.backward(lines.size)]


def test_a_whole_log_is_read_either_way(read: Read) -> None:
    lines = read(HEADER, A, B, C)
    assert (forward(lines), backward(lines), numbers(lines)) == ([1, 2, 3, 4], [4, 3, 2, 1], [4, 3, 2, 1])
    assert not lines.damaged


def test_a_log_that_became_shorter_gives_what_is_left(read: Read) -> None:
    lines = read(HEADER, A, gone=100)
    assert lines.read(len(HEADER), lines.size) == A
    assert forward(lines) == [1, 2]


def test_records_are_read_around_a_rotten_line(read: Read) -> None:
    lines = read(HEADER, A, b"rotten\n", B)
    assert numbers(lines) == [3, 2, 1]
    assert lines.damaged


def test_records_are_read_before_a_torn_end(read: Read) -> None:
    lines = read(HEADER, A, B[:50])
    assert numbers(lines) == [2, 1]
    assert lines.damaged


def test_records_that_lost_the_newline_between_them_are_read(read: Read) -> None:
    lines = read(HEADER, A[:-1], B)
    assert numbers(lines) == [3, 2, 1]
    assert lines.damaged


@pytest.mark.parametrize("where", ["at the start", "between", "at the end"])
def test_a_line_too_long_to_be_ours_is_one_piece_of_damage(read: Read, where: str) -> None:
    parts, found = {
        "at the start": ((TOO_LONG, A, B), [None, 2, 3]),
        "between": ((HEADER, TOO_LONG, B), [1, None, 3]),
        "at the end": ((HEADER, A, TOO_LONG), [1, 2, None]),
    }[where]
    lines = read(*parts)
    assert (forward(lines), backward(lines)[::-1]) == (found, found)
    assert numbers(lines) == [n for n in reversed(found) if n is not None]


def test_a_record_is_found_by_its_number_without_reading_the_log(read: Read) -> None:
    log = [message(n, "x" * 200, before=n - 1, ordinal=n) for n in range(1, 1001)]
    lines = read(*log)
    assert [lines.bound(n, 1000) for n in (1, 500, 1000)] == [len(b"".join(log[:n])) for n in (1, 500, 1000)]


def test_a_number_that_is_missing_is_bound_by_the_one_before(read: Read) -> None:
    log = [message(n, "x" * 200, before=n - 1, ordinal=n) for n in range(1, 1001) if n != 500]
    assert read(*log).bound(500, 1000) == len(b"".join(log[:499]))


def test_a_record_is_found_by_its_number_before_a_great_rotten_stretch(read: Read) -> None:
    log = [message(n, "x", before=n - 1, ordinal=n) for n in range(1, 4)]
    lines = read(*log, b"rotten\n" * 5000)
    assert lines.bound(2, 1000) == len(b"".join(log[:2]))


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 3, b"abc"), (0, 4, b"abcD"), (2, 6, b"cDEF"), (3, 6, b"DEF"), (4, 5, b"E"), (1, 9, b"bcdef"), (5, 5, b"")],
)
def test_what_is_in_memory_is_not_read_again(read: Read, start: int, end: int, found: bytes) -> None:
    lines = read(b"abcdef")
    lines.keep(3, b"DEF")
    assert lines.read(start, end) == found


def test_what_is_in_memory_is_not_put_after_a_file_that_has_become_shorter(read: Read) -> None:
    lines = read(b"ab", gone=4)
    lines.keep(3, b"DEF")
    assert lines.read(0, 6) == b"ab"
