"""Many writers, few of them open: which log makes way, which must not, and what closing tells."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, RLock, Thread, active_count, current_thread
from time import sleep
from typing import Any, cast
from weakref import ref

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import Transaction
from nacre.storage import group_commit, writer_pool
from nacre.storage.file_store import FileStore
from nacre.storage.group_commit import Committer, Owner
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.storage.transaction import content_of, fingerprint
from nacre.storage.writer_pool import Pool, SessionQueue, Writers
from nacre.testing import Disk, Fault
from tests.simulated import ROOT, opened, said, say, settled
from tests.simulated import store as files
from tests.strikes import at_every_step, is_struck

WAIT = 30
HELLO = Transaction((encode_text("user", "hello"),))


def make_pool() -> Pool:
    lock = RLock()
    return Pool(lock, Owner(lock))


def writers(disk: Disk, *, max_open: int, max_ids: int = 1000) -> Writers:
    opened(disk)
    process = disk.process()
    return Writers(
        lambda key: Log(process, SessionPaths.of(ROOT, key), rules=RULES),
        max_open=max_open,
        before=lambda: None,
        max_ids=max_ids,
    )


def are_open(writers: Writers, *keys: str) -> list[bool]:
    return [writers.of(key).log.writer.is_open for key in keys]


def make_many(writers: Writers) -> None:
    """Make so many that those who are idle are forgotten."""
    for number in range(1, 1026):
        writers.of(f"k{number}")


# Making way


def test_the_log_that_was_not_used_for_longest_is_closed() -> None:
    found = writers(Disk(), max_open=2)
    for key in "abac":
        found.of(key).queue.run(HELLO)
    assert are_open(found, "a", "b", "c") == [True, False, True]


@pytest.mark.parametrize(
    ("files", "logs"),
    [
        (3, 1),
        (80, 20),
        (256, 64),
        (1_024, 64),
        (1_600, 100),
        (4_096, 256),
        (20_000, 512),
        (resource.RLIM_INFINITY, 512),
    ],
)
def test_as_many_logs_stay_open_as_the_process_can_afford(
    files: int, logs: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    store = FileStore(str(root), rules=RULES, durability="relaxed")
    for number in range(514):
        store.run(str(number), HELLO)
    assert store.load.open == logs
    store.close()


@pytest.mark.parametrize("max_open", [2, 8])
def test_logs_that_were_not_used_for_longest_forget_their_ids_when_there_are_many(max_open: int) -> None:
    pool = writers(Disk(), max_open=max_open, max_ids=20)
    keys = [f"k{number}" for number in range(6)]
    for step in range(60):
        session = pool.of(keys[step // 10])
        session.queue.run(with_id(step))
        assert sum(pool.of(key).writer.ids_held for key in keys) <= 20 + 1
    assert [pool.of(key).writer.ids_held > 0 for key in keys] == [False, False, False, False, True, True]
    numbers = [pool.of(keys[step // 10]).queue.run(with_id(step)) for step in range(60)]
    assert numbers == [2 + step % 10 for step in range(60)]


def with_id(step: int) -> Transaction:
    operation = encode_text("user", "hello")
    return Transaction((operation,), id=f"id{step}", print=fingerprint([content_of(operation)]))


def test_ids_of_a_log_that_is_being_worked_on_are_not_forgotten() -> None:
    pool = writers(Disk(), max_open=8, max_ids=4)
    busy, other = pool.of("busy"), pool.of("other")
    for step in range(4):
        busy.queue.run(with_id(step))

    def use_another() -> None:
        for step in range(4):
            other.queue.run(with_id(step))

    busy.queue.alone(lambda: run_in_thread(use_another))
    assert busy.writer.ids_held > 0
    assert busy.queue.run(with_id(0)) == 2


def run_in_thread(work: Callable[[], None]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_a_log_that_is_being_worked_on_is_not_closed() -> None:
    found = writers(Disk(), max_open=1)
    found.of("a").queue.run(HELLO)
    entered, free = Event(), Event()

    def work(_: SessionQueue) -> bool:
        entered.set()
        return free.wait(WAIT)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(found.alone, "a", work)
        assert entered.wait(WAIT)
        found.of("b").queue.run(HELLO)
        assert are_open(found, "a", "b") == [True, True]
        free.set()
        assert working.result(WAIT)
    assert are_open(found, "a", "b") == [True, False]


def test_a_log_in_doubt_is_not_closed_before_it_could_be_moved() -> None:
    disk = Disk()
    sessions = opened(disk, max_open=1)
    say(sessions, "a")
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="rename"))
    with pytest.raises(nacre.DurabilityUnknown):
        say(sessions, "b")
    say(sessions, "x", key="other")
    say(sessions, "c")
    assert settled(disk) == ["a", "c"]


def test_a_relaxed_log_that_cannot_be_flushed_when_it_should_make_way_stays() -> None:
    disk = Disk()
    sessions = opened(disk, durability="relaxed", max_open=1)
    say(sessions, "a")
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="rename"))
    say(sessions, "x", key="other")
    assert said(sessions) == ["a"]
    sessions.close()
    assert (settled(disk), settled(disk, "other")) == (["a"], ["x"])


def test_a_log_that_is_used_again_as_it_makes_way_is_known_to_be_open() -> None:
    found = writers(Disk(), max_open=1)
    makes_way = found.of("a")
    makes_way.queue.run(HELLO)

    class Overtaken:
        """A lock that is taken only after somebody else has used the log that made way, if it can be used yet."""

        def __init__(self) -> None:
            self._lock = found._lock

        def __enter__(self) -> bool:
            if not makes_way.log.writer.is_open:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(use_again).result(WAIT)
            return self._lock.__enter__()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def use_again() -> None:
        if makes_way.queue.try_alone(lambda: None):
            makes_way.queue.run(HELLO)

    at_hand = found.of("b")
    found._lock = cast("Any", Overtaken())
    at_hand.queue.run(HELLO)
    assert [writer for writer in (makes_way, at_hand) if writer.log.writer.is_open] == list(found._open)


def test_writers_that_are_idle_are_forgotten_when_they_are_many() -> None:
    found = writers(Disk(), max_open=2)
    found.of("open").queue.run(HELLO)
    at_hand, idle = found.of("open"), ref(found.of("k0"))
    make_many(found)
    gc.collect()
    assert (found.of("open") is at_hand, idle()) == (True, None)


def test_a_writer_that_is_in_use_is_found_again_though_there_are_many() -> None:
    found = writers(Disk(), max_open=2)
    in_use = found.of("a")
    make_many(found)
    assert found.of("a") is in_use


def test_a_log_that_is_opened_again_is_not_read_for_its_ids_again(root: Path) -> None:
    said = [nacre.Message(role="user", content="x" * 1000)]

    class Reading(System):
        read = 0

        def pread(self, fd: int, size: int, offset: int) -> bytes:
            found = super().pread(fd, size, offset)
            self.read += len(found)
            return found

    system = Reading()
    with nacre.Sessions(FileStore(str(root), rules=RULES, max_open=1, system=system)) as sessions:
        for number in range(300):
            sessions.add_messages("a", said, id=str(number))
        for number in range(3):
            sessions.add_message("b", "user", "x")
            before = system.read
            sessions.add_messages("a", said, id=f"new {number}")
            assert system.read == before
        sessions.add_message("b", "user", "x")
        assert sessions.add_messages("a", said, id="7") == 9


# Closing


def test_closing_flushes_every_log_and_then_raises_the_first_failure() -> None:
    disk = Disk()
    sessions = opened(disk, durability="relaxed")
    say(sessions, "a")
    say(sessions, "x", key="other")
    disk.fail(Fault(call="fdatasync"))
    disk.fail(Fault(call="rename"))
    with pytest.raises(nacre.Refused, match="Input/output error"):
        sessions.close()
    assert (settled(disk), settled(disk, "other")) == ([], ["x"])


def test_closing_flushes_a_log_that_was_opened_when_its_writer_was_no_longer_at_hand() -> None:
    disk = Disk()
    found = files(disk.process(), durability="relaxed")._writers
    in_use = found.of("k")
    make_many(found)
    in_use.queue.submit(HELLO)
    found.close()
    assert not in_use.log.writer.is_open
    assert settled(disk) == ["hello"]


def test_a_child_of_a_fork_closes_a_log_that_was_opened_when_its_writer_was_no_longer_at_hand() -> None:
    found = writers(Disk(), max_open=2)
    in_use = found.of("a")
    make_many(found)
    in_use.queue.run(HELLO)
    found.begin_in_child()
    assert not in_use.log.writer.is_open


def test_a_child_of_a_fork_begins_with_no_log_open() -> None:
    found = writers(Disk(), max_open=2)
    before = found.of("a")
    assert before.queue.run(HELLO) == 2
    found.begin_in_child()
    assert not before.log.writer.is_open
    assert found.of("a").queue.run(HELLO) == 3


# Signals


def on_a_thread(act: Callable[[], object]) -> None:
    """Act on a thread that may hang without keeping the program from its end."""
    outcome: Future[object] = Future()

    def tell() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:  # noqa: BLE001 - for whoever waits
            outcome.set_exception(error)

    Thread(target=tell, daemon=True).start()
    outcome.result(WAIT)


@pytest.mark.parametrize("act", [lambda queue: queue.run(HELLO), lambda queue: queue.submit(HELLO)])
def test_an_interrupt_at_any_step_keeps_nobody_from_writing(act: Callable[[Committer], object]) -> None:
    def go_through(step: int) -> bool:
        found = writers(Disk(), max_open=1)
        came = is_struck(step, lambda: act(found.of("a").queue), group_commit, writer_pool)
        for key in "ba":
            found.of(key).queue.submit(HELLO).result(WAIT)
        found.close()
        return came

    on_a_thread(lambda: at_every_step(go_through))


def test_who_is_interrupted_while_others_write_gives_no_permit_back_that_it_did_not_have() -> None:
    class Permits:
        given_back = 0

        def get(self, _: bool) -> None:
            raise KeyboardInterrupt

        def put(self, _: None) -> None:
            self.given_back += 1

    found, permits = writers(Disk(), max_open=1), Permits()
    found._permits = cast("Any", permits)
    with pytest.raises(KeyboardInterrupt):
        found.of("a").queue.run(HELLO)
    assert permits.given_back == 0


def test_a_signal_handler_may_write_at_any_step() -> None:
    def go_through(step: int) -> bool:
        found = writers(Disk(), max_open=2)
        numbers: dict[str, list[int]] = {key: [] for key in "abcd"}

        def write(keys: str) -> None:
            for key in keys:
                numbers[key].append(found.of(key).queue.run(HELLO))

        def handler() -> None:
            with suppress(nacre.Refused):
                write("dac")

        write("ab")
        came = is_struck(step, lambda: write("c"), group_commit, writer_pool, handler=handler)
        assert {writer for writer in found._all.values() if writer.log.writer.is_open} == set(found._open), step
        write("abcd")
        assert all(sorted(given) == list(range(2, 2 + len(given))) for given in numbers.values()), step
        return came

    on_a_thread(lambda: at_every_step(go_through))


def test_no_writer_is_given_to_whoever_interrupts_its_own_thread_while_one_is_made() -> None:
    disk = Disk()
    opened(disk)

    def make(key: str) -> Log:
        with pytest.raises(nacre.Refused, match="in the middle of another write"):
            found.of("b")
        return Log(process, SessionPaths.of(ROOT, key), rules=RULES)

    process = disk.process()
    found = Writers(make, max_open=1, before=lambda: None)
    assert found.of("a").queue.run(HELLO) == 2
    assert said(opened(disk), "a") == ["hello"]


def test_a_store_is_not_closed_in_the_middle_of_a_write_by_the_same_thread() -> None:
    found = writers(Disk(), max_open=2)

    def work(_: SessionQueue) -> None:
        with pytest.raises(nacre.Refused, match="already writing the same session"):
            found.close()

    found.alone("a", work)
    assert found.of("a").queue.run(HELLO) == 2
    found.close()


# Threads


def test_what_is_under_way_when_a_program_ends_is_stored(root: Path) -> None:
    said = '[nacre.Message(role="user", content=str(n)) for n in range(3)]'
    program = f"import nacre, sys; s = nacre.open(sys.argv[1]); [s.submit(str(k), {said}) for k in range(40)]"
    subprocess.run([sys.executable, "-c", program, root], check=True, timeout=WAIT)
    with nacre.open(root) as sessions:
        assert all(len(sessions.get_history(str(key))) == 3 for key in range(40))


def test_there_are_no_more_threads_than_there_is_work() -> None:
    pool, before = make_pool(), active_count()
    for _ in range(5):
        done = Event()
        pool.run(done.set)
        assert done.wait(WAIT)
        while pool._busy:
            sleep(0.001)
    assert active_count() == before + 1
    pool.finish()
    assert active_count() == before


def unstartable(_: Thread) -> None:
    """Start a thread on a machine that has no more."""
    raise RuntimeError("can't start new thread")


def test_what_is_submitted_when_no_thread_can_be_started_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = writers(Disk(), max_open=2)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", unstartable)
        assert found.of("a").queue.submit(HELLO).result(0) == 2
    assert found.of("a").queue.submit(HELLO).result(WAIT) == 3
    found.close()


def test_what_goes_wrong_when_no_thread_can_be_started_is_no_concern_of_who_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ValueError

    monkeypatch.setattr(Thread, "start", unstartable)
    pool = make_pool()
    pool.run(fail)
    pool.finish()


def test_when_no_more_threads_can_be_started_those_that_run_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, free = make_pool(), Event()
    served_by: list[Thread] = []

    def serve() -> None:
        assert free.wait(WAIT)
        served_by.append(current_thread())

    pool.run(serve)
    monkeypatch.setattr(Thread, "start", unstartable)
    pool.run(serve)
    free.set()
    pool.finish()
    assert (len(served_by), len(set(served_by))) == (2, 1)


def test_a_thread_whose_start_was_interrupted_ends_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Thread] = []
    start = Thread.start

    def interrupted(thread: Thread) -> None:
        start(thread)
        started.append(thread)
        if len(started) == 1:
            raise KeyboardInterrupt

    pool, done = make_pool(), Event()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.run(done.set)
        pool.run(done.set)
    assert done.wait(WAIT)
    on_a_thread(pool.finish)
    for thread in started:
        thread.join(WAIT)
    assert [thread.is_alive() for thread in started] == [False, False]


def test_a_failure_does_not_end_the_thread_that_met_it() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    pool, done = make_pool(), Event()
    for _ in range(50):
        pool.run(fail)
    pool.run(done.set)
    assert done.wait(WAIT)
    pool.finish()


def test_a_child_of_a_fork_does_not_wait_for_its_parents_threads(root: Path) -> None:
    program = """
import os, sys, nacre
sessions = nacre.open(sys.argv[1])
sessions.submit("k", [nacre.Message(role="user", content="a")]).result()
pool = sessions._store._writers.pool
pool._lock.acquire()
child = os.fork()
if child:
    pool._lock.release()
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program, root], check=True, timeout=WAIT)
