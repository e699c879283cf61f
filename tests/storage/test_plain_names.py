"""Logs that have the plain name of an earlier version: readable as they are, and renamed by the first write."""

from __future__ import annotations

import errno
import fcntl
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import migrate_at_start
from nacre.storage.change_marks import Marks, Position
from nacre.storage.file_store import FileStore
from nacre.storage.paths import SessionPaths, make_folder, settle_names
from nacre.storage.plain_names import archive_second, path_now, rename_plain
from nacre.storage.system import System
from nacre.testing import Disk, Fault, Killed, images
from tests.legacy.earlier import moments
from tests.simulated import LOG, ROOT, names, opened, said, say, store

PLACE = SessionPaths.of(ROOT, "k")
PLAIN = PLACE.plain
THEIRS = b'{"role":"user","content":"of another agent"}\n'


def upgraded(*texts: str, seed: int = 0) -> Disk:
    """A disk with a store that an earlier version left: its log has the plain name."""
    disk = Disk(seed)
    with opened(disk) as sessions:
        say(sessions, *(texts or ("a", "b")))
    disk.process().rename(LOG, PLAIN)
    settle_names(disk.process(), f"{ROOT}/sessions")
    return disk


def with_second(*, is_younger: bool) -> Disk:
    """A store in which an earlier version has begun a log under the plain name, beside that of today."""
    disk = Disk(0)
    with opened(disk) as sessions:
        say(sessions, "old")
    disk.process().rename(LOG, f"{ROOT}/aside")
    with opened(disk) as sessions:
        say(sessions, "new")
    system = disk.process()
    younger, older = (PLAIN, LOG) if is_younger else (f"{ROOT}/turned", PLAIN)
    system.rename(LOG, younger)
    system.rename(f"{ROOT}/aside", older)
    if not is_younger:
        system.rename(younger, LOG)
    settle_names(system, ROOT)
    settle_names(system, f"{ROOT}/sessions")
    return disk


def start(disk: Disk) -> nacre.Sessions:
    files = store(disk.process())
    migrate_at_start(files)
    return nacre.Sessions(files)


def keys(sessions: nacre.Sessions) -> list[str]:
    return [info.key for info in sessions.list()]


def ever(sessions: nacre.Sessions) -> list[object]:
    return [stored.message.content for stored in sessions.transcript("k")]


# ---- before the first write


def test_a_log_with_a_plain_name_is_read_as_it_is() -> None:
    disk = upgraded()
    sessions = opened(disk)
    assert (said(sessions), ever(sessions), sessions.exists("k")) == (["a", "b"], ["a", "b"], True)
    assert (keys(sessions), sessions.verify().ok) == (["k"], True)
    assert names(disk, "sessions") == ["k.jsonl"]


class Late(System):
    """Looks for the plain name only after another process has written to the log."""

    def __init__(self, place: SessionPaths) -> None:
        self.place = place

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if path == self.place.plain:
            with nacre.Sessions(FileStore(self.place.root, rules=RULES)) as sessions:
                sessions.add_message("k", "user", "b")
        return super().open(path, flags, mode)


def test_a_log_that_is_renamed_while_it_is_looked_for_is_found(root: Path) -> None:
    place = plain_on_disk(root)
    with nacre.Sessions(FileStore(str(root), rules=RULES, system=Late(place))) as sessions:
        assert [message.content for message in sessions.get_history("k")] == ["a", "b"]


# ---- the first write


def test_the_first_write_renames_it() -> None:
    disk = upgraded()
    with opened(disk) as sessions:
        say(sessions, "c")
    assert names(disk, "sessions") == [LOG.rpartition("/")[2]]
    assert said(opened(disk)) == ["a", "b", "c"]


def test_so_does_the_next_start_for_every_log(root: Path) -> None:
    with nacre.open(root) as sessions:
        for number in range(70):
            sessions.add_message(f"key{number}", "user", "a")
    for number in range(70):
        place = SessionPaths.of(str(root), f"key{number}")
        Path(place.log).rename(place.plain)
    (root / "migrating.lock").write_bytes(b"done\n")
    with nacre.open(root) as sessions:
        assert len(keys(sessions)) == 70
    assert all("~" in path.name for path in (root / "sessions").iterdir())


