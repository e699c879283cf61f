"""Sessions of nanobot are recognised, with their keys, times, titles and summaries."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import migrate
from nacre.legacy.formats import read_nanobot
from nacre.storage.file_store import FileStore

CALL = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "why does checkout 500?", "timestamp": "2026-09-01T10:00:00"},
    {"role": "assistant", "content": "", "tool_calls": [CALL], "timestamp": "2026-09-01T10:00:03"},
    {"role": "tool", "tool_call_id": "c1", "name": "exec", "content": "KeyError", "timestamp": "2026-09-01T10:00:04"},
]


@pytest.fixture(autouse=True)
def berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def about(**fields: Any) -> dict[str, Any]:
    times = {"created_at": "2026-09-01T09:00:00", "updated_at": "2026-09-01T11:00:00"}
    return {"_type": "metadata", "key": "cli:direct", **times, "metadata": {}, "last_consolidated": 0, **fields}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def opened(tmp_path: Path, folder: Path) -> tuple[nacre.Sessions, list[tuple[str, str]]]:
    store = FileStore(str(tmp_path / "store"), rules=RULES)
    found = migrate(store, folder)
    return nacre.Sessions(store), [(migrated.key, migrated.outcome) for migrated in found.report]


@pytest.mark.parametrize("place", ["x.jsonl", "sessions/x.jsonl", f"sessions/{'0a' * 16}/x.jsonl"])
def test_a_session_is_found_wherever_nanobot_keeps_it(tmp_path: Path, place: str) -> None:
    file = tmp_path / "nanobot" / place
    file.parent.mkdir(parents=True)
    file.write_bytes(lines(about(metadata={"title": "checkout bug"}), {"_type": "provider_state"}, *MESSAGES))
    sessions, report = opened(tmp_path, tmp_path / "nanobot")
    assert report == [("cli:direct", "migrated")]
    history = sessions.get_history("cli:direct")
    assert [message.role for message in history] == ["user", "assistant", "tool"]
    assert history[1].tool_calls[0].name == "exec"
    (info,) = sessions.list()
    assert (info.title, info.created, info.updated) == (
        "checkout bug",
        datetime(2026, 9, 1, 7, tzinfo=UTC),
        datetime(2026, 9, 1, 9, tzinfo=UTC),
    )
    assert history[0].created == datetime(2026, 9, 1, 8, tzinfo=UTC)
    assert file.with_name("x.jsonl.migrated").exists()
    assert opened(tmp_path, tmp_path / "nanobot")[1] == []


@pytest.mark.parametrize(
    ("key", "name", "found"),
    [
        ("telegram:42", "dGVsZWdyYW06NDI", "telegram:42"),
        (None, "dGVsZWdyYW06NDI", "telegram:42"),
        (None, "telegram_42", "telegram_42"),
        (7, "abcd", "abcd"),
    ],
)
def test_the_key_is_in_the_metadata_else_in_the_name(key: Any, name: str, found: str) -> None:
    legacy = read_nanobot(lines(about(key=key), *MESSAGES), name, changed=None)
    assert legacy is not None
    assert legacy.key == found


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({"last_archived": 2, "metadata": {"_last_summary": {"text": "S"}}}, 2),
        ({"last_archived": 99, "metadata": {"_last_summary": {"text": "S"}}}, 3),
        ({"last_consolidated": 1, "metadata": {"_last_summary": {"text": "S"}}}, 1),
        ({"last_archived": True, "metadata": {"_last_summary": {"text": "S"}}}, 0),
        ({"last_archived": 2, "metadata": {}}, 0),
        ({"last_archived": 2, "metadata": None}, 0),
    ],
)
def test_what_a_summary_stands_for_is_no_longer_live(fields: dict[str, Any], dropped: int) -> None:
    legacy = read_nanobot(lines(about(**fields), *MESSAGES), "x", changed=None)
    assert legacy is not None
    assert (legacy.dropped, len(legacy.said)) == (dropped, 3)


def test_what_is_no_message_is_set_aside() -> None:
    torn = b'{"role":"user","cont'
    wrong = {"role": "user", "content": "x", "timestamp": "never"}
    legacy = read_nanobot(torn + b"\n" + lines(about(created_at="never"), wrong, [1]), "x", changed=None)
    assert legacy is not None
    assert [bad.raw for bad in legacy.bad] == [torn, b"[1]"]
    assert (legacy.created, legacy.messages[0].extra) == (None, {"timestamp": "never"})


@pytest.mark.parametrize("data", [b"", b"not json", lines(*MESSAGES), lines({"event": 1}, about())])
def test_what_does_not_begin_with_metadata_is_another_agents(data: bytes) -> None:
    assert read_nanobot(data, "x", changed=None) is None
