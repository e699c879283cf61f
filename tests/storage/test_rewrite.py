"""What replaces a log: after a crash that left gaps, when it is large, and when a session is imported."""

from __future__ import annotations

import errno

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import AppendRecord, ImportedRecord, Operation, SetMeta, Summarise, Transaction, Truncate
from nacre.storage.file_store import FileStore
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk, Fault
from tests.simulated import LOG, ROOT, opened, said, say, settled, store

A, B, C = (encode_text("user", text) for text in "abc")


def written_together(*operations: Operation) -> Disk:
    """A log with one batch of many transactions."""
    disk = Disk()
    opened(disk)
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES)
    log.writer.commit([PendingCommit(Transaction((operation,))) for operation in operations])
    log.writer.close()
    return disk


def lose(disk: Disk, number: int) -> None:
    """Let a power cut leave zeros where one record of a batch was."""
    lines = disk.read(LOG).splitlines(keepends=True)
    lines[number - 1] = b"\0" * len(lines[number - 1])
    disk.write_durable(LOG, b"".join(lines))


@pytest.mark.parametrize(("lost", "left"), [(2, ["b", "c"]), (3, ["a", "c"]), (4, ["a", "b"])])
def test_a_message_that_a_crash_took_out_of_a_batch_leaves_no_trace(lost: int, left: list[str]) -> None:
    disk = written_together(A, B, C)
    lose(disk, lost)
    sessions = opened(disk)
    say(sessions, "d")
    assert said(sessions) == [*left, "d"]
    assert [info.messages for info in sessions.list()] == [3]
    sessions.discard("k")
    assert sessions.verify().ok


def test_what_followed_a_gap_keeps_its_content() -> None:
    disk = written_together(A, B, AppendRecord("x.note", {"k": 1}), SetMeta({"title": "T"}))
    lose(disk, 3)
    sessions = opened(disk)
    say(sessions, "d")
    assert (said(sessions), sessions.get_meta("k")) == (["a", "d"], {"title": "T"})
    assert [(entry.n, entry.data) for entry in sessions.records("k", "x.note")] == [(4, {"k": 1})]
    sessions.discard("k")
    assert sessions.verify().ok


LONG = ["a" * 60_000] * 18


def test_a_great_log_is_written_anew_block_by_block() -> None:
    disk = Disk()
    sessions = opened(disk)
    for content in (LONG, "lost", LONG):
        sessions.add_full_message("k", {"role": "user", "content": content})
    disk.write_durable(LOG, disk.read(LOG).replace(b'"lost"', b'"rots"'))
    writes: list[int] = []
    disk.before = lambda call, arguments: writes.append(len(arguments[1]) >> 20) if call == "write" else None
    assert sessions.repair("k").set_aside == 1
    assert writes == [0, 1, 1, 0]
    assert said(sessions) == [LONG, LONG]


THEN = "2020-01-02T03:04:05.000Z"
SOURCE = {"name": "old", "path": "old.jsonl"}
RECORDS = [
    *(ImportedRecord(encode_text("user", text), THEN) for text in "abc"),
    ImportedRecord(Truncate(9), THEN),
    ImportedRecord(Summarise("s", 2), THEN),
]


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def files(disk: Disk) -> FileStore:
    return store(disk.process())


def test_a_session_from_elsewhere_is_as_if_it_had_been_written_here_then(disk: Disk, files: FileStore) -> None:
    assert files.import_session("k", RECORDS, src=SOURCE)
    sessions = opened(disk)
    assert (settled(disk), sessions.get_summary("k")) == (["b", "c"], "s")
    assert [(entry.n, entry.kind) for entry in sessions.records("k")] == [
        (1, "open"), (2, "msg"), (3, "msg"), (4, "msg"), (5, "sum"),
    ]  # fmt: skip
    assert {entry.ts.isoformat() for entry in sessions.records("k")} == {"2020-01-02T03:04:05+00:00"}
    assert sessions.verify().ok


def test_a_session_from_elsewhere_never_takes_the_place_of_another(disk: Disk, files: FileStore) -> None:
    assert files.import_session("k", RECORDS[:1], src=SOURCE)
    assert not files.import_session("k", RECORDS, src=SOURCE)
    assert said(opened(disk)) == ["a"]


def test_a_session_from_elsewhere_can_come_as_an_archived_one(disk: Disk, files: FileStore) -> None:
    assert files.import_session("k", RECORDS, src=SOURCE, archived=True)
    sessions = opened(disk)
    assert ([*sessions.list()], [info.key for info in sessions.list(archived=True)]) == ([], ["k"])
    assert settled(disk) == ["b", "c"]


def test_an_archive_that_cannot_be_made_refuses_the_session(disk: Disk, files: FileStore) -> None:
    disk.fail(Fault(call="mkdir", errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        files.import_session("k", RECORDS, src=SOURCE, archived=True)


def test_an_archived_session_that_was_refused_does_not_hide_an_earlier_one(disk: Disk, files: FileStore) -> None:
    assert files.import_session("k", RECORDS, src=SOURCE, archived=True)
    disk.fail(Fault(call="rename", errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused):
        files.import_session("k", RECORDS[:1], src=SOURCE, archived=True)
    sessions = opened(disk)
    assert said(sessions) == ["b", "c"]
    sessions.unarchive("k")
    assert said(sessions) == ["b", "c"]


def test_every_generation_says_where_it_came_from(files: FileStore) -> None:
    files.import_session("k", RECORDS, src=SOURCE, archived=True)
    nacre.Sessions(files).add_message("k", "user", "written here")
    assert list(files.source_of("k")) == [SOURCE]


def test_a_fork_came_from_here_though_its_parent_did_not(files: FileStore) -> None:
    files.import_session("k", RECORDS, src=SOURCE)
    nacre.Sessions(files).fork("k", "fork")
    assert (list(files.source_of("k")), list(files.source_of("fork"))) == ([SOURCE], [])
