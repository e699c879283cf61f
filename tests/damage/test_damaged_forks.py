"""Damage to a fork: its header alone says what it shares, so that is put right or nothing is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nacre
from nacre.testing import Disk, Fault
from tests.paths import log_of
from tests.simulated import LOG, ROOT, names, opened, said, say

FORK = str(log_of(ROOT, "fork"))
PAST = ["a", "b", "c"]


@pytest.fixture
def disk() -> Disk:
    """A session and a fork of it."""
    disk = Disk()
    sessions = opened(disk)
    say(sessions, *PAST)
    sessions.fork("k", "fork")
    return disk


def flipped(content: bytes, place: int) -> bytes:
    """One bit changed, another one in each place."""
    return content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]


def without_header(content: bytes) -> bytes:
    header, *others = content.splitlines(keepends=True)
    return b"".join([b"x" * (len(header) - 1) + b"\n", *others])


@pytest.mark.parametrize("own", [[], ["d"], ["d", "e"]], ids=len)
def test_a_flipped_bit_in_the_header_costs_nothing(disk: Disk, own: list[str]) -> None:
    say(opened(disk), *own, key="fork")
    content = disk.read(FORK)
    for place in range(content.index(b"\n") + 1):
        disk.write_durable(FORK, flipped(content, place))
        sessions = opened(disk)
        assert not sessions.verify("fork").ok, place
        assert said(sessions, "fork") == [*PAST, *own], place
        assert disk.read(FORK).startswith(content[: content.index(b"\n") + 1]), place
        say(sessions, "f", key="fork")
        assert said(opened(disk), "fork") == [*PAST, *own, "f"], place
        sessions.discard("fork")
        assert sessions.verify("fork").ok, place


def test_a_flipped_bit_that_makes_two_lines_of_the_header_is_put_right() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a")
    sessions.fork("k", "J" * 5)
    (log,) = (f"{ROOT}/sessions/{name}" for name in names(disk, "sessions") if name != Path(LOG).name)
    disk.write_durable(log, disk.read(log).replace(b"JJJJJ", b"JJ\nJJ"))
    assert said(opened(disk), "J" * 5) == ["a"]


def test_the_damaged_bytes_of_a_header_are_set_aside(disk: Disk) -> None:
    disk.write_durable(FORK, disk.read(FORK).replace(b"open", b"oqen"))
    said(opened(disk), "fork")
    (quarantine,) = names(disk, "quarantine")
    assert b"oqen" in disk.read(f"{ROOT}/quarantine/{quarantine}")


def test_a_damaged_header_is_read_right_while_nobody_may_mend_it(disk: Disk) -> None:
    damaged = disk.read(FORK).replace(b"open", b"oqen")
    disk.write_durable(FORK, damaged)
    process = disk.process()
    process.flock(process.open(FORK, os.O_RDWR), wait=True)
    assert said(opened(disk), "fork") == PAST
    assert disk.read(FORK) == damaged


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_fork_that_lost_its_header_can_be_erased(disk: Disk, has_earlier: bool) -> None:
    sessions = opened(disk)
    if has_earlier:
        sessions.delete("fork")
        say(sessions, "earlier", key="fork")
        sessions.archive("fork")
        sessions.fork("k", "fork")
    say(sessions, "d" * 70_000, key="fork")
    disk.write_durable(FORK, without_header(disk.read(FORK)))
    sessions = opened(disk)
    sessions.delete("fork")
    folders = [folder for folder in disk.process().listdir(ROOT) if "." not in folder and folder != "tmp"]
    left = [name for folder in folders for name in names(disk, folder) if name.startswith("fork")]
    assert (left, opened(disk).exists("fork"), said(opened(disk))) == ([], False, PAST)
    opened(disk).fork("k", "fork")
    disk.write_durable(FORK, without_header(disk.read(FORK)))
    with pytest.raises(nacre.LogDamaged):
        say(sessions, "e", key="fork")


@pytest.mark.parametrize("own", [[], ["d"]], ids=len)
def test_a_fork_that_lost_its_header_is_left_as_it_is(disk: Disk, own: list[str]) -> None:
    say(opened(disk), *own, key="fork")
    content = disk.read(FORK)
    disk.write_durable(FORK, without_header(content))
    sessions = opened(disk)
    for act in (sessions.get_history, sessions.repair, sessions.pop, lambda key: say(sessions, "e", key=key)):
        with pytest.raises(nacre.LogDamaged, match="has lost its header"):
            act("fork")
    assert not sessions.verify("fork").ok
    assert disk.read(FORK) == without_header(content)
    disk.write_durable(FORK, content)
    assert said(opened(disk), "fork") == [*PAST, *own]


def test_an_archived_fork_that_lost_its_header_is_left_as_it_is(disk: Disk) -> None:
    opened(disk).archive("fork")
    (log,) = (f"{ROOT}/archive/{name}" for name in names(disk, "archive"))
    disk.write_durable(log, without_header(disk.read(log)))
    with pytest.raises(nacre.LogDamaged):
        opened(disk).get_history("fork")
    say(opened(disk), "anew", key="fork")
    assert said(opened(disk), "fork") == ["anew"]


def test_a_session_that_lost_its_header_after_a_fork_was_archived_is_mended(disk: Disk) -> None:
    opened(disk).archive("fork")
    say(opened(disk), "anew", "again", key="fork")
    disk.write_durable(FORK, without_header(disk.read(FORK)))
    assert said(opened(disk), "fork") == ["anew", "again"]


def test_a_torn_first_write_where_a_fork_did_not_come_to_be_is_no_session(disk: Disk) -> None:
    disk.process().unlink(FORK)
    say(opened(disk), "a", key="fork")
    disk.write_durable(FORK, disk.read(FORK)[:50])
    assert not opened(disk).exists("fork")
    say(opened(disk), "b", key="fork")
    assert said(opened(disk), "fork") == ["b"]


def test_a_deletion_of_a_fork_that_lost_its_header_is_finished(disk: Disk) -> None:
    say(opened(disk), "d", key="fork")
    process = disk.process()
    link = str(log_of(ROOT, "kept"))
    process.link(FORK, link)
    opened(disk).delete("fork")
    process.rename(link, FORK)
    disk.write_durable(FORK, without_header(disk.read(FORK)))
    assert said(opened(disk), "fork") == []
    say(opened(disk), "anew", key="fork")
    assert said(opened(disk), "fork") == ["anew"]


def test_a_header_that_rots_under_a_writer_is_written_again(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "d", key="fork")
    disk.write_durable(FORK, without_header(disk.read(FORK)))
    disk.fail(Fault(call="fdatasync"))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "e", key="fork")
    assert said(opened(disk), "fork") == [*PAST, "d", "e"]


def test_damage_in_what_a_fork_shares_costs_its_line_and_is_logged(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    opened(disk).delete("k")
    (base,) = (f"{ROOT}/base/{name}" for name in names(disk, "base"))
    disk.write_durable(base, disk.read(base).replace(b'"content":"b"', b'"content":"B"'))
    assert said(opened(disk), "fork") == ["a", "c"]
    assert caplog.messages == ["session 'fork': some records cannot be read; `nacre sessions verify fork` shows where"]


def test_a_session_that_lost_its_header_keeps_its_large_payloads() -> None:
    disk = Disk()
    say(opened(disk), "large" * 20_000, "b")
    disk.write_durable(LOG, without_header(disk.read(LOG)))
    (shared,) = (name for name in names(disk, "blobs") if "." not in name)
    disk.process().unlink(f"{ROOT}/blobs/{shared}")
    assert said(opened(disk)) == ["large" * 20_000, "b"]


def test_what_a_fork_shares_may_have_become_too_short_and_that_is_said(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    (base,) = (f"{ROOT}/base/{name}" for name in names(disk, "base"))
    lines = disk.read(base).splitlines(keepends=True)
    disk.write_durable(base, b"".join(lines[:-1]))
    sessions = opened(disk)
    assert said(sessions, "fork") == PAST[:-1]
    assert "session 'fork': some records cannot be read" in caplog.text
    (finding,) = sessions.verify("fork").findings
    assert (finding.kind, finding.detail) == ("damage", "the file ends before that")


@pytest.mark.parametrize("damaged", [without_header, lambda content: bytes(300)], ids=["lost", "zeros"])
def test_a_session_that_was_begun_anew_is_not_taken_for_a_fork_in_the_trash(
    tmp_path: Path, damaged: Callable[[bytes], bytes]
) -> None:
    with nacre.open(tmp_path) as sessions:
        say(sessions, "a")
        sessions.fork("k", "fork")
        say(sessions, "b", key="fork")
        sessions.move_to_trash("fork")
        say(sessions, "c", "d", key="fork")
    log = log_of(tmp_path, "fork")
    log.write_bytes(damaged(log.read_bytes()))
    with nacre.open(tmp_path) as sessions:
        say(sessions, "e", key="fork")
        assert said(sessions, "fork")[-1] == "e"


def test_a_session_that_was_begun_anew_is_not_taken_for_a_fork_that_never_came_to_be(disk: Disk) -> None:
    say(opened(disk), "d", "e", key="other")
    disk.write_durable(f"{ROOT}/base/other.{'1' * 32}.0.jsonl", disk.read(LOG))
    log = str(log_of(ROOT, "other"))
    disk.write_durable(log, without_header(disk.read(log)))
    assert said(opened(disk), "other") == ["d", "e"]


def test_a_session_that_lost_its_header_does_not_share_its_payloads_with_the_trash(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        say(sessions, "old" * 30_000)
        sessions.move_to_trash("k")
        say(sessions, "a", "b")
    log = log_of(tmp_path, "k")
    log.write_bytes(without_header(log.read_bytes()))
    with nacre.open(tmp_path) as sessions:
        say(sessions, "new" * 30_000)
        (item,) = sessions.list_trash()
        sessions.erase_from_trash(item.id)
        assert said(sessions) == ["a", "b", "new" * 30_000]


def disordered(lines: list[bytes], how: str) -> list[bytes]:
    match how:
        case "repeated before":
            return [*lines[:2], lines[-2], *lines[2:]]
        case "repeated behind":
            return [*lines[:-2], lines[2], *lines[-2:]]
        case "swapped":
            return [*lines[:2], lines[3], lines[2], *lines[4:]]
        case _:
            return [lines[0], *reversed(lines[1:])]


@pytest.mark.parametrize("how", ["repeated before", "repeated behind", "swapped", "reversed"])
@pytest.mark.parametrize("at", [None, 5])
def test_lines_out_of_order_below_a_fork_cost_nothing_and_are_reported(how: str, at: int | None) -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, *"abcdefgh", key="source")
    sessions.fork("source", "new", at=at)
    say(sessions, "own", key="new")
    say(sessions, "later", key="source")
    (base,) = (f"{ROOT}/base/{name}" for name in names(disk, "base"))
    disk.write_durable(base, b"".join(disordered(disk.read(base).splitlines(keepends=True), how)))
    sessions = opened(disk)
    expected = [*("abcdefgh" if at is None else "abcd"), "own"]
    assert said(sessions, "new") == expected
    assert [entry.message.content for entry in sessions.transcript("new")] == expected
    assert not sessions.verify("new").ok
    say(sessions, "more", key="new")
    assert said(sessions, "new") == [*expected, "more"]
