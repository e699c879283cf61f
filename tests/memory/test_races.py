"""While a model thinks about a turn, everything else goes on: more turns, rewinds, truncations, other processes."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

import nacre
from nacre.agent.ports import Context, Emit, Reply
from nacre.memory.consolidator import Consolidator
from nacre.memory.store import KEY
from nacre.messages import Message
from nacre.sessions import Sessions
from tests.memory.scene import answer, days, facts, learn, memory, turn


class Meanwhile:
    """A model during whose first thought something happens."""

    model = "meanwhile"

    def __init__(self, act: Callable[[], object], said: str = "") -> None:
        self._acts = [act]
        self._said = said or answer()
        self.asked = 0

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        while self._acts:
            self._acts.pop()()
        return Reply(message=Message(role="assistant", content=self._said))

    async def close(self) -> None:
        """There is nothing to close."""


def test_turns_that_come_meanwhile_are_gone_through_too(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "first")
    kept = memory(sessions, folder, provider=Meanwhile(lambda: turn(sessions, "k", "second")))
    assert learn(kept, "k") == 2
    assert [line.rpartition("[")[2] for line in days(folder)] == ["k 2]", "k 4]"]


def test_a_turn_that_is_taken_back_meanwhile_is_not_learned(sessions: Sessions, folder: Path) -> None:
    first = turn(sessions, "k", "I like figs")
    turn(sessions, "k", "I live in Lisbon")
    said = answer("", ("", "Lives in Lisbon"))
    kept = memory(sessions, folder)
    learn(kept, "k")
    turn(sessions, "k", "I live in Porto")
    busy = memory(sessions, folder, provider=Meanwhile(lambda: sessions.rewind("k", first), said))
    assert learn(busy, "k") == 0
    assert facts(kept) == []
    assert len(days(folder)) == 2
    turn(sessions, "k", "I am back")
    assert learn(kept, "k") == 1


def test_a_turn_that_was_taken_back_is_not_found_among_all_that_was_said(sessions: Sessions, folder: Path) -> None:
    first = turn(sessions, "k", "I like figs")
    turn(sessions, "k", "I live in Porto")
    sessions.rewind("k", first)
    turn(sessions, "k", "I live in Lisbon")
    turn(sessions, "k", "oops")
    for _ in range(2):
        sessions.pop("k")
    sessions.truncate_history("k", 0)
    kept = memory(sessions, folder)
    assert learn(kept, "k") == 2
    assert [line.text.partition("”")[0] for line in kept.days()] == ["“I like figs", "“I live in Lisbon"]


@pytest.mark.parametrize("how", ["truncate", "summary", "archive", "save"])
def test_a_turn_that_is_no_longer_live_is_learned_all_the_same(sessions: Sessions, folder: Path, how: str) -> None:
    def change() -> None:
        if how == "truncate":
            sessions.truncate_history("k", 0)
        elif how == "summary":
            sessions.set_summary("k", "they talked", upto=5)
        elif how == "archive":
            sessions.archive("k")
        else:
            sessions.truncate_history("k", 0)
            sessions.save("k")

    turn(sessions, "k", "I like figs")
    turn(sessions, "k", "I live in Lisbon")
    kept = memory(sessions, folder, provider=Meanwhile(change, answer("", ("", "Lives in Lisbon"))))
    assert learn(kept, "k") == 2
    assert facts(kept) == ["Lives in Lisbon"]
    turn(sessions, "k", "And now?")
    assert learn(kept, "k") == 1
    assert len(days(folder)) == 3


def test_a_session_begun_anew_is_gone_through_from_its_beginning(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    for _ in range(3):
        turn(sessions, "k", "in the old one")
    learn(kept, "k")
    sessions.delete("k")
    turn(sessions, "k", "in the new one")
    assert learn(kept, "k") == 1
    sessions.archive("k")
    turn(sessions, "k", "in the newest one")
    assert learn(kept, "k") == 1


def test_a_history_stored_anew_and_a_fork_are_not_learned_from_again(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    turn(sessions, "k", "first")
    turn(sessions, "k", "second")
    learn(kept, "k")
    sessions.set_history("k", sessions.get_history("k"))
    sessions.fork("k", "f")
    assert learn(kept, "k", "f") == 0
    turn(sessions, "f", "third")
    assert learn(kept, "k", "f") == 1


def _consolidate(root: Path, ready: object) -> None:
    ready.wait()  # type: ignore[attr-defined]
    with nacre.open(root) as sessions:
        said = answer("", ("", "The user collects stamps"))
        kept = memory(sessions, root / "workspace", *[said] * 100)
        learn(kept, "a", "b")
        learn(kept, "b", "a")


def test_two_processes_learn_from_each_turn_once(root: Path) -> None:
    with nacre.open(root) as sessions:
        for at in range(6):
            turn(sessions, "a", f"stamps {at}: the user collects stamps")
            turn(sessions, "b", f"other stamps {at}: the user collects stamps")
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(3)
    children = [context.Process(target=_consolidate, args=(root, ready)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    with nacre.open(root) as sessions:
        counted = Counter(entry.data["turn"] for entry in sessions.records(KEY, "x.daily"))
        assert list(counted.values()) == [1] * 12
        assert facts(memory(sessions, root / "workspace")) == ["The user collects stamps"]
        assert len(days(root / "workspace")) == 12


# ---- the worker


def test_what_is_posted_is_gone_through_and_what_was_left_is_caught_up_with(sessions: Sessions, folder: Path) -> None:
    async def run() -> None:
        kept = memory(sessions, folder)
        await anyio.to_thread.run_sync(kept.begin)
        turn(sessions, "left", "left behind")
        turn(sessions, "k", "posted")
        async with Consolidator(kept) as worker:
            await worker.rest()
            turn(sessions, "k", "again")
            worker.post("k")
            await worker.rest()

    anyio.run(run)
    assert len(days(folder)) == 3


def test_what_was_said_before_memory_began_is_left_alone(sessions: Sessions, folder: Path) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    said = [Message(role=role, content="long ago", created=long_ago) for role in ("user", "assistant")]
    sessions.add_messages("k", said)

    async def run() -> None:
        async with Consolidator(memory(sessions, folder)) as worker:
            await worker.rest()
            turn(sessions, "k", "now")
            worker.post("k")
            await worker.rest()

    anyio.run(run)
    assert len(days(folder)) == 1
    assert "now" in days(folder)[0]


def test_what_was_said_after_the_start_is_learned_though_its_process_was_killed(
    sessions: Sessions, folder: Path
) -> None:
    memory(sessions, folder).start()
    turn(sessions, "k", "before any worker came to it")

    async def run() -> None:
        later = memory(sessions, folder)
        later.start()
        async with Consolidator(later) as worker:
            await worker.rest()

    anyio.run(run)
    assert len(days(folder)) == 1


class Slow:
    """A memory that an earlier process left behind, and whose model answers only when it may."""

    def __init__(self, *behind: str, learns: int = 1) -> None:
        self.behind = list(behind)
        self.learns = learns
        self.begun: list[str] = []
        self.may_learn = {key: anyio.Event() for key in ("a", "b", "own")}

    def begin(self) -> list[str]:
        return self.behind

    async def consolidate(self, key: str) -> int:
        self.begun.append(key)
        await self.may_learn[key].wait()
        return self.learns

    def warm(self) -> bool:
        return False


def test_whoever_ends_soon_learns_at_least_from_one_session_that_was_left() -> None:
    async def run() -> None:
        slow = Slow("a", "b")
        async with Consolidator(slow) as worker, anyio.create_task_group() as tasks:
            worker.post("own")
            tasks.start_soon(worker.learn_earlier)
            await anyio.wait_all_tasks_blocked()
            slow.may_learn["own"].set()
            slow.may_learn["a"].set()
        assert slow.begun[:2] == ["own", "a"]

    anyio.run(run)


def test_what_cannot_be_learned_does_not_count_as_learned() -> None:
    async def run() -> None:
        slow = Slow("a", "b", learns=0)
        async with Consolidator(slow) as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(worker.learn_earlier)
            slow.may_learn["a"].set()
            slow.may_learn["b"].set()
        assert slow.begun == ["a", "b"]

    anyio.run(run)


def test_nobody_waits_for_what_was_left_where_nothing_was() -> None:
    async def run() -> None:
        slow = Slow()
        async with Consolidator(slow) as worker:
            await worker.learn_earlier()
            worker.post("own")
            await worker.learn_earlier()

    anyio.run(run)


class Troubled:
    """A memory in which everything goes wrong at first."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.left = 3

    def begin(self) -> list[str]:
        raise OSError("no disk")

    async def consolidate(self, key: str) -> int:
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError("no luck")
        self.done.append(key)
        return 1

    def warm(self) -> bool:
        raise ValueError("no weights")


