"""Sessions that are moved between stores: how stores are opened for that, and what is in them, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import nacre
from nacre.history.session_state import RULES, keep
from nacre.index.postgres_index import labels
from nacre.records import State, View
from nacre.sessions import Sessions
from nacre.storage import blobs
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.store import PostgresStore
from nacre.storage.protocol import Backend
from nacre.storage.transfer import Held, HeldAs, Outcome, copy, essence
from tests.random_sessions import act

STATUSES: tuple[HeldAs, ...] = ("active", "archived", "trash")


@contextmanager
def opened(place: str | Path) -> Iterator[Backend]:
    """A store, which compacts however little that saves; flushes cost nothing where tests are."""
    store: Backend
    if str(place) == ":memory:":
        store = MemoryStore(rules=RULES)
    elif "://" in str(place):
        store = PostgresStore(parse(str(place)), rules=RULES, labels=labels)
    else:
        store = FileStore(str(place), rules=RULES, durability="relaxed", compact_at=1)
    try:
        yield store
    finally:
        store.close()


def copied(source: Backend, target: Backend) -> list[Outcome]:
    return list(copy(source.transfer(), target.transfer(), keep=keep))


def results(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return sorted((outcome.key, outcome.result) for outcome in outcomes)


class Generation(NamedTuple):
    """What a store has of a generation: how it holds it, each record, each payload and the state after all."""

    status: HeldAs
    was_archived: bool
    records: list[bytes]
    payloads: list[str | None]
    state: State
    messages: list[object]


def contents(store: Backend) -> dict[tuple[str, str], Generation]:
    """Everything in a store, by key and uid."""
    transfer = store.transfer()
    found = [held for status in STATUSES for held in transfer.each(status) if isinstance(held, Held)]

    def read(held: Held) -> Generation:
        def get(view: View) -> Generation:
            lines = list(view.all_lines())
            named = [name for record, _ in lines if record.blobs is not None for name in blobs.names(record)]
            return Generation(
                held.status,
                held.was_archived,
                [essence(record, line) for record, line in lines],
                [view.payload(name) for name in named],
                view.state,
                [view.whole(record).m for record, _ in lines],
            )

        generation = transfer.read(held, get)
        assert generation is not None
        return generation

    return {(held.key, held.uid): read(held) for held in found}


def live(store: Backend) -> dict[str, list[object]]:
    """The history of every session that is not in the trash."""
    sessions = Sessions(store)
    keys = {found.key for archived in (False, True) for found in store.each(archived=archived)}
    return {key: [message.content for message in sessions.get_history(key)] for key in keys}


def fill(store: Backend, random: Random, *, steps: int, name: str = "") -> None:
    """Do random things to three sessions: what `act` does, and also large payloads, erased messages and the trash."""
    sessions = Sessions(store)
    act(sessions, random, steps=steps, keys=tuple(f"{name}{key}" for key in "abc"))
    for key in (f"{name}{key}" for key in "abc"):
        if random.random() < 0.3:
            sessions.add_message(key, "user", f"{key} {random.random()} " + "x" * 70_000)
        if store.status(key) == "active" and random.random() < 0.3:
            numbers = [stored.n for stored in sessions.transcript(key)]
            with suppress(nacre.Conflict):
                sessions.redact(key, random.choice(numbers))
    if store.status(f"{name}c") and random.random() < 0.1:
        store.move_to_trash(f"{name}c", None)
