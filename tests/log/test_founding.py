"""A session from elsewhere: whole or not at all, with its own times, and with word of where it came from."""

from __future__ import annotations

import errno

import pytest

import nacre
from nacre.entries import Founding, Summarise, Truncate, say_plainly
from nacre.store.files import Files
from nacre.testing import Disk, Fault
from tests.simulated import opened, said, settled, store

THEN = "2020-01-02T03:04:05.000Z"
SOURCE = {"name": "old", "path": "old.jsonl"}
RECORDS = [
    *(Founding(say_plainly("user", text), THEN) for text in "abc"),
    Founding(Truncate(9), THEN),
    Founding(Summarise("s", 2), THEN),
]


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def files(disk: Disk) -> Files:
    return store(disk.process())


def test_a_session_from_elsewhere_is_as_if_it_had_been_written_here_then(disk: Disk, files: Files) -> None:
    assert files.found("k", RECORDS, src=SOURCE)
    sessions = opened(disk)
    assert (settled(disk), sessions.get_summary("k")) == (["b", "c"], "s")
    assert [(entry.n, entry.kind) for entry in sessions.records("k")] == [
        (1, "open"), (2, "msg"), (3, "msg"), (4, "msg"), (5, "sum"),
    ]  # fmt: skip
    assert {entry.ts.isoformat() for entry in sessions.records("k")} == {"2020-01-02T03:04:05+00:00"}
    assert sessions.verify().ok


def test_a_session_from_elsewhere_never_takes_the_place_of_another(disk: Disk, files: Files) -> None:
    assert files.found("k", RECORDS[:1], src=SOURCE)
    assert not files.found("k", RECORDS, src=SOURCE)
    assert said(opened(disk)) == ["a"]


def test_a_session_from_elsewhere_can_come_as_an_archived_one(disk: Disk, files: Files) -> None:
    assert files.found("k", RECORDS, src=SOURCE, archived=True)
    sessions = opened(disk)
    assert ([*sessions.list()], [info.key for info in sessions.list(archived=True)]) == ([], ["k"])
    assert settled(disk) == ["b", "c"]


def test_an_archive_that_cannot_be_made_refuses_the_session(disk: Disk, files: Files) -> None:
    disk.fail(Fault(call="mkdir", errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused, match="nothing was stored"):
        files.found("k", RECORDS, src=SOURCE, archived=True)


def test_an_archived_session_that_was_refused_does_not_hide_an_earlier_one(disk: Disk, files: Files) -> None:
    assert files.found("k", RECORDS, src=SOURCE, archived=True)
    disk.fail(Fault(call="rename", errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused):
        files.found("k", RECORDS[:1], src=SOURCE, archived=True)
    sessions = opened(disk)
    assert said(sessions) == ["b", "c"]
    sessions.unarchive("k")
    assert said(sessions) == ["b", "c"]


def test_every_generation_says_where_it_came_from(files: Files) -> None:
    files.found("k", RECORDS, src=SOURCE, archived=True)
    nacre.Sessions(files).add_message("k", "user", "written here")
    assert list(files.source_of("k")) == [SOURCE]


def test_a_fork_came_from_here_though_its_parent_did_not(files: Files) -> None:
    files.found("k", RECORDS, src=SOURCE)
    nacre.Sessions(files).fork("k", "fork")
    assert (list(files.source_of("k")), list(files.source_of("fork"))) == ([SOURCE], [])
