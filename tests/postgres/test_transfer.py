"""Copying sessions into PostgreSQL that is cut short: by a broken connection at any round trip, or by a kill."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import pytest

from nacre.sessions import Sessions
from nacre.storage.protocol import Backend
from tests.postgres.opened import create, through
from tests.postgres.proxy import Proxy
from tests.transferred import contents, copied, fill, opened

PROGRAM = """
import sys
from nacre.opening import Move
with Move(*sys.argv[1:]) as move:
    for outcome in move.copy():
        print(outcome.result, flush=True)
"""


def prepare(store: Backend, key: str) -> None:
    sessions = Sessions(store)
    sessions.add_messages(key, [{"role": "user", "content": "a"}], id="a")
    sessions.add_message(key, "user", "x" * 70_000)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_connection_leaves_a_session_whole_or_not_at_all(database: str, proxy: Proxy, when: str) -> None:
    create(database)
    for request in count(1):
        with opened(":memory:") as source, opened(database) as target:
            prepare(source, key := f"k{request}")
            with opened(through(database, proxy.port)) as behind:
                proxy.reset()
                (proxy.cut_before if when == "before" else proxy.cut_after)(request)
                (outcome,) = copied(source, behind)
                was_cut = proxy.faults > 0
            expected = contents(source)
            found = {name: one for name, one in contents(target).items() if name[0] == key}
            assert found in ({}, expected)
            assert outcome.result != "copied" or found == expected
            assert [one.ok for one in copied(source, target)] == [True]
            assert {name: one for name, one in contents(target).items() if name[0] == key} == expected
        if not was_cut:
            break
    assert request > 10


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_a_copy_that_was_killed_goes_on(root: Path, database: str, kind: str) -> None:
    create(database)
    with opened(root / "source") as store:
        for name in range(10):
            fill(store, Random(name), steps=20, name=f"{name}:")
        before = contents(store)
    target = str(root / "target") if kind == "files" else database
    for lines in (1, 5, 20):
        command = [sys.executable, "-c", PROGRAM, str(root / "source"), target]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for _ in range(lines):
                assert program.stdout.readline().strip() in ("copied", "unchanged")
            program.kill()
    with opened(root / "source") as source, opened(target) as there:
        assert all(contents(there)[name] == before[name] for name in contents(there))
        assert all(outcome.ok for outcome in copied(source, there))
        assert contents(there) == before
        assert there.verify(None).ok