def test_killed_or_without_power_at_any_call_of_the_first_write() -> None:
    disk = upgraded()
    tried = 0

    def write() -> None:
        with opened(disk) as sessions:
            say(sessions, "c")

    for snapshot, killed, call in moments(disk, write):
        for left in (killed, *images(snapshot, random.Random(tried), 30)):
            tried += 1
            assert said(opened(left)) in (["a", "b"], ["a", "b", "c"]), f"before {call}"
            with opened(left) as sessions:
                say(sessions, "d")
                # What a power cut left of a write may look like rot, and is then reported.
                assert {finding.kind for finding in sessions.verify().findings} <= {"quarantine"}
                assert ever(sessions)[:2] == ["a", "b"]
                assert ever(sessions)[-1] == "d"
            assert names(left, "sessions") == [LOG.rpartition("/")[2]], f"before {call}"
    assert tried > 20


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_call_that_fails_is_an_error_and_the_next_write_goes_on(nth: int) -> None:
    disk = upgraded()
    disk.fail(Fault(call="*", nth=nth, errno=errno.EIO))
    with suppress(nacre.StoreError):
        say(opened(disk), "c")
    disk.heal()
    say(opened(disk), "d")
    assert said(opened(disk)) in (["a", "b", "d"], ["a", "b", "c", "d"])
    assert names(disk, "sessions") == [LOG.rpartition("/")[2]]


def test_a_name_that_a_killed_process_left_goes_before_the_log_is_rewritten() -> None:
    disk = upgraded()
    disk.fail(Fault(call="unlink", mode="kill"))
    with pytest.raises(Killed):
        say(opened(disk), "c")
    disk.heal()
    assert len(names(disk, "sessions")) == 2
    assert (keys(opened(disk)), opened(disk).verify().ok) == (["k"], True)
    with opened(disk) as sessions:
        sessions.truncate_history("k", 0)
        sessions.save("k")
    assert names(disk, "sessions") == [LOG.rpartition("/")[2]]


class NoLinks(System):
    """A file system without hard links."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EPERM, "no links here", new)


class BadLinks(System):
    """A disk that fails."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EIO, "failed", new)


def plain_on_disk(root: Path) -> SessionPaths:
    with nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions:
        sessions.add_message("k", "user", "a")
    place = SessionPaths.of(str(root), "k")
    Path(place.log).rename(place.plain)
    return place


def test_where_there_are_no_links_it_is_renamed(root: Path) -> None:
    place = plain_on_disk(root)
    with nacre.Sessions(FileStore(str(root), rules=RULES, system=NoLinks())) as sessions:
        sessions.add_message("k", "user", "b")
        assert [message.content for message in sessions.get_history("k")] == ["a", "b"]
    assert (Path(place.log).exists(), Path(place.plain).exists()) == (True, False)


def test_a_link_that_fails_leaves_the_log_as_it_was(root: Path) -> None:
    place = plain_on_disk(root)
    with nacre.Sessions(FileStore(str(root), rules=RULES, system=BadLinks())) as sessions:
        with pytest.raises(nacre.Refused):
            sessions.add_message("k", "user", "b")
        assert [message.content for message in sessions.get_history("k")] == ["a"]
    assert (Path(place.log).exists(), Path(place.plain).exists()) == (False, True)


