"""A full disk refuses cleanly, loses nothing, and is forgotten once there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from tests.crash.warm import Warm

PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    directory = tmp_path / "disk"
    directory.mkdir(mode=0o700)
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", directory], check=False, capture_output=True
    )
    if mounting.returncode:
        pytest.skip(f"mount is not permitted here: {mounting.stderr.decode().strip()}")
    yield directory
    subprocess.run(["umount", directory], check=True)


def fill(disk: Path) -> Path:
    """Use up every free block, and return the file that did it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, PAGE, 1):
            try:
                while True:
                    file.write(b"f" * size)
            except OSError:
                continue
    return filler


def write_until_refused(sessions: nacre.Sessions, key: str, text: str) -> list[str]:
    """Append numbered messages until the store says no; returns what it acknowledged."""
    acknowledged: list[str] = []
    try:
        while True:
            sessions.add_message(key, "user", f"{len(acknowledged)} {text}")
            acknowledged.append(f"{len(acknowledged)} {text}")
    except nacre.Refused:
        return acknowledged


def texts(sessions: nacre.Sessions, key: str) -> list[object]:
    return [entry.message.content for entry in sessions.transcript(key)]


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def end_at_page_boundary(sessions: nacre.Sessions, key: str, log: Path) -> None:
    """Append until the log fills its last page, so that one more byte needs a new block."""
    sessions.add_message(key, "user", "p" * 100)
    before = log.stat().st_size
    sessions.add_message(key, "user", "p" * 100)
    record = log.stat().st_size - before
    room = -log.stat().st_size % PAGE
    sessions.add_message(key, "user", "p" * (100 + (room - record) % PAGE))
    assert -log.stat().st_size % PAGE < 16


def test_appends_are_refused_and_all_acknowledged_are_there(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        acknowledged = write_until_refused(sessions, "full", "x" * 20_000)
        assert texts(sessions, "full") == acknowledged
    with nacre.open(small_disk / "store") as sessions:
        assert texts(sessions, "full") == acknowledged
        assert len(acknowledged) > 20


def test_the_same_process_goes_on_once_there_is_room(small_disk: Path) -> None:
    reserve = small_disk / "reserve"
    reserve.write_bytes(b"r" * 300_000)
    with nacre.open(small_disk / "store") as sessions:
        acknowledged = write_until_refused(sessions, "full", "x" * 20_000)
        reserve.unlink()
        sessions.add_message("full", "user", "room again")
        assert texts(sessions, "full") == [*acknowledged, "room again"]
        assert sessions.verify().ok


def test_a_refused_group_leaves_none_of_its_messages(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        sessions.add_message("full", "user", "first")
        group = [nacre.Message(role="user", content="g" * 60_000) for _ in range(20)]
        with pytest.raises(nacre.Refused):
            sessions.add_messages("full", group)
        assert texts(sessions, "full") == ["first"]
        sessions.add_message("full", "user", "small")
        assert texts(sessions, "full") == ["first", "small"]


def test_a_new_session_on_a_full_disk_is_refused_and_not_listed(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        sessions.add_message("old", "user", "here")
        fill(small_disk)
        with pytest.raises(nacre.Refused):
            sessions.add_message("new", "user", "n" * 3 * PAGE)
        assert [info.key for info in sessions.list()] == ["old"]
        assert sessions.get_history("new") == []


def test_save_on_a_full_disk_refuses_without_leftovers(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        for number in range(10):
            sessions.add_message("full", "user", f"{number} " + os.urandom(25_000).hex())
        sessions.truncate_history("full", 4)
        said = texts(sessions, "full")
        fill(small_disk)
        before = files_below(small_disk)
        with pytest.raises(nacre.Refused):
            sessions.save("full")
        assert files_below(small_disk) == before
        assert texts(sessions, "full") == said


def test_a_refused_save_succeeds_once_there_is_room(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        for number in range(10):
            sessions.add_message("full", "user", f"{number} " + "x" * 40_000)
        sessions.truncate_history("full", 1)
        said = texts(sessions, "full")
        filler = fill(small_disk)
        with pytest.raises(nacre.Refused):
            sessions.save("full")
        filler.unlink()
        sessions.save("full")
        assert texts(sessions, "full") == said
        assert len(sessions.get_history("full")) == 1


def test_delete_works_on_a_full_disk(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        sessions.add_message("full", "user", "the secret word")
        (log,) = (small_disk / "store" / "sessions").glob("*.jsonl")
        end_at_page_boundary(sessions, "full", log)
        fill(small_disk)
        sessions.delete("full")
        assert not sessions.exists("full")
    assert not any(b"the secret word" in content for content in files_below(small_disk).values())


def test_reading_and_listing_work_on_a_full_disk(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        sessions.add_message("full", "user", "readable")
    fill(small_disk)
    with nacre.open(small_disk / "store") as sessions:
        assert sessions.get_history("full")[0].content == "readable"
        assert [info.key for info in sessions.list()] == ["full"]
        assert sessions.verify().ok


def test_a_torn_tail_on_a_full_disk_hides_nothing(small_disk: Path) -> None:
    with nacre.open(small_disk / "store") as sessions:
        sessions.add_message("full", "user", "readable")
    (log,) = (small_disk / "store" / "sessions").glob("*.jsonl")
    with log.open("ab") as file:
        file.write(b'{"v":1,"n":3,"t":"msg"')
    filler = fill(small_disk)
    with nacre.open(small_disk / "store") as sessions:
        assert texts(sessions, "full") == ["readable"]
        filler.unlink()
        sessions.add_message("full", "user", "more")
        assert texts(sessions, "full") == ["readable", "more"]


def test_a_file_size_limit_refuses_cleanly_and_is_forgotten_when_raised(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:write_under_a_file_size_limit", root=str(root))
    with nacre.open(root) as sessions:
        assert texts(sessions, "limited") == outcome.said("acknowledged")
        assert outcome.said("refused") == [3]
        assert sessions.verify().ok
