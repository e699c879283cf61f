"""Sessions that random operations made: forks, rewinds, summaries, compactions and several generations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import nacre
from nacre.errors import Conflict
from nacre.history.session_state import RULES
from nacre.sessions import Sessions
from nacre.storage.file_store import Durability, FileStore

KEYS = ("a", "b", "c")


def open_small(root: Path, durability: Durability = "relaxed") -> Sessions:
    """Sessions that are compacted however little that saves."""
    return Sessions(FileStore(str(root), rules=RULES, durability=durability, compact_at=1))


def act(sessions: Sessions, random: Random, *, steps: int, width: int = 20, keys: Sequence[str] = KEYS) -> None:
    """Do random things to a few sessions; each message has another text."""
    for step in range(steps):
        key = random.choice(keys)
        numbers = [stored.n for stored in sessions.transcript(key)] or [0]
        with suppress(Conflict):
            match random.choices(range(9), weights=(12, 8, 2, 2, 3, 1, 2, 1, 1))[0]:
                case 0:
                    sessions.add_message(key, "user", f"{step} {'x' * random.randrange(width)}")
                case 1:
                    reply = nacre.Message(role="assistant", content=f"{step} reply")
                    sessions.submit(key, [reply, nacre.AppendRecord("use", {"prompt": 1, "completion": 2})]).result()
                case 2:
                    sessions.update(key, [nacre.Rewind(random.choice([0, *numbers]))])
                case 3:
                    sessions.update(key, [nacre.Pop()])
                case 4:
                    sessions.update(key, [nacre.Truncate(random.randrange(5))])
                case 5:
                    sessions.update(key, [nacre.Summarise(f"summary {step}", upto=random.choice(numbers))])
                case 6:
                    sessions.save(key)
                case 7:
                    sessions.archive(key) if sessions.status(key) == "active" else None
                case _:
                    new = random.choice(keys)
                    if new != key and sessions.status(key) == "active" and sessions.status(new) != "active":
                        sessions.fork(key, new, at=random.choice([None, *numbers]))
