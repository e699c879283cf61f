"""Writing all of it, and directories that stay."""

from __future__ import annotations

import os

import pytest

from nacre.log.place import make_folder, write_all
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
