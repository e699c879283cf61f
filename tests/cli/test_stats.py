"""nacre sessions stats."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from nacre.render.text import width
from tests.cli.conftest import Nacre


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Days as they are in Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def busy(nacre: Nacre) -> Nacre:
    """A store with two sessions over three days."""
    call = {"id": "c", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    with nacre.sessions() as sessions:
        for day, role, model in ((1, "user", None), (1, "assistant", "tiny"), (3, "user", None)):
            message = {"role": role, "content": "x", "created": f"2026-11-0{day}T12:00:00Z"}
            sessions.add_full_message("a", {**message, "model": model} if model else message)
        old = {"role": "assistant", "created": "2026-11-01T12:00:00Z", "tool_calls": [call], "model": "large"}
        sessions.add_full_message("b", old)
        sessions.append("a", "use", {"model": "tiny", "input_tokens": 90, "output_tokens": 10, "request_id": "r"})
        sessions.append("a", "use", {"model": "tiny", "input_tokens": 90, "output_tokens": 10, "request_id": "r"})
        sessions.append("b", "use", {"model": "large", "total": 1000})
    return nacre


def by(found: dict[str, object], sort: str) -> dict[str, object]:
    rows = found["by"][sort]  # type: ignore[index]
    return {row[sort]: row.get("messages", row.get("calls")) for row in rows}


def test_everything_is_counted(busy: Nacre) -> None:
    found = busy("sessions", "stats", "--json").json
    assert (found["sessions"], found["messages"]) == (2, 4)
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (90, 10, 1100)
    assert by(found, "session") == {"a": 3, "b": 1}
    assert by(found, "model") == {"tiny": 1, "large": 1}


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("role", {"user": 2, "assistant": 2}),
        ("tool", {"shell": 1}),
        ("model", {"tiny": 1, "large": 1}),
        ("session", {"a": 3, "b": 1}),
    ],
)
def test_one_way_of_counting_may_be_asked_for(busy: Nacre, sort: str, expected: dict[str, int]) -> None:
    found = busy("sessions", "stats", "--by", sort, "--json").json
    assert list(found["by"]) == [sort]
    assert by(found, sort) == expected


def test_one_session_may_be_asked_for(busy: Nacre) -> None:
    assert busy("sessions", "stats", "a", "--json").json["messages"] == 3


def test_days_without_messages_are_shown_between_others(busy: Nacre) -> None:
    lines = busy("sessions", "stats", "a", "--by", "day").out.splitlines()
    assert lines[:2] == ["1 session · 3 messages · 100 tokens (90 in, 10 out)", ""]
    assert [line.split()[0] for line in lines[3:6]] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert [line.split()[-1] for line in lines[3:6]] == ["2", "0", "1"]


def test_since_leaves_out_what_was_before(busy: Nacre) -> None:
    found = busy("sessions", "stats", "--since", "2026-11-02", "--by", "day", "--json").json
    assert found["messages"] == 1
    assert busy("sessions", "stats", "--since", "never").code == 2
    assert busy("sessions", "stats", "--since", "100y", "--json").json["messages"] == 4


def test_what_a_fork_shares_counts_once(busy: Nacre) -> None:
    with busy.sessions() as sessions:
        sessions.fork("a", "branch")
        sessions.add_message("branch", "user", "only here")
    found = busy("sessions", "stats", "--json").json
    assert (found["messages"], found["total_tokens"]) == (5, 1100)


def test_archived_sessions_count(busy: Nacre) -> None:
    with busy.sessions() as sessions:
        sessions.archive("a")
        sessions.add_message("a", "user", "anew")
    assert busy("sessions", "stats", "--json").json["messages"] == 5


@pytest.mark.parametrize("columns", ["80", "200"])
def test_bars_use_all_columns_up_to_a_hundred(busy: Nacre, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = busy("sessions", "stats").out.splitlines()
    assert max(map(width, lines)) == min(int(columns), 100)


def test_ascii_has_no_blocks(busy: Nacre) -> None:
    out = busy("sessions", "stats", "--ascii").out
    assert out.isascii()
    assert "####" in out


def test_a_locale_without_blocks_gets_ascii(busy: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "####" in busy.run("sessions", "stats").stdout


def test_jsonl_is_a_line_for_each_row(busy: Nacre) -> None:
    out = busy("sessions", "stats", "--by", "role", "--jsonl").out
    assert [json.loads(line)["role"] for line in out.splitlines()] == ["assistant", "user"]


def test_hostile_names_stay_names(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_full_message("k\x1b[2J", {"role": "\u202e", "content": "x", "model": "\x07"})
    for words in ([], ["--by", "role"], ["--json"]):
        out = nacre("sessions", "stats", *words).out
        assert all(char == "\n" or char.isprintable() for char in out)


def test_an_empty_store_has_nothing_to_count(nacre: Nacre) -> None:
    code, out, _ = nacre("sessions", "stats")
    assert (code, out) == (0, "0 sessions · 0 messages\n")


def test_what_is_in_quarantine_is_said_not_to_be_counted(nacre: Nacre) -> None:
    nacre.fill("one", *(f"k{at}" for at in range(6)))
    for key in ("one", *(f"k{at}" for at in range(6))):
        nacre.damage(key)
        nacre("sessions", "repair", key)
    told = nacre("sessions", "stats")
    assert told.err.count("not counted: ") == 5
    assert "… and 2 more sessions: `nacre sessions quarantine`" in told.err
    assert "quarantine show one" in nacre("sessions", "stats", "one").err
    assert "quarantined" in nacre("sessions", "stats", "--json").json
    nacre("sessions", "quarantine", "discard", "one", "--yes")
    assert "not counted" not in nacre("sessions", "stats", "one").err
