"""Schedules as a channel: configured texts arrive as messages at configured times, by cron's fields or intervals."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import product
from typing import Any, Protocol
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from nacre.channels.channel import Accept, Gone, InboundMessage
from nacre.channels.channel_files import Cursor, Retries, RetryPolicy, parse_settings
from nacre.errors import ConfigError, NacreError, describe_error
from nacre.storage.protocol import Document

logger = logging.getLogger(__name__)

_PARTS = 5
# A machine that slept, or whose clock was set, is noticed within this time.
_MAX_NAP = 30.0
# A clock that was set back by more than this was wrong before.
_WRONG = timedelta(days=1)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[schedule.NAME]`: when, what is said then, and the session that gets the answer, if any."""

    text: str
    every: str = ""
    cron: str = ""
    zone: str = ""
    to: str = ""


class Clock(Struct, frozen=True, kw_only=True):
    """What time it is, and how to wait."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class Forward(Protocol):
    """Send what a schedule led to over another channel."""

    async def __call__(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Raises ChannelError if it cannot be sent."""


class Schedule:
    """Every schedule of the configuration; `state` is a document for when each fired last.

    Each time arrives once, under an id made of the schedule's name and the
    planned time. Of the times that passed while nobody ran, the last arrives.
    """

    name = "schedule"
    is_exact = False
    is_up = True

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Any]],
        *,
        state: Document,
        forward: Forward | None = None,
        clock: Clock | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._configs = {
            name: parse_settings(Config, table, section=f"schedule.{name}") for name, table in tables.items()
        }
        self._timings = {name: _timing(name, config) for name, config in self._configs.items()}
        self._targets = {name: _target(name, config.to) for name, config in self._configs.items() if config.to}
        self._cursor, self._forward = Cursor(state), forward
        self._clock, self._retry = clock or Clock(), retry or RetryPolicy()
        self._last: dict[str, datetime] = {}

    async def run(self, accept: Accept) -> None:
        """Fire until cancelled."""
        retries = Retries(self._retry)
        # One whose times were changed begins again.
        saved = await run_sync(self._cursor.read)
        self._last = {}
        for name, config in self._configs.items():
            found = saved.get(name)
            if isinstance(found, dict) and found.get("when") == _when(config):
                with suppress(ValueError):
                    moment = datetime.fromisoformat(str(found.get("last")))
                    self._last |= {name: moment} if moment.tzinfo is not None else {}
        while True:
            try:
                await self._fire(accept)
                retries.reset()
            except ConfigError:
                raise
            except (NacreError, OSError) as error:
                logger.warning("a schedule was interrupted; retrying", extra={"reason": describe_error(error)})
                await retries.wait()
            now = self._clock.now()
            due = min((timing.after(now) for timing in self._timings.values()), default=now + _WRONG)
            await self._clock.sleep(min(max((due - now).total_seconds(), 0.0), _MAX_NAP))

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Pass the answer on to where the schedule says; without such a place, the session alone has it."""
        target = self._targets.get(to.chat)
        if target is None:
            return
        if self._forward is None:
            raise Gone(f"schedule.{to.chat} has a session for its answers, but no channel delivers to it")
        await self._forward(target, text, id=id)

    async def close(self) -> None:
        """Nothing is open."""

    async def _fire(self, accept: Accept) -> None:
        """Let everything arrive that is due, the oldest first."""
        now = self._clock.now()
        # Count from now for schedules that are new, and for those that fired in a future that was a mistake.
        new = [name for name in self._timings if self._last.get(name, now + 2 * _WRONG) > now + _WRONG]
        self._last |= dict.fromkeys(new, now)
        is_changed = bool(new)
        due = sorted((timing.before(now), name) for name, timing in self._timings.items())
        for planned, name in due:
            if planned > self._last[name]:
                id = f"{name}@{planned:%Y-%m-%dT%H:%M:%SZ}"
                text = self._configs[name].text
                await accept(
                    InboundMessage(channel=self.name, chat=name, sender="clock", id=id, text=text, shown="schedule")
                )
                self._last[name] = planned
                is_changed = True
        if is_changed:
            saved = {
                name: {"when": _when(config), "last": self._last[name].isoformat()}
                for name, config in self._configs.items()
            }
            await run_sync(self._cursor.write, saved)


def _timing(name: str, config: Config) -> Every | Cron:
    if bool(config.every) == bool(config.cron):
        raise ConfigError(f"schedule.{name} needs either every or cron")
    try:
        zone = ZoneInfo(config.zone) if config.zone else None
        return interval(config.every) if config.every else cron(config.cron, zone=zone)
    except ConfigError as error:
        raise ConfigError(f"schedule.{name}: {error}") from error
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"schedule.{name}: there is no time zone {config.zone!r}") from error


def _target(name: str, key: str) -> InboundMessage:
    """Where a session's key says that its person is."""
    parts = [unquote(part) for part in key.split(":")]
    if len(parts) != _PARTS or not parts[0] or not parts[2]:
        raise ConfigError(f"schedule.{name}: to is a session's key, channel:account:chat:thread:sender, not {key!r}")
    channel, account, chat, thread, sender = parts
    return InboundMessage(channel=channel, account=account, chat=chat, thread=thread, sender=sender, id="", text="")


