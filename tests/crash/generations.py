"""Processes that begin, move, fork and delete the same few sessions, the account of what they were told, and the look.

What is told of different processes is put in order by the system's clock: each step has the time before it and the
time after it; one whose process was killed may have happened until all were dead.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import nacre
from nacre.history.session_state import RULES
from nacre.storage.blobs import LOST
from nacre.storage.file_store import FileStore
from nacre.storage.paths import stem
from nacre.storage.system import System
from tests.crash.warm import Outcome, Say

KEYS = ("one", "two")
LARGE = "z" * 70_000
PAUSES, LONGEST_PAUSE = 0.02, 0.002
STEPS = {"append": 30, "large": 6, "archive": 16, "unarchive": 16, "fork": 16, "delete": 8, "compact": 3, "read": 5}


# ---- in the child


class Mortal:
    """The system calls of a process that is killed before one of them; before some it lets others run."""

    def __init__(self, rng: random.Random, calls: int | None) -> None:
        self._system = System()
        self._rng = rng
        self._left = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._system, name)
        if name in ("now", "random"):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    os.kill(os.getpid(), signal.SIGKILL)
            if self._rng.random() < PAUSES:
                time.sleep(self._rng.random() * LONGEST_PAUSE)
            return method(*arguments, **named)

        return call


def live(say: Say, root: str, name: str, seed: int, calls: int | None = None, steps: int = 1_000_000) -> None:
    """Take random steps, each announced before and answered after, until killed at one of the system calls."""
    rng = random.Random(seed)
    system = cast("System", Mortal(random.Random(seed), calls))
    sessions = nacre.Sessions(FileStore(root, rules=RULES, system=system, compact_at=1))
    for number in range(steps):
        kind, key, other = rng.choices(list(STEPS), list(STEPS.values()))[0], rng.choice(KEYS), rng.choice(KEYS)
        label = f"{name}.{number}"
        say(begun=number, kind=kind, key=other if kind == "fork" else key, label=label, at=time.monotonic_ns())
        try:
            take(sessions, kind, key, other, label)
            answer = "done"
        except (nacre.Conflict, nacre.SessionNotFound):
            answer = "impossible"
        say(ended=number, answer=answer, at=time.monotonic_ns())


def take(sessions: nacre.Sessions, kind: str, key: str, other: str, label: str) -> None:
    match kind:
        case "append":
            sessions.add_message(key, "user", label)
        case "large":
            sessions.add_message(key, "user", f"{label} {LARGE}")
        case "fork":
            sessions.fork(key, other)
        case "compact":
            sessions.truncate_history(key, 2)
            sessions.save(key)
        case "read":
            check_texts([message.content for message in sessions.get_history(key)])
            check_texts([entry.message.content for entry in sessions.transcript(key)])
        case _:
            getattr(sessions, kind)(key)


def check_texts(texts: Sequence[Any]) -> list[str]:
    """Every text is one that somebody wrote, and whole; returns the labels."""
    for text in texts:
        rest = str(text).partition(" ")[2]
        assert rest in ("", LARGE), text[:100]
        assert text != LOST
    return [str(text).partition(" ")[0] for text in texts]


# ---- the account


class Step(NamedTuple):
    """One call on a key, when it was begun, when it had ended at the latest, and what came of it."""

    kind: str
    key: str
    label: str
    begun: int
    ended: int
    answer: str

    @property
    def may_have_happened(self) -> bool:
        return self.answer != "impossible"


@dataclass
class Account:
    """Every step that was taken in one store."""

    steps: list[Step] = field(default_factory=list)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Take in what killed processes said."""
        dead = time.monotonic_ns()
        for outcome in outcomes:
            assert outcome.status in (-9, 0), outcome.said("raised") or outcome.status
            answers = {line["ended"]: line for line in outcome.lines if "ended" in line}
            for line in (line for line in outcome.lines if "begun" in line):
                end = answers.get(line["begun"], {"answer": "unknown", "at": dead})
                self.steps.append(Step(line["kind"], line["key"], line["label"], line["at"], end["at"], end["answer"]))

    def take(self, sessions: nacre.Sessions, kind: str, key: str, label: str) -> None:
        """Take a step here, which is acknowledged."""
        begun = time.monotonic_ns()
        take(sessions, kind, key, key, label)
        self.steps.append(Step(kind, key, label, begun, time.monotonic_ns(), "done"))

    def of(self, key: str, *kinds: str) -> Iterator[Step]:
        return (step for step in self.steps if step.key == key and step.kind in kinds and step.may_have_happened)


# ---- the look


def check(root: Path, account: Account, *, cycle: int, doomed: str) -> None:
    """What is found agrees with the account; then one key is deleted, and nothing of it is left."""
    with nacre.open(root) as sessions:
        for key in KEYS:
            check_key(sessions, account, key)
            if is_deleted(account, key):
                assert (sessions.exists(key), left_of(root, key)) == (False, []), key
        for key in filter(sessions.exists, KEYS):
            account.take(sessions, "append", key, f"check.{cycle}.{key}")
            snapshot = sessions.snapshot(key)
            assert snapshot.live == len(snapshot.messages), f"{key} has {len(snapshot.messages)} of {snapshot.live}"
        report = sessions.verify()
        assert report.ok, report.findings
        account.take(sessions, "delete", doomed, "")
        found = sessions.exists(doomed), sessions.transcript(doomed), left_of(root, doomed)
        assert found == (False, [], []), f"of {doomed}, which was deleted: {found}"


def check_key(sessions: nacre.Sessions, account: Account, key: str) -> None:
    stored = sessions.transcript(key)
    labels = check_texts([entry.message.content for entry in stored])
    generations = list(dict.fromkeys(entry.generation for entry in stored))
    assert generations == sorted(generations), f"{key}: {generations}"
    deletes = list(account.of(key, "delete"))
    forks = list(account.of(key, "fork"))
    appends = {step.label: step for step in account.of(key, "append", "large")}
    for label, step in appends.items():
        if step.answer == "done" and not any(delete.ended > step.begun for delete in deletes):
            assert label in labels, f"acknowledged in {key} and lost: {label}"
    for label in labels:
        ways = [*forks, *filter(None, [appends.get(label)])]
        assert any(not is_gone(way, deletes) for way in ways), f"deleted from {key} and back: {label}"
    headers = {entry.generation: entry.n for entry in sessions.records(key, "open")}
    own = [label for label, entry in zip(labels, stored, strict=True) if entry.n > headers[entry.generation]]
    strays = [(one, two) for one, two in pairwise(own) if appends[two].ended < appends[one].begun]
    assert not strays, f"{key} is out of order: {strays}"


def is_gone(step: Step, deletes: Sequence[Step]) -> bool:
    """Tell whether an acknowledged deletion was begun when a step had ended."""
    return any(delete.begun > step.ended for delete in deletes if delete.answer == "done")


def is_deleted(account: Account, key: str) -> bool:
    """Tell whether all that could have made something of a key had ended when it was deleted, acknowledged."""
    others = list(account.of(key, "append", "large", "fork", "archive", "unarchive", "compact", "delete"))
    deletes = [step for step in others if step.kind == "delete" and step.answer == "done"]
    return any(all(other is delete or other.ended < delete.begun for other in others) for delete in deletes[-1:])


def left_of(root: Path, key: str) -> list[str]:
    """Every file of a key, in whatever folder."""
    files = [path for path in root.rglob("*") if path.is_file() and path.parent != root]
    return [str(path) for path in files if path.name.startswith((f"{stem(key)}.", f"{stem(key)}~"))]
