"""Writing all of it, directories that stay, and folders that are listed once for as long as they have not changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nacre.storage.paths import folder_state, make_folder, may_hold, replace_file, write_all
from nacre.storage.system import System
from nacre.testing import Disk, Fault


def test_a_write_that_the_kernel_takes_in_part_is_finished() -> None:
    disk = Disk()
    process = disk.process()
    fd = process.open("/file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    disk.fail(Fault(call="write", mode="short", count=3))
    write_all(process, fd, b"0123456789")
    assert disk.read("/file") == b"0123456789"


def test_a_write_that_the_kernel_takes_nothing_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Disk().process()
    monkeypatch.setattr(process, "write", lambda fd, data: 0)
    with pytest.raises(OSError, match="write took 0 of 3 bytes"):
        write_all(process, process.open("/file", os.O_RDWR | os.O_CREAT), b"abc")


def test_a_file_in_the_place_of_a_folder_is_an_error() -> None:
    disk = Disk()
    disk.write_durable("/folder", b"")
    with pytest.raises(NotADirectoryError):
        make_folder(disk.process(), "/folder")


class Listing(System):
    """The operating system, and how often a folder was listed."""

    count = 0

    def listdir(self, path: str) -> list[str]:
        self.count += 1
        return super().listdir(path)


def aged(folder: Path, years: int) -> None:
    os.utime(folder, (years * 1e6, years * 1e6))


def test_what_is_not_there_is_known_without_looking_again(tmp_path: Path) -> None:
    (tmp_path / "a.x.jsonl").touch()
    aged(tmp_path, 1)
    system = Listing()
    assert [may_hold(system, str(tmp_path), stem) for stem in ("a", "b", "a.x")] == [True, False, False]
    assert system.count == 1


def test_a_folder_that_has_changed_is_listed_again(tmp_path: Path) -> None:
    system = Listing()
    aged(tmp_path, 1)
    assert not may_hold(system, str(tmp_path), "b")
    (tmp_path / "b.x").touch()
    aged(tmp_path, 2)
    assert may_hold(system, str(tmp_path), "b")
    assert system.count == 2


def test_a_folder_that_has_just_changed_may_hold_anything(tmp_path: Path) -> None:
    assert folder_state(System(), str(tmp_path)) is None
    assert may_hold(System(), str(tmp_path), "b")


def test_each_operating_system_has_folders_of_its_own(tmp_path: Path) -> None:
    aged(tmp_path, 1)
    first, second = Listing(), Listing()
    assert not may_hold(first, str(tmp_path), "b")
    assert not may_hold(second, str(tmp_path), "b")
    assert (first.count, second.count) == (1, 1)


def test_a_folder_that_is_not_there_is_the_callers_to_know(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        may_hold(System(), str(tmp_path / "no"), "b")


def test_a_file_that_cannot_be_replaced_stays_as_it_is() -> None:
    disk = Disk()
    disk.write_durable("/folder/file", b"old")
    for call in ("write", "fsync", "rename"):
        disk.fail(Fault(call=call))
        with pytest.raises(OSError, match="Input/output error"):
            replace_file(disk.process(), "/folder/file", [b"new", b"er"])
        disk.heal()
        assert (disk.read("/folder/file"), disk.process().listdir("/folder")) == (b"old", ["file"])
    replace_file(disk.process(), "/folder/file", [b"new", b"er", b"x" * 2_000_000])
    assert disk.read("/folder/file") == b"newer" + b"x" * 2_000_000
