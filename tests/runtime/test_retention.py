"""Old sessions: archived, then in the trash, as it is set; never what is pinned, new or at work; through every kill."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.config import Settings
from nacre.errors import ConfigError, SessionBusy
from nacre.runtime import retention, run_agent
from nacre.runtime.agents import Agents
from nacre.runtime.retention import Clock, Keeper, Left, Rules, due
from nacre.sessions import Sessions
from nacre.storage.system import System
from tests.ollama_server import OllamaServer
from tests.ollama_server import serving as ollama
from tests.runtime.test_assembly import MODELS

DAY = timedelta(days=1)
RECEIPTS = "receipts/retention.jsonl"
BOTH = Rules(archive_after=90 * DAY, delete_after=30 * DAY)


class Calendar:
    """What day it is, for retention; the store has its own clock, which is right."""

    def __init__(self) -> None:
        self._days = 0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._days * DAY

    def turn(self, days: int) -> None:
        self._days += days


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def sessions(root: Path) -> Iterator[Sessions]:
    with nacre.open(root) as found:
        yield found


def fill(sessions: Sessions, *keys: str) -> None:
    for key in keys:
        sessions.add_message(key, "user", f"hello from {key}")


def names(sessions: Sessions, calendar: Calendar, rules: Rules = BOTH) -> list[tuple[str, str]]:
    return [(act.act, act.key) for act in due(sessions, rules, clock=calendar)]


def keep(sessions: Sessions, calendar: Calendar, rules: Rules = BOTH) -> None:
    with Keeper(sessions) as keeper:
        for act in due(sessions, rules, clock=calendar):
            keeper.do(act)


def receipts(root: Path) -> list[tuple[str, str, str]]:
    lines = [json.loads(line) for line in (root / RECEIPTS).read_text().splitlines()]
    return [(line["act"], line["key"], line["state"]) for line in lines]


# ---- what is set


def test_nothing_is_set_and_so_nothing_is_due(sessions: Sessions, calendar: Calendar) -> None:
    fill(sessions, "k")
    calendar.turn(10_000)
    rules = Rules.of(Settings({}, {}))
    assert (bool(rules), due(sessions, rules, clock=calendar)) == (False, [])


@pytest.mark.parametrize("text", ["90", "0d", "d", "-1d", "90 days", "1.5d", "9999999d", "90D", "1001y", "99999w"])
def test_what_is_no_span_of_time_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match=r"retention.archive_after is a duration such as 12h, 90d, 8w or 1y"):
        Rules.of(Settings({"retention": {"archive_after": text}}, {}))


def test_a_daemon_does_not_start_with_what_is_no_span(home: Path) -> None:
    settings = Settings({"retention": {"delete_after": "soon"}}, {})
    with pytest.raises(ConfigError, match=r"retention.delete_after is a duration"):
        anyio.run(Agents(store=str(home / "store")).check, settings)


def test_spans_are_hours_days_weeks_and_years() -> None:
    found = [retention.span(text, "x") for text in ("12h", "90d", "8w", "1y", "")]
    assert found == [timedelta(hours=12), 90 * DAY, 56 * DAY, 365 * DAY, None]


# ---- what is due


def test_a_session_is_archived_when_nothing_was_written_for_long_and_then_thrown_away(
    sessions: Sessions, root: Path, calendar: Calendar
) -> None:
    fill(sessions, "k")
    calendar.turn(89)
    assert names(sessions, calendar) == []
    calendar.turn(2)
    assert names(sessions, calendar) == [("archive", "k")]
    calendar.turn(-91)
    sessions.archive("k")
    calendar.turn(29)
    assert names(sessions, calendar) == []
    calendar.turn(2)
    assert names(sessions, calendar) == [("delete", "k")]


def test_nothing_is_deleted_that_was_not_archived_first(sessions: Sessions, calendar: Calendar) -> None:
    fill(sessions, "k")
    calendar.turn(10_000)
    assert names(sessions, calendar, Rules(delete_after=30 * DAY)) == []
    assert names(sessions, calendar) == [("archive", "k")]


def test_what_was_archived_of_an_internal_session_is_removed_in_its_time(
    sessions: Sessions, calendar: Calendar
) -> None:
    fill(sessions.with_internal_keys(), "nacre:memory")
    sessions.archive("nacre:memory")
    calendar.turn(10_000)
    assert names(sessions, calendar) == [("delete", "nacre:memory")]


def test_what_is_pinned_and_what_is_our_own_is_left_alone(sessions: Sessions, calendar: Calendar) -> None:
    fill(sessions.with_internal_keys(), "k", "pinned", "nacre:inbox", "nacre:memory", "old")
    sessions.set_meta("pinned", pinned=True)
    sessions.archive("old")
    fill(sessions, "old")
    sessions.set_meta("old", pinned=True)
    calendar.turn(10_000)
    assert names(sessions, calendar) == [("archive", "k")]


def test_of_a_session_that_goes_on_only_its_archived_lives_are_thrown_away(
    sessions: Sessions, root: Path, calendar: Calendar
) -> None:
    fill(sessions, "k")
    sessions.archive("k")
    fill(sessions, "k")
    calendar.turn(31)
    keep(sessions, calendar)
    assert [message.content for message in sessions.get_history("k")] == ["hello from k"]
    assert len(sessions.transcript("k")) == 1
    (item,) = sessions.list_trash()
    sessions.archive("k")
    sessions.restore_from_trash(item.id)
    assert len(sessions.transcript("k")) == 2


def test_what_cannot_be_read_is_left_alone(sessions: Sessions, root: Path, calendar: Calendar) -> None:
    fill(sessions, "k", "broken")
    sessions.archive("broken")
    (log,) = (root / "archive").iterdir()
    log.write_bytes(b'{"v":9}\n' * 3)
    calendar.turn(10_000)
    assert names(sessions, calendar) == [("archive", "k")]
    assert log.exists()


# ---- doing it


def test_what_is_done_has_receipts(sessions: Sessions, root: Path, calendar: Calendar) -> None:
    fill(sessions, "one", "two")
    sessions.archive("two")
    calendar.turn(91)
    keep(sessions, calendar)
    assert [info.key for info in sessions.list(archived=True)] == ["one"]
    assert [item.key for item in sessions.list_trash()] == ["two"]
    assert receipts(root) == [
        ("archive", "one", "begun"),
        ("archive", "one", "done"),
        ("delete", "two", "begun"),
        ("delete", "two", "done"),
    ]
    assert (root / RECEIPTS).stat().st_mode & 0o777 == 0o600


def test_a_session_that_is_at_work_is_left_alone(sessions: Sessions, root: Path, calendar: Calendar) -> None:
    fill(sessions, "k")
    calendar.turn(91)
    hold = sessions.hold("k")
    hold.take()
    with pytest.raises(Left, match="in use"):
        keep(sessions, calendar)
    hold.close()
    assert receipts(root)[-1] == ("archive", "k", "left")
    assert [info.key for info in sessions.list()] == ["k"]


def test_a_session_that_was_written_since_is_left_alone(sessions: Sessions, root: Path, calendar: Calendar) -> None:
    fill(sessions, "k")
    calendar.turn(91)
    (act,) = due(sessions, BOTH, clock=calendar)
    fill(sessions, "k")
    with Keeper(sessions) as keeper, pytest.raises(Left, match="changed meanwhile"):
        keeper.do(act)
    assert [info.key for info in sessions.list()] == ["k"]


def test_a_session_that_was_begun_anew_since_is_left_alone(sessions: Sessions, calendar: Calendar) -> None:
    fill(sessions, "k")
    calendar.turn(91)
    (act,) = due(sessions, BOTH, clock=calendar)
    sessions.archive("k")
    fill(sessions, "k")
    with Keeper(sessions) as keeper, pytest.raises(Left, match="changed meanwhile"):
        keeper.do(act)
    assert [info.key for info in sessions.list()] == ["k"]


def test_one_that_is_written_at_the_last_moment_comes_back(
    sessions: Sessions, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sessions, "k")
    calendar.turn(91)
    archive = sessions.archive

    def late(key: str) -> None:
        fill(sessions, key)
        archive(key)

    monkeypatch.setattr(sessions, "archive", late)
    with pytest.raises(Left, match="changed meanwhile"):
        keep(sessions, calendar)
    assert [(info.key, info.messages) for info in sessions.list()] == [("k", 2)]
    assert list(sessions.list(archived=True)) == []


def test_one_that_was_brought_back_since_is_not_thrown_away(sessions: Sessions, calendar: Calendar) -> None:
    fill(sessions, "k")
    sessions.archive("k")
    calendar.turn(31)
    (act,) = due(sessions, BOTH, clock=calendar)
    sessions.unarchive("k")
    with Keeper(sessions) as keeper, pytest.raises(Left, match="changed meanwhile"):
        keeper.do(act)
    assert sessions.exists("k")


def test_only_one_process_does_it_at_a_time(sessions: Sessions, root: Path) -> None:
    with (
        Keeper(sessions),
        pytest.raises(SessionBusy, match="another process is applying retention"),
        Keeper(sessions),
    ):
        pass


# ---- killed


MUTATING = ("write", "fdatasync", "fsync", "rename", "link", "unlink", "mkdir")


def killed(act: Callable[[], object], *, at: int) -> bool:
    """Do something in a child that is killed before its nth change to the disk; False if it came to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            left = [at]
            for name in MUTATING:
                call = _deadly(getattr(System, name), left)
                setattr(System, name, staticmethod(call) if isinstance(vars(System)[name], staticmethod) else call)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status)
    return os.WIFSIGNALED(status)


