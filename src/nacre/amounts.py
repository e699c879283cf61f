"""Counts and sizes as people read them."""

from __future__ import annotations

_KILO = 1000
_UNITS = "kMGTP"


def count(number: int) -> str:
    """A count for people: 999, 12.3k, 4.0M."""
    if number < _KILO:
        return str(number)
    power = 0
    value = float(number)
    while value >= _KILO - 0.05 and power < len(_UNITS):
        value /= _KILO
        power += 1
    return f"{value:.1f}{_UNITS[power - 1]}"


def several(number: int, one: str, many: str = "") -> str:
    """A number and its noun: `1 session`, `12,000 sessions`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(bytes_: int) -> str:
    """A size for people: 31 B, 2.1 kB."""
    short = count(bytes_)
    return f"{short} B" if short.isdigit() else f"{short[:-1]} {short[-1]}B"
