"""Many writers at once: processes on one session, threads on many sessions, and fewer connections than callers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

import nacre
from nacre.errors import Refused
from tests.postgres.opened import create, numbers, opened, said, through
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres.servers import PostgresServer

ROOT = Path(__file__).parents[2]
PROCESSES = 4
PATIENT = 120

# What the processes share: a store, a number of their own, and how often to do it. They begin when told.
PROGRAM = """
import random, sys, nacre
from concurrent.futures import ThreadPoolExecutor
from tests.postgres.opened import opened
url, me, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sessions = opened(url, patience=100)
def user(text):
    return nacre.Message(role="user", content=text)
def together(threads, work):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))
print("ready", flush=True)
input()
{work}
sessions.close()
"""
APPEND = """
together(2, lambda thread: [sessions.add_message("k", "user", f"{me}-{thread}-{n}") for n in range(times)])
"""
APPEND_FOR_EVER = """
import threading
is_over = threading.Event()
def write(thread):
    while not is_over.is_set():
        sessions.add_message("k", "user", "hog")
with ThreadPoolExecutor(4) as pool:
    done = [pool.submit(write, thread) for thread in range(4)]
    print("writing", flush=True)
    input()
    is_over.set()
    [one.result() for one in done]
"""
COMPARE_AND_SWAP = """
done = 0
while done < times:
    n = sessions.snapshot("k").n
    try:
        sessions.add_messages("k", [user(f"after {n}")], expect=n)
        done += 1
    except nacre.Conflict:
        pass
"""
WITH_THE_SAME_IDS = """
ids = [str(n) for n in range(times)]
random.Random(me).shuffle(ids)
found = together(2, lambda _: {id: sessions.add_messages("k", [user(id)], id=id) for id in ids})
print(*(f"{id}={n}" for one in found for id, n in one.items()), flush=True)
"""
SLOW = """
CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.slow()
"""
MANY_SESSIONS = """
def write(thread):
    order = list(range(32))
    random.Random(me * 100 + thread).shuffle(order)
    for n in range(times):
        for session in order:
            sessions.add_messages(f"k{session}", [user(f"{me}-{thread}-{n}"), user("and more")])
together(16, write)
"""


@contextmanager
def running(url: str, work: str, times: int, *, processes: int = PROCESSES) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have opened the store; they work until `finish`."""
    with ExitStack() as stack:
        found = []
        for me in range(processes):
            command = [sys.executable, "-c", PROGRAM.replace("{work}", work), url, str(me), str(times)]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            found.append(process)
        for process in found:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield found


