"""picoclaw and nacre on one directory, in turns and in any order: no message of either is lost."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nacre
from nacre.legacy.formats import LINES, META, export, file_of
from tests.legacy.picoclaw import Picoclaw

KEYS = ("discord_bob", "telegram:42", "a:b", "a_b")
"""The first and the last are plain: their files had the names of logs. The last two are one file to picoclaw."""

THEIRS = ("say", "truncate", "compact", "summarise", "restart")
OURS = ("say", "truncate", "summarise", "archive", "unarchive", "delete", "compact", "export", "export all")

Step = tuple[str, str]
Turn = tuple[str, list[Step]]
STEPS = st.lists(st.tuples(st.sampled_from(THEIRS), st.sampled_from(KEYS)), min_size=1, max_size=5)
OUR_STEPS = st.lists(st.tuples(st.sampled_from(OURS), st.sampled_from(KEYS)), max_size=4)
TURNS = st.lists(st.tuples(st.just("picoclaw"), STEPS) | st.tuples(st.just("nacre"), OUR_STEPS), min_size=2, max_size=8)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every migration would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class World:
    """One directory, what each side has acknowledged, and what must still be readable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "sessions"
        self.count = 0
        self.expected: set[str] = set()

    def text(self) -> str:
        self.count += 1
        return f"message {self.count}"

    # ---- the earlier agent's turn

    def theirs(self, steps: list[Step]) -> None:
        agent = Picoclaw(self.folder)
        for step, key in steps:
            match step:
                case "say":
                    before = agent.get_history(key)
                    agent.add_message(key, text := self.text())
                    assert agent.get_history(key) == [*before, text]
                case "truncate":
                    agent.truncate_history(key, 1)
                case "compact":
                    agent.compact(key)
                case "summarise":
                    agent.set_summary(key, self.text())
                case _:
                    agent = Picoclaw(self.folder)

    # ---- ours

    def ours(self, steps: list[Step]) -> None:
        agent = Picoclaw(self.folder)
        before = agent.files()
        # What the agent has rewritten its files without is gone by its own will.
        self.expected |= {text for key in KEYS for text in agent.kept(key)}
        with nacre.open(self.root) as sessions:
            self.check_files(before)
            self.check(sessions)
            for step, key in steps:
                self.step(sessions, step, key)
            self.check(sessions)

    def step(self, sessions: nacre.Sessions, step: str, key: str) -> None:
        match step:
            case "say":
                sessions.add_message(key, "user", text := self.text())
                self.expected.add(text)
            case "truncate":
                sessions.truncate_history(key, 1)
            case "summarise" if sessions.exists(key):
                sessions.set_summary(key, self.text())
            case "archive" if key in {info.key for info in sessions.list()}:
                sessions.archive(key)
            case "unarchive" if key in self.archived(sessions):
                sessions.unarchive(key)
            case "delete":
                gone = {str(stored.message.content) for stored in sessions.transcript(key)}
                sessions.delete(key)
                self.expected -= gone
            case "compact":
                sessions.save(key)
            case "export" | "export all":
                self.export(sessions, key, dropped=step == "export all")
            case _:
                # There is nothing to archive, to unarchive or to summarise.
                pass

    def archived(self, sessions: nacre.Sessions) -> set[str]:
        active = {info.key for info in sessions.list()}
        return {info.key for info in sessions.list(archived=True)} - active

    def export(self, sessions: nacre.Sessions, key: str, *, dropped: bool) -> None:
        """Give the agent a session back, in its own folder; it must read just what is live here."""
        exported = sessions._store.read(key, lambda view: export(view, key, dropped=dropped))
        path = self.folder / f"{file_of(key)}{LINES}"
        if exported is None or path.exists():
            return
        path.write_bytes(exported.lines)
        (self.folder / f"{file_of(key)}{META}").write_bytes(exported.meta)
        agent = Picoclaw(self.folder)
        assert agent.get_history(key) == [message.content for message in sessions.get_history(key)]
        assert agent.get_summary(key) == sessions.get_summary(key)

    # ---- what must hold

    def check(self, sessions: nacre.Sessions) -> None:
        keys = {info.key for archived in (False, True) for info in sessions.list(archived=archived)}
        readable: set[str] = set()
        for key in keys:
            texts = [str(stored.message.content) for stored in sessions.transcript(key)]
            numbers = [int(re.sub(r"\D", "", text)) for text in texts]
            assert numbers == sorted(numbers), f"{key!r} is out of order: {texts}"
            readable |= set(texts)
        assert self.expected <= readable, f"lost: {sorted(self.expected - readable)}"
        # A file that was exported waits beside the logs for its agent.
        assert {finding.kind for finding in sessions.verify().findings} <= {"stranger"}

    def check_files(self, before: dict[str, bytes]) -> None:
        """Every file of the agent has its bytes, under its name or as the original of a migrated session."""
        now = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        for name, data in before.items():
            same = [other for other in now if other == name or other.startswith(f"{name}.migrated")]
            assert data in [now[other] for other in same], f"{name} was changed"


