"""Schedules as a channel: configured texts arrive as messages at configured times."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from nacre.channels.channel import Accept, Arrived
from nacre.channels.cron import Cron, Every, cron, interval
from nacre.channels.lost import Attempts, Gone, Patience
from nacre.channels.position import Position
from nacre.channels.table import parsed
from nacre.errors import ConfigError, NacreError, describe_error

logger = logging.getLogger(__name__)

_PARTS = 5
# A machine that slept, or whose clock was set, is noticed within this time.
_LONGEST_NAP = 30.0
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

    async def __call__(self, to: Arrived, text: str, *, id: str) -> None:
        """Raises ChannelError if it cannot be sent."""


class Schedule:
    """Every schedule of the configuration; `state` is a file for when each fired last.

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
        state: Path,
        forward: Forward | None = None,
        clock: Clock | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._configs = {name: parsed(Config, table, section=f"schedule.{name}") for name, table in tables.items()}
        self._timings = {name: _timing(name, config) for name, config in self._configs.items()}
        self._targets = {name: _target(name, config.to) for name, config in self._configs.items() if config.to}
        self._position, self._forward = Position(state), forward
        self._clock, self._patience = clock or Clock(), patience or Patience()
        self._last: dict[str, datetime] = {}

    async def run(self, accept: Accept) -> None:
        """Fire until cancelled."""
        attempts = Attempts(self._patience)
        self._last = self._remembered()
        while True:
            try:
                await self._fire(accept)
                attempts.succeeded()
            except ConfigError:
                raise
            except (NacreError, OSError) as error:
                logger.warning("a schedule was interrupted; retrying", extra={"reason": describe_error(error)})
                await attempts.wait()
            await self._clock.sleep(self._nap())

    async def send(self, to: Arrived, text: str, *, id: str) -> None:
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
        fresh = self._begin(now)
        due = sorted((timing.before(now), name) for name, timing in self._timings.items())
        for planned, name in due:
            if planned > self._last[name]:
                await accept(self._arrived(name, planned))
                self._last[name] = planned
                fresh = True
        if fresh:
            await run_sync(self._position.write, self._kept())

    def _begin(self, now: datetime) -> bool:
        """Count from now for schedules that are new, and for those that fired in a future that was a mistake."""
        new = [name for name in self._timings if self._last.get(name, now + 2 * _WRONG) > now + _WRONG]
        self._last |= dict.fromkeys(new, now)
        return bool(new)

    def _nap(self) -> float:
        now = self._clock.now()
        due = min((timing.after(now) for timing in self._timings.values()), default=now + _WRONG)
        return min(max((due - now).total_seconds(), 0.0), _LONGEST_NAP)

    def _arrived(self, name: str, planned: datetime) -> Arrived:
        id = f"{name}@{planned:%Y-%m-%dT%H:%M:%SZ}"
        return Arrived(
            channel=self.name, chat=name, sender="clock", id=id, text=self._configs[name].text, shown="schedule"
        )

    def _kept(self) -> dict[str, Any]:
        return {
            name: {"when": _when(config), "last": self._last[name].isoformat()}
            for name, config in self._configs.items()
        }

    def _remembered(self) -> dict[str, datetime]:
        """When each fired last; one whose times were changed begins anew."""
        found = self._position.read()
        moments = {name: _moment(found.get(name), _when(config)) for name, config in self._configs.items()}
        return {name: moment for name, moment in moments.items() if moment is not None}


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


def _target(name: str, key: str) -> Arrived:
    """Where a session's key says that its person is."""
    parts = [unquote(part) for part in key.split(":")]
    if len(parts) != _PARTS or not parts[0] or not parts[2]:
        raise ConfigError(f"schedule.{name}: to is a session's key, channel:account:chat:thread:sender, not {key!r}")
    channel, account, chat, thread, sender = parts
    return Arrived(channel=channel, account=account, chat=chat, thread=thread, sender=sender, id="", text="")


def _when(config: Config) -> str:
    return f"{config.every}{config.cron} {config.zone}".strip()


def _moment(found: Any, when: str) -> datetime | None:
    if not isinstance(found, dict) or found.get("when") != when:
        return None
    try:
        moment = datetime.fromisoformat(str(found.get("last")))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
