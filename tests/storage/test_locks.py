"""The lock of a key: one thread of one process has it, and a killed one has nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.locks import KeyLock
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.testing import Disk, Fault
from nacre.testing.disk import Killed
from tests.simulated import ROOT, opened, said, say

PLACE = SessionPaths.of(ROOT, "k")
WAIT = 30


@pytest.fixture
def disk() -> Disk:
    disk = Disk()
    opened(disk)
    return disk


class WithoutByteLocks(System):
    """A system that can only lock whole files, as macOS."""

    def lock_byte(self, fd: int, at: int, wait: bool) -> bool:
        return self.flock(fd, wait)

    def unlock_byte(self, fd: int, at: int) -> None:
        self.unlock(fd)


class WithoutRoom(System):
    """A disk that is too full for another file, so that there is no file of the keys."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if path.endswith("keys.lock"):
            raise OSError(errno.ENOSPC if flags & os.O_CREAT else errno.ENOENT, "no room")
        return super().open(path, flags, mode)


class WithoutRights(System):
    """A folder in which no file may be made, so that there is no file of the keys."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if path.endswith("keys.lock"):
            raise OSError(errno.EACCES if flags & os.O_CREAT else errno.ENOENT, "no rights")
        return super().open(path, flags, mode)


@pytest.fixture(params=[System, WithoutByteLocks])
def place(root: Path, request: pytest.FixtureRequest) -> tuple[System, SessionPaths]:
    nacre.open(root).close()
    return request.param(), SessionPaths.of(str(root), "k")


def test_one_has_it_until_it_was_released_as_often_as_taken(place: tuple[System, SessionPaths]) -> None:
    ours, theirs = KeyLock(*place), KeyLock(System() if type(place[0]) is System else WithoutByteLocks(), place[1])
    with ours, ours:
        assert ours.is_held
        assert not theirs.take(wait=False)
        assert not theirs.is_held
    assert not ours.is_held
    assert theirs.take(wait=False)
    theirs.release()


def test_another_thread_of_the_process_does_not_have_it(place: tuple[System, SessionPaths]) -> None:
    taken: list[bool] = []
    with KeyLock(*place):
        thread = Thread(target=lambda: taken.append(KeyLock(*place).take(wait=False)))
        thread.start()
        thread.join()
    assert taken == [False]


def test_another_key_is_free(root: Path) -> None:
    nacre.open(root).close()
    other = KeyLock(System(), SessionPaths.of(str(root), "other"))
    with KeyLock(System(), SessionPaths.of(str(root), "k")), other:
        assert other.is_held


def test_a_forked_child_does_not_keep_it(place: tuple[System, SessionPaths]) -> None:
    lock = KeyLock(*place)
    going, stop = os.pipe()
    with lock:
        child = os.fork()
        if not child:
            os.close(stop)
            os._exit(lock.is_held or len(os.read(going, 1)))
    try:
        assert KeyLock(*place).take(wait=False)
    finally:
        lock.release()
        os.close(stop)
        os.close(going)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_a_killed_process_had_is_free(disk: Disk) -> None:
    process = disk.process()
    KeyLock(process, PLACE).take(wait=True)
    process.kill()
    with KeyLock(disk.process(), PLACE) as lock:
        assert lock.is_held


def test_a_disk_without_room_for_the_file_locks_the_folder_of_the_logs(disk: Disk) -> None:
    ours, theirs = KeyLock(disk.process(), PLACE), KeyLock(disk.process(), SessionPaths.of(ROOT, "other"))
    disk.fail(Fault(call="open", nth=3, errno=errno.ENOSPC))
    with ours:
        assert "keys.lock" not in disk.process().listdir(ROOT)
        assert not theirs.take(wait=False)
    assert theirs.take(wait=False)
    assert "keys.lock" in disk.process().listdir(ROOT)
    theirs.release()


@pytest.mark.parametrize(("call", "nth"), [("open", 1), ("open", 2), ("open", 3), ("flock", 1), ("lock_byte", 1)])
def test_a_lock_that_cannot_be_taken_refuses_and_leaves_nothing_locked(disk: Disk, call: str, nth: int) -> None:
    sessions = opened(disk)
    disk.fail(Fault(call=call, nth=nth, errno=errno.EMFILE))
    with pytest.raises(nacre.Refused):
        sessions.delete("k")
    disk.heal()
    say(sessions, "a")
    with pytest.raises(nacre.Refused), disk_that_fails(disk, call):
        opened(disk).fork("k", "new")
    opened(disk).fork("k", "new")
    assert said(opened(disk), "new") == ["a"]


class disk_that_fails:  # noqa: N801 - used as `with disk_that_fails(…)`
    def __init__(self, disk: Disk, call: str) -> None:
        self._disk = disk
        self._call = call

    def __enter__(self) -> None:
        self._disk.fail(Fault(call=self._call, errno=errno.EMFILE, count=None))

    def __exit__(self, *_: object) -> None:
        self._disk.heal()


def test_a_deletion_that_another_is_finishing_is_not_waited_for(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a")
    sessions.archive("k")
    disk.fail(Fault(call="unlink", mode="kill"))
    with pytest.raises(Killed):
        sessions.delete("k")
    disk.heal()
    with KeyLock(disk.process(), PLACE):
        assert (opened(disk).exists("k"), opened(disk).transcript("k")) == (False, [])
    assert opened(disk).transcript("k") == []


@pytest.mark.parametrize("kind", [System, WithoutByteLocks, WithoutRoom])
def test_a_fork_of_what_is_half_deleted_does_not_wait_for_itself(root: Path, kind: type[System]) -> None:
    class Failing(kind):  # type: ignore[misc, valid-type]
        def unlink(self, path: str) -> None:
            raise OSError(errno.EIO, path)

    sessions = nacre.Sessions(FileStore(str(root), rules=RULES, system=Failing()))
    sessions.add_message("k", "user", "a")
    with pytest.raises(nacre.DurabilityUnknown):
        sessions.delete("k")
    told: list[type[BaseException]] = []

    def fork() -> None:
        try:
            nacre.Sessions(FileStore(str(root), rules=RULES, system=kind())).fork("k", "new")
        except nacre.StoreError as error:
            told.append(type(error))

    thread = Thread(target=fork, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert told == [nacre.SessionNotFound]


def test_a_fork_waits_for_whoever_finishes_the_deletion_of_its_source(root: Path) -> None:
    """Its source begins to be deleted, and is being cleared away, just when the fork is about to lock its own key."""
    begun, free = Event(), Event()

    def clear_away() -> None:
        with KeyLock(System(), SessionPaths.of(str(root), "k")):
            begun.set()
            free.wait(WAIT)

    class Failing(System):
        def unlink(self, path: str) -> None:
            raise OSError(errno.EIO, path)

    class Late(System):
        def lock_byte(self, fd: int, at: int, wait: bool) -> bool:
            if not begun.is_set():
                with pytest.raises(nacre.DurabilityUnknown):
                    nacre.Sessions(FileStore(str(root), rules=RULES, system=Failing())).delete("k")
                Thread(target=clear_away, daemon=True).start()
                begun.wait(WAIT)
                Timer(0.05, free.set).start()
            return super().lock_byte(fd, at, wait)

    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
    late = nacre.Sessions(FileStore(str(root), rules=RULES, system=Late()))
    with pytest.raises(nacre.SessionNotFound):
        late.fork("k", "new")
    assert (late.exists("k"), late.exists("new")) == (False, False)


def test_a_folder_in_which_no_file_may_be_made_is_not_left_locked(root: Path) -> None:
    nacre.open(root).close()
    place = SessionPaths.of(str(root), "k")
    with pytest.raises(nacre.Refused):
        KeyLock(WithoutRights(), place).take(wait=True)
    with KeyLock(WithoutRoom(), place) as lock:
        assert lock.is_held
