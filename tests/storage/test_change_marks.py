"""Marks: left once, taken by every reader, never missed, and never in the way of a write."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from nacre.history.session_state import RULES
from nacre.sessions import Sessions
from nacre.storage.change_marks import Marks, Position, Taken
from nacre.storage.file_store import FileStore
from nacre.storage.system import System

A, B = "sessions/a.jsonl", "sessions/b.jsonl"


class Counting(System):
    """Counts what is written."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.writes += 1
        return super().write(fd, data)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def text(folder: str) -> str:
    return (Path(folder) / "marks").read_text().partition("\n")[2]


def test_a_mark_is_left_once_until_it_is_taken(folder: str) -> None:
    system = Counting()
    writer, reader = Marks(system, folder), Marks(System(), folder)
    for _ in range(3):
        writer.leave(A)
    assert text(folder) == f"{A}\n"
    taken = reader.take(Position())
    assert (taken.paths, taken.is_whole) == ({A}, False)
    before = system.writes
    writer.leave(A)
    writer.leave(A)
    assert system.writes == before + 1
    assert reader.take(taken.position)[::2] == ({A}, True)


def test_what_a_signal_handler_raises_is_not_taken_for_a_failure_of_the_disk(folder: str) -> None:
    system = Counting()
    marks = Marks(system, folder)
    marks.leave(A)

    def strike(fd: int) -> os.stat_result:
        raise TimeoutError("the turn took too long")

    system.fstat = strike
    with pytest.raises(TimeoutError):
        marks.leave(A)
    del system.fstat
    assert text(folder) == f"{A}\n"


def test_a_mark_of_another_process_is_not_left_again(folder: str) -> None:
    one, other = Marks(System(), folder), Marks(System(), folder)
    one.leave(B)
    other.leave(A)
    one.leave(A)
    assert text(folder) == f"{B}\n{A}\n"


def test_every_reader_has_a_position_of_its_own(folder: str) -> None:
    marks = Marks(System(), folder)
    first = second = marks.take(Position()).position
    marks.leave(A)
    taken = marks.take(first)
    assert taken == Taken({A}, taken.position, is_whole=True)
    assert marks.take(taken.position).paths == set()
    marks.leave(B)
    assert marks.take(second).paths == {A, B}
    assert marks.take(taken.position).paths == {B}


def test_what_is_marked_behind_the_line_of_a_reader_is_left_to_the_next(folder: str) -> None:
    writer = Marks(System(), folder)

    class Slow(System):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            written = super().write(fd, data)
            if data == b"\n":
                writer.leave(B)
            return written

    writer.leave(A)
    reader = Marks(Slow(), folder)
    taken = reader.take(Position())
    assert taken.paths == {A}
    # This mark is not left again: the first one has not been taken.
    writer.leave(B)
    assert text(folder).count(B) == 1
    assert reader.take(taken.position).paths == {B}


def test_taking_what_was_taken_writes_nothing(folder: str) -> None:
    system = Counting()
    marks = Marks(system, folder)
    marks.leave(A)
    position = marks.take(Position()).position
    before = system.writes
    assert marks.take(position) == Taken(set(), position, is_whole=True)
    assert system.writes == before


def test_a_file_that_was_removed_is_begun_anew_and_said_so(folder: str) -> None:
    marks = Marks(System(), folder)
    marks.leave(A)
    position = marks.take(Position()).position
    (Path(folder) / "marks").unlink()
    marks.leave(A)
    taken = marks.take(position)
    assert (taken.paths, taken.is_whole) == ({A}, False)


def test_a_file_that_has_lost_its_end_is_not_believed(folder: str) -> None:
    marks = Marks(System(), folder)
    marks.leave(A)
    position = marks.take(Position()).position
    (Path(folder) / "marks").write_bytes((Path(folder) / "marks").read_bytes()[:20])
    assert not marks.take(position).is_whole
    marks.leave(A)
    assert A in text(folder)


def test_a_torn_line_hides_no_mark_behind_it(folder: str) -> None:
    marks = Marks(System(), folder)
    position = marks.take(Position()).position
    with (Path(folder) / "marks").open("ab") as file:
        file.write(b"sessions/tor")
    marks.leave(A)
    assert A in marks.take(position).paths


def test_a_torn_line_does_not_hide_that_marks_were_taken(folder: str) -> None:
    writer, reader = Marks(System(), folder), Marks(System(), folder)
    writer.leave(A)
    with (Path(folder) / "marks").open("ab") as file:
        file.write(b"sessions/tor")
    position = reader.take(Position()).position
    writer.leave(A)
    assert reader.take(position).paths == {A}


def fill(folder: str) -> None:
    """Make the file larger than it may be."""
    with (Path(folder) / "marks").open("ab") as file:
        file.write(b"sessions/other.jsonl\n" * 60_000)


