"""The catalogue: pages are what the logs say, whoever wrote them, and cost what is shown, not what is there."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import Sessions
from nacre.cli.failures import Failure
from nacre.history.list_page import Wanted, parse_cursor
from nacre.history.session_state import RULES
from nacre.index import Index
from nacre.index.warm import FILE, folder_of
from nacre.messages import Page
from nacre.storage.change_marks import Marks
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from tests.paths import log_of

KEYS = ["a", "b", "telegram:1", "telegram:2", "telegram/x", "日本", "nacre:memory"]
FOLDERS = ["/work", "/work/deep", "/workshop", "/"]
TAGS = ["x", "y", "ü"]


class Died(BaseException):
    """A process that was killed."""


class Mortal(System):
    """The system of a process that is killed at one of its calls."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    def _count(self) -> None:
        self._calls -= 1
        if self._calls < 0:
            raise Died

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._count()
        return super().open(path, flags, mode)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._count()
        return super().pread(fd, size, offset)


def opened(root: Path) -> Sessions:
    """The store as a new process opens it, with an index that trusts in marks alone."""
    store = FileStore(str(root), rules=RULES, durability="relaxed", compact_at=0)
    return Sessions(store).with_internal_keys()


def truth(root: Path, wanted: Wanted) -> Page:
    """What the logs say."""
    with Sessions(FileStore(str(root), rules=RULES)) as sessions:
        return sessions._page(wanted)


def queries(chance: random.Random) -> Iterator[Wanted]:
    for order in ("updated", "created", "bytes", "messages", "key"):
        yield Wanted(
            which=chance.choice(("active", "archived", "all")),
            prefix=chance.choice(("", "", "tele", "telegram:", "日", "nacre:", "none")),
            text=chance.choice(("", "", "e", "tele", "title")),
            tags=tuple(chance.sample(TAGS, chance.choice((0, 0, 1, 2)))),
            pinned=chance.random() < 0.2,
            folder=chance.choice((None, None, *FOLDERS)),
            internal=chance.random() < 0.5,
            order=order,
            reverse=chance.random() < 0.5,
            limit=chance.choice((0, 1, 2, 50)),
        )


def assert_right(index: Index, root: Path, chance: random.Random) -> None:
    """Compare pages of every order, and a walk through the whole list, with what the logs say."""
    for wanted in queries(chance):
        assert index.page(wanted) == truth(root, wanted)
        walked = wanted._replace(limit=2, which="all", internal=True)
        while True:
            page = index.page(walked)
            assert page == truth(root, walked)
            if page.cursor is None:
                break
            walked = walked._replace(after=parse_cursor(page.cursor, order=walked.order, reverse=walked.reverse))


def do_something(sessions: Sessions, chance: random.Random) -> None:
    key, other = chance.choice(KEYS), chance.choice(KEYS)
    work: list[Callable[[], Any]] = [
        lambda: sessions.add_message(key, chance.choice(("user", "assistant")), f"word {chance.random()}"),
        lambda: sessions.add_message(key, "user", "word " * 50),
        lambda: sessions.set_meta(
            key,
            title=chance.choice((None, "A title", "Title")),
            tags=chance.choice((None, [], chance.sample(TAGS, 2))),
            pinned=chance.choice((None, True)),
            cwd=chance.choice((None, *FOLDERS)),
        ),
        lambda: sessions.archive(key),
        lambda: sessions.unarchive(key),
        lambda: sessions.delete(key),
        lambda: sessions.fork(key, other),
        lambda: [sessions.truncate_history(key, 1), sessions.save(key)],  # type: ignore[func-returns-value]
        lambda: sessions.clear(key),
        lambda: sessions.repair(key),
        lambda: sessions.move_to_trash(key),
        lambda: sessions.restore_from_trash(chance.choice(sessions.list_trash()).id),
        lambda: sessions.erase_from_trash(chance.choice(sessions.list_trash()).id),
    ]
    with suppress(nacre.StoreError, Failure, IndexError):
        chance.choice([*work, work[0], work[0]])()


@pytest.mark.parametrize("seed", range(12))
def test_pages_and_searches_are_what_the_logs_say_whatever_several_processes_do(
    root: Path, cache: Path, seed: int
) -> None:
    chance = random.Random(seed)
    writers = [opened(root) for _ in range(3)]
    caches = [cache, cache.with_name("other-cache")]
    indexes = [Index(str(root), cache=str(one), slice_size=0) for one in (*caches, cache)]
    for turn in range(25):
        for _ in range(chance.randint(1, 6)):
            do_something(chance.choice(writers), chance)
        event = chance.random()
        if event < 0.1:
            # Only readers may find that marks are gone: a writer begins them anew.
            (root / "marks").unlink(missing_ok=True)
        elif event < 0.2:
            shutil.rmtree(folder_of(str(root), str(cache)), ignore_errors=True)
        elif event < 0.5:
            ask_and_die(root, cache, chance)
        index = chance.choice(indexes)
        assert_right(index, root, chance)
        assert found(index) == found(Index(str(root), cache=str(cache.with_name(f"new-cache-{turn}"))))
    for index in indexes:
        assert_right(index, root, chance)
        index.close()
    for sessions in writers:
        # What was deleted by another cannot be flushed.
        with suppress(nacre.Conflict):
            sessions.close()


