"""The files of a store: one generation, a journal, sizes, what is left over, a copy."""

from __future__ import annotations

import errno
import os
from datetime import UTC
from pathlib import Path

import pytest

import nacre
from nacre.errors import InvalidArgument, SessionBusy, StoreError
from nacre.opening import holder_of
from nacre.testing import Disk, Fault
from tests.paths import log_of
from tests.simulated import LOG, ROOT, first, interrupt_once, names, opened, say, store


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


# ---- whose a file is


def test_a_file_tells_the_key_of_its_session(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", key="Chat:1")
    sessions.archive("Chat:1")
    say(sessions, "a")
    (archived,) = names(disk, "archive")
    disk.write_durable(f"{ROOT}/sessions/stranger~{'0' * 32}.jsonl", b"mine")
    disk.write_durable(f"{ROOT}/sessions/other~{'0' * 32}.jsonl", b'{"sid":"another"}\n')
    found = [sessions.key_of_file(f"{ROOT}/archive/{archived}")]
    found += [sessions.key_of_file(f"{ROOT}/sessions/{file}") for file in names(disk, "sessions")]
    assert found == ["Chat:1", "k", None, None]
    assert nacre.open(":memory:").key_of_file(LOG) is None


def test_logs_of_other_sessions_are_noticed(disk: Disk) -> None:
    sessions = opened(disk)
    assert not sessions.has_other_logs([])
    say(sessions, "a")
    say(sessions, "b", key="other")
    sessions.archive("other")
    assert [sessions.has_other_logs(keys) for keys in (["k"], ["k", "other"])] == [True, False]
    assert not nacre.open(":memory:").has_other_logs([])


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"mine\n", "stranger"), (b'{"v":1,"n":1,', "torn"), (b"\0" * 20, "torn"), (b"{", "torn")],
)
def test_a_file_that_is_none_of_ours_is_reported_as_such(disk: Disk, content: bytes, kind: str) -> None:
    disk.write_durable(LOG, content)
    assert [finding.kind for finding in opened(disk).verify().findings] == [kind]
    assert disk.read(LOG) == content


# ---- how large it is


def test_room_is_counted_by_folder_and_by_session_each_file_once(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        say(sessions, "a" * 70_000)
        say(sessions, "b", key="Other:")
        sessions.fork("k", "fork")
        sessions.archive("fork")
        (tmp_path / "blobs" / "mine").mkdir()
        (tmp_path / "blobs" / "mine" / "note").write_bytes(b"seven b")
        (tmp_path / "blobs" / "link").symlink_to("note")
        usage = sessions.disk_usage(["k", "Other:", "unknown"])
    sizes = {"k": log_of(tmp_path, "k").stat().st_size, "Other:": log_of(tmp_path, "Other:").stat().st_size}
    assert usage.sessions == {**sizes, "unknown": 0}
    assert usage.folders["blobs"] == 70_007
    assert (usage.folders["sessions"], usage.folders["cold"]) == (sum(sizes.values()), 0)
    assert usage.total == sum(usage.folders.values())


def test_the_size_of_a_log_and_of_what_stays_in_it(disk: Disk) -> None:
    sessions = opened(disk)
    assert sessions.log_size("k") == 0
    say(sessions, *"abcdef")
    sessions.truncate_history("k", 1)
    size = len(disk.read(LOG))
    assert sessions.log_size("k") == size
    assert 0 < sessions.log_size("k", kept=True) < size


def test_what_would_be_kept_of_an_archived_session_is_nothing_in_a_log(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    assert (sessions.log_size("k"), sessions.log_size("k", kept=True)) == (0, 0)


def test_a_store_that_cannot_be_read_has_no_sizes(disk: Disk) -> None:
    sessions = opened(disk)
    disk.fail(Fault(call="listdir"))
    with pytest.raises(StoreError, match="cannot be read"):
        sessions.disk_usage()


# ---- what is left over


def test_what_killed_writers_left_long_ago_is_removed(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        say(sessions, "a" * 70_000)
        old, new = tmp_path / "sessions" / "old.tmp", tmp_path / "sessions" / "new.tmp"
        for path in (old, new):
            path.write_bytes(b"12345")
        os.utime(old, (1, 1))
        (shared,) = [path for path in (tmp_path / "blobs").iterdir() if "." not in path.name]
        (link,) = [path for path in (tmp_path / "blobs").iterdir() if "." in path.name]
        link.unlink()
        found = sessions.remove_leftovers(dry_run=True)
        assert [(left.path, left.bytes) for left in found] == [(str(shared), 70_000), (str(old), 5)]
        assert (sessions.remove_leftovers(), sessions.remove_leftovers()) == (found, [])
    assert (old.exists(), new.exists(), shared.exists()) == (False, True, False)


def test_a_leftover_that_somebody_holds_stays(disk: Disk) -> None:
    process, other = disk.process(), disk.process()
    sessions = nacre.Sessions(store(process))
    for name in ("held", "free"):
        disk.write_durable(f"{ROOT}/sessions/{name}.tmp", b"12345")
    process.now = lambda: 1e12  # type: ignore[method-assign]
    other.flock(other.open(f"{ROOT}/sessions/held.tmp", os.O_RDWR), wait=True)
    assert [left.path for left in sessions.remove_leftovers()] == [f"{ROOT}/sessions/free.tmp"]
    assert names(disk, "sessions") == ["held.tmp"]


def test_a_leftover_that_another_process_removes_first_is_not_reported(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    disk.write_durable(f"{ROOT}/sessions/old.tmp", b"12345")
    process.now = lambda: 1e12  # type: ignore[method-assign]
    first(process, "open", lambda: disk.process().unlink(f"{ROOT}/sessions/old.tmp"))
    assert sessions.remove_leftovers() == []


# ---- who has a turn


def test_the_process_that_has_a_turn_is_told_without_opening_the_store(tmp_path: Path) -> None:
    assert holder_of(str(tmp_path / "none"), "k") == 0
    with nacre.open(tmp_path) as sessions:
        hold = sessions.hold("k")
        assert holder_of(str(tmp_path), "k") == 0
        hold.take()
        assert holder_of(str(tmp_path), "k") == os.getpid()
        hold.close()
