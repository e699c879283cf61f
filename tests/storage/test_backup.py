"""A copy of a store while others use it: what is gone, replaced or none of ours meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nacre
from nacre.opening import back_up
from nacre.storage.maintenance import copy
from nacre.storage.system import System
from tests.paths import log_of
from tests.simulated import said, say


def nothing() -> None:
    """Nobody follows the progress."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        say(sessions, "a")
        say(sessions, "b", key="last")
    return root


class Meanwhile(System):
    """Has something happen while somebody waits for the first lock."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def flock(self, fd: int, wait: bool) -> bool:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().flock(fd, wait)


def read(root: Path, key: str) -> list[object]:
    with nacre.open(root) as sessions:
        return said(sessions, key)


def test_a_copy_has_what_the_store_has(store: Path) -> None:
    goal = store.with_name("copy")
    steps: list[None] = []
    copied = back_up(str(store), str(goal), step=lambda: steps.append(None))
    files = [path for path in goal.rglob("*") if path.is_file()]
    assert (copied.files, copied.bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert len(steps) == len(files)
    assert (read(goal, "k"), read(goal, "last")) == (["a"], ["b"])


def test_a_copy_has_the_sessions_of_other_agents(store: Path) -> None:
    with nacre.open(store / "agents" / "clerk") as sessions:
        say(sessions, "c")
    back_up(str(store), str(store.with_name("copy")), step=nothing)
    assert read(store.with_name("copy") / "agents" / "clerk", "k") == ["c"]


def test_a_log_that_goes_while_others_are_copied_is_left_out(store: Path) -> None:
    goal = store.with_name("copy")
    copy(str(store), str(goal), lambda: log_of(store, "last").unlink(missing_ok=True))
    assert (read(goal, "k"), read(goal, "last")) == (["a"], [])


def test_a_log_that_goes_while_its_lock_is_waited_for_is_left_out(store: Path) -> None:
    goal = store.with_name("copy")
    copy(str(store), str(goal), nothing, system=Meanwhile(log_of(store, "k").unlink))
    assert (read(goal, "k"), read(goal, "last")) == ([], ["b"])


def test_the_successor_of_a_log_is_copied(store: Path) -> None:
    goal, log = store.with_name("copy"), log_of(store, "k")

    def replace() -> None:
        new = log.with_suffix(".tmp")
        new.write_bytes(log.read_bytes())
        new.rename(log)
        with nacre.open(store) as sessions:
            say(sessions, "c")

    copy(str(store), str(goal), nothing, system=Meanwhile(replace))
    assert read(goal, "k") == ["a", "c"]


def test_links_stay_links_and_what_is_no_file_is_left_out(store: Path) -> None:
    goal = store.with_name("copy")
    (store / "note").symlink_to("elsewhere")
    os.mkfifo(store / "pipe")
    back_up(str(store), str(goal), step=nothing)
    assert ((goal / "note").readlink(), (goal / "pipe").exists()) == (Path("elsewhere"), False)


def test_a_log_that_cannot_be_read_is_copied_as_it_is(store: Path) -> None:
    goal, log = store.with_name("copy"), log_of(store, "k")
    log.write_bytes(b'{"v":2,"n":1,"t":"open","crc":"00000000"}\n')

    class Unreadable(System):
        def pread(self, fd: int, size: int, offset: int) -> bytes:
            raise OSError(5, "the end")

    copy(str(store), str(goal), nothing, system=Unreadable())
    assert log_of(goal, "k").read_bytes() == log.read_bytes()


def test_names_of_one_file_and_folders_in_folders_are_copied_as_they_are(store: Path) -> None:
    folder = store / "workspace" / "notes"
    folder.mkdir(parents=True)
    (folder / "one").write_text("shared")
    os.link(folder / "one", folder / "other")
    copy = store.parent / "copy"
    back_up(str(store), str(copy), step=nothing)
    one, other = (copy / "workspace" / "notes" / name for name in ("one", "other"))
    assert one.read_text() == "shared"
    assert one.samefile(other)


def test_a_log_that_is_being_created_is_left_out(store: Path) -> None:
    log = store / "sessions" / f"new~{'0' * 32}.jsonl"
    log.touch()
    log.with_suffix(".new").touch()
    copy = store.parent / "copy"
    back_up(str(store), str(copy), step=nothing)
    assert not (copy / "sessions" / log.name).exists()