def ask_and_die(root: Path, cache: Path, chance: random.Random) -> None:
    """Ask in a process that is killed somewhere in the middle, or just after."""
    index = Index(str(root), cache=str(cache), system=Mortal(chance.randint(0, 40)), slice_size=0)
    with suppress(Died):
        if chance.random() < 0.5:
            index.search("word")
        else:
            index.page(Wanted(limit=3))
    # Its locks go with it.
    index._database.close()


def found(index: Index) -> set[tuple[int, str]]:
    """What a search finds; of several forks of a session that is gone, any may be the one that is named."""
    return {(hit.n, hit.snippet) for hit in index.search("word", limit=10_000, internal=True)}


# ---- what no mark tells


@pytest.fixture
def large(root: Path, cache: Path) -> Iterator[Index]:
    """An index that takes ten sessions for many."""
    with nacre.open(root) as sessions:
        for number in range(10):
            sessions.add_message(f"k{number}", "user", "word")
    index = Index(str(root), cache=str(cache), slice_size=0)
    index.search("word")
    yield index
    index.close()


def keys(index: Index) -> list[str]:
    return [info.key for info in index.page(Wanted(order="key", limit=50)).items]


def touch(folder: Path) -> None:
    """Let the folder's clock tick: names that change within a hundredth of a second look like one change."""
    later = folder.stat().st_mtime_ns + 1_000_000_000
    os.utime(folder, ns=(later, later))


def test_a_log_that_was_removed_by_hand_is_missed_by_the_next_page_and_search(root: Path, large: Index) -> None:
    log_of(root, "k3").unlink()
    touch(root / "sessions")
    assert "k3" not in keys(large)
    assert {hit.key for hit in large.search("word")} == set(keys(large))


def test_a_log_that_was_put_there_by_hand_is_found_by_the_next_page(root: Path, large: Index, tmp_path: Path) -> None:
    with nacre.open(tmp_path / "elsewhere") as sessions:
        sessions.add_message("restored", "user", "hello")
    shutil.copy(log_of(tmp_path / "elsewhere", "restored"), log_of(root, "restored"))
    touch(root / "sessions")
    assert "restored" in keys(large)


def test_a_write_of_ours_does_not_hide_what_was_removed_by_hand(root: Path, large: Index) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k1", "user", "more")
    log_of(root, "k3").unlink()
    touch(root / "sessions")
    assert "k3" not in keys(large)


def test_a_session_that_came_explains_that_the_folder_changed(root: Path, large: Index) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("new", "user", "hello")
        sessions.delete("k2")
    assert scandirs(lambda: keys(large)) == 0
    assert keys(large) == ["k0", "k1", *(f"k{at}" for at in range(3, 10)), "new"]


def test_a_session_that_was_forgotten_explains_it_too(root: Path, large: Index) -> None:
    with nacre.open(root) as sessions:
        sessions.delete("k2")
    large.forget("k2")
    assert scandirs(lambda: keys(large)) == 0
    assert len(keys(large)) == 9


def grow_by_hand(root: Path, key: str) -> None:
    """Append to a log as a program does that leaves no marks."""
    with Sessions(FileStore(str(root), rules=RULES, marks=False)) as sessions:
        sessions.add_message(key, "user", "unmarked")


def counts(index: Index, *, limit: int | None) -> set[int]:
    return {info.messages for info in index.page(Wanted(limit=limit)).items}


def test_what_another_program_wrote_into_a_log_is_in_the_whole_list(root: Path, large: Index) -> None:
    grow_by_hand(root, "k4")
    assert counts(large, limit=50) == {1}
    assert counts(large, limit=None) == {1, 2}


def test_what_another_program_wrote_into_a_log_is_found_in_time(root: Path, cache: Path, large: Index) -> None:
    grow_by_hand(root, "k4")
    index = Index(str(root), cache=str(cache), slice_size=3)
    for _ in range(200):
        if counts(index, limit=50) == {1, 2}:
            break
    else:
        pytest.fail("no slice met the log")
    assert len(index.search("unmarked")) == 1


def test_in_a_small_store_it_is_found_at_once(root: Path, cache: Path, large: Index) -> None:
    grow_by_hand(root, "k4")
    assert counts(Index(str(root), cache=str(cache)), limit=50) == {1, 2}


def database(root: Path, cache: Path) -> sqlite3.Connection:
    return sqlite3.connect(Path(folder_of(str(root), str(cache))) / FILE, isolation_level=None)


def test_after_a_start_of_the_machine_every_log_is_compared(root: Path, cache: Path, large: Index) -> None:
    grow_by_hand(root, "k4")
    connection = database(root, cache)
    (value,) = connection.execute("SELECT value FROM known").fetchone()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    connection.execute("UPDATE known SET value = ?", (value.replace(boot, "another"),))
    connection.close()
    assert counts(large, limit=50) == {1, 2}


