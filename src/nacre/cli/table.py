"""Rows in aligned columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nacre.cli.one_line import cut, width
from nacre.cli.output import Out

_GAP = "  "
_INDENT = "   "
_NARROWEST = 12


class Column(NamedTuple):
    """A column: where its text goes when there is not room for all of it; `wraps` breaks it into lines."""

    title: str
    right: bool = False
    wraps: Callable[[str, int], list[str]] | None = None
    shrinks: bool = False
    style: Callable[[str], str] | None = None


def show(out: Out, columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows under a heading; columns that shrink are cut to fit, one that wraps keeps all its text.

    Where even the narrowest columns do not fit, a row is several lines without a heading.
    """
    titles = [column.title for column in columns]
    whole = [max(map(len if "".join(cells).isascii() else width, cells)) for cells in zip(titles, *rows, strict=True)]
    widths = list(whole)
    if out.has_width:
        _fit(columns, widths, out.width, rows)
        if sum(widths) + len(_GAP) * (len(widths) - 1) > out.width:
            out.say("\n".join(line for row in rows for line in _stack(columns, row, out.width)))
            return
    # The line of a row in which every character is one column wide.
    cells = [f"%{size}s" if column.right else f"%-{size}s" for column, size in zip(columns, widths, strict=True)]
    if not columns[-1].right:
        cells[-1] = "%s"
    styled = zip(columns, cells, strict=True)
    plain = _GAP.join(column.style(cell) if column.style else cell for column, cell in styled)
    narrowed = [at for at, needed in enumerate(whole) if widths[at] < needed]
    heading = [Column(column.title, right=column.right, style=out.dim) for column in columns]
    lines = [_line(heading, titles, widths)]
    for row in rows:
        if narrowed and any(width(row[at]) > widths[at] for at in narrowed):
            lines += _lines(columns, row, widths)
        elif "".join(row).isascii():
            lines.append((plain % row).rstrip())
        else:
            lines.append(_line(columns, row, widths))
    out.say("\n".join(lines))


def _fit(columns: Sequence[Column], widths: list[int], room: int, rows: Sequence[tuple[str, ...]]) -> None:
    """Take columns away from what wraps in few rows, from what shrinks, then from what wraps, until the line fits."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    shrinking = [at for at, column in enumerate(columns) if column.shrinks]
    wrapping = [at for at, column in enumerate(columns) if column.wraps]
    # Enough for three cells of four: a few long ones must not take the room of all others.
    place = (len(rows) - 1) * 3 // 4
    few = [(at, sorted(width(row[at]) for row in rows)[place]) for at in wrapping if over > 0 and rows]
    # A quarter of the line is a fair share; with many columns there may be less.
    fair = [(at, max(_NARROWEST, room // 4)) for at in (*shrinking, *wrapping)]
    for at, least in (*few, *fair, *((at, _NARROWEST) for at in (*shrinking, *wrapping))):
        taken = max(0, min(over, widths[at] - max(least, _NARROWEST)))
        widths[at] -= taken
        over -= taken


def _lines(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """A row of which a cell is cut, or broken into several lines."""
    cells = [
        column.wraps(cell, room) if column.wraps else [cut(cell, room)]
        for column, cell, room in zip(columns, row, widths, strict=True)
    ]
    for at in range(max(map(len, cells))):
        yield _line(columns, [cell[at] if at < len(cell) else "" for cell in cells], widths)


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells: list[str] = []
    for column, text, room in zip(columns, row, widths, strict=True):
        blanks = " " * (room - (len(text) if text.isascii() else width(text)))
        styled = column.style(text) if column.style and text else text
        cells.append(blanks + styled if column.right else styled + blanks)
    return _GAP.join(cells).rstrip()


def _stack(columns: Sequence[Column], row: Sequence[str], room: int) -> Iterator[str]:
    """A row as lines of cells, the second and later ones indented; a number has its title before it."""
    indent, line, used = "", "", 0
    for column, text in zip(columns, row, strict=True):
        if not text:
            continue
        lead = f"{column.title.lower()} " if column.right and column.title.isalpha() else ""
        limit = room - len(_INDENT)
        parts = column.wraps(text, limit) if column.wraps else [cut(text, limit - len(lead))]
        for part in parts:
            taken = width(lead + part)
            if line and used + len(_GAP) + taken > room:
                yield line
                indent, line, used = _INDENT, "", 0
            gap = _GAP if line else indent
            line += f"{gap}{lead}{column.style(part) if column.style else part}"
            used += len(gap) + taken
            lead = ""
    yield line