def test_the_worker_outlives_what_goes_wrong() -> None:
    troubled = Troubled()

    async def run() -> None:
        async with Consolidator(troubled) as worker:
            for key in "abcdef":
                worker.post(key)
            await worker.rest()

    anyio.run(run)
    assert troubled.done == ["d", "e", "f"]


class BehindOnly:
    """A memory that is behind with a session of another process, and cannot read any."""

    def begin(self) -> list[str]:
        return ["other"]

    async def consolidate(self, key: str) -> int:
        raise RuntimeError(f"no luck with {key}")

    def warm(self) -> bool:
        return False


def test_trouble_with_a_session_of_another_process_is_no_error_of_this_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with Consolidator(BehindOnly()) as worker:
            worker.post("mine")
            await worker.rest()

    anyio.run(run)
    assert {record.key: record.levelname for record in caplog.records} == {"mine": "ERROR", "other": "INFO"}  # type: ignore[attr-defined]


class Endless:
    """A memory that never comes to an end with a session."""

    def __init__(self) -> None:
        self.begun = 0
        self.reached = anyio.Event()

    def begin(self) -> list[str]:
        self.begun += 1
        return []

    async def consolidate(self, key: str) -> int:
        self.reached.set()
        await anyio.sleep_forever()
        return 1

    def warm(self) -> bool:
        return False


def test_the_worker_stops_in_the_middle_of_something() -> None:
    async def run() -> None:
        endless = Endless()
        with anyio.fail_after(10):
            async with Consolidator(endless) as worker:
                worker.post("k")
                await endless.reached.wait()

    anyio.run(run)


def test_a_full_queue_takes_no_more_and_finds_the_rest_later(sessions: Sessions, folder: Path) -> None:
    async def run() -> None:
        kept = memory(sessions, folder)
        await anyio.to_thread.run_sync(kept.begin)
        async with Consolidator(kept, limit=2) as worker:
            await worker.rest()
            for key in "abcdef":
                turn(sessions, key, f"from {key}")
                worker.post(key)
            await worker.rest()

    anyio.run(run)
    assert len(days(folder)) == 6


def test_a_cancelled_consolidation_is_done_later(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "hello")

    async def run() -> None:
        with anyio.CancelScope() as scope:
            await memory(sessions, folder, provider=Meanwhile(scope.cancel)).consolidate("k")

    anyio.run(run)
    assert learn(memory(sessions, folder), "k") <= 1
    assert len(days(folder)) == 1