def test_without_marks_every_log_is_compared(root: Path, large: Index) -> None:
    grow_by_hand(root, "k4")
    (root / "marks").unlink()
    (root / "marks").mkdir()
    assert counts(large, limit=50) == {1, 2}


def test_a_log_that_a_writer_is_at_is_looked_at_again(root: Path, large: Index) -> None:
    system = System()
    fd = system.open(str(log_of(root, "k5")), os.O_RDWR)
    system.flock(fd, wait=True)
    Marks(system, str(root)).leave(f"sessions/{log_of(root, 'k5').name}")
    assert counts(large, limit=50) == {1}
    system.unlock(fd)
    system.close(fd)
    grow_by_hand(root, "k5")
    assert counts(large, limit=50) == {1, 2}
    grow_by_hand(root, "k5")
    assert counts(large, limit=50) == {1, 2}


@pytest.mark.parametrize("act", ["archive", "unarchive"])
def test_a_log_that_is_looked_for_just_before_it_gets_its_name_is_found_later(
    root: Path, large: Index, act: str
) -> None:
    def look() -> list[str]:
        return [info.key for info in large.page(Wanted(which="all", limit=50)).items if info.archived]

    class Looks(System):
        def rename(self, old: str, new: str) -> None:
            look()
            super().rename(old, new)

        def link(self, old: str, new: str) -> None:
            look()
            super().link(old, new)

    if act == "unarchive":
        with nacre.open(root) as sessions:
            sessions.archive("k3")
        assert look() == ["k3"]
    with Sessions(FileStore(str(root), rules=RULES, system=Looks())) as sessions:
        getattr(sessions, act)("k3")
    assert look() == (["k3"] if act == "archive" else [])
    assert ("k3" in keys(large)) == (act == "unarchive")


def test_a_log_that_cannot_be_read_is_left_out_until_it_can(root: Path, large: Index) -> None:
    log = log_of(root, "k6")
    data = log.read_bytes()
    log.unlink()
    touch(root / "sessions")
    assert "k6" not in keys(large)
    log.symlink_to(log_of(root, "k7"))
    touch(root / "sessions")
    assert "k6" not in keys(large)
    log.unlink()
    log.write_bytes(data)
    assert "k6" in keys(large)


# ---- what it costs


_scans = 0


def _watch(event: str, _: object) -> None:
    global _scans  # noqa: PLW0603 - an audit hook has no other place
    _scans += event in ("os.scandir", "os.listdir")


sys.addaudithook(_watch)


def scandirs(work: Callable[[], object]) -> int:
    """How many folders are listed meanwhile."""
    before = _scans
    work()
    return _scans - before


class Meter(System):
    """Counts calls to the operating system."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self.calls += 1
        return super().open(path, flags, mode)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self.calls += 1
        return super().pread(fd, size, offset)

    def stat(self, path: str) -> os.stat_result:
        self.calls += 1
        return os.lstat(path)


def cost(root: Path, cache: Path, size: int, ask: Callable[[Index], object]) -> tuple[int, int, int]:
    """System calls, folders listed and steps of SQLite for a question after a few changes, in a store of some size."""
    root, cache = root / str(size), cache / str(size)
    root.mkdir(parents=True)
    with nacre.open(root) as sessions:
        for number in range(size):
            sessions.add_message(f"bench:{number}", "user", "hello")
            sessions.set_meta(f"bench:{number}", title="A title")
        Index(str(root), cache=str(cache)).search("hello")
        for number in range(5):
            sessions.add_message(f"bench:{number}", "user", "fresh")
        sessions.add_message("bench:new", "user", "fresh")
        sessions.delete("bench:7")
    system = Meter()
    index = Index(str(root), cache=str(cache), system=system, slice_size=10)
    steps = [0]
    connection = index._database._on_disk()
    connection.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 10)
    listed = scandirs(lambda: ask(index))
    index.close()
    return system.calls, listed, steps[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda index: index.page(Wanted(limit=5)),
        lambda index: index.page(Wanted(limit=5, order="created")),
        lambda index: index.page(Wanted(limit=5, order="bytes", reverse=True)),
        lambda index: index.page(Wanted(limit=5, order="messages")),
        lambda index: index.page(Wanted(limit=5, order="key", which="all")),
        lambda index: index.page(Wanted(limit=5, pinned=True)),
        lambda index: index.page(Wanted(limit=5, tags=("x",))),
        lambda index: index.page(Wanted(limit=5, folder="/work")),
        lambda index: index.page(Wanted(limit=5, prefix="bench:new")),
        lambda index: index.search("fresh"),
    ],
    ids=["updated", "created", "bytes", "messages", "key", "pinned", "tag", "folder", "prefix", "search"],
)
def test_a_page_and_a_search_cost_the_same_in_a_store_of_ten_times_the_size(
    root: Path, cache: Path, ask: Callable[[Index], object]
) -> None:
    small, large = cost(root, cache, 40, ask), cost(root, cache, 400, ask)
    assert (small[1], large[1]) == (0, 0)
    assert large[0] <= small[0] + 5
    assert large[2] <= small[2] * 1.5 + 50
