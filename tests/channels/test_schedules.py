"""A clock as a channel: each time once, through restarts, sleep and the changes of the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.channels.channel import Gone, InboundMessage, key_of
from nacre.channels.schedules import Clock, Schedule
from nacre.errors import ConfigError, Refused
from nacre.storage.documents import FileDocument
from tests.channels.servers import HASTY, Heard

EVERY = {"tick": {"every": "15m", "text": "what is new?"}}
DAILY = {"morning": {"cron": "0 7 * * 1-5", "zone": "Europe/Berlin", "text": "good morning"}}


class Hands:
    """A clock that goes only while somebody waits, and at the end stands still."""

    def __init__(self, now: str, until: str) -> None:
        self.now, self.until = _moment(now), _moment(until)
        self.stood = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        if self.now >= self.until:
            self.stood.set()
            await anyio.sleep_forever()
        self.now += timedelta(seconds=seconds)
        await anyio.lowlevel.checkpoint()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def passed(tables: Any, room: Path, now: str, until: str, accept: Any = None) -> list[str]:
    """The ids of what arrives while a daemon runs from one time to another."""
    hands, heard = Hands(now, until), Heard()
    schedule = Schedule(
        tables,
        state=FileDocument(str(room / "schedule")),
        clock=Clock(now=lambda: hands.now, sleep=hands.sleep),
        retry=HASTY,
    )

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(schedule.run, accept or heard)
            await hands.stood.wait()
            tasks.cancel_scope.cancel()
        await schedule.close()

    anyio.run(run)
    assert heard.calls == len(heard.words)
    return [arrived.id for arrived in heard.words]


def test_each_time_arrives_once(tmp_path: Path) -> None:
    assert passed(EVERY, tmp_path, "2026-01-01T00:07:00", "2026-01-01T00:50:00") == [
        "tick@2026-01-01T00:15:00Z",
        "tick@2026-01-01T00:30:00Z",
        "tick@2026-01-01T00:45:00Z",
    ]


def test_words_are_those_of_the_configuration(tmp_path: Path) -> None:
    heard = Heard()
    passed(EVERY, tmp_path, "2026-01-01T00:14:00", "2026-01-01T00:16:00", heard)
    (arrived,) = heard.words
    assert arrived == InboundMessage(
        channel="schedule",
        chat="tick",
        sender="clock",
        id="tick@2026-01-01T00:15:00Z",
        text="what is new?",
        shown="schedule",
    )
    assert key_of(arrived) == "schedule::tick::clock"


def test_a_restart_neither_repeats_a_time_nor_loses_one(tmp_path: Path) -> None:
    found = [
        passed(EVERY, tmp_path, f"2026-01-01T00:{minute:02}:00", f"2026-01-01T00:{minute + 7:02}:00")
        for minute in range(10, 50, 8)
    ]
    assert [id[-6:] for ids in found for id in ids] == ["15:00Z", "30:00Z", "45:00Z"]


def test_of_what_was_missed_the_last_arrives(tmp_path: Path) -> None:
    assert passed(EVERY, tmp_path, "2026-01-01T00:01:00", "2026-01-01T00:02:00") == []
    assert passed(EVERY, tmp_path, "2026-03-05T00:01:00", "2026-03-05T00:16:00") == [
        "tick@2026-03-05T00:00:00Z",
        "tick@2026-03-05T00:15:00Z",
    ]


def test_what_is_new_or_was_changed_begins_with_its_next_time(tmp_path: Path) -> None:
    passed(EVERY, tmp_path, "2026-01-01T00:01:00", "2026-01-01T00:02:00")
    changed = {"tick": {"every": "10m", "text": "x"}, "other": {"every": "10m", "text": "y"}}
    found = passed(changed, tmp_path, "2026-01-02T00:01:00", "2026-01-02T00:11:00")
    assert found == ["other@2026-01-02T00:10:00Z", "tick@2026-01-02T00:10:00Z"]


def test_killed_before_it_was_accepted_a_time_arrives_again_under_the_same_id(tmp_path: Path) -> None:
    stuck = Heard(stuck=True)
    passed(EVERY, tmp_path, "2026-01-01T00:01:00", "2026-01-01T00:02:00")

    async def run() -> None:
        clock = Clock(now=lambda: _moment("2026-01-01T00:15:01"))
        schedule = Schedule(EVERY, state=FileDocument(str(tmp_path / "schedule")), clock=clock)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(schedule.run, stuck)
            await stuck.until(1)
            tasks.cancel_scope.cancel()

    anyio.run(run)
    assert passed(EVERY, tmp_path, "2026-01-01T00:20:00", "2026-01-01T00:21:00") == [stuck.words[0].id]


def test_words_that_cannot_be_accepted_are_tried_again(tmp_path: Path) -> None:
    heard = Heard()
    failures = iter([Refused("the disk is full"), Refused("the disk is full")])

    async def accept(arrived: InboundMessage) -> None:
        for failure in failures:
            raise failure
        await heard(arrived)

    passed(EVERY, tmp_path, "2026-01-01T00:14:00", "2026-01-01T00:17:00", accept)
    assert [arrived.id for arrived in heard.words] == ["tick@2026-01-01T00:15:00Z"]


def test_a_clock_that_was_set_back_by_far_does_not_silence_a_schedule(tmp_path: Path) -> None:
    passed(EVERY, tmp_path, "2031-01-01T00:01:00", "2031-01-01T00:16:00")
    assert passed(EVERY, tmp_path, "2026-01-01T00:14:00", "2026-01-01T00:16:00") == ["tick@2026-01-01T00:15:00Z"]


def test_a_clock_that_was_set_back_a_little_repeats_nothing(tmp_path: Path) -> None:
    passed(EVERY, tmp_path, "2026-01-01T00:14:00", "2026-01-01T00:16:00")
    assert passed(EVERY, tmp_path, "2026-01-01T00:14:00", "2026-01-01T00:16:00") == []


def test_a_time_of_day_stays_so_when_the_clocks_change(tmp_path: Path) -> None:
    found = passed(DAILY, tmp_path, "2026-03-26T12:00:00", "2026-03-31T12:00:00")
    assert found == ["morning@2026-03-27T06:00:00Z", "morning@2026-03-30T05:00:00Z", "morning@2026-03-31T05:00:00Z"]


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def be_in(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield be_in
    monkeypatch.undo()
    time.tzset()


def test_without_a_zone_it_is_the_systems(tmp_path: Path, local: Callable[[str], None]) -> None:
    local("America/New_York")
    tables = {"noon": {"cron": "0 12 * * *", "text": "x"}}
    found = passed(tables, tmp_path, "2026-10-31T12:00:00", "2026-11-01T20:00:00")
    assert found == ["noon@2026-10-31T16:00:00Z", "noon@2026-11-01T17:00:00Z"]


def test_an_answer_goes_where_the_schedule_says(tmp_path: Path) -> None:
    sent: list[tuple[InboundMessage, str, str]] = []

    async def forward(to: InboundMessage, text: str, *, id: str) -> None:
        sent.append((to, text, id))

    tables = {"a": {"every": "1h", "text": "x", "to": "irc:n@h:#room%3A1::bob"}, "b": {"every": "1h", "text": "x"}}
    schedule = Schedule(tables, state=FileDocument(str(tmp_path / "s")), forward=forward)
    for name in ("a", "b"):
        anyio.run(schedule_send, schedule, name)
    target = InboundMessage(channel="irc", account="n@h", chat="#room:1", sender="bob", id="", text="")
    assert sent == [(target, "words", "1")]
    with pytest.raises(Gone):
        anyio.run(schedule_send, Schedule(tables, state=FileDocument(str(tmp_path / "s"))), "a")


async def schedule_send(schedule: Schedule, name: str) -> None:
    to = InboundMessage(channel="schedule", chat=name, sender="clock", id="1", text="x")
    await schedule.send(to, "words", id="1")


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"text": "x"}, "either every or cron"),
        ({"text": "x", "every": "1h", "cron": "@daily"}, "either every or cron"),
        ({"every": "1h"}, "text"),
        ({"text": "x", "every": "1h", "evry": "2h"}, "evry"),
        ({"text": "x", "every": "1 fortnight"}, "schedule.bad: '1 fortnight' is not an interval"),
        ({"text": "x", "every": "5s"}, "at least 10 seconds"),
        ({"text": "x", "cron": "@daily", "zone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        ({"text": "x", "cron": "@daily", "zone": "../etc/passwd"}, "no time zone"),
        ({"text": "x", "every": "1h", "to": "bob"}, "channel:account:chat:thread:sender"),
    ],
)
def test_a_table_that_cannot_work_is_refused_with_what_is_wrong(table: Any, word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        Schedule({"bad": table}, state=FileDocument(str(tmp_path / "s")))
    assert word in str(raised.value)
