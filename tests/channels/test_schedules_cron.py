"""When schedules fire, field by field, against an independent implementation, and where clocks are changed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from nacre.channels.schedules import Every, cron, interval
from nacre.errors import ConfigError

BERLIN, LORD_HOWE, HAVANA = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("America/Havana")


def times(text: str, begin: str, count: int, zone: ZoneInfo | None = None) -> list[str]:
    """The next times as a clock on the wall shows them, with its distance from UTC."""
    found, moment = [], datetime.fromisoformat(begin).replace(tzinfo=zone or UTC).astimezone(UTC)
    for _ in range(count):
        moment = cron(text, zone=zone or ZoneInfo("UTC")).after(moment)
        found.append(moment.astimezone(zone or UTC).strftime("%m-%d %H:%M" + ("%z" if zone else "")))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["01-01 00:01", "01-01 00:02"]),
        ("*/20 * * * *", ["01-01 00:20", "01-01 00:40", "01-01 01:00"]),
        ("7 * * * *", ["01-01 00:07", "01-01 01:07"]),
        ("5/25 * * * *", ["01-01 00:05", "01-01 00:30", "01-01 00:55", "01-01 01:05"]),
        ("10-12 3 * * *", ["01-01 03:10", "01-01 03:11", "01-01 03:12", "01-02 03:10"]),
        ("0 1-9/4 * * *", ["01-01 01:00", "01-01 05:00", "01-01 09:00", "01-02 01:00"]),
        ("0 1,3-4,22 * * *", ["01-01 01:00", "01-01 03:00", "01-01 04:00", "01-01 22:00"]),
        ("0 0 31 * *", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("0 0 1 */5 *", ["06-01 00:00", "11-01 00:00", "01-01 00:00"]),
        ("0 0 1 FEB,dec *", ["02-01 00:00", "12-01 00:00"]),
        ("0 0 * * 0", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 7", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * mon-wed", ["01-05 00:00", "01-06 00:00", "01-07 00:00", "01-12 00:00"]),
        ("0 0 * * 5-7", ["01-02 00:00", "01-03 00:00", "01-04 00:00", "01-09 00:00"]),
        ("0 0 13 * fri", ["01-02 00:00", "01-09 00:00", "01-13 00:00", "01-16 00:00"]),
        ("0 0 */10 * wed", ["01-21 00:00", "02-11 00:00", "03-11 00:00"]),
        ("@hourly", ["01-01 01:00", "01-01 02:00"]),
        ("@Daily", ["01-02 00:00"]),
        ("@midnight", ["01-02 00:00"]),
        ("@weekly", ["01-04 00:00"]),
        ("@monthly", ["02-01 00:00"]),
        ("@yearly", ["01-01 00:00"]),
        ("@annually", ["01-01 00:00"]),
    ],
)
def test_every_form_of_a_field(text: str, expected: list[str]) -> None:
    assert times(text, "2026-01-01", len(expected)) == expected


def test_the_29th_of_february_is_found_over_a_century_without_it() -> None:
    assert cron("0 0 29 2 *", zone=ZoneInfo("UTC")).after(datetime(2097, 1, 1, tzinfo=UTC)).year == 2104
    assert cron("0 0 29 2 *", zone=ZoneInfo("UTC")).before(datetime(2103, 1, 1, tzinfo=UTC)).year == 2096


@pytest.mark.parametrize(
    "text",
    [
        "", "* * * *", "* * * * * *", "@often", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
        "* * * 0 *", "* * * * 8", "*/0 * * * *", "*/60 * * * *", "5-1 * * * *", "-1 * * * *", "1- * * * *", ", * * * *",
        "1,,2 * * * *", "a * * * *", "* * * foo *", "* * L * *", "* * * * 1#2", "0 0 30 2 *", "0 0 31 4,6 *",
        "² * * * *", "1.5 * * * *", "jan * * * *",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        cron(text)


def test_it_agrees_with_an_independent_implementation() -> None:
    cronsim = pytest.importorskip("cronsim", reason="the package 'cronsim' is not installed")
    chance = random.Random(6)
    for _ in range(60):
        text = " ".join(_field(chance, *bounds) for bounds in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7)))
        begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(500_000))
        theirs, ours, moment = cronsim.CronSim(text, begin), cron(text, zone=ZoneInfo("UTC")), begin
        for _ in range(3):
            moment = ours.after(moment)
            assert (text, moment) == (text, next(theirs))
            assert ours.before(moment) == moment
            assert ours.before(moment + timedelta(seconds=59)) == moment


def test_it_agrees_with_an_independent_implementation_where_clocks_change() -> None:
    cronsim = pytest.importorskip("cronsim", reason="the package 'cronsim' is not installed")
    for text in ("30 2 * * *", "0 2,3 * * *", "15 1-4 * * *", "*/15 * * * *", "5 * * * *", "0 */2 * * *"):
        for begin in (datetime(2026, 3, 28, tzinfo=BERLIN), datetime(2026, 10, 24, tzinfo=BERLIN)):
            theirs, ours, moment = cronsim.CronSim(text, begin), cron(text, zone=BERLIN), begin.astimezone(UTC)
            for _ in range(120):
                moment = ours.after(moment)
                assert (text, moment) == (text, next(theirs).astimezone(UTC))


def _field(chance: random.Random, least: int, most: int) -> str:
    first = chance.randint(least, most - 1)
    last = chance.randint(first + 1, most)
    forms = (
        "*",
        "*",
        f"*/{chance.randint(1, most)}",
        str(first),
        f"{first}-{last}",
        f"{first}-{last}/2",
        f"{first},{last}",
    )
    return chance.choice(forms)


def test_a_time_that_the_clock_is_put_forward_over_is_then() -> None:
    assert times("30 2 * * *", "2026-03-28T12:00", 2, BERLIN) == ["03-29 03:00+0200", "03-30 02:30+0200"]
    assert times("0 0 * * *", "2026-03-07T12:00", 2, HAVANA) == ["03-08 01:00-0400", "03-09 00:00-0400"]
    assert times("0 2,3 * * *", "2026-03-29T00:00", 2, BERLIN) == ["03-29 03:00+0200", "03-30 02:00+0200"]


def test_a_time_that_comes_twice_fires_once() -> None:
    assert times("30 2 * * *", "2026-10-24T12:00", 2, BERLIN) == ["10-25 02:30+0200", "10-26 02:30+0100"]


def test_every_hour_is_every_hour_that_there_is() -> None:
    assert times("0 * * * *", "2026-03-29T00:30", 3, BERLIN) == [
        "03-29 01:00+0100",
        "03-29 03:00+0200",
        "03-29 04:00+0200",
    ]
    assert times("0 * * * *", "2026-10-25T01:30", 3, BERLIN) == [
        "10-25 02:00+0200",
        "10-25 02:00+0100",
        "10-25 03:00+0100",
    ]


def test_a_clock_that_is_changed_by_half_an_hour() -> None:
    assert times("15 2 * * *", "2026-10-03T12:00", 2, LORD_HOWE) == ["10-04 02:30+1100", "10-05 02:15+1100"]
    assert times("*/30 1 * * *", "2026-04-05T01:15", 2, LORD_HOWE) == ["04-05 01:30+1100", "04-05 01:30+1030"]


def test_looking_back_finds_what_looking_ahead_found() -> None:
    for text in ("30 2 * * *", "*/20 * * * *", "0 2 1 * *"):
        made, moment = cron(text, zone=BERLIN), datetime(2026, 3, 28, tzinfo=UTC)
        for _ in range(100):
            following = made.after(moment)
            assert made.before(following) == following
            assert made.before(following - timedelta(seconds=1)) <= moment
            moment = following


def test_intervals_are_the_same_moments_after_every_restart() -> None:
    assert interval("1h30m") == Every(5400)
    assert [interval(text).seconds for text in ("10s", "2d", "1w", " 5 m ")] == [10, 172800, 604800, 300]
    moment = datetime(2026, 1, 1, 0, 7, 13, 5, tzinfo=UTC)
    assert Every(900).after(moment) == datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
    assert Every(900).before(datetime(2026, 1, 1, 0, 15, tzinfo=UTC)) == datetime(2026, 1, 1, 0, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["9s", "99999999999d", "600w", "1h and more"])
def test_what_is_no_interval_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an interval"):
        interval(text)
