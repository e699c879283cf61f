"""The files of a store: one generation, a journal, sizes, what is left over, a copy."""

from __future__ import annotations

import errno
from datetime import UTC

import pytest

import nacre
from nacre.errors import InvalidArgument, SessionBusy, StoreError
from nacre.testing import Disk, Fault
from tests.simulated import LOG, ROOT, interrupt_once, opened, say, store


@pytest.fixture
def disk() -> Disk:
    return Disk()


# ---- one generation


def test_a_generation_is_told_as_its_log_is_now(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    say(sessions, "b")
    sessions.set_labels("k", pinned=True)
    (archived,) = sessions.list(archived=True)
    old, new = sessions.generation("k", archived.generation), sessions.generation("k")
    assert old is not None
    assert new is not None
    assert (old.key, old.generation, old.pinned, new.pinned) == ("k", archived.generation, False, True)
    assert new.bytes == len(disk.read(LOG))
    assert new.changed.tzinfo is UTC


@pytest.mark.parametrize("uid", ["", "f" * 32])
def test_there_is_no_generation_where_there_is_no_log(disk: Disk, uid: str) -> None:
    assert opened(disk).generation("k", uid) is None


def test_a_generation_that_cannot_be_read_is_an_error_of_the_store(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    disk.fail(Fault(call="pread", errno=errno.EIO))
    with pytest.raises(StoreError, match="cannot be read"):
        sessions.generation("k")


def test_a_look_at_a_generation_that_a_timeout_interrupts_raises_it(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    interrupt_once(process, "stat")
    with pytest.raises(TimeoutError):
        sessions.generation("k")


def test_sessions_in_memory_have_no_generations_on_a_disk() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("k", "user", "a")
        assert sessions.generation("k") is None


@pytest.mark.parametrize("uid", ["../k", "F" * 32, "\0"])
def test_a_uid_that_is_none_is_refused(disk: Disk, uid: str) -> None:
    with pytest.raises(InvalidArgument, match="32 hexadecimal digits"):
        opened(disk).generation("k", uid)


# ---- a journal


@pytest.mark.parametrize("name", ["", "../marks", "Work", "\0"])
def test_a_journal_has_a_plain_name(disk: Disk, name: str) -> None:
    with pytest.raises(InvalidArgument, match="small letters"):
        opened(disk).journal(name)


def test_a_journal_has_the_lines_that_were_added(disk: Disk) -> None:
    with opened(disk).journal("work") as journal:
        assert journal.last() == b""
        journal.add(b"one")
        journal.add(b"two")
        assert journal.last() == b"two"
    assert disk.read(f"{ROOT}/receipts/work.jsonl") == b"one\ntwo\n"


def test_a_torn_line_of_a_journal_is_ended_before_the_next(disk: Disk) -> None:
    disk.write_durable(f"{ROOT}/receipts/work.jsonl", b"one\ntw")
    with opened(disk).journal("work") as journal:
        assert journal.last() == b"tw"
        journal.add(b"three")
    assert disk.read(f"{ROOT}/receipts/work.jsonl") == b"one\ntw\nthree\n"


def test_a_journal_is_one_process_at_a_time(disk: Disk) -> None:
    with (
        opened(disk).journal("work"),
        pytest.raises(SessionBusy, match="another process"),
        opened(disk).journal("work"),
    ):
        pass
    with opened(disk).journal("work"):
        pass


def test_a_journal_that_cannot_be_opened_is_an_error_of_the_store(disk: Disk) -> None:
    sessions = opened(disk)
    disk.fail(Fault(call="mkdir", errno=errno.ENOSPC))
    with pytest.raises(StoreError, match="cannot be written"), sessions.journal("work"):
        pass


def test_sessions_in_memory_have_no_journal() -> None:
    with nacre.open(":memory:") as sessions, pytest.raises(StoreError, match="are not files"):
        sessions.journal("work")