def test_a_damaged_log_is_renamed_and_repaired_by_its_reader_unless_somebody_holds_it(root: Path) -> None:
    place = plain_on_disk(root)
    data = Path(place.plain).read_bytes()
    Path(place.plain).write_bytes(data.replace(b'"t":"open"', b'"t":"oper"'))
    with (
        Path(place.plain).open("rb") as held,
        nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [message.content for message in sessions.get_history("k")] == ["a"]
        assert Path(place.plain).exists()
        fcntl.flock(held, fcntl.LOCK_UN)
        assert [message.content for message in sessions.get_history("k")] == ["a"]
        assert not Path(place.plain).exists()
        # The damaged line of the header is set aside, and that stays reported.
        assert [finding.kind for finding in sessions.verify().findings] == ["quarantine"]


WRITER = """
import sys, nacre
root, who = sys.argv[1:]
with nacre.Sessions(nacre.storage.file_store.FileStore(root, rules=nacre.history.session_state.RULES)) as sessions:
    for number in range(20):
        sessions.add_message(f"key{number}", "user", who)
"""


def test_several_processes_write_first_at_once(root: Path) -> None:
    with nacre.open(root) as sessions:
        for number in range(20):
            sessions.add_message(f"key{number}", "user", "first")
    for number in range(20):
        place = SessionPaths.of(str(root), f"key{number}")
        Path(place.log).rename(place.plain)
    program = "import nacre.storage.file_store, nacre.history.session_state\n" + WRITER
    started = [subprocess.Popen([sys.executable, "-c", program, str(root), who]) for who in "abcd"]
    assert [process.wait() for process in started] == [0, 0, 0, 0]
    with nacre.open(root) as sessions:
        for number in range(20):
            texts = [str(message.content) for message in sessions.get_history(f"key{number}")]
            assert (texts[0], sorted(texts[1:])) == ("first", ["a", "b", "c", "d"])
    assert all("~" in path.name for path in (root / "sessions").iterdir())


# ---- what is not ours


def _write(sessions: nacre.Sessions) -> None:
    say(sessions, "mine")


def _delete(sessions: nacre.Sessions) -> None:
    say(sessions, "mine")
    sessions.delete("k")


def _archive(sessions: nacre.Sessions) -> None:
    say(sessions, "mine")
    sessions.archive("k")
    sessions.unarchive("k")


@pytest.mark.parametrize("theirs", [THEIRS, b'{"event":1}\n', b"\0" * 100, b"no JSON"])
@pytest.mark.parametrize("act", [_write, _delete, _archive])
def test_a_file_of_another_agent_is_not_touched(theirs: bytes, act: Callable[[nacre.Sessions], None]) -> None:
    disk = Disk(0)
    disk.write_durable(PLAIN, theirs)
    with opened(disk) as sessions:
        assert (said(sessions), sessions.exists("k"), keys(sessions)) == ([], False, [])
        act(sessions)
        assert [(finding.kind, finding.where) for finding in sessions.verify().findings] == [("stranger", PLAIN)]
    assert disk.read(PLAIN) == theirs


def test_a_link_with_a_plain_name_is_not_followed(root: Path) -> None:
    place = plain_on_disk(root)
    Path(place.plain).rename(root / "elsewhere")
    Path(place.plain).symlink_to(root / "elsewhere")
    with nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions:
        sessions.add_message("k", "user", "b")
        assert [message.content for message in sessions.get_history("k")] == ["b"]
    assert Path(place.plain).is_symlink()


def test_a_log_of_another_session_with_this_ones_plain_name_is_an_error(root: Path) -> None:
    place = plain_on_disk(root)
    other = Path(place.plain).with_name("other.jsonl")
    Path(place.plain).rename(other)
    before = other.read_bytes()
    with nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions:
        with pytest.raises(nacre.LogDamaged, match="belongs to 'k'"):
            sessions.get_history("other")
        with pytest.raises(nacre.LogDamaged, match="belongs to 'k'"):
            sessions.add_message("other", "user", "b")
        assert [finding.kind for finding in sessions.verify().findings] == ["unreadable"]
    with nacre.open(root) as sessions:
        assert keys(sessions) == []
    assert other.read_bytes() == before


def test_a_start_renames_the_other_logs_if_one_cannot_be(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = plain_on_disk(root)
    other = Path(place.plain).with_name("other.jsonl")
    other.write_bytes(Path(place.plain).read_bytes())
    with nacre.open(root) as sessions:
        assert keys(sessions) == ["k"]
    assert (Path(place.log).exists(), Path(place.plain).exists(), other.exists()) == (True, False, True)
    assert "a log could not be renamed" in caplog.messages


# ---- two logs


@pytest.mark.parametrize("is_younger", [True, False])
def test_a_second_log_is_said_and_kept_as_a_generation(is_younger: bool) -> None:
    disk = with_second(is_younger=is_younger)
    before = opened(disk)
    assert [finding.kind for finding in before.verify().findings] == ["second"]
    assert (keys(before), said(before)) == (["k"], ["old" if is_younger else "new"])
    sessions = start(disk)
    assert (said(sessions), ever(sessions)) == (["new"], ["old", "new"])
    assert (keys(sessions), sessions.verify().ok) == (["k"], True)
    sessions.delete("k")
    assert (ever(sessions), list(sessions.list(archived=True))) == ([], [])


@pytest.mark.parametrize("is_younger", [True, False])
def test_a_second_log_is_taken_in_wherever_that_is_interrupted(is_younger: bool) -> None:
    disk = with_second(is_younger=is_younger)
    tried = 0
    for snapshot, killed, call in moments(disk, lambda: start(disk)):
        for left in (killed, *images(snapshot, random.Random(tried), 2)):
            tried += 1
            sessions = start(left)
            assert (said(sessions), ever(sessions)) == (["new"], ["old", "new"]), f"before {call}"
            assert sessions.verify().ok
    assert tried > 20


def test_a_second_log_beside_one_that_was_never_finished_is_the_session() -> None:
    disk = with_second(is_younger=True)
    disk.write_durable(LOG, disk.read(LOG).split(b"\n")[0] + b"\n")
    sessions = start(disk)
    assert (ever(sessions), names(disk, "sessions")) == (["new"], [LOG.rpartition("/")[2]])


def test_a_second_log_with_the_same_uid_is_left_and_said() -> None:
    disk = upgraded()
    disk.write_durable(LOG, disk.read(PLAIN))
    sessions = start(disk)
    assert (said(sessions), [finding.kind for finding in sessions.verify().findings]) == (["a", "b"], ["second"])
    assert disk.read(PLAIN) == disk.read(LOG)


def test_a_second_log_that_an_earlier_version_was_unarchiving_is_archived_again() -> None:
    disk = with_second(is_younger=False)
    system = disk.process()
    uid = json.loads(disk.read(PLAIN).split(b"\n")[0])["uid"]
    make_folder(system, f"{ROOT}/archive")
    system.link(PLAIN, PLACE._replace(archived=uid).log)
    sessions = start(disk)
    assert (said(sessions), ever(sessions)) == (["new"], ["old", "new"])
    assert len(names(disk, "sessions")) == len(names(disk, "archive")) == 1


def test_there_may_be_no_second_log_to_take_in() -> None:
    disk = Disk(0)
    files = store(disk.process())
    files.take_in("k")
    say(nacre.Sessions(files), "a")
    files.take_in("k")
    assert said(nacre.Sessions(files)) == ["a"]


class Gone(System):
    """Whoever has the lock of a log takes its plain name away before letting go of it."""

    def __init__(self, place: SessionPaths) -> None:
        self.place = place

    def flock(self, fd: int, wait: bool) -> bool:
        if Path(self.place.plain).exists() and super().fstat(fd).st_ino == Path(self.place.plain).stat().st_ino:
            Path(self.place.plain).unlink()
        return super().flock(fd, wait)


def test_a_log_that_loses_its_plain_name_before_it_is_locked_is_not_renamed(root: Path) -> None:
    place = plain_on_disk(root)
    rename_plain(Gone(place), place)
    assert not Path(place.log).exists()
    with nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions:
        sessions.add_message("k", "user", "b")
    Path(place.plain).write_bytes(Path(place.log).read_bytes())
    assert not archive_second(Gone(place), place, "~", None)
    assert not (root / "archive").exists()


def test_a_second_log_that_is_archived_is_marked_under_both_names(root: Path) -> None:
    place = plain_on_disk(root)
    marks = Marks(System(), str(root))
    position = marks.take(Position()).position
    assert not archive_second(System(), place, "~", marks)
    (archived,) = (root / "archive").iterdir()
    assert marks.take(position).paths == {f"sessions/{Path(place.plain).name}", f"archive/{archived.name}"}


def test_where_a_log_is_now(root: Path) -> None:
    place = plain_on_disk(root)
    assert path_now(System(), place) == place.plain
    rename_plain(System(), place)
    assert path_now(System(), place) == place.log
    assert path_now(System(), SessionPaths.of(str(root), "other")) == ""
    assert path_now(System(), SessionPaths.of(str(root), "Other")) == ""


@pytest.mark.parametrize("leftover", ["k.jsonl", "k.tmp"])
def test_a_deletion_takes_along_what_an_earlier_version_left_meanwhile(root: Path, leftover: str) -> None:
    with nacre.open(root.with_name("elsewhere")) as other:
        other.add_message("k", "user", "of an earlier version")
    (log,) = (root.with_name("elsewhere") / "sessions").iterdir()
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        shutil.copy(log, root / "sessions" / leftover)
        sessions.delete("k")
        assert not sessions.exists("k")
        assert [path for path in root.rglob("*") if path.is_file() and b"earlier version" in path.read_bytes()] == []
