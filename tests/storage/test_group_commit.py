"""Group commit: who waits, who writes for whom, and what an interrupted writer leaves behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor, _base
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, RLock, Semaphore, Thread, Timer
from typing import Any

import pytest

from nacre.errors import Conflict, DurabilityUnknown, Refused, StoreError
from nacre.records import AppendRecord, Transaction
from nacre.storage import group_commit
from nacre.storage.group_commit import Committer, Latch, Owner, Pending, Wakeup, refuse
from nacre.storage.transaction import PendingCommit
from tests.strikes import at_every_step, is_struck

WAIT = 30
PAUSE = 0.02
Come = Callable[[ThreadPoolExecutor, str], Future[int]]


class Log:
    """Stands in for a log: numbers what it is given, batch by batch, and can be made to wait or to fail."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.error: BaseException | None = None
        self.entered = Event()
        self.free = Event()
        self.free.set()

    def commit(self, commits: Sequence[PendingCommit]) -> None:
        self.entered.set()
        assert self.free.wait(WAIT)
        if self.error is not None:
            raise self.error
        self.batches.append([name(commit) for commit in commits])
        for commit in commits:
            commit.number = len(self.batches)
            if name(commit) == "refused":
                commit.error = Conflict("not this one")


class Later:
    """Keeps what is to be run on another thread until it is asked for."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


class Threads:
    """Runs work on two threads; handing it over is one step, which no signal parts."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [Thread(target=self._serve, daemon=True) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def __call__(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def join(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(WAIT)


def transaction(text: str) -> Transaction:
    return Transaction((AppendRecord("x.test", text),))


def name(commit: PendingCommit) -> object:
    (operation,) = commit.transaction.operations
    assert isinstance(operation, AppendRecord)
    return operation.data


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def later() -> Later:
    return Later()


class Stand(Semaphore):
    """Released by whoever stands in the queue of a log."""

    def __init__(self) -> None:
        super().__init__(0)

    def latch(self) -> Latch:
        stand = self

        class Seen(Latch):
            def result(self) -> int:
                stand.release()
                return super().result()

        return Seen()


@pytest.fixture
def stand() -> Stand:
    return Stand()


@pytest.fixture
def queue(log: Log, later: Later, stand: Stand) -> Committer:
    return Committer(log.commit, later, latch=stand.latch)


def coming(queue: Committer, stand: Stand) -> Come:
    """Asks for a transaction on another thread while the log is busy, and comes back once it stands in the queue."""

    def ask(pool: ThreadPoolExecutor, text: str) -> Future[int]:
        future = pool.submit(queue.run, transaction(text))
        assert stand.acquire(timeout=WAIT)
        return future

    return ask


@pytest.fixture
def come(queue: Committer, stand: Stand) -> Come:
    return coming(queue, stand)


# Alone


def test_who_finds_the_log_idle_writes_at_once(log: Log, later: Later, queue: Committer) -> None:
    assert [queue.run(transaction("a")), queue.run(transaction("b"))] == [1, 2]
    assert (log.batches, later.work) == ([["a"], ["b"]], [])


def test_a_unit_that_is_refused_raises_its_own_error(queue: Committer) -> None:
    with pytest.raises(Conflict, match="not this one"):
        queue.run(transaction("refused"))


def test_what_befalls_a_batch_is_raised_by_its_writer(log: Log, queue: Committer) -> None:
    log.error = Refused("no room")
    with pytest.raises(Refused, match="no room"):
        queue.run(transaction("a"))


# Together


def test_what_was_submitted_is_written_later_as_one_batch(log: Log, later: Later, queue: Committer) -> None:
    pending = [queue.submit(transaction(text)) for text in "abc"]
    assert (log.batches, len(later.work)) == ([], 1)
    later.run()
    assert [future.result(0) for future in pending] == [1, 1, 1]
    assert log.batches == [["a", "b", "c"]]


