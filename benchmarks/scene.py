"""The sessions that benchmarks share: built once, on first use, below one temporary directory."""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nacre

SHORT, LONG = "bench:short", "bench:long"
_GROUP = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How large the shared sessions are, and how often things are repeated."""

    short: int = 1_000
    long: int = 1_000_000
    loaded: int = 100_000
    paged: int = 100_000
    listed: int = 10_000
    folder: int = 200_000
    crowded: int = 100_000
    giant: int = 1 << 30
    samples: int = 2_000
    pairs: int = 200
    runs: int = 5


QUICK = Sizes(
    long=50_000,
    loaded=10_000,
    paged=20_000,
    listed=1_000,
    folder=20_000,
    crowded=10_000,
    giant=1 << 26,
    samples=500,
    pairs=60,
    runs=3,
)


class Scene:
    """A directory to work in, and the stores that more than one row needs."""

    def __init__(self, root: Path, sizes: Sizes) -> None:
        self.root = root
        self.sizes = sizes
        self.ends: dict[str, list[int]] = {}

    @property
    def is_quick(self) -> bool:
        """Whether a run is to be short, and need not be exact."""
        return self.sizes is QUICK

    def room(self, name: str) -> Path:
        """An empty directory of one benchmark's own."""
        path = self.root / name
        path.mkdir()
        return path

    @cached_property
    def long(self) -> Path:
        """A store with a short and a long session of messages of about 200 bytes."""
        root = self.room("long")
        with nacre.open(root) as sessions:
            self.ends[SHORT] = fill(sessions, SHORT, self.sizes.short, text=words(200))
            self.ends[LONG] = fill(sessions, LONG, self.sizes.long, text=words(200))
        return root

    @cached_property
    def loaded(self) -> Path:
        """A store with one session of messages of 1 kB."""
        root = self.room("loaded")
        with nacre.open(root) as sessions:
            fill(sessions, LONG, self.sizes.loaded, text=words(1_000))
        return root

    @cached_property
    def giant(self) -> Path:
        """A store with one session of a gigabyte, in messages of 4 kB."""
        root = self.room("giant")
        with nacre.open(root) as sessions:
            fill(sessions, LONG, self.sizes.giant // 4_096, text=words(4_096))
        return root

    @cached_property
    def listed(self) -> Path:
        """A store with many sessions of a few messages, the last one said by itself."""
        root = self.room("listed")
        text = words(200)
        progress(f"building {self.sizes.listed:,} sessions")
        with nacre.open(root) as sessions, ThreadPoolExecutor(16) as pool:

            def talk(number: int) -> None:
                sessions.add_messages(f"bench:{number}", [nacre.Message(role="user", content=text)] * 3)
                sessions.add_message(f"bench:{number}", "user", text)

            for _ in pool.map(talk, range(self.sizes.listed)):
                pass
        return root

    @cached_property
    def crowded(self) -> Path:
        """A store with very many sessions of one message."""
        root = self.room("crowded")
        progress(f"building {self.sizes.crowded:,} sessions")
        with nacre.open(root, durability="relaxed") as sessions:
            for number in range(self.sizes.crowded):
                sessions.add_message(f"bench:{number}", "user", "hello")
        # A folder whose names are younger than two seconds is listed at every start.
        time.sleep(3)
        return root

    def copy(self, store: Path, name: str) -> Path:
        """The same store again, for a benchmark that changes what it measures."""
        return shutil.copytree(store, self.root / name)


def fill(sessions: nacre.Sessions, key: str, count: int, *, text: str) -> list[int]:
    """Write `count` messages in large groups; returns the number of each group's last record.

    The last message comes by itself, as it would in a conversation.
    """
    progress(f"building a session of {count:,} messages of {len(text):,} bytes")
    group = min(_GROUP, count // 10)
    said = [nacre.Message(role="user", content=text)] * group
    ends = [sessions.add_messages(key, said[: count - 1 - start]) for start in range(0, count - 1, group)]
    return [*ends, sessions.add_message(key, "user", text)]


def converse(sessions: nacre.Sessions, key: str, count: int) -> None:
    """Write messages of 200 bytes, by user and assistant in turns, each a record of its own."""
    text = words(191)
    roles = ("user", "assistant")
    for start in range(0, count, _GROUP):
        waiting = [
            sessions.submit(key, [nacre.Message(role=roles[number % 2], content=f"{number:08} {text}")])
            for number in range(start, min(start + _GROUP, count))
        ]
        for stored in waiting:
            stored.result()


def words(size: int) -> str:
    """Text of that many bytes that looks like something a person wrote."""
    phrase = 'The quick brown fox said "hello" to the lazy dog; nobody answered.\n'
    return (phrase * (size // len(phrase) + 1))[:size]


def logs(store: Path) -> list[Path]:
    """The log files of a store."""
    return sorted((store / "sessions").glob("*.jsonl"))


def progress(text: str) -> None:
    """Say on stderr what is going on."""
    print(f"  {text}", file=sys.stderr, flush=True)  # noqa: T201 - a command's progress