@settings(
    derandomize=True,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(TURNS)
def test_nothing_is_lost_on_either_side(turns: list[Turn]) -> None:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        world = World(Path(folder))
        for who, steps in turns:
            if who == "picoclaw":
                world.theirs(steps)
            else:
                world.ours(steps)
        world.ours([])


def test_the_earlier_agent_does_not_find_our_logs(root: Path) -> None:
    agent = Picoclaw(root / "sessions")
    agent.add_message("discord_bob", "message 1")
    with nacre.open(root) as sessions:
        sessions.add_message("discord_bob", "user", "message 2")
    agent = Picoclaw(root / "sessions")
    assert agent.get_history("discord_bob") == []
    agent.add_message("discord_bob", "message 3")
    agent.truncate_history("discord_bob", 0)
    agent.compact("discord_bob")
    with nacre.open(root) as sessions:
        assert [message.content for message in sessions.get_history("discord_bob")] == ["message 1", "message 2"]


def test_what_it_writes_later_is_a_session_of_its_own(root: Path) -> None:
    world = World(root)
    world.theirs([("say", "discord_bob")])
    world.ours([("say", "discord_bob")])
    world.theirs([("say", "discord_bob")])
    world.ours([])
    with nacre.open(root) as sessions:
        assert [message.content for message in sessions.get_history("discord_bob (2)")] == ["message 3"]


def test_what_it_adds_to_an_exported_session_is_appended_to_that(root: Path) -> None:
    world = World(root)
    world.ours([("say", "discord_bob"), ("say", "discord_bob"), ("export", "discord_bob")])
    world.theirs([("say", "discord_bob")])
    world.ours([])
    with nacre.open(root) as sessions:
        texts = [message.content for message in sessions.get_history("discord_bob")]
        assert (texts, len(list(sessions.list()))) == (["message 1", "message 2", "message 3"], 1)


def test_what_it_adds_after_we_went_on_is_appended_too(root: Path) -> None:
    world = World(root)
    world.ours([("say", "discord_bob"), ("export", "discord_bob"), ("say", "discord_bob")])
    world.theirs([("say", "discord_bob"), ("truncate", "discord_bob"), ("say", "discord_bob")])
    world.ours([])
    with nacre.open(root) as sessions:
        texts = [message.content for message in sessions.get_history("discord_bob")]
        assert (texts, len(list(sessions.list()))) == ([f"message {n}" for n in (1, 2, 3, 4)], 1)


def test_what_we_said_ourselves_does_not_come_back_from_an_export(root: Path) -> None:
    world = World(root)
    world.theirs([("say", "telegram:42")])
    world.ours([("say", "telegram:42"), ("export all", "telegram:42"), ("say", "telegram:42")])
    world.ours([])
    with nacre.open(root) as sessions:
        texts = [stored.message.content for stored in sessions.transcript("telegram:42")]
        assert texts == ["message 1", "message 2", "message 3"]
