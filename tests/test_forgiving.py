"""The fire-and-forget face: failures are counted and logged, never raised, except by `save`."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

import nacre
from nacre import Forgiving, Refused, Sessions, StoreError
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.system import System


class FullDisk(System):
    """A disk that takes no more bytes once it is full."""

    full = False

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data)


class BadDisk(System):
    """A disk that can no longer be read once it is bad."""

    bad = False

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        if self.bad:
            raise OSError(errno.EIO, "Input/output error")
        return super().pread(fd, size, offset)


def on(disk: System, root: Path) -> Sessions:
    return Sessions(FileStore(str(root), rules=RULES, system=disk))


def test_a_full_disk_is_counted_and_returns_zero(root: Path) -> None:
    disk = FullDisk()
    with on(disk, root) as sessions:
        forgiving = Forgiving(sessions)
        forgiving.add_message("k", "user", "a")
        disk.full = True
        assert forgiving.add_message("k", "user", "b") == 0
        assert forgiving.add_full_message("k", nacre.Message(role="user", content="c")) == 0
        forgiving.truncate_history("k", 0)
        assert forgiving.failures == 3
        assert [message.content for message in forgiving.get_history("k")] == ["a"]


def test_writing_goes_on_when_there_is_space_again(root: Path) -> None:
    disk = FullDisk()
    with on(disk, root) as sessions:
        forgiving = Forgiving(sessions)
        disk.full = True
        assert forgiving.add_message("k", "user", "a") == 0
        disk.full = False
        assert forgiving.add_message("k", "user", "b") > 0
        assert [message.content for message in forgiving.get_history("k")] == ["b"]


def test_a_strict_store_says_that_the_disk_is_full(root: Path) -> None:
    disk = FullDisk()
    with on(disk, root) as sessions:
        disk.full = True
        with pytest.raises(Refused):
            sessions.add_message("k", "user", "a")
        assert not sessions.exists("k")


def test_a_read_error_is_empty_when_forgiven_and_an_error_when_not(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        sessions.set_summary("k", "So far.")
    disk = BadDisk()
    with on(disk, root) as sessions:
        disk.bad = True
        with pytest.raises(StoreError):
            sessions.get_history("k")
        assert Forgiving(sessions).get_history("k") == []
        assert Forgiving(sessions).get_summary("k") == ""
        disk.bad = False
        assert [message.content for message in sessions.get_history("k")] == ["a"]


def test_save_still_raises(root: Path) -> None:
    disk = FullDisk()
    with on(disk, root) as sessions:
        forgiving = Forgiving(sessions)
        sessions.add_messages("k", [nacre.Message(role="user", content="x" * 1000)] * 1000)
        forgiving.truncate_history("k", 1)
        disk.full = True
        with pytest.raises(StoreError):
            forgiving.save("k")
        assert forgiving.failures == 0


def test_failures_are_logged_without_what_was_said(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with nacre.open(root) as sessions, caplog.at_level(logging.DEBUG):
        Forgiving(sessions).add_full_message("k", {"content": "a secret"})
    assert [record.levelno >= logging.WARNING for record in caplog.records] == [True]
    assert "a secret" not in caplog.text


def test_closing_closes_the_store_beneath_and_twice_is_harmless(root: Path) -> None:
    forgiving = Forgiving(nacre.open(root))
    forgiving.add_message("k", "user", "a")
    forgiving.close()
    forgiving.close()
    with nacre.open(root) as sessions:
        assert [message.content for message in sessions.get_history("k")] == ["a"]


def test_summary_and_history_are_written_when_nothing_fails(root: Path) -> None:
    with nacre.open(root) as sessions:
        forgiving = Forgiving(sessions)
        forgiving.set_history("k", [nacre.Message(role="user", content="a"), {"role": "user", "content": "b"}])
        forgiving.set_summary("k", "So far.")
        assert [message.content for message in forgiving.get_history("k", last=1)] == ["b"]
        assert (forgiving.get_summary("k"), forgiving.failures) == ("So far.", 0)