def _deadly(call: Any, left: list[int]) -> Any:
    def deadly(*args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)

    return deadly


@pytest.mark.parametrize("act", ["archive", "delete"])
def test_killed_at_any_step_nothing_is_lost_and_the_next_run_goes_on(
    tmp_path: Path, calendar: Calendar, act: str
) -> None:
    calendar.turn(91)
    rules = Rules(archive_after=90 * DAY) if act == "archive" else Rules(delete_after=90 * DAY)
    at, was_killed = -1, True
    while was_killed:
        at += 1
        root = tmp_path / str(at)
        prepare(root, archived=act == "delete")
        was_killed = killed(lambda root=root: run(root, calendar, rules), at=at)  # type: ignore[misc]
        run(root, calendar, rules)
        assert contents(root, act) == ["hello from one", "hello from two"]
        assert {key for what, key, state in receipts(root) if (what, state) == (act, "done")} == {"one", "two"}
        assert receipts(root)[-1][2] == "done"
    assert at > 10


def prepare(root: Path, *, archived: bool) -> None:
    with nacre.open(root) as sessions:
        fill(sessions, "one", "two")
        for key in ("one", "two") if archived else ():
            sessions.archive(key)


def run(root: Path, calendar: Calendar, rules: Rules) -> None:
    with nacre.open(root) as sessions:
        keep(sessions, calendar, rules)