def test_who_comes_while_others_wait_is_written_with_them(log: Log, later: Later, queue: Committer, come: Come) -> None:
    pending = queue.submit(transaction("a"))
    with ThreadPoolExecutor(1) as pool:
        second = come(pool, "b")
        later.run()
        assert (pending.result(0), second.result(WAIT)) == (1, 1)
    assert log.batches == [["a", "b"]]


def test_threads_that_find_the_log_busy_are_written_together(
    log: Log, later: Later, queue: Committer, come: Come
) -> None:
    log.free.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(queue.run, transaction("a"))
        assert log.entered.wait(WAIT)
        others = [come(pool, text) for text in "bc"]
        log.free.set()
        assert first.result(WAIT) == 1
        later.run()
        assert [other.result(WAIT) for other in others] == [2, 2]
    assert log.batches == [["a"], ["b", "c"]]


def test_a_thread_that_waited_gets_the_error_of_its_own_unit(
    log: Log, later: Later, queue: Committer, come: Come
) -> None:
    log.free.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(queue.run, transaction("a"))
        assert log.entered.wait(WAIT)
        refused, stored = come(pool, "refused"), come(pool, "c")
        log.free.set()
        assert first.result(WAIT) == 1
        later.run()
        assert isinstance(refused.exception(WAIT), Conflict)
        assert stored.result(WAIT) == 2


def test_who_comes_just_as_the_writer_leaves_is_not_forgotten(log: Log, later: Later, stand: Stand) -> None:
    def late() -> Latch:
        """Made by a thread that found the writer at work, when the writer has gone."""
        log.free.set()
        assert writer.result(WAIT) == 1
        return stand.latch()

    queue = Committer(log.commit, later, latch=late)
    come = coming(queue, stand)
    log.free.clear()
    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(queue.run, transaction("a"))
        assert log.entered.wait(WAIT)
        second = come(pool, "b")
        later.run()
        queue.refuse_waiting(Conflict("forgotten"))
        assert second.result(WAIT) == 2


# Waking those who await


