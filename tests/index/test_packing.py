"""What the index keeps of a message comes back as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre import Sessions
from nacre.codec import timestamp
from nacre.index import Index
from nacre.index.database import pack, pack_time, unpack, unpack_head, unpack_time


@given(text=st.text(), times=st.integers(1, 50))
def test_a_text_comes_back(text: str, times: int) -> None:
    body = text.encode(errors="replace").decode() * times
    assert unpack(pack(body)) == body
    assert len(pack(body)) <= len(body.encode())


def test_a_long_text_takes_less_room_and_a_short_one_is_kept_as_it_is() -> None:
    assert len(pack("the disk is full, and the log says so " * 10)) < 100
    assert pack("the disk is full") == "the disk is full"


@pytest.mark.parametrize("text", ["word " * 1000, "äöü€😀" * 1000, "short", ""])
@pytest.mark.parametrize("most", [0, 1, 7, 100])
def test_the_beginning_of_a_text_can_be_had(text: str, most: int) -> None:
    assert unpack_head(pack(text), most) == text[:most]


def test_a_packed_text_that_is_erased_leaves_the_files(index: Index, sessions: Sessions, cache: Path) -> None:
    text = "the locker of the secret harbour is at the end of the secret pier, behind the lockers " * 3
    packed = pack(text)
    assert isinstance(packed, bytes)
    sessions.add_message("gone", "user", text)
    index.search("locker")
    assert packed in b"".join(path.read_bytes() for path in cache.rglob("index.sqlite*"))
    sessions.delete("gone")
    index.forget("gone")
    assert packed[:40] not in b"".join(path.read_bytes() for path in cache.rglob("index.sqlite*"))


def test_room_that_has_become_empty_is_given_back(index: Index, sessions: Sessions, cache: Path) -> None:
    for key in ("gone", "left"):
        for start in range(0, 20_000, 1000):
            words = (f"{number:x} {number * 7919 % 104729:x}" for number in range(start, start + 1000))
            sessions.add_message(key, "user", " ".join(words))
    index.search("anything")
    sessions.delete("gone")
    sessions.add_message("left", "user", "something new")
    index.search("anything")
    index.close()
    with closing(sqlite3.connect(next(cache.rglob("index.sqlite")))) as connection:
        empty, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
    assert pages > 100
    assert empty <= pages / 32


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_to_the_millisecond(moment: datetime) -> None:
    text = timestamp(moment.timestamp())
    assert unpack_time(pack_time(text)) == datetime.fromisoformat(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-01T10:00:00"])
def test_what_is_no_time_is_kept_as_the_first(text: str) -> None:
    assert unpack_time(pack_time(text)) == datetime(1970, 1, 1, tzinfo=UTC)
