"""One line of the table: what was measured, the figure, the bar, and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A figure beside its bar; `met` is None where there is no bar or no figure."""

    what: str
    measured: str
    bar: str = ""
    met: bool | None = None
    absolute: str = ""


def at_most(what: str, value: float, bar: float, *, unit: str = "×", absolute: str = "") -> Row:
    """A row that is met when the value does not exceed the bar."""
    return Row(
        what=what,
        measured=shown(value, unit),
        bar=f"≤ {shown_bar(bar, unit)}",
        met=value <= bar,
        absolute=absolute,
    )


def at_least(what: str, value: float, bar: float, *, unit: str = "×", absolute: str = "") -> Row:
    """A row that is met when the value reaches the bar."""
    return Row(
        what=what,
        measured=shown(value, unit),
        bar=f"≥ {shown_bar(bar, unit)}",
        met=value >= bar,
        absolute=absolute,
    )


def plain(what: str, measured: str, *, absolute: str = "") -> Row:
    """A row without a bar: a figure to compare with, or the reason why there is none."""
    return Row(what=what, measured=measured, absolute=absolute)


def shown(value: float, unit: str = "×") -> str:
    """A figure with as many digits as it deserves, followed by its unit.

    A figure just beyond its bar keeps a third digit, so that it is not rounded onto it.
    """
    if isinstance(value, int):
        return f"{value:,}{unit}"
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"


def shown_bar(bar: float, unit: str) -> str:
    """A bar as it was set: no digits of its own."""
    return f"{bar:g}{unit}"


def micros(seconds: float) -> str:
    """A duration in the unit a reader expects at its size."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
