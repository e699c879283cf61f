"""When a schedule fires: cron's five fields, and intervals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from msgspec import Struct

from nacre.errors import ConfigError

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - a list of quotes says less
_DAYS = "sun mon tue wed thu fri sat".split()  # noqa: SIM905
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SHORTEST, _LONGEST = 10, 10 * 366 * 86_400
_FIELDS = 5
# The 29th of February may be eight years away.
_FARTHEST = 9 * 366
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Every(Struct, frozen=True):
    """Each whole multiple of so many seconds since 1970, in UTC: the same moments after every restart."""

    seconds: int

    def after(self, moment: datetime) -> datetime:
        return self.before(moment) + timedelta(seconds=self.seconds)

    def before(self, moment: datetime) -> datetime:
        """The last of them that is not later than a moment."""
        return moment - (moment - _EPOCH) % timedelta(seconds=self.seconds)


class Cron(Struct, frozen=True):
    """Minutes, hours, days of the month, months and days of the week, as a clock on the wall shows them.

    Where the clock is put forward over a time, it is then that it fires;
    where it is put back, a time that comes twice fires once. Schedules of
    every hour follow the hours that there are.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    every_hour: bool
    either_day: bool
    zone: tzinfo | None = None

    def after(self, moment: datetime) -> datetime:
        """The first time that is later than a moment."""
        day = self._local(moment).date() - _DAY
        for _ in range(_FARTHEST):
            for found in self._times(day):
                if found > moment:
                    return found
            day += _DAY
        raise ConfigError("a schedule that never fires")

    def before(self, moment: datetime) -> datetime:
        """The last time that is not later than a moment."""
        day = self._local(moment).date() + _DAY
        for _ in range(_FARTHEST):
            for found in reversed(self._times(day)):
                if found <= moment:
                    return found
            day -= _DAY
        raise ConfigError("a schedule that never fires")

    def _times(self, day: date) -> list[datetime]:
        """When it fires on a day, in order."""
        if not self._is_on(day):
            return []
        found = {
            moment
            for hour in self.hours
            for minute in self.minutes
            for moment in self._moments(datetime.combine(day, time(hour, minute)))
        }
        return sorted(found)

    def _is_on(self, day: date) -> bool:
        monthly, weekly = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (monthly or weekly if self.either_day else monthly and weekly)

    def _moments(self, wall: datetime) -> Iterator[datetime]:
        """When a clock on the wall shows a time, or has just been put forward over it."""
        first = self._moment(wall, 0)
        if self._local(first) == wall:
            yield first
            if self.every_hour:
                yield self._moment(wall, 1)
        elif not self.every_hour:
            while self._local(self._moment(wall, 0)) != wall:
                wall += _MINUTE
            yield self._moment(wall, 0)

    def _moment(self, wall: datetime, fold: int) -> datetime:
        # Without a zone, it is the system's.
        return wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)


def interval(text: str) -> Every:
    """What `15m`, `1h30m` or `2d` means; raises ConfigError."""
    parts = re.findall(r"(\d+)\s*([smhdw])", text)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not re.fullmatch(r"\s*(\d+\s*[smhdw]\s*)+", text) or not _SHORTEST <= seconds <= _LONGEST:
        raise ConfigError(
            f"{text!r} is not an interval: write it like '15m', '1h30m' or '2d', at least {_SHORTEST} seconds"
            " and not more than ten years"
        )
    return Every(seconds)


def cron(text: str, *, zone: tzinfo | None = None) -> Cron:
    """What cron's five fields, or a word like `@daily`, mean; raises ConfigError."""
    fields = _SHORT.get(text.strip().lower(), text).lower().split()
    if len(fields) != _FIELDS:
        raise ConfigError(f"{text!r} is not a cron schedule: it has five fields, minute hour day month weekday")
    minute, hour, day, month, weekday = fields
    made = Cron(
        minutes=_field(minute, 0, 59, "minute"),
        hours=_field(hour, 0, 23, "hour"),
        days=_field(day, 1, 31, "day"),
        months=_field(month, 1, 12, "month", names=_MONTHS),
        weekdays=frozenset(value % 7 for value in _field(weekday, 0, 7, "weekday", names=_DAYS)),
        every_hour=minute.startswith("*") or hour.startswith("*"),
        either_day=not (day.startswith("*") or weekday.startswith("*")),
        zone=zone,
    )
    _see_that_it_fires(made, text)
    return made


def _see_that_it_fires(made: Cron, text: str) -> None:
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    fits = any(min(made.days) <= longest.get(month, 31) for month in made.months)
    if not fits and not made.either_day:
        raise ConfigError(f"{text!r} never fires: none of these months has such a day")


def _field(text: str, least: int, most: int, what: str, *, names: list[str] | None = None) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _part(part, least, most, what, names or []))


def _part(text: str, least: int, most: int, what: str, names: list[str]) -> range:
    """What `*`, `5`, `mon`, `1-5`, or one of them with `/2` behind it, stands for."""
    found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", text)
    if found is None:
        raise ConfigError(f"{text!r} is not a valid {what} of a cron schedule")
    star, first, last, step = found.groups()
    start = least if star else _number(first, what, names, least)
    # `5/15` goes on to the end, as `5-59/15` does.
    end = most if star or (last is None and step) else _number(last or first, what, names, least)
    if not least <= start <= end <= most or step == "0" or (step and int(step) > most):
        raise ConfigError(f"{text!r} is not a valid {what} of a cron schedule: the range is {least} to {most}")
    return range(start, end + 1, int(step or 1))


def _number(text: str, what: str, names: list[str], least: int) -> int:
    if text in names:
        # Months are counted from one, days of the week from zero.
        return names.index(text) + least
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"{text!r} is not a valid {what} of a cron schedule")
    return int(text)
