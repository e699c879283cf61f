"""Every message of a session by number: pages and counts are what a reading of everything gives."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import nacre
from nacre.history import every_message, session_state
from nacre.records import Record, View
from nacre.sessions import Sessions
from tests.paths import log_of
from tests.random_sessions import KEYS, act, open_small


def read_all(view: View) -> list[tuple[int, bool]]:
    """Numbers of all messages, newest first, and whether each is live: the straightforward way."""
    numbers = {record.n for record in session_state.chain(view, view.state)} if view.is_newest else set()
    return [(record.n, record.n in numbers) for record in view.all() if record.t == "msg"][::-1]


def read_pages(view: View, limit: int) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    before: Record | None = None
    while True:
        is_live = every_message.is_live(view)
        page = list(every_message.newest(view, limit, before=before))
        found += [(record.n, is_live(record)) for record in page]
        if len(page) < limit:
            return found
        before = view.find(page[-1].n)
        assert before is not None


@pytest.mark.parametrize("seed", range(10))
def test_pages_and_counts_are_those_of_a_reading_of_everything(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with open_small(tmp_path) as sessions:
        for _ in range(3):
            act(sessions, random, steps=60)
            for key in KEYS:
                for expected, pages, count in sessions.read_generations(key, compare):
                    assert pages == expected
                    assert count == len(expected)


def compare(view: View) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]], int]:
    return read_all(view), read_pages(view, 1 + view.n % 7), every_message.count(view)


def fill_cold(sessions: Sessions, key: str = "k") -> None:
    """Messages in many frames of a cold file, with usage between them; only the last is live."""
    for run in range(3):
        for at in range(40):
            reply = nacre.Message(role="user", content=f"{run} {at} " + Random(run * 40 + at).randbytes(4000).hex())
            sessions.submit(key, [reply, nacre.AppendRecord("use", {"prompt": 1})]).result()
        sessions.truncate_history(key, 1)
        sessions.save(key)


def test_a_page_of_what_was_moved_out_is_found_without_the_rest_of_the_file(tmp_path: Path) -> None:
    with open_small(tmp_path) as sessions:
        fill_cold(sessions)
        sessions.read("k", compare)
        assert sessions.read("k", lambda view: [one.n for one in every_message.newest(view, 3)]) == [244, 242, 240]
        (cold,) = (tmp_path / "cold").iterdir()
        data = bytearray(cold.read_bytes())
        data[100] ^= 4
        cold.write_bytes(data)

        def read_newest(view: View) -> tuple[list[int], nacre.Losses]:
            return [record.n for record in every_message.newest(view, 60)], view.losses

        newest = sessions.read("k", read_newest)
        assert newest is not None
        assert len(newest[0]) == 60
        assert not newest[1]


def test_in_memory_nothing_is_moved_out() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("k", "user", "hello")
        assert sessions.read("k", lambda view: list(view.moved(2))) == []


def test_pages_of_a_log_that_lost_a_message_are_of_what_is_left(tmp_path: Path) -> None:
    with open_small(tmp_path, "commit") as sessions:
        for at in range(9):
            sessions.add_message("k", "user", f"message {at}")
        log = log_of(tmp_path, "k")
        log.write_bytes(log.read_bytes().replace(b"message 4", b"message 5"))
        sessions.read("k", lambda view: list(view.all()))
        expected, pages, count = sessions.read("k", compare) or ([], [], 0)
        assert pages == expected == [(n, True) for n in (10, 9, 8, 7, 5, 4, 3, 2)]
        assert count == 8


def test_pages_of_a_fork_go_on_in_what_was_moved_out_of_the_log_that_it_shares(tmp_path: Path) -> None:
    with open_small(tmp_path) as sessions:
        fill_cold(sessions)
        sessions.fork("k", "new")
        sessions.add_message("new", "user", "another")
        expected, pages, count = sessions.read("new", compare) or ([], [], 0)
        assert pages == expected
        assert (len(pages), count) == (121, 121)


def test_without_what_was_moved_out_messages_are_counted_one_by_one(tmp_path: Path) -> None:
    with open_small(tmp_path) as sessions:
        for at in range(9):
            sessions.add_message("k", "user", f"message {at}")
        sessions.rewind("k", 3)
        sessions.add_message("k", "user", "another way")
        sessions.save("k")
        (cold,) = (tmp_path / "cold").iterdir()
        cold.unlink()
        expected, pages, count = sessions.read("k", compare) or ([], [], 0)
        assert pages == expected == [(12, True), (3, True), (2, True)]
        assert count == 3
        assert sessions.read("k", every_message.count) == 3
