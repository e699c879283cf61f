"""Signals that strike in the middle of a write: what the caller gets, and what is left behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import nacre
from nacre import sessions as door
from nacre.errors import StoreError
from nacre.storage import (
    change_marks,
    file_store,
    group_commit,
    locks,
    memory_store,
    paths,
    plain_names,
    system,
    transaction,
    writer,
    writer_pool,
)
from nacre.testing import Disk
from tests.simulated import opened
from tests.strikes import at_every_step, is_struck

WAIT = 30
MODULES = (
    door,
    transaction,
    group_commit,
    locks,
    change_marks,
    system,
    paths,
    plain_names,
    writer,
    file_store,
    memory_store,
    writer_pool,
)
Open = Callable[[], nacre.Sessions]

STORES: dict[str, Open] = {"files": lambda: opened(Disk(), marks=True), "memory": lambda: nacre.open(":memory:")}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "an interrupt": KeyboardInterrupt,
    "a timeout": lambda: TimeoutError("the turn took too long"),
    "another session's error": lambda: nacre.Refused("no room for another session"),
    "an error of the system": lambda: OSError(errno.EIO, "another file cannot be read"),
}
ACTS: dict[str, Callable[[nacre.Sessions], object]] = {
    "add_message": lambda sessions: sessions.add_message("k", "user", "b"),
    "a new session": lambda sessions: sessions.add_message("new", "user", "b"),
    "set_history": lambda sessions: sessions.set_history("k", [{"role": "user", "content": "b"}]),
}

every_store = pytest.mark.parametrize("open_store", STORES.values(), ids=STORES)


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    return [stored.message.content for stored in sessions.transcript(key)]


@every_store
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_whoever_is_interrupted_gets_the_error_of_the_handler_and_nothing_is_half_done(
    open_store: Open, error: Callable[[], BaseException], act: Callable[[nacre.Sessions], object]
) -> None:
    def go_through(step: int) -> bool:
        sessions, thrown, got = open_store(), error(), list[BaseException]()
        sessions.add_message("k", "user", "a")

        def strike() -> None:
            raise thrown

        def run() -> None:
            try:
                act(sessions)
            except BaseException as raised:
                got.append(raised)
                raise

        came = is_struck(step, run, *MODULES, handler=strike)
        stored = "b" in [*said(sessions, "k"), *said(sessions, "new")]
        if got and got[0] is not thrown:
            assert isinstance(got[0], nacre.DurabilityUnknown if stored else StoreError), step
            assert isinstance(thrown, StoreError) or getattr(thrown, "errno", None), step
        with ThreadPoolExecutor(1) as pool:
            for key in ("k", "new"):
                number = pool.submit(sessions.add_message, key, "user", "c").result(WAIT)
                assert (sessions.transcript(key)[-1].n, said(sessions, key)[-1]) == (number, "c"), step
                numbers = [entry.n for entry in sessions.records(key)]
                assert numbers == sorted(set(numbers)), step
        assert sessions.verify().ok, step
        return came

    at_every_step(go_through)


@pytest.mark.parametrize("act", ["archive", "add_message"])
def test_other_steps_that_a_timeout_interrupts_are_not_taken_for_a_failing_disk(act: str) -> None:
    def go_through(step: int) -> bool:
        disk, got = Disk(), list[BaseException]()
        opened(disk, marks=True).add_message("k", "user", "a")
        # Another process: what the first one wrote is flushed before anything is built on it.
        sessions = opened(disk, marks=True)

        def strike() -> None:
            raise TimeoutError("the turn took too long")

        def work() -> None:
            try:
                sessions.archive("k") if act == "archive" else sessions.add_message("k", "user", "b")
            except BaseException as raised:
                got.append(raised)
                raise

        came = is_struck(step, work, locks, change_marks, system, paths, plain_names, writer, handler=strike)
        assert {type(error) for error in got} <= {TimeoutError}, step
        sessions.add_message("k", "user", "c")
        assert [text for text in said(sessions, "k") if text != "b"] == ["a", "c"], step
        assert sessions.verify().ok, step
        return came

    at_every_step(go_through)


def test_a_read_that_is_interrupted_gives_the_error_of_the_handler() -> None:
    def go_through(step: int) -> bool:
        sessions, got = opened(Disk(), marks=True), list[BaseException]()
        sessions.add_message("k", "user", "a")

        def strike() -> None:
            raise TimeoutError("the turn took too long")

        def read() -> None:
            try:
                sessions.get_history("k")
            except BaseException as raised:
                got.append(raised)
                raise

        came = is_struck(step, read, door, file_store, handler=strike)
        assert [type(error) for error in got] == [TimeoutError] * came, step
        return came

    at_every_step(go_through)


@every_store
@pytest.mark.parametrize("key", ["k", "other"])
@pytest.mark.parametrize("way", ["run", "submit"])
def test_a_handler_may_try_to_write_at_any_step_and_never_waits_for_ever(open_store: Open, key: str, way: str) -> None:
    def go_through(step: int) -> bool:
        sessions, texts = open_store(), [f"h{number}" for number in range(2)]
        sessions.add_message("k", "user", "a")
        refused: list[str] = []

        def write() -> None:
            for text in texts:
                try:
                    if way == "run":
                        sessions.add_message(key, "user", text)
                    else:
                        sessions.submit(key, [{"role": "user", "content": text}]).result(WAIT)
                except nacre.Refused:
                    refused.append(text)

        came = is_struck(step, lambda: sessions.add_message("k", "user", "b"), *MODULES, handler=write)
        assert "b" in said(sessions, "k"), step
        expected = [text for text in texts if text not in refused] if came else []
        assert [text for text in said(sessions, key) if text in texts] == expected, step
        assert sessions.verify().ok, step
        return came

    at_every_step(go_through)


@every_store
def test_a_write_in_the_middle_of_a_write_is_refused_and_says_so(open_store: Open) -> None:
    sessions, told, steps = open_store(), list[str](), count()
    sessions.add_message("k", "user", "a")

    def write() -> None:
        try:
            sessions.submit("k", [{"role": "user", "content": "h"}]).result(WAIT)
        except nacre.Refused as error:
            told.append(str(error))

    while is_struck(next(steps), lambda: sessions.add_message("k", "user", "b"), *MODULES, handler=write):
        pass
    assert told
    assert all(text.startswith("nothing was done: this thread is") for text in told)
