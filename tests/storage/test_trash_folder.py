"""The trash of a store: sessions go there, come back and are erased, through every failure on the way."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import nacre
from nacre.errors import Conflict, SessionBusy, SessionNotFound, StoreError
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from nacre.testing import Disk, Fault
from tests.paths import log_of
from tests.simulated import ROOT, first, interrupt, opened, said, say, settled, store

Act = Callable[[nacre.Sessions], object]


@pytest.fixture
def disk() -> Disk:
    return Disk()


class Failing(System):
    """Fails the nth change of a directory, as if the process had been killed there."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            raise OSError(errno.EIO, "the end")

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self._count()
        super().link(old, new)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)


def files(root: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if "/" in name}


def fail_at(root: Path, nth: int, act: Act) -> bool:
    """Do something that fails at its nth change of a directory; False if it came to its end before."""
    system = Failing(0)
    with suppress(StoreError), nacre.Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        system.left = nth
        act(sessions)
    return system.left <= 0


def ever_said(root: Path) -> list[object]:
    with nacre.open(root) as sessions:
        return [one.message.content for one in sessions.transcript("one")]


def throw_away(sessions: nacre.Sessions) -> None:
    sessions.move_to_trash("one")


def restore(sessions: nacre.Sessions) -> None:
    for item in sessions.list_trash():
        sessions.restore_from_trash(item.id)


def erase(sessions: nacre.Sessions) -> None:
    for item in sessions.list_trash():
        sessions.erase_from_trash(item.id)


def two_generations(root: Path) -> dict[str, bytes]:
    """A session with an archived generation, both damaged and mended."""
    with nacre.open(root) as sessions:
        for _ in range(2):
            for text in "abc":
                sessions.add_message("one", "user", text)
            log = log_of(root, "one")
            log.write_bytes(log.read_bytes().replace(b'"b"}', b'"x"}'))
            sessions.repair("one")
            sessions.archive("one")
        sessions.unarchive("one")
    return files(root)


def test_a_session_goes_with_all_its_generations_and_comes_back_whole(tmp_path: Path) -> None:
    before = two_generations(tmp_path)
    with nacre.open(tmp_path) as sessions:
        sessions.set_labels("one", title="A title")
        before = files(tmp_path)
        throw_away(sessions)
        (item,) = sessions.list_trash()
        assert (item.key, item.title, len(item.generations)) == ("one", "A title", 2)
        assert item.bytes == sum(len(data) for name, data in files(tmp_path).items() if name.startswith("trash/"))
        assert not sessions.exists("one")
        restore(sessions)
    assert files(tmp_path) == before


def test_moving_to_the_trash_that_was_cut_short_is_finished_by_another(tmp_path: Path) -> None:
    nth, failed = 0, True
    while failed:
        nth += 1
        root = tmp_path / str(nth)
        two_generations(root)
        before = ever_said(root)
        failed = fail_at(root, nth, throw_away)
        with nacre.open(root) as sessions:
            with suppress(SessionNotFound):
                throw_away(sessions)
            assert [*sessions.list(), *sessions.list(archived=True)] == []
            while sessions.list_trash():
                restore(sessions)
        assert ever_said(root) == before
    assert nth > 20


@pytest.mark.parametrize("act", [restore, erase])
def test_what_was_cut_short_is_finished_by_doing_it_again(tmp_path: Path, act: Act) -> None:
    nth, failed = 0, True
    while failed:
        nth += 1
        root = tmp_path / str(nth)
        before = two_generations(root)
        with nacre.open(root) as sessions:
            throw_away(sessions)
        failed = fail_at(root, nth, act)
        with nacre.open(root) as sessions:
            act(sessions)
            assert sessions.list_trash() == []
        assert files(root) == (before if act is restore else {})
    assert nth > 10


def test_erasing_after_a_restore_that_was_cut_short_leaves_the_session(tmp_path: Path) -> None:
    before = two_generations(tmp_path)
    with nacre.open(tmp_path) as sessions:
        throw_away(sessions)
    nth = 1
    while not any(name.startswith("sessions/") for name in files(tmp_path)):
        fail_at(tmp_path, nth, restore)
        nth += 1
    with nacre.open(tmp_path) as sessions:
        erase(sessions)
        assert {finding.kind for finding in sessions.verify("one").findings} == {"quarantine"}
    after = files(tmp_path)
    assert {name: data for name, data in before.items() if name in after and data != after[name]} == {}


