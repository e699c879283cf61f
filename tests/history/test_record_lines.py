"""A session as it is written, wherever it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import nacre
from nacre.history import record_lines
from nacre.records import View


@pytest.fixture
def sessions(place: str) -> Iterator[nacre.Sessions]:
    with nacre.open(place) as found:
        found.add_message("k", "user", "a")
        found.append("k", "use", {"input_tokens": 7})
        yield found


def test_every_record_has_its_line(sessions: nacre.Sessions) -> None:
    def get(view: View) -> list[tuple[int, str]]:
        lines = ((record, record_lines.whole_line(view, record, line)) for record, line in view.all_lines())
        return [(record.n, msgspec.json.decode(line)["t"]) for record, line in lines]

    assert sessions.read("k", get) == [(1, "open"), (2, "msg"), (3, "use")]


def test_what_was_used_is_read_with_the_history(sessions: nacre.Sessions) -> None:
    def get(view: View) -> tuple[list[int], list[int]]:
        held, used = record_lines.read_once(view)
        return [record.n for record in held.all()], [record.n for record in used]

    assert sessions.read("k", get) == ([1, 2], [3])


def test_a_large_payload_is_in_its_line_too_wherever_it_is_kept(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("k", "tool", "x" * 100_000)

        def get(view: View) -> list[bytes]:
            return [record_lines.whole_line(view, record, line) for record, line in view.all_lines()]

        assert [b"x" * 100_000 in line for line in sessions.read("k", get) or ()] == [False, True]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_large_payload_is_in_its_line_unless_it_is_lost(root: Path, is_lost: bool) -> None:
    large = "x" * 100_000
    with nacre.open(root) as sessions:
        sessions.add_message("k", "tool", large)
        sessions.append("k", "tool", {"output": large})
    if is_lost:
        for blob in (root / "blobs").rglob("*"):
            if blob.is_file():
                blob.unlink()

    def get(view: View) -> list[dict[str, object]]:
        lines = (record_lines.whole_line(view, record, line) for record, line in view.all_lines())
        return [msgspec.json.decode(line) for line in lines][1:]

    with nacre.open(root) as sessions:
        message, output = sessions.read("k", get) or []
    assert ("blobs" in message, "blobs" in output) == (is_lost, is_lost)
    assert (large in str(message), large in str(output)) == (not is_lost, not is_lost)
