"""Moments and spans as people and programs write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from nacre.cli.failures import Failure

_SPAN = re.compile(r"(\d{1,6})\s*(s|min|h|d|w|y)\Z")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_MINUTES_FROM, _HOURS_FROM = 100, 6000


def rfc3339(moment: datetime) -> str:
    """A moment in UTC with milliseconds."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def span(text: str) -> timedelta:
    """Read a span of time such as `30d`, `12h` or `2w`."""
    found = _SPAN.match(text.strip())
    if found is None:
        raise Failure("usage", f"{text!r} is not a duration", hint="write it as 45min, 12h, 30d, 2w or 1y")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def lasting(seconds: float) -> str:
    """A span of time for people, in the largest unit that says enough."""
    if seconds < _MINUTES_FROM:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _HOURS_FROM else f"{seconds / 3600:.1f} h"
