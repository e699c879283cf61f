"""Signals that strike whatever begins, moves or ends a generation, on real files: nothing stays locked for others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import nacre
from nacre.errors import StoreError
from nacre.history.session_state import RULES
from nacre.storage import (
    change_marks,
    file_store,
    group_commit,
    locks,
    log,
    plain_names,
    quarantine,
    rewrite,
    system,
    writer,
    writer_pool,
)
from tests.strikes import at_every_step, is_struck

WAIT = 30
LOCKS = (
    group_commit,
    locks,
    log,
    change_marks,
    system,
    plain_names,
    quarantine,
    rewrite,
    writer,
    file_store,
    writer_pool,
)
CHANGES: dict[str, Callable[[nacre.Sessions], object]] = {
    "a new session": lambda sessions: sessions.add_message("new", "user", "b"),
    "archive": lambda sessions: sessions.archive("k"),
    "unarchive": lambda sessions: sessions.unarchive("archived"),
    "delete": lambda sessions: sessions.delete("k"),
    "delete what is archived": lambda sessions: sessions.delete("archived"),
    "fork": lambda sessions: sessions.fork("k", "new"),
}


@pytest.mark.parametrize("act", CHANGES.values(), ids=CHANGES)
def test_whoever_is_interrupted_leaves_nothing_locked(root: Path, act: Callable[[nacre.Sessions], object]) -> None:
    keys = ("k", "archived", "archived_and_active", "new")

    def start() -> nacre.Sessions:
        return nacre.Sessions(file_store.FileStore(str(root), rules=RULES, durability="relaxed"))

    def change_all(sessions: nacre.Sessions) -> bool:
        for key in keys:
            with suppress(nacre.Conflict):
                # Refused once, if the other store has deleted the session meanwhile.
                sessions.add_message(key, "user", "c")
            sessions.add_message(key, "user", "d")
            sessions.archive(key)
            sessions.delete(key)
        sessions.close()
        return sessions.verify().ok

    def go_through(step: int) -> bool:
        sessions = start()
        for key in keys[:3]:
            sessions.add_message(key, "user", "a")
        sessions.archive("archived")

        def run() -> None:
            with suppress(StoreError):
                act(sessions)

        came = is_struck(step, run, *LOCKS)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(change_all, start()).result(WAIT), step
            assert pool.submit(change_all, sessions).result(WAIT), step
        return came

    at_every_step(go_through)
