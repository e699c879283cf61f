"""Following a session gives what is there and then what comes, whoever writes it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from threading import Thread

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.messages import Load
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from nacre.storage.watch import Watch
from nacre.testing import Disk
from tests.damage.lines import conversation
from tests.paths import log_of

WRITE = "import nacre, sys; nacre.open(sys.argv[1]).add_message('k', 'user', sys.argv[2])"


def contents(entries: Iterator[nacre.Entry], count: int) -> list[object]:
    messages = (entry.data["content"] for entry in entries if entry.kind == "msg")
    return list(islice(messages, count))


class Interrupted(System):
    """A process in whose midst others come to run once: before it takes a lock, or when it has let go of one."""

    before_lock: Callable[[], object] | None = None
    after_lock: Callable[[], object] | None = None

    def flock(self, fd: int, wait: bool) -> bool:
        then, self.before_lock = self.before_lock, None
        if then is not None:
            then()
        return super().flock(fd, wait)

    def unlock(self, fd: int) -> None:
        super().unlock(fd)
        self._let_others_run()

    def close(self, fd: int) -> None:
        super().close(fd)
        self._let_others_run()

    def _let_others_run(self) -> None:
        then, self.after_lock = self.after_lock, None
        if then is not None:
            then()


def planted(root: Path, system: System, *texts: str) -> tuple[nacre.Sessions, Path]:
    """A store with one log in it, and that log."""
    sessions = nacre.Sessions(FileStore(str(root), rules=RULES, system=system))
    log = log_of(root, "k")
    log.write_bytes(b"".join(conversation("k", texts)))
    return sessions, log


@pytest.fixture
def sessions(place: str) -> Iterator[nacre.Sessions]:
    with nacre.open(place) as sessions:
        yield sessions


def test_what_is_there_comes_first_and_then_what_is_written(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "a")
    entries = sessions.follow("k")
    assert contents(entries, 1) == ["a"]
    sessions.add_messages("k", [{"role": "user", "content": "b"}, {"role": "user", "content": "c"}])
    assert contents(entries, 2) == ["b", "c"]


def test_only_what_is_behind_a_number_comes(sessions: nacre.Sessions) -> None:
    number = sessions.add_message("k", "user", "a")
    sessions.add_message("k", "user", "b")
    assert contents(sessions.follow("k", after=number), 1) == ["b"]


def test_a_new_generation_follows_an_archived_one(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "a")
    entries = sessions.follow("k")
    assert contents(entries, 1) == ["a"]
    sessions.archive("k")
    sessions.add_message("k", "user", "b")
    assert contents(entries, 1) == ["b"]


def test_what_another_process_writes_comes(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        sessions.add_message("k", "user", "a")
        entries = sessions.follow("k", after=2)
        other = subprocess.Popen([sys.executable, "-c", WRITE, lasting_place, "from afar"])
        assert contents(entries, 1) == ["from afar"]
        assert other.wait() == 0


def test_a_log_that_was_written_anew_goes_on_where_it_was(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", {"role": "user", "content": ["a" * 60_000] * 10})
        entries = sessions.follow("k")
        assert len(contents(entries, 1)) == 1
        sessions.clear("k")
        sessions.save("k")
        sessions.add_message("k", "user", "b")
        assert contents(entries, 1) == ["b"]
        assert list((root / "cold").iterdir())


def test_what_was_moved_out_before_it_was_given_comes_too(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        entries = sessions.follow("k")
        assert contents(entries, 1) == ["a"]
        texts = [f"{number} {'b' * 6_000}" for number in range(100)]
        sessions.add_messages("k", [{"role": "user", "content": text} for text in texts])
        sessions.truncate_history("k", 3)
        sessions.save("k")
        assert list((root / "cold").iterdir())
        sessions.add_message("k", "user", "c")
        messages = (entry.data["content"] for entry in entries if entry.kind == "msg")
        assert list(takewhile(lambda text: text != "c", messages)) == texts


def test_a_session_that_is_not_there_yet_is_waited_for(sessions: nacre.Sessions) -> None:
    entries = sessions.follow("k")
    writer = Thread(target=sessions.add_message, args=("k", "user", "a"))
    writer.start()
    assert contents(entries, 1) == ["a"]
    writer.join()


def test_a_log_that_is_not_there_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nacre.open(root) as sessions:
        monkeypatch.setattr(Watch, "wait", lambda watch: sessions.add_message("k", "user", "a"))
        assert contents(sessions.follow("k"), 1) == ["a"]


def test_where_changes_cannot_be_watched_they_are_looked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        entries = sessions.follow("k")
        assert contents(entries, 1) == ["a"]
        sessions.add_message("k", "user", "b")
        assert contents(entries, 1) == ["b"]
        entries.close()


def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with Watch(str(tmp_path / "none")) as watch:
        watch.wait()
    assert not (tmp_path / "none").exists()


def test_what_a_writer_may_yet_take_back_is_not_given(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = Interrupted()
    sessions, log = planted(root, system, "a")
    with log.open("ab", buffering=0) as file:
        end = file.tell()

        def begin() -> None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(conversation("k", ["a", "taken back"])[-1])

        def end_otherwise(_: Watch) -> None:
            file.truncate(end)
            file.write(conversation("k", ["a", "stored"])[-1])
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(Watch, "wait", end_otherwise)
        # Its names are looked up at once, its records when they are asked for.
        followed = sessions.follow("k")
        system.after_lock = begin
        assert contents(followed, 2) == ["a", "stored"]


def test_a_log_that_lost_its_name_while_its_writer_was_waited_for_is_not_read(root: Path) -> None:
    system = Interrupted()
    sessions, log = planted(root, system, "a", "taken back")
    successor = log.with_suffix(".tmp")
    successor.write_bytes(b"".join(conversation("k", ["a", "stored"])))
    system.before_lock = lambda: successor.replace(log)
    assert contents(sessions.follow("k"), 2) == ["a", "stored"]


def test_a_log_that_is_gone_once_its_writer_has_finished_is_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Interrupted()
    sessions, log = planted(root, system, "a")
    elsewhere = root / "elsewhere"
    system.before_lock = lambda: log.rename(elsewhere)
    monkeypatch.setattr(Watch, "wait", lambda _: elsewhere.rename(log))
    assert contents(sessions.follow("k"), 1) == ["a"]


def test_a_watch_tells_which_sessions_have_changed(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        watch = sessions.watch()
        sessions.add_message("a:b", "user", "x")
        names = watch.changed()
        watch.close()
        assert (watch.name("a:b") in names, watch.name("a:c") in names) == (True, False)


def test_a_watch_of_sessions_in_memory_tells_which_have_changed_however_it_happened() -> None:
    with nacre.open(":memory:") as sessions:
        watch = sessions.watch()
        changes: list[Callable[[], object]] = [
            lambda: sessions.add_message("a", "user", "x"),
            lambda: sessions.fork("a", "b"),
            lambda: sessions.archive("a"),
            lambda: sessions.unarchive("a"),
            lambda: sessions.delete("b"),
        ]
        told = []
        for change in changes:
            change()
            told.append(watch.changed())
        watch.close()
        names = [watch.name(key) for key in "ab"]
        assert told == [{names[0]}, {names[1]}, {names[0]}, {names[0]}, {names[1]}]


def test_a_watch_of_sessions_in_memory_that_nobody_asks_holds_no_write_up() -> None:
    with nacre.open(":memory:") as sessions:
        watch = sessions.watch()
        for _ in range(70_000):
            sessions.append("k", "x.note", None)
        assert watch.changed() == {watch.name("k")}
        watch.close()
        assert sessions.append("k", "x.note", None) == 70_002


def test_where_no_descriptor_is_left_changes_in_memory_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", fail)
    with nacre.open(":memory:") as sessions:
        entries = sessions.follow("k")
        sessions.add_message("k", "user", "a")
        assert contents(entries, 1) == ["a"]
        sessions.add_message("k", "user", "b")
        assert contents(entries, 1) == ["b"]
        entries.close()


def test_a_long_session_is_followed_in_parts(sessions: nacre.Sessions) -> None:
    sessions.add_messages("k", [{"role": "user", "content": str(number)} for number in range(1_000)])
    entries = sessions.follow("k")
    assert contents(entries, 1_000) == [str(number) for number in range(1_000)]
    sessions.add_message("k", "user", "new")
    assert contents(entries, 1) == ["new"]


def test_a_fork_is_followed_from_the_beginning_of_its_past(sessions: nacre.Sessions) -> None:
    sessions.add_messages("k", [{"role": "user", "content": str(number)} for number in range(300)])
    sessions.fork("k", "new")
    sessions.add_message("new", "user", "mine")
    assert contents(sessions.follow("new"), 301) == [*map(str, range(300)), "mine"]


def test_a_fork_is_followed_from_the_beginning_of_its_past_though_that_was_moved_out(root: Path) -> None:
    texts = [f"{number} {'b' * 6_000}" for number in range(100)]
    with nacre.open(root) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": text} for text in texts])
        sessions.truncate_history("k", 3)
        sessions.save("k")
        assert list((root / "cold").iterdir())
        sessions.fork("k", "new")
        assert contents(sessions.follow("new"), 100) == texts


def test_a_number_that_is_not_reached_yet_is_waited_for(
    sessions: nacre.Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["b", "c"]
    monkeypatch.setattr(Watch, "wait", lambda _: sessions.add_message("k", "user", texts.pop(0)))
    sessions.add_message("k", "user", "a")
    assert contents(sessions.follow("k", after=3), 1) == ["c"]


def test_what_a_store_has_to_write_is_told(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions, nacre.open(":memory:") as memory:
        sessions.add_message("k", "user", "x")
        assert (sessions.load(), memory.load()) == (Load(open=1, batches=1, unsound=0), None)
        assert sessions.within("k").load() == sessions.load()
        sessions.within("k").watch().close()


def test_a_watch_that_is_closed_twice_closes_no_file_of_another(place: str) -> None:
    with nacre.open(place) as sessions:
        watch = sessions.watch()
        watch.close()
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
        watch.close()
        for fd in others:
            os.close(fd)


def test_a_long_last_batch_is_given_as_one_part_since_it_is_read_whole_anyway() -> None:
    files = FileStore("/store", rules=RULES, system=Disk().process())
    with nacre.Sessions(files) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": "a"}] * 600)
        part = files.later("k", 0, "", 256)
        assert (part.upto, len(part.records), part.is_last) == (601, 601, True)
        sessions.add_message("k", "user", "one more")
        part = files.later("k", 0, "", 256)
        assert (part.upto, len(part.records), part.is_last) == (256, 256, False)


@pytest.mark.parametrize("is_moved", [False, True])
def test_long_records_are_given_a_few_at_a_time(root: Path, is_moved: bool) -> None:
    texts = [f"{number} {'x' * 3_000_000}" for number in range(6)]
    with nacre.open(root) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": text} for text in texts])
        if is_moved:
            sessions.truncate_history("k", 0)
            sessions.save("k")
        files = FileStore(str(root), rules=RULES)
        parts = [files.later("k", 0, "", 256)]
        while not parts[-1].is_last:
            parts.append(files.later("k", parts[-1].upto, parts[-1].uid, 256))
        assert [len([one for one in part.records if one.t == "msg"]) for part in parts][:3] == [2, 2, 2]
        assert contents(sessions.follow("k"), 6) == texts
        files.close()


def test_a_record_that_is_longer_than_a_part_is_given_alone(sessions: nacre.Sessions) -> None:
    texts = [f"{number} {'x' * 9_000_000}" for number in range(3)]
    sessions.add_messages("k", [{"role": "user", "content": text} for text in texts])
    assert contents(sessions.follow("k"), 3) == texts
    assert contents(sessions.follow("k", after=2), 2) == texts[1:]


class Counting(System):
    """Counts what is read of logs, and of what was moved out of them."""

    read = 0

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        found = super().pread(fd, size, offset)
        self.read += len(found)
        return found


def follow_in_parts(files: FileStore, key: str) -> list[list[int]]:
    """The numbers of the records of a session as a follower gets them, part by part."""
    parts = [files.later(key, 0, "", 256)]
    while not parts[-1].is_last:
        parts.append(files.later(key, parts[-1].upto, parts[-1].uid, 256))
    return [[record.n for record in part.records] for part in parts]


def test_the_past_of_a_fork_is_read_once_however_many_parts_it_is_given_in(root: Path) -> None:
    system = Counting()
    files = FileStore(str(root), rules=RULES, system=system)
    with nacre.Sessions(files) as sessions:
        for number in range(6):
            long = {"role": "user", "content": f"{number} {'x' * 3_000_000}"}
            short = [{"role": "user", "content": f"{number} {'y' * 1000}"}] * 600
            sessions.add_messages("k", [long, *short])
        sessions.fork("k", "fork", at=3607)
        sessions.add_message("fork", "user", "its own")
        sessions.fork("fork", "again")
        sessions.add_message("again", "user", "its own, too")
        for key, count in (("fork", 3609), ("again", 3611)):
            system.read = 0
            parts = follow_in_parts(files, key)
            read = system.read
            assert [number for part in parts for number in part] == list(range(1, count + 1))
            # 18 MB of payloads and 4 MB of lines, and a little to find where each part begins.
            assert read < 30_000_000


def test_what_was_moved_out_is_not_read_again_for_each_few_payloads(root: Path) -> None:
    system = Counting()
    files = FileStore(str(root), rules=RULES, system=system)
    with nacre.Sessions(files) as sessions:
        for number in range(8):
            long = {"role": "user", "content": f"{number} {'x' * 3_000_000}"}
            short = [{"role": "user", "content": f"{number} {os.urandom(1500).hex()}"} for _ in range(1300)]
            sessions.add_messages("k", [long, *short])
        sessions.truncate_history("k", 0)
        sessions.save("k")
        system.read = 0
        parts = follow_in_parts(files, "k")
        # Twice 16 MB of what was moved out, and 24 MB of payloads, one of them twice; 8 MiB at a time were 100 MB.
        assert [len(part) for part in parts] == [6506, 3904, 1]
        assert system.read < 70_000_000


def test_a_fork_of_a_fork_is_followed_whole_whatever_was_moved_out_below_it(root: Path) -> None:
    files = FileStore(str(root), rules=RULES, compact_at=1)
    with nacre.Sessions(files) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": str(number)} for number in range(600)])
        sessions.truncate_history("k", 10)
        sessions.save("k")
        sessions.add_messages("k", [{"role": "user", "content": str(number)} for number in range(600)])
        sessions.fork("k", "fork")
        sessions.add_messages("fork", [{"role": "user", "content": str(number)} for number in range(600)])
        sessions.fork("fork", "again")
        sessions.add_message("again", "user", "the last")
        stored = sessions.read("again", lambda view: [record.n for record in view.all()])
        parts = follow_in_parts(files, "again")
        assert [number for part in parts for number in part] == stored
        assert len(stored or ()) == 1806
