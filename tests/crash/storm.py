"""A writer that works until it is killed, the account of what it was told, and the look afterwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nacre
import nacre.legacy.migration  # loaded by the parent, so that a child is not killed while it loads them
import nacre.storage.compaction
import nacre.storage.file_store
from tests.crash.warm import Outcome, Say

KEY = "storm"
LONG = "y" * 40_000


def write_until_killed(say: Say, root: str, name: str, seed: int) -> None:
    """The child: random work under its own name, each step announced before and acknowledged after."""
    rng = random.Random(seed)
    sessions = nacre.open(root)
    number = 0
    while True:
        match rng.choices(["one", "group", "change", "scrap"], [60, 25, 12, 3])[0]:
            case "one":
                texts = [f"{name}.{number}.0.1 {rng.choice(['', LONG])}"]
            case "group":
                size = rng.randint(2, 5)
                texts = [f"{name}.{number}.{part}.{size} " for part in range(size)]
            case "change":
                _change(sessions, rng)
                continue
            case _:
                _scrap(say, sessions, f"scrap-{name}")
                continue
        say(begun=[_label(text) for text in texts])
        _write(sessions, texts)
        say(acknowledged=number)
        number += 1


def _write(sessions: nacre.Sessions, texts: Sequence[str]) -> None:
    if len(texts) == 1:
        sessions.add_message(KEY, "user", texts[0])
    else:
        sessions.add_messages(KEY, [nacre.Message(role="user", content=text) for text in texts])


def _change(sessions: nacre.Sessions, rng: random.Random) -> None:
    """Anything that must not lose a message; beside other writers it may come too late."""
    try:
        match rng.choice(["truncate", "save", "summarise", "archive", "rewind"]):
            case "truncate":
                sessions.truncate_history(KEY, rng.randrange(4))
            case "save":
                sessions.truncate_history(KEY, 2)
                sessions.save(KEY)
            case "summarise":
                sessions.set_summary(KEY, "so far")
            case "archive":
                sessions.archive(KEY)
            case _:
                sessions.pop(KEY)
    except (nacre.Conflict, nacre.SessionNotFound):
        pass


def _scrap(say: Say, sessions: nacre.Sessions, key: str) -> None:
    say(scrap=key, state="unknown")
    sessions.add_message(key, "user", "soon gone")
    say(scrap=key, state="there")
    say(scrap=key, state="unknown")
    sessions.delete(key)
    say(scrap=key, state="gone")


def _label(text: str) -> str:
    return text.split(" ", 1)[0]


@dataclass
class Account:
    """What the writers of all cycles so far announced, and what of it was acknowledged."""

    acknowledged: set[str] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)
    scraps: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Take in what one killed writer said."""
        assert outcome.status == -9, outcome.said("raised") or outcome.status
        units: list[list[str]] = outcome.said("begun")
        done = len(outcome.said("acknowledged"))
        self.order += [label for unit in units for label in unit]
        self.announced |= {label for unit in units for label in unit}
        self.acknowledged |= {label for unit in units[:done] for label in unit}
        self.scraps |= {line["scrap"]: line["state"] for line in outcome.lines if "scrap" in line}


def check(root: Path, account: Account) -> None:
    """Everything acknowledged is there once and in its writer's order, groups are whole, and it can go on."""
    with nacre.open(root) as sessions:
        labels = [_label(str(entry.message.content)) for entry in sessions.transcript(KEY)]
        _check_labels([label for label in labels if label != "after"], account)
        for key, state in account.scraps.items():
            assert state == "unknown" or sessions.exists(key) == (state == "there"), (key, state)
            sessions.delete(key)
        account.scraps.clear()
        sessions.add_message(KEY, "user", "after")
        report = sessions.verify()
        assert report.ok, report.findings


def _check_labels(labels: list[str], account: Account) -> None:
    found = set(labels)
    assert len(found) == len(labels), "a message is there twice"
    assert account.acknowledged <= found, f"acknowledged and lost: {sorted(account.acknowledged - found)}"
    assert found <= account.announced, f"nobody wrote: {sorted(found - account.announced)}"
    for writer in {_writer(label) for label in labels}:
        expected = [label for label in account.order if _writer(label) == writer and label in found]
        stored = [label for label in labels if _writer(label) == writer]
        strays = [pair for pair in zip(stored, expected, strict=True) if pair[0] != pair[1]]
        assert not strays, f"out of order: {strays}"
    for label in labels:
        writer, number, _, size = label.split(".")
        assert all(f"{writer}.{number}.{part}.{size}" in found for part in range(int(size))), f"half a group: {label}"


def _writer(label: str) -> str:
    return label.split(".", 1)[0]


def arguments(root: Path, name: str, seed: int) -> dict[str, Any]:
    return {"root": str(root), "name": name, "seed": seed}
