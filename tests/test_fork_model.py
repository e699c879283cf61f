"""Random forks, rewinds and compactions: files and PostgreSQL must give what RAM gives, which moves nothing out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import nacre
from nacre.testing import Disk
from tests.postgres.emptied import EmptiedStore
from tests.simulated import opened

KEYS = "abc"
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=80,
    stateful_step_count=25,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
key_of = st.sampled_from(KEYS)
position = st.integers(0, 40)


class Forks(RuleBasedStateMachine):
    """Each step is done in both stores; their records have other numbers, so one is named by its place."""

    open_store: ClassVar[Callable[[], nacre.Sessions]]

    def __init__(self) -> None:
        super().__init__()
        self.stored = type(self).open_store()
        self.ram = nacre.open(":memory:")
        self.count = 0

    def teardown(self) -> None:
        self.stored.close()

    def both(self, act: Callable[[nacre.Sessions], Any]) -> None:
        assert outcome(act, self.stored) == outcome(act, self.ram)

    @initialize()
    def begin(self) -> None:
        for size in (1, 2, 1):
            self.say("a", size)
            self.describe("a")
        self.move_out("a", 0)

    @rule(key=key_of, size=st.integers(1, 3))
    def say(self, key: str, size: int) -> None:
        texts = [f"{self.count}.{part}" for part in range(size)]
        self.count += 1
        self.both(lambda sessions: sessions.add_messages(key, [{"role": "user", "content": text} for text in texts]))

    @rule(key=key_of, keep=st.integers(0, 3))
    def move_out(self, key: str, keep: int) -> None:
        self.both(lambda sessions: sessions.truncate_history(key, keep))
        self.both(lambda sessions: sessions.save(key))

    @rule(key=key_of)
    def describe(self, key: str) -> None:
        self.count += 1
        self.both(lambda sessions: sessions.set_meta(key, title=f"title {self.count}"))
        self.both(lambda sessions: sessions.set_summary(key, f"summary {self.count}"))

    @rule(key=key_of, at=position)
    def rewind(self, key: str, at: int) -> None:
        self.both(lambda sessions: sessions.rewind(key, number(sessions, key, at)))

    @rule(key=key_of, goal=key_of, at=position | st.none())
    def fork(self, key: str, goal: str, at: int | None) -> None:
        if goal != key:
            self.both(lambda sessions: sessions.delete(goal))
        self.both(lambda sessions: sessions.fork(key, goal, at=None if at is None else number(sessions, key, at)))

    @invariant()
    def both_give_the_same(self) -> None:
        for key in KEYS:
            self.both(lambda sessions: seen(sessions, key))  # noqa: B023 - called at once

    @invariant()
    def nothing_is_damaged(self) -> None:
        assert self.stored.verify().ok


def outcome(act: Callable[[nacre.Sessions], Any], sessions: nacre.Sessions) -> Any:
    """What an act gives, or how it is refused; numbers are each store's own."""
    try:
        found = act(sessions)
    except nacre.StoreError as error:
        return type(error)
    return None if isinstance(found, int) else found


def number(sessions: nacre.Sessions, key: str, at: int) -> int:
    """The number of the message at a place, counted round and round; one that no record has if there is none."""
    numbers = [stored.n for stored in sessions.transcript(key)]
    return numbers[at % len(numbers)] if numbers else 10**6


def seen(sessions: nacre.Sessions, key: str) -> dict[str, Any]:
    numbers = [stored.n for stored in sessions.transcript(key)]
    assert numbers == sorted(set(numbers))
    return {
        "history": [message.content for message in sessions.get_history(key)],
        "last": [message.content for message in sessions.get_history(key, last=2)],
        "said": [stored.message.content for stored in sessions.transcript(key)],
        "summary": sessions.get_summary(key),
        "meta": sessions.get_meta(key),
    }


def test_forks_of_compacted_sessions_are_what_they_would_be_in_ram(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forks, "open_store", lambda: opened(Disk()), raising=False)
    run_state_machine_as_test(Forks, settings=SETTINGS)
    assert caplog.messages == []


def test_forks_in_a_database_which_copies_nothing_are_what_they_would_be_in_ram(
    emptied_store: EmptiedStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forks, "open_store", lambda: nacre.open(emptied_store.empty()), raising=False)
    run_state_machine_as_test(Forks, settings=settings(SETTINGS, max_examples=20))
    assert caplog.messages == []
