"""Rows in aligned columns, as wide as the terminal and no wider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nacre.cli.output import Out
from nacre.cli.text import chop, cut, width

_GAP = "  "
_NARROWEST = 12


class Column(NamedTuple):
    """A column: where its text goes when there is not room for all of it."""

    title: str
    right: bool = False
    wraps: bool = False
    shrinks: bool = False
    style: Callable[[str], str] | None = None


def show(out: Out, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a heading; columns that shrink are cut to fit, one that wraps keeps all its text."""
    titles = [column.title for column in columns]
    widths = [_widest(cells) for cells in zip(titles, *rows, strict=True)]
    if out.has_width:
        _fit(columns, widths, out.width)
    heading = [Column(column.title, right=column.right, style=out.dim) for column in columns]
    out.say(_line(heading, titles, widths))
    plain = _template(columns, widths)
    narrow = [at for at, column in enumerate(columns) if out.has_width and (column.shrinks or column.wraps)]
    for row in rows:
        if not all([width(row[at]) <= widths[at] for at in narrow]):  # noqa: C419 - quicker, for thousands of rows
            for line in _lines(columns, row, widths):
                out.say(line)
        elif "".join(row).isascii():
            out.say((plain % tuple(row)).rstrip())
        else:
            out.say(_line(columns, row, widths))


def _widest(cells: Sequence[str]) -> int:
    return max(map(len if "".join(cells).isascii() else width, cells))


def _template(columns: Sequence[Column], widths: Sequence[int]) -> str:
    """The line of a row in which every character is one column wide."""
    cells = [f"%{size}s" if column.right else f"%-{size}s" for column, size in zip(columns, widths, strict=True)]
    if not columns[-1].right:
        cells[-1] = "%s"
    return _GAP.join(column.style(cell) if column.style else cell for column, cell in zip(columns, cells, strict=True))


def _fit(columns: Sequence[Column], widths: list[int], room: int) -> None:
    """Take columns away from what shrinks, then from what wraps, until the line fits."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    shrinking = [at for at, column in enumerate(columns) if column.shrinks]
    wrapping = [at for at, column in enumerate(columns) if column.wraps]
    # A quarter of the line is a fair share; with many columns there may be less.
    for least in (max(_NARROWEST, room // 4), _NARROWEST):
        for at in (*shrinking, *wrapping):
            taken = max(0, min(over, widths[at] - least))
            widths[at] -= taken
            over -= taken


def _lines(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [
        chop(cell, columns_) if column.wraps else [cut(cell, columns_)]
        for column, cell, columns_ in zip(columns, row, widths, strict=True)
    ]
    for at in range(max(map(len, cells))):
        yield _line(columns, [cell[at] if at < len(cell) else "" for cell in cells], widths)


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(map(_cell, columns, row, widths)).rstrip()


def _cell(column: Column, text: str, columns: int) -> str:
    """A text with blanks around it."""
    blanks = " " * (columns - (len(text) if text.isascii() else width(text)))
    styled = column.style(text) if column.style and text else text
    return blanks + styled if column.right else styled + blanks