def _when(config: Config) -> str:
    return f"{config.every}{config.cron} {config.zone}".strip()


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
_MIN_SECONDS, _MAX_SECONDS = 10, 10 * 366 * 86_400
_FIELDS = 5
# The 29th of February may be eight years away.
_MAX_DAYS = 9 * 366
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
        for _ in range(_MAX_DAYS):
            for found in self._times(day):
                if found > moment:
                    return found
            day += _DAY
        raise ConfigError("a schedule that never fires")

    def before(self, moment: datetime) -> datetime:
        """The last time that is not later than a moment."""
        day = self._local(moment).date() + _DAY
        for _ in range(_MAX_DAYS):
            for found in reversed(self._times(day)):
                if found <= moment:
                    return found
            day -= _DAY
        raise ConfigError("a schedule that never fires")

    def _times(self, day: date) -> list[datetime]:
        """When it fires on a day, in order."""
        monthly, weekly = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        is_day = monthly or weekly if self.either_day else monthly and weekly
        if day.month not in self.months or not is_day:
            return []
        found: set[datetime] = set()
        for hour, minute in product(self.hours, self.minutes):
            wall = datetime.combine(day, time(hour, minute))
            if self._local(self._moment(wall, 0)) == wall:
                found.add(self._moment(wall, 0))
                if self.every_hour:
                    found.add(self._moment(wall, 1))
            elif not self.every_hour:
                # The clock on the wall was put forward over this time: it fires then.
                while self._local(self._moment(wall, 0)) != wall:
                    wall += _MINUTE
                found.add(self._moment(wall, 0))
        return sorted(found)

    def _moment(self, wall: datetime, fold: int) -> datetime:
        # Without a zone, it is the system's.
        return wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)


def interval(text: str) -> Every:
    """What `15m`, `1h30m` or `2d` means; raises ConfigError."""
    parts = re.findall(r"(\d+)\s*([smhdw])", text)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not re.fullmatch(r"\s*(\d+\s*[smhdw]\s*)+", text) or not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise ConfigError(
            f"{text!r} is not an interval: write it like '15m', '1h30m' or '2d', at least {_MIN_SECONDS} seconds"
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
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    fits = any(min(made.days) <= longest.get(month, 31) for month in made.months)
    if not fits and not made.either_day:
        raise ConfigError(f"{text!r} never fires: none of these months has such a day")
    return made


def _field(text: str, lowest: int, highest: int, what: str, *, names: Sequence[str] = ()) -> frozenset[int]:
    """What `*`, `5`, `mon`, `1-5`, or one of them with `/2` after it, means; and several, with commas between."""

    def number(word: str) -> int:
        if word in names:
            # Months are counted from one, days of the week from zero.
            return names.index(word) + lowest
        if not word.isascii() or not word.isdecimal():
            raise ConfigError(f"{word!r} is not a valid {what} of a cron schedule")
        return int(word)

    values: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if found is None:
            raise ConfigError(f"{part!r} is not a valid {what} of a cron schedule")
        star, first, last, step = found.groups()
        start = lowest if star else number(first)
        # `5/15` goes on to the end, as `5-59/15` does.
        end = highest if star or (last is None and step) else number(last or first)
        if not lowest <= start <= end <= highest or step == "0" or (step and int(step) > highest):
            raise ConfigError(f"{part!r} is not a valid {what} of a cron schedule: the range is {lowest} to {highest}")
        values.update(range(start, end + 1, int(step or 1)))
    return frozenset(values)
