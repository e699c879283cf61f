"""The database may be deleted, damaged, locked or unwritable at any moment; answers stay the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread

import pytest

import nacre
from nacre import Sessions
from nacre.errors import StoreError
from nacre.index import Index
from nacre.index.database import Database
from nacre.index.query import Query
from nacre.index.search import hits
from nacre.index.warm import VERSION, folder_of
from nacre.storage.system import System
from tests.index.conftest import infos


def found(index: Index, query: str = "word") -> list[int]:
    return sorted(hit.n for hit in index.search(query))


def file_of(cache: Path) -> Path:
    (path,) = cache.rglob("index.sqlite")
    return path


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Another connection that lets nobody else at the database, not even to read."""
    connection = sqlite3.connect(file_of(cache), isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.close()


@pytest.fixture(autouse=True)
def one_message(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "word")


def test_it_is_private(cache: Path, index: Index) -> None:
    index.search("word")
    files = list(file_of(cache).parent.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(file_of(cache).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_it_is_in_the_users_cache(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    index = Index(str(root))
    assert found(index) == [2]
    assert file_of(cache).parent.parent == cache / "nacre"
    index.close()


def test_each_store_has_its_own(root: Path, cache: Path, index: Index) -> None:
    with nacre.open(root.parent / "elsewhere") as sessions:
        sessions.add_message("k", "user", "other word")
    other = Index(str(root.parent / "elsewhere"), cache=str(cache))
    assert (found(index, "other"), found(other, "other")) == ([], [2])
    other.close()


def test_it_is_read_again_by_the_next_process(root: Path, cache: Path, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    index._database._on_disk().execute("UPDATE message SET n = 77")
    again = Index(str(root), cache=str(cache))
    assert found(again) == [77]
    again.close()


def test_deleted_while_open_it_is_made_again(cache: Path, sessions: Sessions, index: Index) -> None:
    assert found(index) == [2]
    shutil.rmtree(cache)
    sessions.add_message("k", "user", "word")
    assert found(index) == [2, 3]
    assert file_of(cache).exists()


def test_deleted_when_nothing_is_new_it_is_filled_again(cache: Path, index: Index) -> None:
    assert [found(index), found(index)] == [[2], [2]]
    shutil.rmtree(cache)
    assert [found(index), found(index)] == [[2], [2]]


def test_without_its_main_file_what_is_left_is_not_believed(cache: Path, sessions: Sessions, index: Index) -> None:
    assert found(index) == [2]
    file_of(cache).unlink()
    sessions.add_message("k", "user", "word")
    assert found(index) == [2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_instead_of_it(cache: Path, sessions: Sessions, index: Index, seed: int) -> None:
    assert found(index) == [2]
    index.close()
    file_of(cache).write_bytes(random.Random(seed).randbytes(20_000))
    sessions.add_message("k", "user", "word")
    assert found(index) == [2, 3]
    assert [info.messages for info in infos(index)] == [2]


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_inside_it_never_raise(cache: Path, sessions: Sessions, index: Index, seed: int) -> None:
    for _ in range(30):
        sessions.add_message("k", "user", "word " * 50)
    assert len(found(index)) == 31
    index.close()
    chance = random.Random(seed)
    data = bytearray(file_of(cache).read_bytes())
    for _ in range(200):
        data[chance.randrange(100, len(data))] = chance.randrange(256)
    file_of(cache).write_bytes(data)
    index.search("word -nothing")
    list(infos(index))


def test_cut_short_it_is_made_again(cache: Path, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    os.truncate(file_of(cache), 5000)
    assert found(index) == [2]


def test_another_version_is_made_again(cache: Path, index: Index) -> None:
    assert found(index) == [2]
    index._database._on_disk().execute(f"PRAGMA user_version = {VERSION + 1}")
    index._database._on_disk().execute("UPDATE message SET n = 77")
    index.close()
    assert found(index) == [2]


def test_somebody_elses_database_is_replaced(cache: Path, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    path = file_of(cache)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE message (id)")
    connection.close()
    assert found(index) == [2]


@pytest.mark.parametrize(
    "query",
    [
        *(
            " ".join(item.format(i) for i in range(2000))
            for item in ("w{}", "-w{}", "role:w{}", "tool:w{}", "session:w{}")
        ),
        " ".join(map(chr, range(0x4E00, 0x4E00 + 2000))),
        "x" * 100_000,
        '"' + "word " * 20_000,
        '"' * 9999,
        "\0 \ud800 -\0",
        "since:0000-00-00 until:9999-12-31 since:-1d until:999999w",
        "NEAR(word* ^a, 5) AND {body}: (",
    ],
    ids=range(12),
)
def test_no_query_breaks_it(index: Index, caplog: pytest.LogCaptureFixture, query: str) -> None:
    assert found(index) == [2]
    index.search(query)
    assert caplog.records == []


def test_no_limit_breaks_it(index: Index, caplog: pytest.LogCaptureFixture) -> None:
    assert [len(index.search("word", limit=limit)) for limit in (-1, 0, 1, sys.maxsize, 10**30)] == [0, 0, 1, 1, 1]
    assert caplog.records == []


def test_what_sqlite_refuses_is_refused_and_no_fault_of_the_index(
    root: Path, cache: Path, index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    assert found(index) == [2]
    database, query = Database(folder_of(str(root), str(cache))), Query(tools=tuple(f"w{i}" for i in range(2000)))
    with pytest.raises(StoreError, match="Expression tree is too large"):
        database.run(lambda connection: hits(connection, query, limit=50))
    database.close()
    assert caplog.records == []
    assert found(index) == [2]


def test_locked_it_is_done_without(cache: Path, sessions: Sessions, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    with locked(cache):
        assert found(index) == [2]
        sessions.add_message("k", "user", "word")
        assert found(index) == [2, 3]
        assert [info.messages for info in infos(index)] == [2]
        index.forget("k")
    assert found(index) == [2, 3]


def test_a_write_is_not_delayed_by_a_locked_index(cache: Path, sessions: Sessions, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    with locked(cache):
        assert sessions.add_message("k", "user", "word") == 3


def test_a_lock_that_only_stops_writers_does_not_stop_readers(cache: Path, index: Index) -> None:
    assert found(index) == [2]
    connection = sqlite3.connect(file_of(cache), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert found(index) == [2]
    assert index._database._memory is None
    connection.close()


def test_a_cache_that_cannot_be_made_is_done_without(root: Path, sessions: Sessions) -> None:
    (root.parent / "file").write_text("not a directory")
    index = Index(str(root), cache=str(root.parent / "file"))
    assert found(index) == [2]
    sessions.add_message("k", "user", "word")
    assert found(index) == [2, 3]
    assert [info.messages for info in infos(index)] == [2]
    index.forget("k")
    index.close()


def test_a_link_instead_of_the_database_is_not_followed(cache: Path, index: Index) -> None:
    assert found(index) == [2]
    index.close()
    target = cache / "target"
    target.write_text("precious")
    file_of(cache).unlink()
    (next(cache.glob("index-*")) / "index.sqlite").symlink_to(target)
    assert found(index) == [2]
    assert target.read_text() == "precious"


_UNPRIVILEGED = """
import os, sys
from nacre.index import Index
# What is loaded when it is first needed may be out of reach for another user.
assert Index(sys.argv[1], cache=sys.argv[3]).search("word")
if os.geteuid() == 0:
    for folder, _, files in os.walk(sys.argv[1]):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(path, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
index = Index(sys.argv[1], cache=sys.argv[2])
from nacre.history.list_page import Wanted
print([hit.n for hit in index.search("word")], [info.messages for info in index.page(Wanted()).items])
"""


def test_a_read_only_cache_is_done_without(root: Path, cache: Path, sessions: Sessions) -> None:
    sessions.close()
    cache.mkdir(mode=0o555)
    root.parent.chmod(0o755)
    command = [sys.executable, "-c", _UNPRIVILEGED, str(root), str(cache), str(root.parent / "other")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "[2] [1]\n"
    assert list(cache.iterdir()) == []


def test_two_at_once_agree(root: Path, cache: Path, sessions: Sessions, index: Index) -> None:
    other = Index(str(root), cache=str(cache))
    for n in range(3, 9):
        sessions.add_message("k", "user", "word")
        assert len(found(index if n % 2 else other)) == n - 1
    sessions.delete("k")
    assert (found(index), found(other)) == ([], [])
    other.close()


def test_many_threads_with_an_index_each_build_it_once(root: Path, cache: Path, sessions: Sessions) -> None:
    for number in range(20):
        sessions.add_message(f"talk{number}", "user", "word")

    def search(_: int) -> int:
        index = Index(str(root), cache=str(cache))
        try:
            return len(index.search("word"))
        finally:
            index.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search, range(8))) == [21] * 8
    with sqlite3.connect(file_of(cache)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT log) FROM message").fetchone() == (21, 21)
    connection.close()


def test_two_processes_build_one_index(root: Path, cache: Path, sessions: Sessions) -> None:
    for number in range(20):
        sessions.add_messages(f"talk{number}", [{"role": "user", "content": "word"}] * 20)
    code = (
        "import sys; from nacre.index import Index;"
        "print(len(Index(sys.argv[1], cache=sys.argv[2]).search('word', limit=999)))"
    )
    command = [sys.executable, "-c", code, str(root), str(cache)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [child.communicate()[0] for child in running] == ["401\n"] * 3


_DIES = """
import os, sys
from nacre.index import Index, tables
tables._CHUNK = 2_000
write, left = tables.Chunk.write, [int(sys.argv[3])]
def dying(chunk):
    write(chunk)
    left[0] -= 1
    if not left[0]:
        os._exit(9)
tables.Chunk.write = dying
Index(sys.argv[1], cache=sys.argv[2]).search("word")
"""


@pytest.mark.parametrize("after", [1, 2, 5, 9])
def test_killed_while_it_is_built_it_goes_on_from_there(
    root: Path, cache: Path, sessions: Sessions, index: Index, after: int
) -> None:
    for number in range(3):
        sessions.add_messages(f"talk{number}", [{"role": "user", "content": "word " * 50}] * 30)
    command = [sys.executable, "-c", _DIES, str(root), str(cache), str(after)]
    assert subprocess.run(command, check=False).returncode == 9
    assert len(index.search("word", limit=999)) == 91


def test_in_a_forked_child_it_is_opened_anew(index: Index) -> None:
    assert found(index) == [2]
    child = os.fork()
    if not child:
        os._exit(0 if found(index) == [2] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert found(index) == [2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_while_a_thread_searches_the_child_can_still_ask(root: Path, cache: Path) -> None:
    searching, go_on = Event(), Event()

    class Waits(System):
        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            if current_thread() is not main_thread():
                searching.set()
                go_on.wait()
            return super().open(path, flags, mode)

    index = Index(str(root), cache=str(cache), system=Waits(), fork_timeout=0.01)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(found, index)
        searching.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if found(index) == [2] and len(list(infos(index))) == 1 else 1)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        assert (status, answer.result()) == (0, [2])
    index.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_a_search_so_that_the_child_has_no_locks_of_it(root: Path, cache: Path) -> None:
    writing, go_on = Event(), Event()

    class Waits(System):
        opened = 0

        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            self.opened += 1
            # The first time the log is listed, the second time it is read into the tables.
            if self.opened == 2:
                writing.set()
                go_on.wait()
            return super().open(path, flags, mode)

    class Watched(Index):
        def hold(self) -> bool:
            go_on.set()
            return super().hold()

    index = Watched(str(root), cache=str(cache), system=Waits())
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(found, index)
        writing.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if found(index) == [2] and index._database._memory is None else 1)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        assert (status, answer.result()) == (0, [2])
    assert found(index) == [2]
    index.close()


def test_closed_twice_it_can_still_be_asked(index: Index) -> None:
    index.close()
    index.close()
    assert found(index) == [2]


def test_sqlite_is_not_loaded_before_an_index_is_made(root: Path) -> None:
    code = "import sys, nacre, nacre.index; assert 'sqlite3' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_erased_leaves_no_byte_though_another_process_reads(
    root: Path, cache: Path, sessions: Sessions, index: Index
) -> None:
    sessions.add_message("k", "user", "the launch code is blue")
    sessions.add_message("other", "user", "something else")
    assert len(index.search("launch")) == 1
    (file,) = cache.rglob("index.sqlite")
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM message").fetchone()
    aside = file.parent.with_name(f"{file.parent.name}.1.left")
    aside.mkdir()
    (aside / "index.sqlite").write_text("the launch code is blue")
    index.erase("k")
    reader.close()
    assert not any(b"launch" in path.read_bytes() for path in cache.rglob("*") if path.is_file())
    assert [hit.key for hit in index.search("something")] == ["other"]


def test_what_is_erased_goes_with_a_broken_index(root: Path, cache: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "the launch code is blue")
    index.erase("k")
    index.search("launch")
    index.close()
    (file,) = cache.rglob("index.sqlite")
    file.write_bytes(b"no database, and the launch code" * 100)
    index.erase("k")
    assert not any(b"launch" in path.read_bytes() for path in cache.rglob("*") if path.is_file())
