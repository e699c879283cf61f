"""The directory: what it must be, what may be wrong with it, and logs that are not what their names say."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import ImportedRecord, Transaction
from nacre.storage.change_marks import Position
from nacre.storage.file_store import FileStore
from nacre.testing import Disk, Fault, Process
from tests.damage.lines import DELETED, TIME, UID, conversation
from tests.simulated import LOG, ROOT, interrupt, interrupt_once, opened, said, say, settled, store

WAIT = 30


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Process, int], str]:
    """The files that the processes of a simulated disk have open."""
    found: dict[tuple[Process, int], str] = {}
    really_open, really_close = Process.open, Process.close

    def open(self: Process, path: str, flags: int, mode: int = 0o600) -> int:
        fd = really_open(self, path, flags, mode)
        found[self, fd] = path
        return fd

    def close(self: Process, fd: int) -> None:
        found.pop((self, fd), None)
        really_close(self, fd)

    monkeypatch.setattr(Process, "open", open)
    monkeypatch.setattr(Process, "close", close)
    return found


# The place


def test_sessions_are_listed_without_an_index_as_with_one(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        for key in ("b", "a", "c"):
            sessions.add_message(key, "user", "x")
            sessions.set_meta(key, deep={"key": [key]})
        sessions.archive("c")
        indexed = [list(sessions.list(order="key")), list(sessions.list(archived=True)), list(sessions.list(limit=1))]
    bare = nacre.Sessions(FileStore(str(tmp_path), rules=RULES))
    assert [list(bare.list(order="key")), list(bare.list(archived=True)), list(bare.list(limit=1))] == indexed
    assert [info.meta for info in indexed[0]] == [{"deep": {"key": ["a"]}}, {"deep": {"key": ["b"]}}]


def test_a_place_where_nothing_can_be_made_is_refused(disk: Disk) -> None:
    disk.fail(Fault(call="mkdir", errno=errno.EROFS))
    with pytest.raises(nacre.Refused, match="a store cannot be opened at /store"):
        opened(disk)


def test_nothing_is_stored_where_the_place_itself_may_not_survive(disk: Disk) -> None:
    sessions = opened(disk)
    disk.fail(Fault(call="fsync"))
    with pytest.raises(nacre.Refused, match="/store cannot be synced, nothing was stored"):
        say(sessions, "a")
    say(sessions, "b")
    assert settled(disk) == ["b"]


def test_a_directory_above_that_is_not_ours_is_not_ours_to_sync(disk: Disk) -> None:
    found = store(disk.process())
    synced: list[str] = []
    disk.before = lambda call, arguments: synced.append(arguments[0]) if call == "fsync" else None
    disk.fail(Fault(call="open", nth=2, errno=errno.EACCES))
    found.run("a", Transaction((encode_text("user", "b"),)))
    assert synced == ["/store", "/store/sessions"]


def test_a_child_of_a_fork_can_write_where_its_parent_did(disk: Disk) -> None:
    found = store(disk.process())
    assert found.run("k", Transaction((encode_text("user", "a"),))) == 2
    found.begin_in_child()
    assert found.run("k", Transaction((encode_text("user", "b"),))) == 3


def test_a_child_of_a_fork_leaves_marks_though_a_thread_of_its_parent_was_at_them(disk: Disk) -> None:
    process = disk.process()
    found = FileStore(ROOT, rules=RULES, system=process)
    marks = found._marks
    assert marks is not None
    with ThreadPoolExecutor(1) as pool, marks._lock:
        found.begin_in_child()
        assert pool.submit(found.run, "k", Transaction((encode_text("user", "a"),))).result(WAIT) == 2
    assert marks.take(Position()).paths == {LOG.removeprefix(f"{ROOT}/")}


# Logs


def test_a_deletion_that_did_not_come_to_its_end_is_one(disk: Disk) -> None:
    disk.write_durable(LOG, b"".join(DELETED))
    sessions = opened(disk)
    assert (said(sessions), sessions.transcript("k"), list(sessions.list())) == ([], [], [])
    assert sessions.verify().ok
    with pytest.raises(nacre.SessionNotFound):
        sessions.verify("k")


def test_a_deletion_that_did_not_come_to_its_end_is_finished_by_the_next_write(disk: Disk) -> None:
    disk.write_durable(LOG, b"".join(DELETED))
    disk.write_durable(f"{ROOT}/cold/k.{'0' * 32}.jsonl.zst", b"moved out")
    sessions = opened(disk)
    say(sessions, "new")
    assert (said(sessions), disk.process().listdir(f"{ROOT}/cold")) == (["new"], [])


def test_a_log_that_does_not_say_whose_it_is_is_reported_and_not_listed(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = opened(disk)
    say(sessions, "a", key="telegram:7")
    (name,) = disk.process().listdir(f"{ROOT}/sessions")
    path = f"{ROOT}/sessions/{name}"
    disk.write_durable(path, disk.read(path).replace(b'"t":"open"', b'"t":"0pen"'))
    assert list(sessions.list()) == []
    assert caplog.messages == ["a session cannot be listed"]
    assert [(finding.kind, finding.where) for finding in sessions.verify().findings] == [("unreadable", path)]
    assert said(sessions, "telegram:7") == ["a"]


def test_a_damaged_log_that_another_process_writes_is_read_and_left_as_it_is(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = b"".join(conversation("k", ["a", "b", "c"])).replace(b'"b"}', b'"x"}')
    disk.write_durable(LOG, log)
    process = disk.process()
    process.flock(process.open(LOG, os.O_RDWR), wait=True)
    with caplog.at_level(logging.WARNING):
        assert said(opened(disk)) == ["a", "c"]
    assert caplog.messages == ["a damaged log could not be repaired"]
    assert disk.read(LOG) == log


@pytest.mark.parametrize("read", ["get_history", "transcript", "exists", "status", "list"])
def test_a_directory_that_cannot_be_read_is_an_error_of_the_store(disk: Disk, read: str) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    disk.fail(Fault(call="listdir", count=None))
    with pytest.raises(nacre.StoreError, match="cannot be read"):
        list(sessions.list()) if read == "list" else getattr(sessions, read)("none")


def test_a_log_that_cannot_be_looked_at_is_an_error_of_the_store(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    disk.fail(Fault(call="stat"))
    with pytest.raises(nacre.StoreError, match="cannot be read"):
        sessions.status("k")


def test_an_emptied_log_is_told_by_the_status_of_its_key(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    disk.write_durable(LOG, b"")
    assert sessions.status("k") == "emptied"


def test_deleting_what_another_process_has_just_deleted_is_no_error(disk: Disk) -> None:
    one, two = opened(disk), opened(disk)
    say(one, "a")
    say(two, "b")
    one.delete("k")
    two.delete("k")
    assert not two.exists("k")


def test_a_lock_that_cannot_be_let_go_is_let_go_by_closing(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    disk.fail(Fault(call="unlock"))
    say(sessions, "b")
    disk.heal()
    say(opened(disk), "c")
    say(sessions, "d")
    assert said(sessions) == ["a", "b", "c", "d"]


def test_a_log_that_cannot_be_looked_at_when_it_is_closed_is_looked_at_again_later(disk: Disk) -> None:
    sessions = opened(disk, max_open=1)
    say(sessions, "a")
    disk.fail(Fault(call="fstat", nth=3))
    say(sessions, "x", key="other")
    disk.heal()
    say(sessions, "b")
    assert said(sessions) == ["a", "b"]


def test_a_deletion_of_archived_sessions_that_was_cut_short_does_not_touch_what_came_after(disk: Disk) -> None:
    sessions = opened(disk)
    for text in "ab":
        say(sessions, text)
        sessions.archive("k")
    disk.fail(Fault(call="unlink", count=None))
    with pytest.raises(nacre.DurabilityUnknown):
        sessions.delete("k")
    disk.heal()
    say(sessions, "new")
    assert [stored.message.content for stored in sessions.transcript("k")] == ["new"]
    assert disk.process().listdir("/store/archive") == []


def test_a_deletion_that_cannot_be_finished_is_left_for_later(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    disk.fail(Fault(call="unlink", count=None))
    with pytest.raises(nacre.DurabilityUnknown):
        sessions.delete("k")
    say(sessions, "new")
    assert [stored.message.content for stored in sessions.transcript("k")] == ["new"]


def test_a_deletion_that_another_process_is_at_is_left_to_it(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    path = f"{ROOT}/archive/k.{UID}.jsonl"
    disk.write_durable(path, b"".join(DELETED))
    disk.write_durable(LOG, b"".join(conversation("k", ["new"], uid="f" * 32)))
    process = disk.process()
    process.flock(process.open(path, os.O_RDWR), wait=True)
    with caplog.at_level(logging.DEBUG):
        assert told(opened(disk)) == ["new"]
    assert set(caplog.messages) == {"a deletion is being finished"}
    assert disk.read(path) == b"".join(DELETED)


# Interrupted


def test_a_delete_that_a_timeout_interrupts_raises_it_and_is_finished_by_the_next(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    interrupt(disk, "unlink")
    with pytest.raises(TimeoutError):
        sessions.delete("k")
    assert settled(disk) == []
    sessions.delete("k")
    assert disk.process().listdir(f"{ROOT}/sessions") == []


def test_a_list_that_a_timeout_interrupts_raises_it(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    interrupt_once(process, "listdir")
    with pytest.raises(TimeoutError):
        list(sessions.list())
    assert [info.key for info in sessions.list()] == ["k"]


def test_a_look_at_a_key_that_a_timeout_interrupts_raises_it(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    interrupt_once(process, "stat")
    with pytest.raises(TimeoutError):
        sessions.status("k")
    assert sessions.status("k") == "active"


def test_a_fork_that_a_timeout_interrupts_raises_it_and_shares_nothing(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    interrupt(disk, "link")
    with pytest.raises(TimeoutError):
        sessions.fork("k", "new")
    assert (said(sessions, "new"), disk.process().listdir(f"{ROOT}/base")) == ([], [])
    sessions.fork("k", "new")
    assert settled(disk, "new") == ["a"]


def test_a_fork_that_a_timeout_interrupts_when_it_has_its_name_keeps_what_it_shares(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    interrupt(disk, "rename", "fsync")
    with pytest.raises(TimeoutError):
        sessions.fork("k", "new")
    assert said(opened(disk), "new") == ["a"]
    say(sessions, "b", key="new")
    assert settled(disk, "new") == ["a", "b"]
    assert sessions.verify().ok


@pytest.mark.parametrize("archived", [False, True])
def test_a_session_from_elsewhere_that_a_timeout_interrupts_is_not_brought_in(disk: Disk, *, archived: bool) -> None:
    files = store(disk.process())
    records = [ImportedRecord(encode_text("user", "a"), TIME)]
    interrupt(disk, "rename")
    with pytest.raises(TimeoutError):
        files.import_session("k", records, src={}, archived=archived)
    assert told(nacre.Sessions(files)) == []
    assert files.import_session("k", records, src={}, archived=archived)
    assert told(nacre.Sessions(files)) == ["a"]


# Logs on their way from one name to another


def told(sessions: nacre.Sessions) -> list[object]:
    return [stored.message.content for stored in sessions.transcript("k")]


def moved_meanwhile(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str, move: Callable[[nacre.Sessions], None]
) -> nacre.Sessions:
    """A store in which another process moves a log before or after one is looked for in a folder."""
    process, other = disk.process(), opened(disk)
    when, folder = moment.split()

    def open(path: str, flags: int, mode: int = 0o600) -> int:
        is_now = path.startswith(f"{ROOT}/{folder}/")
        if is_now:
            monkeypatch.undo()
        if is_now and when == "before":
            move(other)
        try:
            return Process.open(process, path, flags, mode)
        finally:
            if is_now and when == "after":
                move(other)

    monkeypatch.setattr(process, "open", open)
    return nacre.Sessions(store(process))


@pytest.mark.parametrize("moment", ["after sessions", "before archive", "after archive"])
@pytest.mark.parametrize(("read", "expected"), [(said, ["b"]), (told, ["a", "b"])])
def test_a_session_that_is_brought_back_meanwhile_is_read(
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    read: Callable[[nacre.Sessions], list[object]],
    expected: list[object],
) -> None:
    sessions = opened(disk)
    for text in "ab":
        say(sessions, text)
        sessions.archive("k")
    assert read(moved_meanwhile(disk, monkeypatch, moment, lambda other: other.unarchive("k"))) == expected


@pytest.mark.parametrize("moment", ["after sessions", "before archive", "after archive"])
@pytest.mark.parametrize("read", [said, told])
def test_the_only_session_of_a_key_is_read_while_it_is_brought_back(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str, read: Callable[[nacre.Sessions], list[object]]
) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    assert read(moved_meanwhile(disk, monkeypatch, moment, lambda other: other.unarchive("k"))) == ["a"]


@pytest.mark.parametrize("read", [said, told])
def test_a_session_that_is_archived_meanwhile_is_read(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, read: Callable[[nacre.Sessions], list[object]]
) -> None:
    say(opened(disk), "a")
    assert read(moved_meanwhile(disk, monkeypatch, "after sessions", lambda other: other.archive("k"))) == ["a"]


def test_what_is_left_of_a_session_is_erased_though_the_disk_is_full(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = Process.open

    def open(self: Process, path: str, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really_open(self, path, flags, mode)

    sessions = opened(disk)
    say(sessions, "a")
    left = f"{ROOT}/quarantine/gone.{UID}.jsonl"
    disk.process().mkdir(f"{ROOT}/quarantine", 0o700)
    disk.write_durable(left, b"private")
    monkeypatch.setattr(Process, "open", open)
    sessions.delete("gone")
    assert disk.process().listdir(f"{ROOT}/quarantine") == []


# Descriptors


def test_a_repair_leaves_no_file_open(disk: Disk, at_hand: dict[tuple[Process, int], str]) -> None:
    disk.write_durable(LOG, b"".join(conversation("k", ["a", "b"])).replace(b'"a"}', b'"x"}'))
    sessions = opened(disk)
    assert sessions.repair("k").set_aside == 1
    assert at_hand == {}


def test_a_damaged_log_that_cannot_be_mended_is_not_left_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str]
) -> None:
    disk.write_durable(LOG, b"".join(conversation("k", ["a", "b"])).replace(b'"a"}', b'"x"}'))
    process = disk.process()
    writer = process.open(LOG, os.O_RDWR)
    process.flock(writer, wait=True)
    assert said(opened(disk)) == ["b"]
    assert at_hand == {(process, writer): LOG}


@pytest.mark.parametrize(
    ("call", "act"),
    [
        ("link", lambda sessions: sessions.unarchive("k")),
        ("unlink", lambda sessions: sessions.delete("k")),
    ],
)
def test_an_archived_log_with_which_something_fails_is_not_left_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str], call: str, act: Callable[[nacre.Sessions], None]
) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    disk.fail(Fault(call=call))
    with pytest.raises(nacre.StoreError):
        act(sessions)
    assert at_hand == {}


def test_a_deletion_that_cannot_be_finished_leaves_no_file_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str]
) -> None:
    disk.write_durable(f"{ROOT}/archive/k.{UID}.jsonl", b"".join(DELETED))
    disk.write_durable(LOG, b"".join(conversation("k", ["new"], uid="f" * 32)))
    disk.fail(Fault(call="unlink", count=None))
    assert [stored.message.content for stored in opened(disk).transcript("k")] == ["new"]
    assert at_hand == {}


def test_a_session_from_elsewhere_that_is_refused_leaves_no_file_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str]
) -> None:
    files = store(disk.process())
    disk.fail(Fault(call="rename"))
    with pytest.raises(nacre.Refused):
        files.import_session("k", [ImportedRecord(encode_text("user", "a"), TIME)], src={}, archived=True)
    assert at_hand == {}


def test_a_log_of_which_nothing_can_be_learned_is_not_left_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str]
) -> None:
    disk.write_durable(LOG, b"".join(conversation("k", ["a"])))
    disk.fail(Fault(call="fstat"))
    with pytest.raises(nacre.StoreError):
        said(opened(disk))
    assert at_hand == {}


def test_a_followed_log_that_cannot_be_locked_is_an_error_and_not_left_open(
    disk: Disk, at_hand: dict[tuple[Process, int], str]
) -> None:
    disk.write_durable(LOG, b"".join(conversation("k", ["a"])))
    disk.fail(Fault(call="flock", errno=errno.ENOLCK))
    with pytest.raises(nacre.StoreError, match="cannot be read"):
        next(opened(disk).follow("k"))
    assert at_hand == {}


# Only a key that an earlier version could have had as a plain name is looked for under that name first.
@pytest.mark.parametrize("key", ["k", "telegram:42", "x" * 300])
def test_what_another_process_deleted_first_is_deleted(key: str) -> None:
    disk = Disk()
    one, other = opened(disk), opened(disk)
    say(one, "a", key=key)
    say(other, "b", key=key)
    one.delete(key)
    other.delete(key)
    assert said(opened(disk), key) == []
