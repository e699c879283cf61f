"""Numbers as bars of block characters, or of ASCII where there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nacre.render.text import clip, count, pad, width

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WIDEST_LABEL = 32


def bars(rows: Sequence[tuple[str, int]], columns: int, *, is_ascii: bool = False) -> Iterator[str]:
    """A line for each row: its label, its bar, its number; the longest bar takes what is left of the columns."""
    if not rows:
        return
    labels = [clip(label, min(_WIDEST_LABEL, columns // 2), mark="." if is_ascii else "…") for label, _ in rows]
    numbers = [count(number) for _, number in rows]
    left, right = max(map(width, labels)), max(map(len, numbers))
    room = max(columns - left - right - 4, 1)
    most = max(number for _, number in rows) or 1
    for label, number, (_, value) in zip(labels, numbers, rows, strict=True):
        bar = _bar(value, most, room, is_ascii=is_ascii)
        yield f"{pad(label, left)}  {pad(bar, room)}  {number:>{right}}"


def _bar(value: int, most: int, room: int, *, is_ascii: bool) -> str:
    """A bar of a length in proportion; what is more than nothing is seen."""
    if is_ascii:
        return "#" * max(value * room // most, int(value > 0))
    whole, part = divmod(max(value * room * 8 // most, int(value > 0)), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")
