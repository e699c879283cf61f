"""Generations of a key: their uids whatever the clock says, what a deletion leaves, and how a fork can fail."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from itertools import product
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

import nacre
from nacre.codec import encode_text, is_time, timestamp
from nacre.history.session_state import RULES
from nacre.records import ImportedRecord, View
from nacre.storage.file_store import FileStore
from nacre.storage.paths import SessionPaths, new_uid
from nacre.storage.system import System
from nacre.testing import Disk, Fault
from nacre.testing.disk import Killed
from tests.damage.lines import conversation
from tests.interleaved import interrupted
from tests.paths import log_of
from tests.simulated import LOG, ROOT, SCRATCH, names, opened, said, say, store

YEAR = 365.2425 * 86400
CLOCKS = {
    "before 1970": -5.25,
    "1970": 0.0,
    "4254": 72_089_136_000.0,
    "year 12000": 10_030 * YEAR,
    "-3000": -4970 * YEAR,
}


class Clock(System):
    """A system whose clock is set by hand."""

    time = 0.0

    def now(self) -> float:
        return self.time


@pytest.mark.parametrize("time", CLOCKS.values(), ids=CLOCKS)
def test_generations_are_found_and_in_order_whatever_the_clock_says(root: Path, time: float) -> None:
    clock = Clock()
    with nacre.Sessions(FileStore(str(root), rules=RULES, system=clock)) as sessions:
        for number, moment in enumerate((time, time, 1_700_000_000.0, time)):
            clock.time = moment
            say(sessions, str(number))
            sessions.archive("k")
        stored = sessions.transcript("k")
        assert [entry.message.content for entry in stored] == ["0", "1", "2", "3"]
        uids = [entry.generation for entry in stored]
        assert uids == sorted(set(uids))
        assert {len(uid) for uid in uids} == {32}
        assert (sessions.verify().ok, len(list(sessions.list(archived=True)))) == (True, 4)
        sessions.unarchive("k")
        assert said(sessions) == ["3"]
        sessions.delete("k")
        assert not list((root / "archive").iterdir())


def test_a_uid_has_one_after_it_up_to_the_last() -> None:
    clock = Clock()
    assert new_uid(clock, after=["f" * 31 + "e"]) == "f" * 32
    with pytest.raises(OSError, match="no uid is greater"):
        new_uid(clock, after=["f" * 32])


@pytest.mark.parametrize("seconds", [-1e18, -0.0004, 0.0, 1e18])
def test_a_time_can_be_read_again_whatever_the_clock_says(seconds: float) -> None:
    assert is_time(timestamp(seconds))
    assert timestamp(-0.25) == "1969-12-31T23:59:59.750Z"


@pytest.mark.parametrize("wrong", ["2026-13-45T00:00:00.000Z", "yesterday", "", "2026-11-15T18:00:00"])
@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_time_that_is_none_is_reported_and_does_not_keep_anyone_from_reading(wrong: str, line: int) -> None:
    disk = Disk()
    say(opened(disk), "a", "b")
    lines = disk.read(LOG).splitlines()
    fields = json.loads(lines[line])
    del fields["crc"]
    fields["ts"] = wrong
    body = msgspec.json.encode(fields)[:-1]
    lines[line] = b'%b,"crc":"%08x"}' % (body, crc32(body))
    disk.write_durable(LOG, b"\n".join(lines) + b"\n")
    sessions = opened(disk)
    (finding,) = sessions.verify().findings
    assert (finding.kind, f"record {line + 1}" in finding.detail) == ("time", True)
    assert [entry.message.content for entry in sessions.transcript("k")] == ["a", "b"]
    assert len(list(sessions.records("k"))) == 3
    (info,) = sessions.list()
    assert info.created.tzinfo is not None
    assert info.updated.tzinfo is not None


def test_unarchiving_while_another_archives_brings_back_the_newest() -> None:
    """What `r1` of the reproductions did: the older generation came back, and outlived a deletion."""
    for at in range(1, 200):
        disk = Disk()
        other = opened(disk)
        say(other, "older")
        other.archive("k")
        say(other, "newer")
        sessions, process = interrupted(disk)
        process.arm(at, lambda other=other: other.archive("k"))  # type: ignore[misc]
        try:
            sessions.unarchive("k")
        except nacre.Conflict:
            continue
        except AssertionError:
            break
        assert said(sessions) == ["newer"]
    assert at > 1


def test_what_an_interrupted_rewrite_left_is_erased_with_archived_generations() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "secret")
    disk.write_durable(SCRATCH, disk.read(LOG))
    sessions.archive("k")
    opened(disk).delete("k")
    assert (names(disk, "sessions"), names(disk, "archive")) == ([], [])


@pytest.mark.parametrize("archived", [False, True])
def test_a_creation_that_is_killed_at_any_call_leaves_nothing_behind_a_deletion(archived: bool) -> None:
    for call, nth in product(("open", "write", "fdatasync", "close", "unlink"), range(1, 5)):
        disk = Disk()
        sessions = opened(disk)
        if archived:
            say(sessions, "a")
            sessions.archive("k")
        disk.fail(Fault(call=call, nth=nth, mode="kill"))
        with suppress(Killed):
            say(sessions, "b")
        disk.heal()
        opened(disk).delete("k")
        left = [name for folder in ("sessions", *(["archive"] if archived else [])) for name in names(disk, folder)]
        assert not left, (call, nth)


def test_a_log_with_only_a_header_goes_with_its_archived_generations() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    say(sessions, "b")
    disk.write_durable(LOG, disk.read(LOG).splitlines(keepends=True)[0])
    opened(disk).delete("k")
    assert (names(disk, "sessions"), names(disk, "archive")) == ([], [])


def test_a_deletion_of_an_archived_session_that_was_cut_short_leaves_what_began_later() -> None:
    disk = Disk()
    sessions = opened(disk)
    for text in ("a", "b" * 70_000):
        say(sessions, text)
        sessions.archive("k")
    disk.fail(Fault(call="unlink", mode="kill"))
    with pytest.raises(Killed):
        sessions.delete("k")
    disk.heal()
    later = opened(disk)
    say(later, "later" * 20_000)
    assert [entry.message.content for entry in later.transcript("k")] == ["later" * 20_000]
    assert names(disk, "archive") == []


def test_a_fork_whose_name_may_not_last_keeps_what_it_shares() -> None:
    disk = Disk()
    say(opened(disk), "a" * 70_000)
    goal = SessionPaths.of(ROOT, "new").log

    def watch(call: str, arguments: tuple[object, ...]) -> None:
        if call == "rename" and arguments[1] == goal:
            disk.before = None
            disk.fail(Fault(call="fsync", errno=errno.EIO))

    disk.before = watch
    with pytest.raises(nacre.DurabilityUnknown):
        opened(disk).fork("k", "new")
    disk.heal()
    assert said(opened(disk), "new") == ["a" * 70_000]
    assert opened(disk).verify().ok


def test_a_fork_that_cannot_look_at_the_archive_is_refused() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    say(sessions, "b")
    disk.fail(Fault(call="listdir", errno=errno.EMFILE))
    with pytest.raises(nacre.Refused):
        sessions.fork("k", "new")
    disk.heal()
    assert not opened(disk).exists("new")


def test_an_archived_log_without_a_byte_is_reported_and_the_others_are_read() -> None:
    disk = Disk()
    sessions = opened(disk)
    for text in ("older", "newer"):
        say(sessions, text)
        sessions.archive("k")
    disk.write_durable(f"{ROOT}/archive/{names(disk, 'archive')[-1]}", b"")
    sessions = opened(disk)
    assert [entry.message.content for entry in sessions.transcript("k")] == ["older"]
    assert said(sessions) == ["older"]
    assert [finding.kind for finding in sessions.verify().findings] == ["emptied"]
    assert [finding.kind for finding in sessions.verify("k").findings] == ["emptied"]


@pytest.mark.parametrize("has_active", [False, True])
def test_an_archived_session_from_elsewhere_is_whole_or_not_there(has_active: bool) -> None:
    imported = [ImportedRecord(encode_text("user", "brought"), timestamp(0))]
    was_imported = False
    for at in range(1, 100):
        disk = Disk()
        if has_active:
            say(opened(disk), "a")
        disk.fail(Fault(call="*", nth=at, mode="kill"))
        try:
            was_imported = store(disk.process()).import_session("k", imported, src={"file": "f"}, archived=True)
        except Killed:
            was_imported = False
        disk.heal()
        sessions = opened(disk)
        texts = [entry.message.content for entry in sessions.transcript("k")]
        own = ["a"] if has_active else []
        assert texts == ["brought", *own] if was_imported else texts in (own, ["brought", *own])
        assert sessions.verify().ok
        if was_imported:
            break
    assert was_imported


def test_a_session_is_deleted_though_the_file_it_came_from_cannot_be_removed() -> None:
    disk = Disk()
    imported = [ImportedRecord(encode_text("user", "brought"), timestamp(0))]
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    disk.write_durable(f"{ROOT}/old.json.migrated", b"")
    assert store(disk.process()).import_session("k", imported, src={"file": "old.json", "sha256": digest})

    def watch(call: str, arguments: tuple[object, ...]) -> None:
        if call == "unlink" and str(arguments[0]).endswith(".migrated"):
            raise OSError(errno.EIO, "no")

    disk.before = watch
    with pytest.raises(nacre.DurabilityUnknown, match="not the file it came from"):
        opened(disk).delete("k")
    disk.before = None
    assert not opened(disk).exists("k")


def test_a_fork_onto_its_own_key_is_a_conflict() -> None:
    disk = Disk()
    say(opened(disk), "a")
    with pytest.raises(nacre.Conflict):
        opened(disk).fork("k", "k")
    with pytest.raises(nacre.SessionNotFound):
        opened(disk).fork("unknown", "unknown")
    assert said(opened(disk)) == ["a"]
    assert log_of(ROOT, "k").name in names(disk, "sessions")


@pytest.mark.parametrize("content", [b"", b"damage\n", conversation("another", ["x"])[0] + b"torn"])
def test_ids_of_an_archived_log_that_cannot_be_read_are_not_known(content: bytes) -> None:
    disk = Disk()
    sessions = opened(disk)
    message = {"role": "user", "content": "once"}
    sessions.add_messages("k", [message], id="i")
    sessions.archive("k")
    disk.write_durable(f"{ROOT}/archive/{names(disk, 'archive')[0]}", content)
    opened(disk).add_messages("k", [message], id="i")
    assert said(opened(disk)) == ["once"]


def test_a_session_that_is_archived_and_begun_anew_while_it_is_read_is_read_again(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        seen: list[str] = []

        def get(view: View) -> tuple[int, bool]:
            seen.append(view.uid)
            if len(seen) == 1:
                sessions.archive("k")
                sessions.add_messages("k", [{"role": "user", "content": text} for text in "bc"])
            return view.n, view.is_newest

        assert sessions.read_generations("k", get) == [(2, False), (3, True)]
        assert seen[0] == seen[1] != seen[2]
