"""Signals that strike in the middle of a write to PostgreSQL, and processes that fork with a store open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import ModuleType

import psycopg_pool.pool
import pytest

import nacre
from nacre import sessions as door
from nacre.storage import group_commit, transaction, writer_pool
from nacre.storage.postgres import connections, moving, notices, pipeline, store, writer
from tests.postgres.opened import create, numbers, opened, said
from tests.strikes import is_struck

ROOT = Path(__file__).parents[2]
WAIT = 60
MODULES: tuple[ModuleType, ...] = (
    door,
    group_commit,
    transaction,
    writer_pool,
    connections,
    moving,
    notices,
    pipeline,
    store,
    writer,
)
ACTS: dict[str, Callable[[nacre.Sessions, str], object]] = {
    "append": lambda sessions, key: sessions.add_message(key, "user", "b"),
    "append a group": lambda sessions, key: sessions.add_messages(
        key, [nacre.Message(role="user", content="b"), nacre.Message(role="user", content="and more")]
    ),
    "append with an id": lambda sessions, key: sessions.add_messages(
        key, [nacre.Message(role="user", content="b")], id="i"
    ),
    "create": lambda sessions, key: sessions.add_message(f"{key}-new", "user", "b"),
    "fork": lambda sessions, key: sessions.fork(key, f"{key}-new"),
    "submit": lambda sessions, key: sessions.submit(key, [nacre.Message(role="user", content="b")]).result(WAIT),
}


@pytest.fixture
def url(database: str) -> str:
    return create(database)


@pytest.fixture
def sessions(url: str) -> Iterator[nacre.Sessions]:
    with opened(url, patience=WAIT, size=8) as found:
        yield found


# What a handler raises while a generator is dropped is printed by the interpreter, and goes no further.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_interrupted_write_is_there_once_or_not_and_nobody_hangs(
    act: Callable[[nacre.Sessions, str], object], sessions: nacre.Sessions, url: str
) -> None:
    """All steps use one store: a connection or a turn that is lost at one of them is missed at a later one."""
    with opened(url) as others, ThreadPoolExecutor(1) as pool:
        for step in count():
            key = f"k{step}"
            sessions.add_message(key, "user", "a")
            came = is_struck(step, lambda: act(sessions, key), *MODULES)  # noqa: B023 - called at once
            for name in (key, f"{key}-new"):
                number = pool.submit(sessions.add_message, name, "user", "c").result(WAIT)
                found = said(others, name)
                assert found.count("b") <= 1, step
                assert (found[-1], others.transcript(name)[-1].n) == ("c", number), step
                own = numbers(others, name)
                assert own == sorted(set(own)), step
            if not came:
                assert step > 20
                return


def test_a_signal_in_the_pool_of_connections_loses_none_of_them(sessions: nacre.Sessions) -> None:
    with ThreadPoolExecutor(8) as pool:
        for step in count():
            key = f"k{step}"
            sessions.add_message(key, "user", "a")
            came = is_struck(step, lambda: said(sessions, key), psycopg_pool.pool, connections)  # noqa: B023 - at once
            # As many as there are connections, at the same time.
            read = [pool.submit(said, sessions, key) for _ in range(8)]
            assert [one.result(WAIT) for one in read] == [["a"]] * 8, step
            if not came:
                return


INTERRUPTED = """
import random, signal, sys, threading, time, nacre
from tests.postgres.opened import opened
url, seed = sys.argv[1], random.Random(int(sys.argv[2]))
class Struck(BaseException):
    pass
def strike(*_):
    raise Struck
signal.signal(signal.SIGALRM, strike)
sessions = opened(url, patience=100)
is_over = threading.Event()
done = {n: [] for n in range(4)}
def write(n):
    at = 0
    while not is_over.is_set():
        key = "shared" if at % 2 else f"own-{n}"
        done[n].append((key, f"{n}-{at}", sessions.add_messages(
            key, [nacre.Message(role="user", content=f"{n}-{at}")], id=f"{n}-{at}")))
        at += 1
threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 4)]
for thread in threads:
    thread.start()
struck = at = 0
while struck < int(sys.argv[3]):
    key, text = ("shared", f"0-{at}") if at % 2 else ("own-0", f"0-{at}")
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seed.random() * 0.02 + 0.0001)
            number = sessions.add_messages(key, [nacre.Message(role="user", content=text)], id=text)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Struck:
        struck += 1
        continue
    done[0].append((key, text, number))
    at += 1
is_over.set()
for thread in threads:
    thread.join(100)
assert not any(thread.is_alive() for thread in threads), "a writer hangs"
stored = {}
for key in ["shared", *(f"own-{n}" for n in range(4))]:
    for one in sessions.transcript(key):
        assert one.message.content not in stored, one
        stored[one.message.content] = (key, one.n)
for one in done.values():
    for key, text, number in one:
        assert stored[text] == (key, number), text
assert len(stored) - sum(map(len, done.values())) <= 1
assert all(done.values())
sessions.close()
print("good", len(stored), struck)
"""
FORKED = """
import os, sys, threading, nacre
from tests.postgres.opened import opened, said
url = sys.argv[1]
sessions = opened(url, patience=100)
turn = sessions.hold("k")
turn.take()
sessions.add_message("k", "user", "before")
is_over = threading.Event()
def write():
    while not is_over.is_set():
        sessions.add_message("busy", "user", "x")
threads = [threading.Thread(target=write) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for n in range(5):
    child = os.fork()
    if not child:
        code = 1
        try:
            sessions.add_message("k", "user", f"child {n}")
            sessions.add_message(f"own-{n}", "user", "a")
            assert said(sessions, f"own-{n}") == ["a"]
            other = sessions.hold("k")
            try:
                other.take()
            except nacre.SessionBusy:
                code = 0
            sessions.close()
        finally:
            os._exit(code)
    children.append(child)
    sessions.add_message("k", "user", f"parent {n}")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
is_over.set()
for thread in threads:
    thread.join(100)
assert codes == [0] * 5, codes
sessions.append("k", "x.note", 1, lease=turn)
found = said(sessions, "k")
assert sorted(found[1:]) == sorted([f"{who} {n}" for who in ("child", "parent") for n in range(5)]), found
sessions.close()
print("good")
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "Exception ignored" in done.stderr) == (0, False), done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", [1, 2])
def test_signals_at_random_moments_lose_nothing_while_other_threads_write(seed: int, url: str, campaign: bool) -> None:
    assert run(INTERRUPTED, url, str(seed), "2000" if campaign else "100").startswith("good")


def test_a_process_may_fork_while_it_writes(url: str) -> None:
    assert run(FORKED, url) == "good\n"
