"""Pages of everything that was ever said: the same as from a reading of everything, and never too long."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import nacre
from nacre.codec import message_of, time_of
from nacre.history import session_state
from nacre.records import Losses, View
from nacre.render.text import rfc3339
from nacre.sessions import Sessions
from nacre.web.api import queries
from nacre.web.api.schemas import Conversation, ReadQuery
from tests.paths import log_of
from tests.random_sessions import KEYS, act, open_small
from tests.web.conftest import Site

Items = list[dict[str, Any]]


def read_everything(sessions: Sessions, key: str) -> tuple[Items, Losses]:
    """Every message of a session and what is lost, by a reading of all of it: the algorithm without any shortcut."""

    def get(view: View) -> tuple[Items, Losses]:
        live = {record.n for record in session_state.chain(view, view.state)} if view.is_newest else set()
        items = [
            {
                "generation": view.uid,
                "n": record.n,
                "ts": rfc3339(time_of(record)),
                "live": record.n in live,
                "message": message_of(record, view).to_mapping(),
            }
            for record in view.all()
            if record.t == "msg"
        ]
        return items, view.losses

    lives = sessions.read_generations(key, get)
    return [item for items, _ in lives for item in items], sum((losses for _, losses in lives), Losses())


def pages(sessions: Sessions, key: str, limit: int) -> list[Conversation]:
    found = [queries.read(sessions, key, ReadQuery(scope="whole", limit=limit))]
    while cursor := found[-1].next_cursor:
        found.append(queries.read(sessions, key, ReadQuery(scope="whole", limit=limit, cursor=cursor)))
    return found


def items_of(found: list[Conversation]) -> Items:
    return [msgspec.to_builtins(item) for page in reversed(found) for item in page.items]


@pytest.mark.parametrize("seed", range(6))
def test_all_pages_together_are_a_reading_of_everything(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with open_small(tmp_path) as sessions:
        act(sessions, random, steps=150)
        for key in KEYS:
            expected, _ = read_everything(sessions, key)
            found = pages(sessions, key, limit=random.choice([1, 3, 7]))
            assert items_of(found) == expected
            assert {page.total for page in found} == {len(expected)}
            assert [page.has_more for page in found] == [True] * (len(found) - 1) + [False]
            assert {page.unreadable for page in found} == {None}


@pytest.mark.parametrize("seed", range(6))
def test_pages_of_a_damaged_log_are_a_reading_of_what_is_left(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with open_small(tmp_path, "commit") as sessions:
        act(sessions, random, steps=100)
        keys = [key for key in KEYS if sessions.status(key) == "active"]
        for key in keys:
            log = log_of(tmp_path, key)
            lines = log.read_bytes().splitlines(keepends=True)
            spoilt = random.sample(range(1, len(lines)), k=min(2, len(lines) - 1))
            # A new file: what a fork shares with this log stays as it was.
            log.unlink()
            log.write_bytes(b"".join(b"#" + line[1:] if at in spoilt else line for at, line in enumerate(lines)))
        for key in keys:
            before = pages(sessions, key, limit=4)
            expected, _ = read_everything(sessions, key)
            found = pages(sessions, key, limit=3)
            assert items_of(found) == expected
            assert {page.total for page in found} == {len(expected)}
            # A page that has met the damage before is not of what was there once.
            assert {item["n"] for item in items_of(before)} >= {item["n"] for item in expected}


def fill_cold(sessions: Sessions, key: str) -> Path:
    """Move many messages out of the log, into several frames."""
    for at in range(200):
        sessions.add_message(key, "user", f"{at} " + Random(at).randbytes(3000).hex())
    sessions.truncate_history(key, 1)
    sessions.save(key)
    (cold,) = (Path(sessions.location) / "cold").iterdir()
    return cold


def test_a_page_says_what_is_lost_of_it_each_time_and_nothing_of_other_pages(tmp_path: Path) -> None:
    with open_small(tmp_path) as sessions:
        cold = fill_cold(sessions, "k")
        data = bytearray(cold.read_bytes())
        data[len(data) // 2] ^= 4
        cold.write_bytes(data)
        expected, losses = read_everything(sessions, "k")
        assert losses.records > 0
        for _ in range(2):
            found = pages(sessions, "k", limit=20)
            assert items_of(found) == expected
            told = {page.unreadable.text for page in found if page.unreadable is not None}
            assert told == {losses.text}
            assert found[0].unreadable is None
            # Where it is not known yet that some are lost, the total has them.
            assert {page.total for page in found if page.unreadable} == {len(expected)}
            assert found[0].total == 200


def test_a_page_is_not_longer_than_it_may_be_and_has_one_message_at_least(tmp_path: Path) -> None:
    sizes = [10, 3_000_000, 3_000_000, 3_000_000, 9_000_000, 10, 10]
    for scope in ("live", "whole"):
        with nacre.open(tmp_path / scope) as sessions:
            for size in sizes:
                sessions.add_message("k", "user", "x" * size)
            lengths = []
            cursor = ""
            while True:
                page = queries.read(sessions, "k", ReadQuery(scope=scope, cursor=cursor))
                lengths.append([len(item.message["content"]) for item in page.items])
                assert page.total == len(sizes)
                cursor = page.next_cursor or ""
                if not page.has_more:
                    break
            assert lengths == [[10, 10], [9_000_000], [3_000_000, 3_000_000], [10, 3_000_000]]


def test_a_page_that_goes_on_in_an_earlier_generation_is_not_longer_either(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("k", "user", "a" * 5_000_000)
        sessions.archive("k")
        sessions.add_message("k", "user", "b" * 5_000_000)
        first, second = pages(sessions, "k", limit=50)
        assert [(len(page.items), page.items[0].message["content"][0]) for page in (first, second)] == [
            (1, "b"),
            (1, "a"),
        ]


def test_a_cursor_that_names_no_message_is_refused(echo: Site) -> None:
    echo.sessions.add_message("k", "user", "hello")
    echo.sessions.set_meta("k", title="Hi")
    (item,) = echo.client.get("/api/sessions/k", params={"scope": "whole"}).json()["items"]
    uid = item["generation"]
    for cursor in (f"{uid}/3", f"{uid}/99", f"/{item['n']}", "0" * 32 + "/2"):
        answer = echo.client.get("/api/sessions/k", params={"scope": "whole", "cursor": cursor})
        assert answer.status_code == 404


@pytest.mark.parametrize("lost", [[0], [0, 1], [0, 1, 2], [1], [2]])
def test_what_is_lost_at_the_beginning_of_a_log_is_not_counted(root: Path, lost: list[int]) -> None:
    with nacre.open(root) as sessions:
        for number in range(6):
            sessions.add_message("k", "user", f"m{number}")
    lines = log_of(root, "k").read_bytes().splitlines(keepends=True)
    spoilt = (b"\0" * (len(line) - 1) + b"\n" if at in lost else line for at, line in enumerate(lines))
    log_of(root, "k").write_bytes(b"".join(spoilt))
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "after")
        page = queries.read(sessions, "k", ReadQuery(scope="whole", limit=50))
        expected = len(read_everything(sessions, "k")[0])
        assert (len(page.items), page.total) == (expected, expected)
        assert [info.messages for info in sessions.list()] == [len(sessions.get_history("k"))]