def test_a_reader_begins_a_file_anew_that_has_become_too_large(folder: str) -> None:
    marks, other = Marks(System(), folder), Marks(System(), folder)
    position = marks.take(Position()).position
    other.leave(A)
    fill(folder)
    taken = marks.take(position)
    assert (taken.is_whole, A in taken.paths) == (True, True)
    assert text(folder) == ""
    other.leave(A)
    assert marks.take(taken.position)[::2] == ({A}, True)


def test_a_writer_begins_a_file_anew_that_nobody_reads(folder: str) -> None:
    Marks(System(), folder).leave(B)
    fill(folder)
    Marks(System(), folder).leave(A)
    assert text(folder) == f"{A}\n"


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_what_is_no_file_of_ours_is_neither_written_nor_believed(folder: str, kind: str) -> None:
    path, target = Path(folder) / "marks", Path(folder) / "target"
    target.write_text("")
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    marks = Marks(System(), folder)
    marks.leave(A)
    assert target.read_text() == ""


def test_where_no_mark_can_be_written_readers_are_made_to_scan(folder: str) -> None:
    class Full(System):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            raise OSError(errno.ENOSPC, "no space")

    marks = Marks(System(), folder)
    marks.leave(A)
    position = marks.take(Position()).position
    Marks(Full(), folder).leave(B)
    assert not marks.take(position).is_whole
    marks.leave(A)
    with pytest.raises(OSError, match="no space"):
        Marks(Full(), folder).take(Position())


def test_where_what_is_written_does_not_arrive_readers_are_made_to_scan(folder: str) -> None:
    class Lost(System):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            return len(data)

    Marks(System(), folder).leave(A)
    with pytest.raises(OSError, match="cannot be written"):
        Marks(Lost(), folder).take(Position())
    Marks(Lost(), folder).leave(B)
    assert not (Path(folder) / "marks").exists()


def test_a_file_that_cannot_be_asked_is_not_trusted(folder: str) -> None:
    class Failing(System):
        is_broken = False

        def fstat(self, fd: int) -> os.stat_result:
            if self.is_broken:
                raise OSError(errno.EIO, "broken")
            return super().fstat(fd)

    system = Failing()
    marks = Marks(system, folder)
    marks.leave(A)
    system.is_broken = True
    marks.leave(A)
    assert not (Path(folder) / "marks").exists()


def test_in_a_forked_child_marks_are_left_though_a_thread_was_at_them(folder: str) -> None:
    marks = Marks(System(), folder)
    marks.leave(A)
    with marks._lock:
        marks.begin_in_child()
    marks.leave(B)
    assert text(folder) == f"{A}\n{B}\n"


