"""Random operations by two openings of one store, against plain lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import nacre
from nacre import Conflict, Message, SessionNotFound, StoreError
from tests.postgres.emptied import EmptiedStore

KEYS = ("Cli", "cli")
NEWER = -1
"""The last change of the history is newer than any number we know."""
UNSURE = -2
"""A change that changed nothing may or may not have been recorded."""

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    stateful_step_count=30,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
key_of = st.sampled_from(KEYS)
who_of = st.integers(0, 1)
seldom = st.sampled_from([False, False, True])
position = st.integers(0, 40)
fields_of = st.dictionaries(st.sampled_from(["title", "labels"]), st.none() | st.text("ab", max_size=2), min_size=1)


@dataclass
class Generation:
    """One life of a session: what was said, which of it is live, and what each message left behind."""

    serial: int
    said: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    summary: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    after: dict[int, tuple[list[int], str]] = field(default_factory=dict)
    ids: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    notes: list[int] = field(default_factory=list)
    head: int = 0

    def say(self, texts: list[str]) -> None:
        """Append a group; only its end can be gone back to."""
        for text in texts:
            self.live.append(len(self.said))
            self.said.append(text)
        if texts:
            self.after[self.live[-1]] = (list(self.live), self.summary)
        self.head = NEWER

    def change(self, live: list[int], summary: str) -> None:
        """Have another history and summary."""
        if (self.live, self.summary) != (live, summary):
            self.head = NEWER
        elif self.head != NEWER:
            self.head = UNSURE
        self.live, self.summary = list(live), summary


@dataclass
class Life:
    """All generations of one key."""

    archived: list[Generation] = field(default_factory=list)
    active: Generation | None = None

    @property
    def all(self) -> list[Generation]:
        return [*self.archived, *([self.active] if self.active else [])]

    @property
    def at_rest(self) -> bool:
        """Whether there is only the archive, which a change must not touch."""
        return bool(self.archived) and self.active is None


class TwoOpenings(RuleBasedStateMachine):
    """Two openings of one place stand for two processes; after each step both must see the model."""

    new_place: ClassVar[Callable[[], str]]

    def __init__(self) -> None:
        super().__init__()
        self.place = type(self).new_place()
        self.openings = [nacre.open(self.place), nacre.open(self.place)]
        self.lives = {key: Life() for key in KEYS}
        self.serials = itertools.count()
        self.counter = itertools.count()

    def teardown(self) -> None:
        for opening in self.openings:
            opening.close()

    # what the rules are made of

    def texts(self, count: int, size: int = 0) -> list[str]:
        return [f"{next(self.counter)}" + "." * size for _ in range(count)]

    def writable(self, key: str) -> Generation:
        life = self.lives[key]
        if life.active is None:
            life.active = Generation(serial=next(self.serials))
        return life.active

    def store(self, key: str, texts: list[str], write: Callable[[], int]) -> None:
        number = write()
        generation = self.writable(key)
        generation.say(texts)
        generation.head = number
        self.learn(key)
        assert generation.numbers[-1] == number

    def learn(self, key: str) -> None:
        """Take the numbers of new messages from the transcript; old ones must not change."""
        stored = self.openings[0].transcript(key)
        for generation in self.lives[key].all:
            mine, stored = stored[: len(generation.said)], stored[len(generation.said) :]
            numbers = [each.n for each in mine]
            assert [each.message.content for each in mine] == generation.said
            assert numbers[: len(generation.numbers)] == generation.numbers
            assert numbers == sorted(set(numbers))
            assert len({each.generation for each in mine}) <= 1
            generation.numbers = numbers
        assert stored == []

    def active(self, key: str) -> Generation | None:
        return self.lives[key].active

    # writing

    @rule(key=key_of, who=who_of, full=st.booleans())
    def add_one(self, key: str, who: int, full: bool) -> None:
        opening, texts = self.openings[who], self.texts(1)
        if full:
            self.store(key, texts, lambda: opening.add_full_message(key, {"role": "user", "content": texts[0]}))
        else:
            self.store(key, texts, lambda: opening.add_message(key, "user", texts[0]))

    @rule(key=key_of, who=who_of, count=st.integers(1, 12), size=st.sampled_from([0, 2000]))
    def add_several(self, key: str, who: int, count: int, size: int) -> None:
        texts = self.texts(count, size)
        self.store(key, texts, lambda: self.openings[who].add_messages(key, messages(texts)))

    @rule(key=key_of, who=who_of)
    def submit(self, key: str, who: int) -> None:
        texts = self.texts(2)
        self.store(key, texts, lambda: self.openings[who].submit(key, messages(texts)).result(timeout=30))

    @rule(key=key_of, who=who_of)
    def add_a_bad_message(self, key: str, who: int) -> None:
        with pytest.raises(nacre.InvalidMessage):
            self.openings[who].add_messages(key, [*messages(self.texts(2)), {"content": "no role"}])

    @rule(key=key_of, who=who_of)
    def add_what_follows_the_last(self, key: str, who: int) -> None:
        generation = self.active(key)
        head = generation.head if generation else 0
        texts = self.texts(1)
        if head >= 0:
            self.store(key, texts, lambda: self.openings[who].add_messages(key, messages(texts), expect=head))

    @rule(key=key_of, who=who_of, at=position)
    def add_what_follows_something_older(self, key: str, who: int, at: int) -> None:
        generation = self.active(key)
        known = [0, *generation.numbers] if generation else [7]
        expect = known[at % len(known)]
        if generation is None or generation.head not in (expect, UNSURE):
            with pytest.raises(Conflict):
                self.openings[who].add_messages(key, messages(["never"]), expect=expect)

    @rule(key=key_of, who=who_of, at=position)
    def add_under_an_id(self, key: str, who: int, at: int) -> None:
        generation = self.writable(key)
        name, texts = f"{generation.serial}-{at % 3}", self.texts(2)
        if name in generation.ids:
            texts, number = generation.ids[name]
            assert self.openings[who].add_messages(key, messages(texts), id=name, expect=10**6) == number
            with pytest.raises(Conflict):
                self.openings[who].add_messages(key, messages([*texts, "more"]), id=name)
            return
        self.store(key, texts, lambda: self.openings[who].add_messages(key, messages(texts), id=name))
        generation.ids[name] = (texts, generation.head)

    @rule(key=key_of, who=who_of, kind=st.sampled_from(["x.note", "use", "tool"]))
    def append(self, key: str, who: int, kind: str) -> None:
        number = self.openings[who].append(key, kind, {"a": 1})
        self.writable(key).notes.append(number)

    @rule(key=key_of, who=who_of, fields=fields_of)
    def set_meta(self, key: str, who: int, fields: dict[str, str | None]) -> None:
        self.openings[who].set_meta(key, fields)
        generation = self.writable(key)
        merged = {**generation.meta, **fields}
        generation.meta = {name: value for name, value in merged.items() if value is not None}

    # changing

    @rule(key=key_of, who=who_of, keep=st.integers(-1, 12))
    def truncate(self, key: str, who: int, keep: int) -> None:
        if self.lives[key].at_rest:
            return
        self.openings[who].truncate_history(key, keep)
        if generation := self.active(key):
            generation.change(generation.live[-keep:] if keep > 0 else [], generation.summary)

    @rule(key=key_of, who=who_of, text=st.sampled_from(["", "first", "second"]))
    def summarise(self, key: str, who: int, text: str) -> None:
        self.openings[who].set_summary(key, text)
        generation = self.writable(key)
        generation.change(generation.live, text)

    @rule(key=key_of, who=who_of, at=position)
    def summarise_up_to(self, key: str, who: int, at: int) -> None:
        generation = self.active(key)
        if not generation or not generation.said:
            return
        index = at % len(generation.said)
        upto = generation.numbers[index]
        if index in generation.live:
            self.openings[who].set_summary(key, f"up to {upto}", upto=upto)
            place = generation.live.index(index)
            generation.change(generation.live[place + 1 :], f"up to {upto}")
        else:
            with pytest.raises(Conflict):
                self.openings[who].set_summary(key, "wrong", upto=upto)

    @rule(key=key_of, who=who_of, count=st.integers(0, 4), keep=st.integers(0, 4))
    def replace(self, key: str, who: int, count: int, keep: int) -> None:
        kept = [*self.openings[who].get_history(key)[:keep], *messages(self.texts(count))]
        self.openings[who].set_history(key, kept)
        generation = self.writable(key)
        generation.live = []
        generation.say([str(message.content) for message in kept])
        self.learn(key)
        generation.head = generation.numbers[-1] if kept else NEWER

    @rule(key=key_of, who=who_of)
    def clear(self, key: str, who: int) -> None:
        if self.lives[key].at_rest:
            return
        self.openings[who].clear(key)
        if generation := self.active(key):
            generation.change([], "")

    @rule(key=key_of, who=who_of)
    def pop(self, key: str, who: int) -> None:
        if self.lives[key].at_rest:
            return
        popped = self.openings[who].pop(key)
        generation = self.active(key)
        if generation is None or not generation.live:
            assert popped is None
        else:
            assert popped is not None
            assert popped.content == generation.said[generation.live[-1]]
            generation.change(generation.live[:-1], generation.summary)

    @rule(key=key_of, who=who_of, at=position)
    def rewind(self, key: str, who: int, at: int) -> None:
        generation = self.active(key)
        if not generation or not generation.said:
            return
        index = at % len(generation.said)
        to = generation.numbers[index]
        if index in generation.after:
            self.openings[who].rewind(key, to)
            generation.change(*generation.after[index])
        else:
            with pytest.raises(StoreError):
                self.openings[who].rewind(key, to)

    # keeping

    @rule(key=key_of, who=who_of)
    def save(self, key: str, who: int) -> None:
        self.openings[who].save(key)

    @rule(who=who_of)
    def reopen(self, who: int) -> None:
        self.openings[who].close()
        self.openings[who] = nacre.open(self.place)

    @rule(key=key_of, who=who_of, really=seldom)
    def archive(self, key: str, who: int, really: bool) -> None:
        life = self.lives[key]
        if life.active:
            if not really:
                return
            self.openings[who].archive(key)
            life.archived.append(life.active)
            life.active = None
        elif not life.archived:
            with pytest.raises(SessionNotFound):
                self.openings[who].archive(key)

    @rule(key=key_of, who=who_of)
    def unarchive(self, key: str, who: int) -> None:
        life = self.lives[key]
        if life.at_rest:
            self.openings[who].unarchive(key)
            life.active = life.archived.pop()
        else:
            with pytest.raises(Conflict if life.archived else StoreError):
                self.openings[who].unarchive(key)

    @rule(key=key_of, who=who_of, really=seldom)
    def delete(self, key: str, who: int, really: bool) -> None:
        if really:
            self.openings[who].delete(key)
            self.lives[key] = Life()
            with suppress(Conflict):  # the other may be told once that its session is gone
                self.openings[1 - who].clear(key)

    # what must hold after each

    @invariant()
    def both_see_the_model(self) -> None:
        for opening in self.openings:
            for key, life in self.lives.items():
                see(opening, key, life.all[-1] if life.all else Generation(serial=-1))
                assert opening.exists(key) == bool(life.all)
            counts = {info.key: info.messages for info in opening.list()}
            assert counts == {key: len(life.active.live) for key, life in self.lives.items() if life.active}

    @invariant()
    def nothing_said_is_lost(self) -> None:
        for key in KEYS:
            self.learn(key)
            kept = [each.message.content for each in self.openings[1].transcript(key)]
            assert kept == [text for generation in self.lives[key].all for text in generation.said]
            notes = [each.n for each in self.openings[1].records(key) if each.data == {"a": 1}]
            assert notes == [number for generation in self.lives[key].all for number in generation.notes]


def messages(texts: list[str]) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


def see(opening: nacre.Sessions, key: str, generation: Generation) -> None:
    live = [generation.said[index] for index in generation.live]
    assert [message.content for message in opening.get_history(key)] == live
    assert [message.content for message in opening.get_history(key, last=2)] == live[-2:]
    assert opening.get_summary(key) == generation.summary
    assert opening.get_meta(key) == generation.meta


@pytest.fixture
def folders(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    numbers = itertools.count()
    monkeypatch.setattr(TwoOpenings, "new_place", lambda: str(root / str(next(numbers))), raising=False)


@pytest.mark.usefixtures("folders")
def test_two_openings_of_one_store_behave_like_plain_lists() -> None:
    run_state_machine_as_test(TwoOpenings, settings=SETTINGS)


def test_two_openings_of_one_database_behave_like_plain_lists(
    emptied_store: EmptiedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwoOpenings, "new_place", emptied_store.empty, raising=False)
    run_state_machine_as_test(TwoOpenings, settings=settings(SETTINGS, max_examples=15))


@pytest.mark.usefixtures("folders")
def test_a_truncation_that_forgets_the_summary_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nacre.Sessions, "truncate_history", lambda sessions, key, _: sessions.clear(key))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(TwoOpenings, settings=settings(SETTINGS, phases=[Phase.generate]))
