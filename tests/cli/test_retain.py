"""nacre sessions retain: what is old, and why, before it is moved; and then it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nacre.legacy.detect import is_due
from nacre.storage.system import System
from tests.cli.conftest import Nacre


@pytest.fixture
def later(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> Nacre:
    """A store with an active session and an archived one, a hundred days later."""
    nacre.fill("one", "two")
    assert nacre("sessions", "archive", "two").code == 0
    then = (datetime.now(UTC) + timedelta(days=100)).timestamp()
    monkeypatch.setattr("time.time", lambda: then)
    return nacre


def test_where_nothing_is_set_nothing_is_done_and_that_is_said(later: Nacre) -> None:
    result = later("sessions", "retain")
    assert (result.code, result.out) == (0, "")
    assert "no rule is set" in result.err


def test_a_dry_run_says_what_would_be_done_and_why(later: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_RETENTION_ARCHIVE_AFTER", "90d")
    monkeypatch.setenv("NACRE_RETENTION_DELETE_AFTER", "90d")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    before = later.files()
    assert later("sessions", "retain", "--dry-run").out.splitlines() == [
        f"one: would be archived: nothing was written since {today}",
        f"two: would be in the trash: it was archived, and nothing changed since {today}",
    ]
    assert later.files() == before


def test_it_is_done_and_told_and_the_store_opens_as_before(later: Nacre) -> None:
    result = later("sessions", "retain", "--archive-after", "90d", "--delete-after", "8w", "--json")
    assert result.code == 0
    assert [(one["key"], one["status"]) for one in result.json["results"]] == [
        ("one", "archived"),
        ("two", "in the trash"),
    ]
    assert (later.root / "receipts" / "retention.jsonl").exists()
    assert not is_due(System(), str(later.root))
    assert later("sessions", "restore", "two").code == 0
    assert later("sessions", "retain", "--archive-after", "90d", "--json").json["results"] == []


def test_one_that_is_at_work_is_left_alone_and_said(later: Nacre) -> None:
    with later.sessions() as sessions:
        hold = sessions.hold("one")
        hold.take()
        result = later("sessions", "retain", "--archive-after", "90d", "--json")
        hold.close()
    assert (result.code, result.json["results"][0]["status"]) == (0, "left")


def test_what_is_no_span_is_exit_2(later: Nacre) -> None:
    result = later("sessions", "retain", "--archive-after", "soon", "--json")
    assert result.code != 0
    assert "is a duration" in result.json["error"]["message"]