def start(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for the end of all, which must be a good one; returns what they printed."""
    said_last = [process.communicate(timeout=PATIENT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said_last


@pytest.fixture
def url(database: str) -> str:
    return create(database)


# ---- one session


def test_processes_that_write_one_session_all_come_to_their_end(url: str) -> None:
    with running(url, APPEND, 50) as processes:
        start(processes)
        finish(processes)
    with opened(url) as sessions:
        found = said(sessions, "k")
        assert numbers(sessions, "k") == list(range(1, PROCESSES * 100 + 2))
    assert len(set(found)) == PROCESSES * 100
    for writer in {str(text).rpartition("-")[0] for text in found}:
        own = [text for text in found if str(text).rpartition("-")[0] == writer]
        assert own == [f"{writer}-{n}" for n in range(50)]


def test_who_writes_all_the_time_does_not_keep_others_out(url: str, proxy: Proxy) -> None:
    """Not even one that is far away, so that others write whenever it knows the last number."""
    proxy.delay = 0.02
    with (
        running(url, APPEND_FOR_EVER, 0, processes=1) as [hog],
        opened(url) as near,
        opened(through(url, proxy.port), patience=20) as far,
    ):
        start([hog])
        assert hog.stdout is not None
        assert hog.stdout.readline() == "writing\n"
        wait_until(lambda: len(said(near, "k")) > 20, "that the other writes")
        for n in range(10):
            far.add_message("k", "user", str(n))
        start([hog])
        finish([hog])
        found = said(near, "k")
        assert [text for text in found if text != "hog"] == [str(n) for n in range(10)]
        assert found[-1] == "hog"


def test_a_number_is_expected_by_one_writer_only(url: str) -> None:
    with opened(url) as sessions:
        sessions.add_message("k", "user", "first")
        with running(url, COMPARE_AND_SWAP, 25) as processes:
            start(processes)
            finish(processes)
        messages = sessions.transcript("k")[1:]
    assert len(messages) == PROCESSES * 25
    assert [stored.message.content for stored in messages] == [f"after {stored.n - 1}" for stored in messages]


def test_an_id_has_one_number_in_all_processes(url: str) -> None:
    with running(url, WITH_THE_SAME_IDS, 40) as processes:
        start(processes)
        printed = finish(processes)
    with opened(url) as sessions:
        expected = {f"{stored.message.content}={stored.n}" for stored in sessions.transcript("k")}
    assert len(expected) == 40
    assert Counter(pair for text in printed for pair in text.split()) == dict.fromkeys(expected, PROCESSES * 2)


# ---- many sessions


def test_two_processes_that_batch_the_same_sessions_never_wait_in_a_circle(url: str, postgres: PostgresServer) -> None:
    before, schema = postgres.dump_log().count("deadlock detected"), url.partition("schema=")[2]
    # Each row takes a while, so that the two do meet.
    postgres.query(SLOW.format(schema=schema))
    with running(url, MANY_SESSIONS, 3, processes=2) as processes:
        start(processes)
        finish(processes)
    assert postgres.dump_log().count("deadlock detected") == before
    with opened(url) as sessions:
        for session in range(32):
            assert len(said(sessions, f"k{session}")) == 2 * 16 * 3 * 2
            found = numbers(sessions, f"k{session}")
            assert found == list(range(1, len(found) + 1))


def test_a_thousand_sessions_share_sixteen_connections(
    url: str, campaign: bool, record_property: Callable[[str, object], None]
) -> None:
    threads, rounds = 100, 20 if campaign else 3
    done: Counter[str] = Counter()
    with opened(url, size=16) as sessions:

        def write(thread: int) -> Counter[str]:
            for n in range(rounds):
                for session in range(10):
                    sessions.add_message(f"{thread}-{session}", "user", str(n))
                    done[f"{thread}-{session}"] += 1
            return Counter(done)

        with ThreadPoolExecutor(threads) as pool:
            at_the_first_end = next(iter(pool.map(write, range(threads))))
        load = sessions.load()
        assert load is not None
        assert load.connections <= 16
        for key in done:
            assert said(sessions, key) == [str(n) for n in range(rounds)]
    assert len(done) == 1000
    per_thread = Counter[str]()
    for key, number in at_the_first_end.items():
        per_thread[key.partition("-")[0]] += number
    # How far ahead the luckiest is; no bar, since that depends on the machine.
    record_property("fairness", max(per_thread.values()) / min(per_thread.values()))


# ---- fewer connections than callers


def test_who_gets_no_connection_is_refused_within_the_patience_and_told_why(url: str) -> None:
    size, schema = 6, url.partition("schema=")[2]
    with opened(url) as others:
        others.add_message("k", "user", "a")
    with opened(url, size=size, patience=0.5) as sessions, psycopg.connect(url.partition("?")[0]) as link:
        link.execute(f"LOCK TABLE {schema}.sessions IN ACCESS EXCLUSIVE MODE".encode())
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'nacre'"
        with ThreadPoolExecutor(size) as pool, psycopg.connect(url.partition("?")[0], autocommit=True) as look:
            reads = [pool.submit(sessions.get_history, "k") for _ in range(size)]
            wait_until(lambda: look.execute(waiting).fetchone() == (size,), "that all connections are in use")
            with pytest.raises(Refused, match=f"nothing was stored: .* all {size} are in use"):
                sessions.add_message("k", "user", "b")
            link.rollback()
            assert [[message.content for message in read.result(60)] for read in reads] == [["a"]] * size
        sessions.add_message("k", "user", "c")
        assert said(sessions, "k") == ["a", "c"]


def test_a_row_that_somebody_keeps_locked_delays_its_own_session_only(url: str) -> None:
    schema = url.partition("schema=")[2]
    with opened(url, patience=1, timeout=3) as sessions, psycopg.connect(url.partition("?")[0]) as link:
        for key in ("locked", *map(str, range(8))):
            sessions.add_message(key, "user", "a")
        link.execute(f"SELECT 1 FROM {schema}.sessions WHERE key = 'locked' FOR UPDATE".encode())  # noqa: S608 - our own name
        is_over = threading.Event()
        refused: list[BaseException] = []

        def write_locked() -> None:
            try:
                sessions.add_message("locked", "user", "b")
            except nacre.StoreError as error:
                refused.append(error)
            is_over.set()

        thread = threading.Thread(target=write_locked)
        thread.start()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: sessions.add_message(str(key), "user", "b"), range(8)))
        assert is_over.wait(60)
        thread.join()
        assert [(type(error), "nothing was stored" in str(error)) for error in refused] == [(Refused, True)]
        link.rollback()
        assert said(sessions, "locked") == ["a"]
        sessions.add_message("locked", "user", "c")
        assert said(sessions, "locked") == ["a", "c"]