def test_those_who_await_are_woken_together_whichever_log_is_done() -> None:
    logs = [Log(), Log()]
    laters = [Later(), Later()]
    queues = [Committer(log.commit, later) for log, later in zip(logs, laters, strict=True)]

    async def main() -> tuple[list[int], int]:
        loop, calls = asyncio.get_running_loop(), 0
        call = loop.call_soon_threadsafe

        def count(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            return call(*given)

        waiting = [asyncio.ensure_future(queue.submit(transaction("a"))) for queue in queues]
        await asyncio.sleep(0)
        loop.call_soon_threadsafe = count  # type: ignore[assignment, method-assign]
        for later in laters:
            later.run()
        loop.call_soon_threadsafe = call  # type: ignore[method-assign]
        return [await one for one in waiting], calls

    assert asyncio.run(main()) == ([1, 1], 1)


def test_one_who_awaits_twice_is_called_twice(log: Log, later: Later, queue: Committer) -> None:
    async def main() -> list[int]:
        numbers = []
        for text in "ab":
            waiting = asyncio.ensure_future(queue.submit(transaction(text)))
            await asyncio.sleep(0)
            later.run()
            numbers.append(await waiting)
        return numbers

    assert asyncio.run(main()) == [1, 2]


def test_a_loop_whose_call_was_interrupted_is_called_again() -> None:
    class Loop:
        calls = 0

        def call_soon_threadsafe(self, wake: Callable[[], None]) -> None:
            self.calls += 1
            if self.calls == 1:
                raise KeyboardInterrupt
            wake()

    wakeup, woken = Wakeup(Loop()), Future[None]()
    wakeup.add(woken)
    with pytest.raises(KeyboardInterrupt):
        wakeup.call()
    wakeup.call()
    assert woken.done()


def test_what_was_never_submitted_is_refused_through_its_future() -> None:
    pending = Pending()
    refuse(pending, Conflict("not this one"))
    with pytest.raises(Conflict, match="not this one"):
        pending.result(0)


# Failing together


@pytest.mark.parametrize("error", [Refused("no room"), DurabilityUnknown("no flush")])
def test_what_befalls_a_batch_befalls_all_in_it(log: Log, later: Later, queue: Committer, error: StoreError) -> None:
    pending = [queue.submit(transaction(text)) for text in "ab"]
    log.error = error
    later.run()
    assert [future.exception(0) for future in pending] == [error, error]


def test_an_interrupted_writer_has_nobody_elses_unit_in_hand(later: Later) -> None:
    def strike() -> None:
        with ThreadPoolExecutor(1) as pool:
            pending.append(pool.submit(queue.submit, transaction("a")).result(WAIT))
        raise KeyboardInterrupt

    pending: list[Pending] = []
    log = Interrupting(strike)
    queue = Committer(log.commit, later)
    with pytest.raises(KeyboardInterrupt):
        queue.run(transaction("b"))
    later.run()
    assert (pending[0].result(0), queue.run(transaction("c")), log.batches) == (1, 2, [["a"], ["c"]])


def test_what_waits_can_be_refused(log: Log, later: Later, queue: Committer) -> None:
    pending = queue.submit(transaction("a"))
    queue.refuse_waiting(Conflict("deleted"))
    later.run()
    assert isinstance(pending.exception(0), Conflict)
    assert log.batches == []


def test_however_many_submit_to_a_log_that_is_busy_few_threads_wait_for_it(log: Log) -> None:
    threads: list[Thread] = []

    def start(work: Callable[[], None]) -> None:
        threads.append(Thread(target=work))
        threads[-1].start()
        # Time enough for it to come to where it waits.
        threads[-1].join(0.02)

    queue = Committer(log.commit, start)
    log.free.clear()
    pending = [queue.submit(transaction(str(number))) for number in range(10)]
    log.free.set()
    assert [one.result(WAIT) > 0 for one in pending] == [True] * 10
    assert len(threads) <= 2


def test_who_came_while_an_interrupted_batch_was_written_is_not_forgotten(
    log: Log, later: Later, queue: Committer, come: Come
) -> None:
    pending = queue.submit(transaction("a"))
    log.free.clear()
    with ThreadPoolExecutor(2) as pool:
        interrupted = pool.submit(later.run)
        assert log.entered.wait(WAIT)
        second = come(pool, "b")
        log.error = KeyboardInterrupt()
        log.free.set()
        assert isinstance(interrupted.exception(WAIT), KeyboardInterrupt)
        log.error = None
        later.run()
        queue.refuse_waiting(Conflict("forgotten"))
        assert second.result(WAIT) == 1
    assert isinstance(pending.exception(0), DurabilityUnknown)


def test_what_callbacks_raise_is_no_concern_of_the_others(log: Log, later: Later, queue: Committer) -> None:
    def leave(_: Future[int]) -> None:
        raise SystemExit

    pending = [queue.submit(transaction(text)) for text in "abc"]
    for future in pending[:2]:
        future.add_done_callback(leave)
    with pytest.raises(SystemExit):
        later.run()
    assert [future.result(0) for future in pending] == [1, 1, 1]


def test_a_callback_that_fails_is_logged_and_the_others_are_called(
    later: Later, queue: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []
    pending = queue.submit(transaction("a"))
    pending.add_done_callback(lambda _: called[7])
    pending.add_done_callback(lambda done: called.append(done.result()))
    later.run()
    pending.add_done_callback(lambda done: called.append(done.result() + 1))
    assert (called, caplog.messages) == ([1, 2], ["exception calling callback for <Pending finished>"])


def test_what_was_submitted_is_neither_running_nor_cancelled(later: Later, queue: Committer) -> None:
    pending = queue.submit(transaction("a"))
    assert (pending.done(), pending.running(), pending.cancelled()) == (False, False, False)
    with pytest.raises(TimeoutError):
        pending.result(0)
    later.run()
    assert (pending.done(), pending.running(), pending.cancelled()) == (True, False, False)


@pytest.mark.parametrize("text", ["a", "refused"])
@pytest.mark.parametrize("until", [futures.FIRST_COMPLETED, futures.ALL_COMPLETED])
def test_the_waits_of_the_standard_library_know_it(later: Later, queue: Committer, text: str, until: str) -> None:
    pending = [queue.submit(transaction(each)) for each in (text, "b")]
    assert futures.wait(pending, 0).done == set()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(futures.wait, pending, WAIT, until)
        each = pool.submit(lambda: set(futures.as_completed(pending, WAIT)))
        later.run()
        assert waiting.result(WAIT).done
        assert each.result(WAIT) == set(pending)
    assert futures.wait(pending, 0).done == set(pending)


@pytest.mark.parametrize("is_first", [True, False], ids=["looked at before", "looked at after"])
def test_what_the_standard_library_reads_inside_a_future_is_there(
    later: Later, queue: Committer, *, is_first: bool
) -> None:
    """Its own methods stand for what later versions of asyncio read."""
    stored, refused = queue.submit(transaction("a")), queue.submit(transaction("refused"))
    if is_first:
        assert (Future.done(stored), Future.done(refused)) == (False, False)
    later.run()
    assert (Future.result(stored, 0), Future.exception(stored, 0)) == (1, None)
    assert isinstance(Future.exception(refused, 0), Conflict)


@pytest.mark.parametrize("is_first", [True, False], ids=["awaited before", "awaited after"])
def test_it_can_be_wrapped_for_an_event_loop(*, is_first: bool) -> None:
    async def wait(text: str) -> int:
        later = Later()
        pending = Committer(Log().commit, later).submit(transaction(text))
        if not is_first:
            later.run()
        wrapped = asyncio.wrap_future(pending)
        later.run()
        return await asyncio.wait_for(wrapped, WAIT)

    assert asyncio.run(wait("a")) == 1
    with pytest.raises(Conflict):
        asyncio.run(wait("refused"))


@pytest.mark.parametrize("waiting", [Latch(), Pending()])
def test_of_several_answers_the_first_counts(waiting: Latch | Pending) -> None:
    commit = PendingCommit(transaction("a"))
    commit.number = 7
    waiting.resolve(commit, None)
    waiting.resolve(commit, DurabilityUnknown("interrupted"))
    assert waiting.result() == 7


# Signals


ACTS: dict[str, Callable[[Committer], object]] = {
    "run": lambda queue: queue.run(transaction("struck")),
    "submit": lambda queue: queue.submit(transaction("struck")),
    "alone": lambda queue: queue.alone(lambda: None),
    "try_alone": lambda queue: queue.try_alone(lambda: None),
    "refuse_waiting": lambda queue: queue.alone(lambda: queue.refuse_waiting(Conflict("deleted"))),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("waiting", ["", "ab"], ids=["idle", "with others"])
def test_a_signal_at_any_step_leaves_nobody_waiting_and_the_log_to_others(
    act: Callable[[Committer], object], waiting: str
) -> None:
    def go_through(step: int) -> bool:
        log, later = Log(), Threads()
        queue = Committer(log.commit, later)
        with ThreadPoolExecutor(2) as pool:
            told = [pool.submit(queue.submit(transaction(text)).exception, WAIT) for text in waiting]
            came = is_struck(step, lambda: act(queue), group_commit, _base, threading)
            later.join()
            assert [type(each.result(WAIT)) for each in told].count(TimeoutError) == 0, step
            assert pool.submit(queue.try_alone, lambda: None).result(WAIT), step
        written = [text for batch in log.batches for text in batch]
        assert len(written) == len(set(written)), step
        return came

    at_every_step(go_through)


def test_a_signal_while_the_pool_is_busy_leaves_no_thread_waiting_for_its_result() -> None:
    """What `r11` of the reproductions did: who wrote next told a waiting thread, and was struck before it was woken."""

    def go_through(step: int) -> bool:
        pool = Threads()
        queue = Committer(Log().commit, lambda work: Timer(PAUSE, pool, [work]).start())
        theirs = queue.submit(transaction("theirs"))
        with ThreadPoolExecutor(1) as threads:
            told = threads.submit(theirs.exception, WAIT)
            came = is_struck(step, lambda: queue.run(transaction("struck")), group_commit, _base, threading)
            queue.run(transaction("later"))
            assert told.result(WAIT) is None, step
        pool.join()
        return came

    at_every_step(go_through)


def test_a_signal_at_any_step_of_a_writer_leaves_nobody_waiting_who_came_meanwhile() -> None:
    def go_through(step: int) -> bool:
        log, later, latch = Log(), Later(), Latch()
        to_come = [(PendingCommit(transaction("b")), latch)]

        def write(commits: Sequence[PendingCommit]) -> None:
            committer._waiting.extend(to_come)
            to_come.clear()
            log.commit(commits)

        committer = Committer(write, later)
        came = is_struck(step, lambda: committer.run(transaction("a")), group_commit)
        later.run()
        assert to_come or not latch._lock.locked(), step
        return came

    at_every_step(go_through)


def test_a_signal_at_any_step_of_a_submission_does_not_keep_the_next_one_waiting() -> None:
    def go_through(step: int) -> bool:
        later = Later()
        queue = Committer(Log().commit, later)
        came = is_struck(step, lambda: queue.submit(transaction("a")), group_commit)
        pending = queue.submit(transaction("b"))
        later.run()
        assert pending.done(), step
        return came

    at_every_step(go_through)


QUESTIONS: dict[str, Callable[[Pending], object]] = {
    "result": lambda pending: pending.result(0),
    "exception": lambda pending: pending.exception(0),
    "a callback": lambda pending: pending.add_done_callback(lambda _: None),
    "done": lambda pending: pending.done(),
    "running": lambda pending: pending.running(),
    "cancelled": lambda pending: pending.cancelled(),
    "repr": repr,
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_signal_at_any_step_of_a_thread_that_waits_does_not_hinder_who_resolves_it(
    ask: Callable[[Pending], object],
) -> None:
    def go_through(step: int) -> bool:
        pending, commit = Pending(), PendingCommit(transaction("a"))
        commit.number = 7

        def wait() -> None:
            with suppress(TimeoutError):
                ask(pending)

        came = is_struck(step, wait, group_commit, _base, threading)
        resolver = Thread(target=pending.resolve, args=(commit, None), daemon=True)
        resolver.start()
        resolver.join(WAIT)
        assert not resolver.is_alive(), step
        pending.resolve(commit, None)
        assert pending.result(WAIT) == 7, step
        return came

    at_every_step(go_through)


def test_a_signal_at_any_step_of_a_refusal_leaves_nobody_waiting() -> None:
    def go_through(step: int) -> bool:
        later = Later()
        queue = Committer(Log().commit, later)
        waiting = [queue.submit(transaction(text)) for text in "ab"]
        came = is_struck(step, lambda: ACTS["refuse_waiting"](queue), group_commit, sys.modules[__name__])
        later.run()
        assert all(pending.done() for pending in waiting), step
        return came

    at_every_step(go_through)


def test_a_unit_that_comes_after_a_refusal_is_stored_without_those_that_were_refused(
    log: Log, later: Later, queue: Committer
) -> None:
    refused = queue.submit(transaction("a"))
    queue.refuse_waiting(Conflict("deleted"))
    stored = queue.submit(transaction("b"))
    later.run()
    assert isinstance(refused.exception(0), Conflict)
    assert (stored.result(0), log.batches) == (1, [["b"]])


# In the middle of a write


def test_a_lock_is_owned_by_the_thread_that_holds_it_and_by_no_other() -> None:
    lock = RLock()
    owner = Owner(lock)
    with ThreadPoolExecutor(1) as pool, owner:
        assert not owner.is_me()
        with lock:
            assert owner.is_me()
            assert not pool.submit(owner.is_me).result(WAIT)
        assert not owner.is_me()


class Interrupting(Log):
    """Something else is asked for while the first batch is being written."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self.asked = [ask]

    def commit(self, commits: Sequence[PendingCommit]) -> None:
        while self.asked:
            self.asked.pop()()
        super().commit(commits)


@pytest.mark.parametrize("act", [ACTS["run"], ACTS["submit"], ACTS["alone"]])
def test_a_thread_is_refused_in_the_middle_of_its_own_write(later: Later, act: Callable[[Committer], object]) -> None:
    def ask() -> None:
        with pytest.raises(Refused, match="already writing the same session"):
            act(committer)

    log = Interrupting(ask)
    committer = Committer(log.commit, later)
    assert (committer.run(transaction("a")), committer.run(transaction("b"))) == (1, 2)
    assert log.batches == [["a"], ["b"]]


def test_a_thread_is_refused_in_the_middle_of_its_other_work(log: Log, queue: Committer) -> None:
    def work() -> None:
        with pytest.raises(Refused, match="already writing the same session"):
            queue.run(transaction("a"))

    queue.alone(work)
    assert log.batches == []


def test_work_that_can_wait_is_not_done_in_the_middle_of_a_write_by_the_same_thread(later: Later) -> None:
    done: list[bool] = []
    log = Interrupting(lambda: done.append(committer.try_alone(lambda: None)))
    committer = Committer(log.commit, later)
    committer.run(transaction("a"))
    assert done == [False]


def test_a_refusal_that_a_signal_handler_lets_out_leaves_the_interrupted_write_in_doubt(later: Later) -> None:
    log = Interrupting(lambda: committer.run(transaction("nested")))
    committer = Committer(log.commit, later)
    with pytest.raises(DurabilityUnknown, match="interrupted while it was written"):
        committer.run(transaction("b"))
    assert committer.run(transaction("c")) == 1


def test_a_callback_may_write_to_the_same_session(log: Log, later: Later, queue: Committer) -> None:
    numbers: list[int] = []
    queue.submit(transaction("a")).add_done_callback(lambda _: numbers.append(queue.run(transaction("b"))))
    later.run()
    assert (numbers, log.batches) == ([2], [["a"], ["b"]])


def test_a_callback_may_wait_for_what_it_submits(log: Log) -> None:
    later = Threads()
    queue = Committer(log.commit, later)
    numbers: list[int] = []
    pending = queue.submit(transaction("a"))
    pending.add_done_callback(lambda _: numbers.append(queue.submit(transaction("b")).result(WAIT)))
    assert pending.result(WAIT) == 1
    later.join()
    assert (numbers, log.batches) == ([2], [["a"], ["b"]])


# Other work


def test_other_work_is_done_between_two_batches_and_what_came_meanwhile_is_written_after_it(
    log: Log, later: Later, queue: Committer
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pending = queue.alone(lambda: pool.submit(queue.submit, transaction("a")).result(WAIT))
    assert (log.batches, len(later.work)) == ([], 2)
    later.run()
    assert (pending.result(0), log.batches) == (1, [["a"]])


def test_work_that_can_wait_is_not_done_while_the_log_is_busy(log: Log, queue: Committer) -> None:
    done: list[str] = []
    log.free.clear()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(queue.run, transaction("a"))
        assert log.entered.wait(WAIT)
        assert not queue.try_alone(lambda: done.append("busy"))
        log.free.set()
        assert writer.result(WAIT) == 1
    assert queue.try_alone(lambda: done.append("idle"))
    assert done == ["idle"]


def test_what_came_during_work_that_could_wait_is_written_after_it(log: Log, later: Later, queue: Committer) -> None:
    pending: list[Pending] = []
    with ThreadPoolExecutor(1) as pool:
        assert queue.try_alone(lambda: pending.append(pool.submit(queue.submit, transaction("a")).result(WAIT)))
    assert (log.batches, len(later.work)) == ([], 2)
    later.run()
    assert (pending[0].result(0), log.batches) == (1, [["a"]])


# In an event loop


def test_tasks_that_await_are_woken_together(log: Log, later: Later, queue: Committer) -> None:
    async def wait_for(text: str) -> int:
        return await queue.submit(transaction(text))

    async def write() -> list[int]:
        tasks = [asyncio.create_task(wait_for(text)) for text in "ab"]
        await asyncio.sleep(0)
        await asyncio.to_thread(later.run)
        return await asyncio.gather(*tasks)

    assert asyncio.run(write()) == [1, 1]
    assert log.batches == [["a", "b"]]


def test_a_unit_that_is_stored_already_need_not_be_waited_for(later: Later, queue: Committer) -> None:
    async def write() -> int:
        pending = queue.submit(transaction("a"))
        later.run()
        async with asyncio.timeout(WAIT):
            return await pending

    assert asyncio.run(write()) == 1


def test_a_task_that_awaits_gets_the_error(log: Log, later: Later, queue: Committer) -> None:
    async def write() -> int:
        pending = queue.submit(transaction("refused"))
        asyncio.get_running_loop().call_soon(later.run)
        return await pending

    with pytest.raises(Conflict, match="not this one"):
        asyncio.run(write())


def test_a_task_that_was_cancelled_does_not_disturb_the_others(log: Log, later: Later, queue: Committer) -> None:
    async def wait_for(text: str) -> int:
        return await queue.submit(transaction(text))

    async def write() -> list[int | BaseException]:
        tasks = [asyncio.create_task(wait_for(text)) for text in "ab"]
        await asyncio.sleep(0)
        later.run()
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, stored = asyncio.run(write())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert (stored, log.batches) == (1, [["a", "b"]])


def test_a_task_that_gave_up_and_its_closed_loop_do_not_keep_others_waiting(
    log: Log, later: Later, queue: Committer
) -> None:
    async def wait_for(pending: Pending) -> int:
        return await pending

    async def give_up() -> None:
        task = asyncio.create_task(wait_for(queue.submit(transaction("a"))))
        await asyncio.sleep(0)
        task.cancel()

    async def write() -> int:
        task = asyncio.create_task(wait_for(queue.submit(transaction("b"))))
        await asyncio.sleep(0)
        await asyncio.to_thread(later.run)
        async with asyncio.timeout(WAIT):
            return await task

    asyncio.run(give_up())
    assert asyncio.run(write()) == 1
    assert log.batches == [["a", "b"]]


def test_several_tasks_may_await_one_unit(later: Later, queue: Committer) -> None:
    async def wait_for(pending: Pending) -> int:
        return await pending

    async def write() -> list[int]:
        pending = queue.submit(transaction("a"))
        tasks = [asyncio.create_task(wait_for(pending)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.to_thread(later.run)
        async with asyncio.timeout(WAIT):
            return await asyncio.gather(*tasks)

    assert asyncio.run(write()) == [1, 1]


def test_what_was_submitted_cannot_be_called_back(log: Log, later: Later, queue: Committer) -> None:
    pending = [queue.submit(transaction(text)) for text in "ab"]
    assert not pending[0].cancel()
    later.run()
    assert [future.result(0) for future in pending] == [1, 1]


def test_a_task_that_waits_for_the_future_may_give_up(log: Log, later: Later, queue: Committer) -> None:
    async def give_up() -> None:
        pending = asyncio.wrap_future(queue.submit(transaction("a")))
        pending.cancel()
        await asyncio.sleep(0)

    asyncio.run(give_up())
    other = queue.submit(transaction("b"))
    later.run()
    assert (other.result(0), log.batches) == (1, [["a", "b"]])


def test_a_pending_number_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="nope"):
        Pending().nope  # noqa: B018


def test_a_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent() -> None:
    program = """
import os, signal, threading
from nacre.storage import group_commit

held = threading.Event()

def hold():
    with group_commit._making:
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(10)
    os._exit(group_commit.Pending().done())
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT)


def test_a_signal_handler_may_ask_for_a_number_while_another_is_given() -> None:
    ready: list[bool] = []

    def ask() -> None:
        with group_commit._making:
            ready.append(Pending().done())

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(WAIT)
    assert ready == [False]


def test_what_is_inside_a_future_is_made_once() -> None:
    pending = Pending()
    first = pending.__getattr__("_condition")
    assert pending.__getattr__("_condition") is first
