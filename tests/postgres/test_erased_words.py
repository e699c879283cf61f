"""Whatever is forked, erased, deleted and restored in whatever order: a word that nobody can read is in no table."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

import nacre
from nacre.storage.postgres.address import parse
from tests.postgres.opened import create

KEYS = ("a", "b", "c", "d")
IDS = (None, None, "i", "j", "k")
MAX_STEPS = 40


class Pair:
    """A store in a database beside one in RAM: every call goes to both, and gives the same in both."""

    def __init__(self, *stores: nacre.Sessions) -> None:
        self._stores = stores
        self.words: list[str] = []
        self.log: list[str] = []

    def both(self, name: str, call: Callable[[nacre.Sessions], Any]) -> None:
        found = []
        for sessions in self._stores:
            try:
                value = call(sessions)
                found.append(getattr(value, "erased", value))
            except nacre.NacreError as error:
                found.append(type(error))
        self.log.append(f"{name} -> {found[0]!r:.60}")
        assert found[0] == found[1], self.log

    def step(self, chance: random.Random) -> None:
        """Do something that somebody might do next."""
        key, other, n = chance.choice(KEYS), chance.choice(KEYS), chance.randrange(2, 9)
        match chance.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self.add(key, chance)
            case 6:
                title = self.words[-1] if self.words else "none"
                self.both(f"title {key}", lambda sessions: sessions.set_meta(key, title=title))
            case 7 | 8 | 9:
                self.both(f"fork {key} {other}", lambda sessions: sessions.fork(key, other))
            case 10:
                self.both(f"fork {key} {other} at {n}", lambda sessions: sessions.fork(key, other, at=n))
            case 11 | 12 | 13:
                self.both(f"redact {key} {n}", lambda sessions: sessions.redact(key, n))
            case 14 | 15:
                self.both(f"delete {key}", lambda sessions: sessions.delete(key))
            case 16:
                self.both(f"archive {key}", lambda sessions: sessions.archive(key))
            case 17:
                self.both(f"trash {key}", lambda sessions: sessions.move_to_trash(key))
            case 18:
                self.both(f"restore {key}", lambda sessions: sessions.restore_from_trash(trash_of(sessions, key)))
            case _:
                self.both(
                    f"erase from trash {key}", lambda sessions: sessions.erase_from_trash(trash_of(sessions, key))
                )

    def add(self, key: str, chance: random.Random) -> None:
        self.words.append(f"W{len(self.words)}Q")
        # Some were said before, and some are too large for a row.
        word = chance.choice(self.words) if chance.random() < 0.1 else self.words[-1]
        text, id = word + " y" * 40_000 * (chance.random() < 0.3), chance.choice(IDS)
        self.both(f"add {key} {word} {id}", lambda sessions: sessions.add_message(key, "user", text, id=id))


def trash_of(sessions: nacre.Sessions, key: str) -> str:
    """What was moved to the trash first of a session."""
    found = sorted((one.generations, one.id) for one in sessions.list_trash() if one.key == key)
    return found[0][1] if found else "none"


def contents(sessions: nacre.Sessions, key: str) -> list[tuple[int, str]]:
    return [(one.n, str(one.message.content)[:20]) for one in sessions.transcript(key)]


def readable(sessions: nacre.Sessions) -> str:
    """All that somebody can read."""
    found: list[str] = []
    for key in KEYS:
        found += sessions.read_generations(key, lambda view: str([view.whole(record) for record in view.all()]))
    return "".join(found)


def holders(link: psycopg.Connection[Any], word: str) -> list[str]:
    """The tables that have a word in any column, as it is or as bytes."""
    tables = link.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    )
    has = "SELECT 1 FROM {} AS one WHERE strpos(one::text, %s) > 0 OR strpos(one::text, %s) > 0 LIMIT 1"
    return [
        name
        for (name,) in tables.fetchall()
        for given in (word, word.casefold())
        if link.execute(has.format(name).encode(), (given, given.encode().hex())).fetchone()
    ]


@pytest.mark.parametrize("seed", range(16))
def test_a_word_that_nobody_can_read_is_in_no_table(database: str, seed: int) -> None:
    address, chance = parse(create(database)), random.Random(seed)
    with nacre.open(database) as stored, nacre.open(":memory:") as kept:
        pair = Pair(stored, kept)
        for _ in range(MAX_STEPS):
            pair.step(chance)
        for key in KEYS:
            pair.both(f"contents of {key}", partial(contents, key=key))
        for trashed in stored.list_trash():
            stored.erase_from_trash(trashed.id)
        assert stored.verify().ok
        # What was said is taken in to be found.
        stored.search("nothing")
        left = readable(stored)
        with psycopg.connect(address.conninfo, options=f"-c search_path={address.schema}") as link:
            found = {word: holders(link, word) for word in pair.words if word not in left}
        assert not any(found.values()), (found, pair.log)