def test_one_archived_generation_goes_alone(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    say(sessions, "b")
    (uid,) = [info.generation for info in sessions.list(archived=True)]
    sessions.move_to_trash("k", generation=uid)
    assert [one.message.content for one in sessions.transcript("k")] == ["b"]
    assert [item.generations for item in sessions.list_trash()] == [(uid,)]
    restore(sessions)
    assert [one.message.content for one in sessions.transcript("k")] == ["a", "b"]


@pytest.mark.parametrize("generation", [None, "f" * 32])
def test_what_is_not_there_is_not_found(disk: Disk, generation: str | None) -> None:
    sessions = opened(disk)
    with pytest.raises(SessionNotFound):
        sessions.move_to_trash("k", generation=generation)
    for act in (sessions.restore_from_trash, sessions.erase_from_trash):
        with pytest.raises(SessionNotFound, match="in the trash"):
            act("k.1")


def test_a_session_does_not_come_back_beside_a_new_one(disk: Disk) -> None:
    with opened(disk, marks=True) as sessions:
        say(sessions, "a")
        sessions.move_to_trash("k")
        say(sessions, "b")
        with pytest.raises(Conflict, match="there is now an active session 'k'"):
            restore(sessions)
        assert said(sessions) == ["b"]


def test_a_log_that_is_replaced_meanwhile_is_left_for_the_next_try(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    sessions.archive("k")
    (file,) = process.listdir(f"{ROOT}/archive")
    path = f"{ROOT}/archive/{file}"

    def replace() -> None:
        disk.write_durable(f"{path}.tmp", disk.read(path))
        disk.process().rename(f"{path}.tmp", path)

    first(process, "flock", replace)
    with pytest.raises(SessionBusy, match="changed meanwhile"):
        sessions.move_to_trash("k")
    sessions.move_to_trash("k")
    assert not sessions.exists("k")


def test_what_is_in_the_trash_survives_a_power_cut_and_so_does_what_comes_back(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.move_to_trash("k")
    assert settled(disk) == []
    restore(sessions)
    assert settled(disk) == ["a"]


def test_files_that_are_none_of_ours_are_not_listed(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.move_to_trash("k")
    disk.write_durable(f"{ROOT}/trash/notes.txt", b"mine")
    assert [item.key for item in sessions.list_trash()] == ["k"]


@pytest.mark.parametrize(
    "content", [b"nothing\n", b'{"sid":"another"}\n', b'{"sid":"\\ud800"}\n', b"", b'{"v":9}\n' * 3]
)
def test_a_damaged_log_is_listed_by_its_name_without_a_title(disk: Disk, content: bytes) -> None:
    sessions = opened(disk)
    say(sessions, "a", key="Other:")
    sessions.set_labels("Other:", title="A title")
    sessions.move_to_trash("Other:")
    (file,) = disk.process().listdir(f"{ROOT}/trash")
    disk.write_durable(f"{ROOT}/trash/{file}", content)
    (item,) = sessions.list_trash()
    assert (item.key.startswith("other~"), item.title) == (True, "")


def test_a_log_that_cannot_be_read_is_listed_by_its_name(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.set_labels("k", title="A title")
    sessions.move_to_trash("k")
    disk.fail(Fault(call="pread", count=None))
    assert [(item.key, item.title) for item in sessions.list_trash()] == [("k", "")]


def test_payloads_and_other_names_go_with_the_last_session_of_a_key(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        for text in ("x", "y"):
            sessions.add_message("one", "user", text * 70_000)
            sessions.add_alias("one", "another")
            sessions.move_to_trash("one")
        first, last = sessions.list_trash()
        sessions.erase_from_trash(first.id)
        assert (sessions.aliases("one"), len(list((tmp_path / "blobs").iterdir()))) == (("another",), 2)
        sessions.erase_from_trash(last.id)
        assert (sessions.aliases("one"), list((tmp_path / "blobs").iterdir())) == ((), [])


def test_a_trash_that_cannot_be_read_is_an_error_of_the_store(disk: Disk) -> None:
    sessions = opened(disk)
    disk.fail(Fault(call="listdir"))
    with pytest.raises(StoreError, match="the trash cannot be read"):
        sessions.list_trash()


def test_a_file_that_goes_while_the_trash_is_listed_has_no_size(disk: Disk) -> None:
    process = disk.process()
    sessions = nacre.Sessions(store(process))
    say(sessions, "a")
    sessions.move_to_trash("k")
    (file,) = process.listdir(f"{ROOT}/trash")
    first(process, "stat", lambda: disk.process().unlink(f"{ROOT}/trash/{file}"))
    assert [item.bytes for item in sessions.list_trash()] == [0]


def test_a_timeout_is_its_callers(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    interrupt(disk, "rename")
    with pytest.raises(TimeoutError):
        sessions.move_to_trash("k")
    sessions.move_to_trash("k")
    assert not sessions.exists("k")