def contents(root: Path, act: str) -> list[Any]:
    """What is said in the sessions that are where they should be by now; from the trash they are brought back."""
    with nacre.open(root) as sessions:
        if act == "delete":
            assert [*sessions.list(), *sessions.list(archived=True)] == []
            for item in sessions.list_trash():
                sessions.restore_from_trash(item.id)
        found = sorted(info.key for info in sessions.list(archived=True))
        return [one.message.content for key in found for one in sessions.transcript(key)]


def test_a_receipt_that_was_torn_costs_only_itself(sessions: Sessions, root: Path, calendar: Calendar) -> None:
    fill(sessions, "k")
    (root / RECEIPTS).parent.mkdir()
    (root / RECEIPTS).write_bytes(b'{"ts":"2026-01-01T00:0')
    calendar.turn(91)
    keep(sessions, calendar)
    lines = (root / RECEIPTS).read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines[1:]] == ["begun", "done"]


# ---- the daemon's


class Naps:
    """Sleeps for no time at all, and at the second time for good."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.has_run = anyio.Event()

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        if len(self.taken) > 1:
            self.has_run.set()
            await anyio.sleep_forever()


def looked_after(clock: Clock, *, trouble: str = "", **rules: str) -> tuple[list[str], list[float]]:
    """What is in the archive after the daemon has looked once, and how long it slept."""

    async def main() -> tuple[list[str], list[float]]:
        async with ollama(OllamaServer([], MODELS)) as server:
            settings = Settings({"ollama": {"host": server.host}, "retention": rules}, {})
            async with run_agent(settings) as app, anyio.create_task_group() as tasks:
                fill(app.sessions, "k")
                app.trouble = trouble
                naps = Naps()
                tasks.start_soon(lambda: retention.keep({"main": app}, sleep=naps, clock=clock))
                with anyio.fail_after(20):
                    await naps.has_run.wait()
                tasks.cancel_scope.cancel()
            return [info.key for info in app.sessions.list(archived=True)], naps.taken
        raise AssertionError

    return anyio.run(main)


def test_the_daemon_does_it_some_minutes_after_its_start_and_every_day(home: Path, calendar: Calendar) -> None:
    calendar.turn(91)
    assert looked_after(calendar, archive_after="90d") == (["k"], [300.0, 86_400.0])


def test_the_daemon_does_nothing_while_the_store_cannot_be_used(home: Path, calendar: Calendar) -> None:
    calendar.turn(91)
    assert looked_after(calendar, trouble="the store cannot be used", archive_after="90d")[0] == []


def test_the_daemon_does_nothing_if_nothing_is_set(home: Path, calendar: Calendar) -> None:
    calendar.turn(91)
    assert looked_after(calendar)[0] == []


def test_the_daemon_goes_on_whatever_is_wrong_with_a_session(
    home: Path,
) -> None:
    def broken() -> datetime:
        raise ValueError

    logging.disable()
    found = looked_after(broken, archive_after="90d")
    logging.disable(logging.NOTSET)
    assert found == ([], [300.0, 86_400.0])
