"""A fork shares the past of a session, and nothing that either does later touches the other."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.testing import Disk, Fault, Process, Snapshot, images


def opened(process: Process) -> nacre.Sessions:
    return nacre.Sessions(FileStore("/store", rules=RULES, system=process, compact_at=1, marks=False))


def texts(sessions: nacre.Sessions, key: str) -> list[object]:
    return [message.content for message in sessions.get_history(key)]


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    return [stored.message.content for stored in sessions.transcript(key)]


@pytest.fixture(params=["files", "ram", "postgres"])
def sessions(request: pytest.FixtureRequest) -> Iterator[nacre.Sessions]:
    if request.param == "files":
        sessions = opened(Disk().process())
    else:
        sessions = nacre.open(":memory:" if request.param == "ram" else request.getfixturevalue("empty_database"))
    with sessions:
        for text in "abc":
            sessions.add_message("one", "user", text)
        yield sessions


def test_a_fork_has_history_summary_and_meta_of_its_parent(sessions: nacre.Sessions) -> None:
    sessions.set_summary("one", "so far", upto=2)
    sessions.set_meta("one", title="T")
    sessions.fork("one", "two")
    assert texts(sessions, "two") == ["b", "c"]
    assert (sessions.get_summary("two"), sessions.get_meta("two")) == ("so far", {"title": "T"})


def test_what_either_does_later_does_not_touch_the_other(sessions: nacre.Sessions) -> None:
    sessions.fork("one", "two")
    sessions.add_message("one", "user", "d")
    sessions.add_message("two", "user", "e")
    assert (texts(sessions, "one"), texts(sessions, "two")) == (["a", "b", "c", "d"], ["a", "b", "c", "e"])


def test_a_fork_at_a_record_has_the_past_up_to_it(sessions: nacre.Sessions) -> None:
    sessions.fork("one", "two", at=3)
    assert (texts(sessions, "two"), said(sessions, "two")) == (["a", "b"], ["a", "b"])


def test_a_fork_outlives_its_parent(sessions: nacre.Sessions) -> None:
    sessions.fork("one", "two")
    sessions.delete("one")
    assert texts(sessions, "two") == ["a", "b", "c"]
    assert sessions.verify().ok


def test_a_fork_of_a_fork_has_the_past_of_both(sessions: nacre.Sessions) -> None:
    sessions.fork("one", "two")
    sessions.add_message("two", "user", "d")
    sessions.fork("two", "three")
    sessions.add_message("three", "user", "e")
    sessions.delete("two")
    assert said(sessions, "three") == ["a", "b", "c", "d", "e"]


def test_a_fork_can_be_rewound_into_what_it_shares(sessions: nacre.Sessions) -> None:
    sessions.fork("one", "two")
    sessions.add_message("two", "user", "d")
    sessions.rewind("two", 3)
    assert (texts(sessions, "two"), texts(sessions, "one")) == (["a", "b"], ["a", "b", "c"])


def test_a_fork_under_a_taken_key_is_a_conflict(sessions: nacre.Sessions) -> None:
    sessions.add_message("two", "user", "x")
    with pytest.raises(nacre.Conflict):
        sessions.fork("one", "two")
    assert texts(sessions, "two") == ["x"]


def test_a_fork_of_nothing_is_not_found(sessions: nacre.Sessions) -> None:
    with pytest.raises(nacre.SessionNotFound):
        sessions.fork("none", "two")


@pytest.mark.parametrize("at", [99, 5])
def test_a_fork_at_no_record_or_inside_a_group_is_a_conflict(sessions: nacre.Sessions, at: int) -> None:
    sessions.add_messages("one", [{"role": "user", "content": "d"}, {"role": "user", "content": "e"}])
    with pytest.raises(nacre.Conflict):
        sessions.fork("one", "two", at=at)
    assert not sessions.exists("two")


def test_a_fork_at_a_state_that_was_moved_out_brings_it_back() -> None:
    sessions = opened(Disk().process())
    sessions.add_message("one", "user", "a" * 5000)
    sessions.add_message("one", "user", "b")
    sessions.truncate_history("one", 1)
    sessions.save("one")
    sessions.fork("one", "two", at=2)
    assert texts(sessions, "two") == ["a" * 5000]


@pytest.fixture
def compacted() -> nacre.Sessions:
    """Messages 2 to 41 with a title after the first, of which all but the last was moved out."""
    sessions = opened(Disk().process())
    sessions.add_message("one", "user", "m2")
    sessions.set_meta("one", title="early")
    for n in range(4, 42):
        sessions.add_message("one", "user", f"m{n}")
    sessions.set_meta("one", title="late")
    sessions.truncate_history("one", 1)
    sessions.save("one")
    return sessions


EARLY = ["m2", *(f"m{n}" for n in range(4, 21))]
"""What had been said up to record 20."""


def test_a_fork_of_a_compacted_session_has_nothing_from_behind_its_beginning(compacted: nacre.Sessions) -> None:
    compacted.fork("one", "two", at=20)
    compacted.add_message("two", "user", "own")
    assert said(compacted, "two") == texts(compacted, "two") == [*EARLY, "own"]
    assert [stored.n for stored in compacted.transcript("two")] == [2, *range(4, 21), 22]


def test_a_fork_has_the_meta_of_where_it_began_also_if_that_was_moved_out(compacted: nacre.Sessions) -> None:
    compacted.fork("one", "two", at=20)
    compacted.set_meta("two", tags=["a"])
    assert compacted.get_meta("two") == {"title": "early", "tags": ["a"]}


def test_a_fork_can_be_rewound_into_what_had_been_moved_out_before_it_began(compacted: nacre.Sessions) -> None:
    compacted.fork("one", "two")
    compacted.rewind("two", 20)
    assert texts(compacted, "two") == EARLY
    compacted.add_message("two", "user", "own")
    assert texts(compacted, "two") == [*EARLY, "own"]
    assert [message.content for message in compacted.get_history("two", last=3)] == ["m19", "m20", "own"]


def test_a_fork_that_was_rewound_into_what_had_been_moved_out_can_be_compacted(compacted: nacre.Sessions) -> None:
    compacted.fork("one", "two")
    compacted.rewind("two", 20)
    for text in "abc":
        compacted.add_message("two", "user", text)
    compacted.rewind("two", 12)
    compacted.save("two")
    assert texts(compacted, "two") == EARLY[:10]
    assert said(compacted, "two") == [*said(compacted, "one"), "a", "b", "c"]


def test_a_fork_rewound_to_a_summary_that_had_been_moved_out_has_it(compacted: nacre.Sessions) -> None:
    compacted.set_summary("one", "then")
    compacted.set_summary("one", "now " * 1000)
    compacted.set_summary("one", "")
    compacted.save("one")
    compacted.fork("one", "two")
    compacted.rewind("two", 45)
    assert compacted.get_summary("two") == "then"


def test_a_fork_of_a_fork_can_begin_in_what_had_been_moved_out_of_the_first(compacted: nacre.Sessions) -> None:
    compacted.fork("one", "two")
    compacted.add_message("two", "user", "own")
    compacted.fork("two", "three", at=20)
    assert texts(compacted, "three") == said(compacted, "three") == EARLY


def test_compaction_of_parent_and_fork_leaves_what_is_shared() -> None:
    sessions = opened(Disk().process())
    sessions.add_messages("one", [{"role": "user", "content": text * 3000} for text in "abc"])
    sessions.fork("one", "two")
    for key in ("one", "two"):
        sessions.add_message(key, "user", "d" * 3000)
        sessions.truncate_history(key, 1)
        sessions.save(key)
    assert len(said(sessions, "one")) == len(said(sessions, "two")) == 4
    assert sessions.verify().ok


def test_where_links_cannot_be_made_the_past_is_copied() -> None:
    disk = Disk()
    sessions = opened(disk.process())
    sessions.add_message("one", "user", "a")
    disk.fail(Fault(call="link", errno=errno.EPERM, count=None))
    sessions.fork("one", "two")
    sessions.delete("one")
    assert texts(sessions, "two") == ["a"]


def test_another_error_while_linking_refuses_the_fork() -> None:
    disk = Disk()
    sessions = opened(disk.process())
    sessions.add_message("one", "user", "a")
    disk.fail(Fault(call="link", errno=errno.EIO))
    with pytest.raises(nacre.Refused):
        sessions.fork("one", "two")
    assert not sessions.exists("two")


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_fork_that_cannot_have_all_of_the_past_leaves_nothing_behind(nth: int) -> None:
    disk = Disk()
    sessions = opened(disk.process())
    sessions.add_message("one", "user", "a" * 70_000)
    sessions.fork("one", "two")
    sessions.add_message("two", "user", "b" * 70_000)
    before = [sorted(disk.process().listdir(f"/store/{folder}")) for folder in ("base", "blobs")]
    disk.fail(Fault(call="link", nth=nth))
    with pytest.raises(nacre.Refused):
        sessions.fork("two", "three")
    assert [sorted(disk.process().listdir(f"/store/{folder}")) for folder in ("base", "blobs")] == before
    assert sessions.verify().ok


def test_damage_in_what_a_fork_shares_is_found(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("first", "second"):
            sessions.add_message("one", "user", text)
        sessions.fork("one", "two")
        sessions.delete("one")
        base = next((tmp_path / "store" / "base").iterdir())
        base.write_bytes(base.read_bytes().replace(b"first", b"fir5t"))
        assert not sessions.verify("two").ok


def test_a_power_cut_at_any_call_leaves_a_whole_fork_or_none() -> None:
    disk, points = Disk(), list[Snapshot]()
    sessions = opened(disk.process())
    for text in "abc":
        sessions.add_message("one", "user", text)
    disk.before = lambda *_: points.append(disk.snapshot())
    sessions.fork("one", "two")
    for snapshot in points:
        for image in images(snapshot, random.Random(0), 6):
            left = opened(image.process())
            assert texts(left, "two") in ([], ["a", "b", "c"])
            assert texts(left, "one") == ["a", "b", "c"]
    for image in images(disk.snapshot(), random.Random(0), 6):
        assert texts(opened(image.process()), "two") == ["a", "b", "c"]


def test_a_fork_of_nothing_under_a_taken_key_is_not_found(sessions: nacre.Sessions) -> None:
    sessions.add_message("taken", "user", "a")
    with pytest.raises(nacre.SessionNotFound):
        sessions.fork("nothing", "taken")
