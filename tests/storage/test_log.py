"""The writer of a log: what it does when a call fails, when it is not alone, and when the log changes under it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history import session_state
from nacre.records import Operation, Record, Records, RecordStamp, Rewind, Rules, State, Transaction
from nacre.storage import writer
from nacre.storage.locks import KeyLock
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk, Fault, Killed
from tests.damage.lines import DELETED, UID, conversation, header
from tests.simulated import (
    LOG,
    ROOT,
    SCRATCH,
    fail_after,
    interrupt,
    interrupt_once,
    names,
    opened,
    said,
    say,
    settled,
    store,
)
from tests.strikes import at_every_step, is_struck

USER = {"role": "user"}
NO_ROOM = Fault(call="write", mode="short", errno=errno.ENOSPC)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def sessions(disk: Disk) -> nacre.Sessions:
    """A store with one message in it."""
    sessions = opened(disk)
    say(sessions, "a")
    return sessions


# A failed write


def test_a_write_without_room_is_taken_back(disk: Disk, sessions: nacre.Sessions) -> None:
    before = disk.read(LOG)
    disk.fail(NO_ROOM)
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        say(sessions, "b")
    assert disk.read(LOG) == before
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]


def test_a_failed_write_that_cannot_be_cut_off_is_left_behind_with_its_file(
    disk: Disk, sessions: nacre.Sessions
) -> None:
    disk.fail(NO_ROOM)
    disk.fail(Fault(call="ftruncate"))
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        say(sessions, "b")
    assert settled(disk) == ["a"]
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]
    assert sessions.verify().ok


def test_a_failed_write_that_cannot_be_taken_back_at_all_is_in_doubt(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(NO_ROOM)
    disk.fail(Fault(call="ftruncate"))
    disk.fail(Fault(call="rename"))
    with pytest.raises(nacre.DurabilityUnknown, match="could not be removed"):
        say(sessions, "b")
    assert said(opened(disk)) == ["a"]
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]


def test_a_first_write_that_cannot_be_cut_off_leaves_no_session(disk: Disk) -> None:
    sessions = opened(disk)
    disk.fail(NO_ROOM)
    disk.fail(Fault(call="ftruncate"))
    with pytest.raises(nacre.Refused):
        say(sessions, "a")
    assert disk.read(LOG) == b""
    assert not sessions.exists("k")
    say(sessions, "b")
    assert settled(disk) == ["b"]


# A failed flush


def test_a_failed_flush_moves_the_log_and_a_retry_is_stored_once(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(Fault(call="fdatasync"))
    with pytest.raises(nacre.DurabilityUnknown, match="records 3 to 3 may or may not survive"):
        sessions.add_messages("k", [USER | {"content": "b"}], id="once")
    assert settled(disk) == ["a", "b"]
    assert sessions.add_messages("k", [USER | {"content": "b"}], id="once") == 3
    assert said(sessions) == ["a", "b"]


def test_what_could_neither_be_flushed_nor_moved_is_hidden(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="fsync"))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "b")
    assert said(opened(disk)) == ["a"]
    assert names(disk, "sessions") == [Path(LOG).name]
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]


def test_what_can_neither_be_moved_nor_hidden_is_built_upon(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="fsync"))
    disk.fail(Fault(call="ftruncate"))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "b")
    say(sessions, "c")
    assert settled(disk) == ["a", "b", "c"]


def test_a_log_stays_in_doubt_until_it_could_be_moved(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="rename", count=2))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "b")
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        say(sessions, "c")
    say(sessions, "d")
    assert settled(disk) == ["a", "d"]


def test_what_a_killed_writer_left_is_moved_where_it_cannot_be_flushed(disk: Disk) -> None:
    disk.fail(Fault(call="fdatasync", mode="kill"))
    with pytest.raises(Killed):
        say(opened(disk), "a")
    disk.heal()
    disk.fail(Fault(call="fdatasync"))
    say(opened(disk), "b")
    assert settled(disk) == ["a", "b"]


def test_a_new_log_whose_name_was_not_settled_is_moved_once_more(disk: Disk, sessions: nacre.Sessions) -> None:
    say(sessions, "b", "c")
    sessions.truncate_history("k", 1)
    fail_after(disk, "rename", Fault(call="fsync"))
    with pytest.raises(nacre.Refused):
        sessions.save("k")
    say(sessions, "d")
    assert settled(disk) == ["c", "d"]


def test_a_scratch_file_that_cannot_be_removed_is_replaced_by_the_next(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="fsync"))
    disk.fail(Fault(call="unlink"))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "b")
    assert names(disk, "sessions") == [Path(LOG).name, Path(SCRATCH).name]
    say(sessions, "c")
    assert names(disk, "sessions") == [Path(LOG).name]


# Interrupted


@pytest.mark.parametrize("act", [lambda sessions: say(sessions, "b"), lambda sessions: sessions.save("k")])
def test_an_error_from_a_signal_handler_at_any_step_does_not_cost_what_is_written_next(
    act: Callable[[nacre.Sessions], None],
) -> None:
    def fail() -> Never:
        raise nacre.Refused("another session has no room")

    def go_through(step: int) -> bool:
        disk = Disk()
        sessions = opened(disk)
        say(sessions, "x" * 1000)
        sessions.truncate_history("k", 0)
        say(sessions, "a")
        came = is_struck(step, lambda: act(sessions), writer, handler=fail)
        say(sessions, "c")
        assert [text for text in settled(disk) if text != "b"] == ["a", "c"], step
        assert sessions.verify().ok, step
        return came

    at_every_step(go_through)


def test_whoever_is_interrupted_when_it_unlocks_a_log_leaves_it_unlocked(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    interrupt_once(process, "unlock")
    with pytest.raises(TimeoutError):
        say(sessions, "b")
    say(opened(disk), "c")
    say(sessions, "d")
    assert settled(disk) == ["a", "b", "c", "d"]


def test_a_failed_write_whose_removal_is_interrupted_is_removed_by_the_next(
    disk: Disk, sessions: nacre.Sessions
) -> None:
    disk.fail(NO_ROOM)
    interrupt(disk, "ftruncate")
    with pytest.raises(TimeoutError):
        say(sessions, "b")
    disk.heal()
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]
    assert sessions.verify().ok


def test_an_error_that_comes_when_a_unit_is_in_its_batch_stores_nothing_of_the_batch(disk: Disk) -> None:
    class Late(Transaction, frozen=True):
        """Is interrupted at its fingerprint, which a batch asks for last."""

        def __getattribute__(self, name: str) -> Any:
            if name == "print":
                raise TimeoutError("the turn took too long")
            return super().__getattribute__(name)

    opened(disk)
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=session_state.RULES)
    commits = [PendingCommit(kind((encode_text("user", "a"),), id=kind.__name__)) for kind in (Transaction, Late)]
    with pytest.raises(TimeoutError):
        log.writer.commit(commits)
    assert [(commit.number, commit.error) for commit in commits] == [(None, None)] * 2
    log.writer.commit([PendingCommit(Transaction((encode_text("user", "c"),)))])
    assert said(opened(disk)) == ["c"]


# Relaxed


def test_a_relaxed_log_is_durable_once_it_is_closed(disk: Disk) -> None:
    sessions = opened(disk, durability="relaxed")
    say(sessions, "a", "b")
    assert settled(disk) == []
    sessions.close()
    assert settled(disk) == ["a", "b"]


def test_a_relaxed_log_is_durable_once_it_is_saved(disk: Disk) -> None:
    sessions = opened(disk, durability="relaxed")
    for text in ("a", "b"):
        sessions.add_message("k", "user", text)
        assert settled(disk) != said(sessions)
        sessions.save("k")
        assert settled(disk) == said(sessions)


def test_a_relaxed_log_is_flushed_before_too_much_waits(disk: Disk) -> None:
    sessions = opened(disk, durability="relaxed")
    sessions.add_full_message("k", {"role": "user", "content": ["a" * 60_000] * 18})
    assert settled(disk) == []
    say(sessions, "b")
    assert settled(disk) == [["a" * 60_000] * 18]


def test_a_relaxed_log_that_cannot_be_flushed_is_moved(disk: Disk) -> None:
    sessions = opened(disk, durability="relaxed")
    say(sessions, "a")
    disk.fail(Fault(call="fdatasync"))
    sessions.close()
    assert settled(disk) == ["a"]


def test_a_relaxed_log_that_another_process_archived_is_closed_without_a_word(disk: Disk) -> None:
    sessions = opened(disk, durability="relaxed")
    say(sessions, "a")
    opened(disk).archive("k")
    sessions.close()
    assert settled(disk) == ["a"]


# Compaction


def test_a_log_with_one_great_live_message_is_not_compacted(disk: Disk, sessions: nacre.Sessions) -> None:
    say(sessions, "b", "c" * 5000)
    sessions.truncate_history("k", 1)
    before = disk.read(LOG)
    sessions.save("k")
    sessions.save("k")
    assert disk.read(LOG) == before


def test_going_back_to_what_is_still_at_hand_brings_nothing_back(disk: Disk, sessions: nacre.Sessions) -> None:
    say(sessions, "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    say(sessions, "d")
    before = disk.read(LOG)
    sessions.rewind("k", 5)
    assert said(sessions) == ["c"]
    assert disk.read(LOG).startswith(before)


def test_a_log_that_is_in_doubt_since_records_were_brought_back_takes_nothing_of_the_batch(
    disk: Disk, sessions: nacre.Sessions
) -> None:
    say(sessions, "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=session_state.RULES)
    transactions = [
        Transaction((Rewind(3),), creates=False, reach=3, needs=lambda _: {2, 3}),
        Transaction((encode_text("user", "d"),)),
    ]
    fail_after(disk, "rename", Fault(call="fsync"))
    commits = [PendingCommit(transaction) for transaction in transactions]
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        log.writer.commit(commits)
    assert [(commit.number, commit.error) for commit in commits] == [(None, None)] * 2
    assert said(opened(disk)) == ["c"]
    log.writer.commit([PendingCommit(transaction) for transaction in transactions])
    assert settled(disk) == ["a", "b", "d"]


# Archiving, bringing back, deleting


def test_archiving_says_so_when_it_may_not_survive(disk: Disk, sessions: nacre.Sessions) -> None:
    fail_after(disk, "rename", Fault(call="fsync"))
    with pytest.raises(nacre.DurabilityUnknown, match="archiving was done"):
        sessions.archive("k")
    assert [info.key for info in sessions.list(archived=True)] == ["k"]


def test_archiving_finishes_a_move_that_left_the_log_under_both_names(disk: Disk, sessions: nacre.Sessions) -> None:
    sessions.archive("k")
    (archived,) = names(disk, "archive")
    disk.process().link(f"{ROOT}/archive/{archived}", LOG)
    sessions.archive("k")
    assert (names(disk, "sessions"), names(disk, "archive")) == ([], [archived])


def test_archiving_replaces_an_older_copy_of_the_same_generation(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    uid = sessions.transcript("k")[0].generation
    disk.write_durable(f"/store/archive/k.{uid}.jsonl", disk.read(LOG))
    say(sessions, "b")
    sessions.archive("k")
    assert said(sessions) == ["a", "b"]


def test_a_creation_that_came_to_nothing_makes_way(disk: Disk, sessions: nacre.Sessions) -> None:
    sessions.archive("k")
    disk.write_durable(LOG, header("k"))
    sessions.unarchive("k")
    assert settled(disk) == ["a"]
    assert not list(sessions.list(archived=True))


def test_bringing_back_a_log_that_is_gone_does_nothing(disk: Disk, sessions: nacre.Sessions) -> None:
    gone = Log(disk.process(), SessionPaths.of(ROOT, "other", archived=UID), rules=session_state.RULES)
    gone.unarchive(SessionPaths.of(ROOT, "other"))
    assert names(disk, "sessions") == [Path(LOG).name]


def test_repairing_a_log_that_is_gone_keeps_nothing(disk: Disk, sessions: nacre.Sessions) -> None:
    receipt = Log(disk.process(), SessionPaths.of(ROOT, "other"), rules=session_state.RULES).repair(wait=True)
    assert (receipt.kept, receipt.set_aside, receipt.quarantine) == (0, 0, None)


def test_a_session_is_deleted_also_without_room_for_a_record_of_it(disk: Disk, sessions: nacre.Sessions) -> None:
    disk.fail(NO_ROOM)
    sessions.delete("k")
    assert names(disk, "sessions") == []
    assert settled(disk) == []


def test_deleting_says_so_when_it_may_not_survive(disk: Disk, sessions: nacre.Sessions) -> None:
    fail_after(disk, "unlink", Fault(call="fsync"))
    with pytest.raises(nacre.DurabilityUnknown, match="deleting was done"):
        sessions.delete("k")
    opened(disk).delete("k")
    assert settled(disk) == []


# Forks and generations


def test_a_fork_does_not_take_the_place_of_a_session(disk: Disk, sessions: nacre.Sessions) -> None:
    say(sessions, "x", key="other")
    process, goal = disk.process(), SessionPaths.of(ROOT, "other")
    source, target = (Log(process, SessionPaths.of(ROOT, key), rules=session_state.RULES) for key in ("k", "other"))
    uid = target.writer.next_uid()
    root = source.share(goal, uid=uid, transaction=Transaction(()))
    with KeyLock(process, goal), pytest.raises(nacre.Conflict, match="'other' exists already"):
        target.grow_from(root, uid=uid)
    assert settled(disk, "other") == ["x"]


def test_a_deletion_is_not_finished_while_another_process_has_the_key(disk: Disk) -> None:
    disk.write_durable(LOG, b"".join(DELETED))
    place = SessionPaths.of(ROOT, "k")
    log = Log(disk.process(), place, rules=session_state.RULES)
    with KeyLock(disk.process(), place), pytest.raises(nacre.SessionBusy):
        log.exists(wait=False)
    assert disk.read(LOG) == b"".join(DELETED)
    assert not log.exists(wait=False)
    assert names(disk, "sessions") == []


# Others


def test_a_log_without_a_folder_is_refused(disk: Disk) -> None:
    sessions = opened(disk)
    disk.process().rename(f"{ROOT}/sessions", f"{ROOT}/elsewhere")
    with pytest.raises(nacre.Refused, match="No such file"):
        say(sessions, "a")


def test_a_log_that_was_overwritten_in_place_has_ids_of_its_own(disk: Disk) -> None:
    sessions = opened(disk)
    sessions.add_messages("k", [USER | {"content": "a"}], id="once")
    disk.write_durable(LOG, b"".join(conversation("k", ["x", "y", "z"])))
    sessions.add_messages("k", [USER | {"content": "a"}], id="once")
    assert said(sessions) == ["x", "y", "z", "a"]


def test_what_was_refused_half_way_is_not_seen_behind_what_others_store(disk: Disk) -> None:
    say(other := opened(disk), *(f"m{i}" for i in range(40)))
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=session_state.RULES)
    log.exists()
    disk.fail(Fault(call="pread"))
    commits = [
        PendingCommit(Transaction((encode_text("user", "stored"),))),
        PendingCommit(Transaction((encode_text("user", "half"), Rewind(3)))),
    ]
    log.writer.commit(commits)
    assert (commits[0].error, type(commits[1].error)) == (None, nacre.Refused)
    say(other, "a", "b", "c")
    other.truncate_history("k", 3)
    log.compact(session_state.keep, least=1)
    assert names(disk, "cold") != []
    assert said(opened(disk)) == ["a", "b", "c"]


def test_rules_may_read_every_record_before_the_one_they_make(disk: Disk) -> None:
    seen: list[list[str]] = []

    def apply(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
        seen.append([record.t for record in view.all()])
        return session_state.apply(operation, stamp, state, view)

    opened(disk)
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=Rules(apply=apply, replay=session_state.replay))
    for text in "ab":
        log.writer.commit([PendingCommit(Transaction((encode_text("user", text),)))])
    assert seen == [[], ["open", "msg"]]