def test_no_write_fails_for_a_mark(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    system = System()
    sessions = Sessions(FileStore(root, rules=RULES, system=system))
    (tmp_path / "store" / "marks").mkdir()
    assert sessions.add_message("k", "user", "hello") == 2
    sessions.close()


def test_what_each_kind_of_change_marks(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    system = System()
    marks = Marks(system, root)
    sessions = Sessions(FileStore(root, rules=RULES, system=system, compact_at=0))
    position = marks.take(Position()).position

    def marked() -> list[str]:
        nonlocal position
        taken = marks.take(position)
        position = taken.position
        return sorted(path.partition("/")[0] for path in taken.paths)

    sessions.add_message("k", "user", "hello")
    assert marked() == ["sessions"]
    sessions.set_meta("k", title="A")
    assert marked() == ["sessions"]
    sessions.fork("k", "other")
    assert len(marked()) == 2
    sessions.archive("k")
    assert marked() == ["archive", "sessions"]
    sessions.unarchive("k")
    assert marked() == ["archive", "sessions"]
    sessions.truncate_history("k", 0)
    sessions.save("k")
    assert marked() == ["sessions"]
    sessions.repair("k")
    assert marked() == ["sessions"]
    sessions.delete("k")
    assert marked() == ["sessions"]
    sessions.close()


class Log:
    """A log as the protocol sees it: a version, and who has its lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = 0
        self.holder: Writer | None = None


class Writer:
    """A process that changes logs, one step at a time: lock, mark, change, let go."""

    def __init__(self, folder: str, logs: list[Log], chance: random.Random) -> None:
        self._marks = Marks(System(), folder)
        self._logs = logs
        self._chance = chance
        self._log: Log | None = None
        self._at = 0

    def step(self) -> None:
        if self._log is None:
            log = self._chance.choice(self._logs)
            if log.holder is None:
                log.holder, self._log, self._at = self, log, 0
            return
        if self._at == 0:
            self._marks.leave(self._log.path)
        elif self._at == 1:
            self._log.version += 1
        else:
            self._log.holder = None
            self._log = None
        self._at += 1


class Reader:
    """A process that takes marks and looks at what is marked, one step at a time; it may be killed before it saves."""

    def __init__(self, folder: str, logs: list[Log], chance: random.Random) -> None:
        self._folder = folder
        self._logs = {log.path: log for log in logs}
        self._chance = chance
        self._position = Position()
        self.known = dict.fromkeys(self._logs, 0)
        self._pending: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._marks = Marks(System(), self._folder)
        self._taken: Taken | None = None
        self._left: list[str] = []
        self._found: dict[str, int] = {}
        self._unsettled: set[str] = set()

    def step(self) -> None:
        if self._chance.random() < 0.05:
            self._begin()
        elif self._taken is None:
            self._taken = self._marks.take(self._position)
            every = self._taken.paths | self._pending if self._taken.is_whole else self._logs.keys()
            self._left = sorted(every)
        elif self._left:
            log = self._logs[self._left.pop()]
            self._found[log.path] = log.version
            if log.holder is not None:
                self._unsettled.add(log.path)
        else:
            self.known |= self._found
            self._pending, self._position = self._unsettled, self._taken.position
            self._begin()

    def finish(self) -> None:
        while self._taken is not None or self._left:
            self.step()
        self._chance = random.Random(1)
        for _ in range(3):
            self.step()
            while self._taken is not None:
                self.step()


@pytest.mark.parametrize("seed", range(60))
def test_no_change_is_missed_however_writers_and_readers_take_turns(folder: str, seed: int) -> None:
    chance = random.Random(seed)
    logs = [Log(f"sessions/{name}.jsonl") for name in "abc"]
    writers = [Writer(folder, logs, chance) for _ in range(3)]
    readers = [Reader(folder, logs, chance) for _ in range(2)]
    processes: list[Writer | Reader] = [*writers, *writers, *readers]
    for _ in range(400):
        chance.choice(processes).step()
    for writer in writers:
        while writer._log is not None:
            writer.step()
    for reader in readers:
        reader.finish()
        assert reader.known == {log.path: log.version for log in logs}


@pytest.mark.parametrize("key", ["alice", "Alice B.", "telegram:alice"])
def test_nothing_of_a_deleted_key_can_be_read_in_the_marks(folder: str, key: str) -> None:
    root = f"{folder}/store"
    sessions = Sessions(FileStore(root, rules=RULES))
    for _ in range(2):
        sessions.add_message(key, "user", "a")
        sessions.archive(key)
    sessions.unarchive(key)
    sessions.add_message("bob", "user", "b")
    assert "alice" in text(root)
    sessions.delete(key)
    assert "alice" not in text(root)
    assert "bob~" in text(root)


def test_a_reader_is_told_which_log_was_deleted_by_a_pattern(folder: str) -> None:
    marks = Marks(System(), folder)
    position = marks.take(Position()).position
    marks.leave("sessions/my-key~0a.jsonl")
    marks.leave("sessions/other~0b.jsonl")
    marks.forget("sessions/my-key~0a.jsonl", "archive/my-key.")
    taken = marks.take(position)
    assert (taken.paths, taken.is_whole) == ({"sessions/******~0a.jsonl", "sessions/other~0b.jsonl"}, True)
    marks.leave("sessions/my-key~0a.jsonl")
    assert marks.take(taken.position).paths == {"sessions/my-key~0a.jsonl"}


def test_what_writers_know_of_forgotten_marks_is_not_taken_for_a_mark(folder: str) -> None:
    writer, deleter = Marks(System(), folder), Marks(System(), folder)
    writer.leave("sessions/k~0a.jsonl")
    deleter.forget("sessions/k~0a.jsonl")
    writer.leave("sessions/k~0a.jsonl")
    assert text(folder).endswith("\n\nsessions/k~0a.jsonl\n")


def test_forgetting_leaves_the_marks_of_others_alone(folder: str) -> None:
    marks = Marks(System(), folder)
    marks.leave(A)
    before = text(folder)
    marks.forget("sessions/k~0a.jsonl")
    assert text(folder) == before


def test_forgetting_needs_no_marks(folder: str) -> None:
    Marks(System(), folder).forget("sessions/k~0a.jsonl")
    assert list(Path(folder).iterdir()) == []


def test_what_a_power_cut_left_of_the_marks_is_no_path(folder: str) -> None:
    marks = Marks(System(), folder)
    marks.leave(A)
    with (Path(folder) / "marks").open("ab") as file:
        file.write(b"sessions/b" + b"\0" * 8)
    writer = Marks(System(), folder)
    writer.leave(B)
    assert B in Marks(System(), folder).take(Position()).paths
    assert all("\0" not in path for path in Marks(System(), folder).take(Position()).paths)


def test_forgetting_what_is_not_marked_writes_nothing(folder: str) -> None:
    system = Counting()
    marks = Marks(system, folder)
    marks.leave(A)
    before = system.writes
    marks.forget("sessions/k~0a.jsonl")
    assert (system.writes, text(folder)) == (before, f"{A}\n")
