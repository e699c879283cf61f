"""The table, on the terminal and in RESULTS.md."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.rows import Row

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEADINGS = ("what", "measured", "bar", "met", "absolute, for orientation")
_ABOUT = """\
# What nacre costs

Written by `make bench`. What waits for the disk is a ratio within one run, its two sides sampled in turns, \
because the price of a flush changes tenfold with what else a machine does; \
absolute times are of this run on this machine only. \
The rest is counted: flushes, bytes, memory, and CPU time, which depends on the machine and what else it does. \
While flushes are timed a process of idle priority keeps a CPU awake: \
on an idle virtual machine a flush waits for the next timer tick, \
and both sides of a ratio would be that tick.
"""


def markdown(rows: Sequence[Row]) -> str:
    """The whole page."""
    lines = [_ABOUT, f"{machine()}\n", _line(_HEADINGS), _line(["---"] * len(_HEADINGS))]
    lines += [_line(cells(row)) for row in rows]
    missed = sum(row.met is False for row in rows)
    judged = sum(row.met is not None for row in rows)
    return "\n".join([*lines, "", f"{judged - missed} of {judged} bars met."]) + "\n"


def text(rows: Sequence[Row]) -> str:
    """The table for a terminal, columns aligned."""
    table = [_HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """What stands in a row's columns."""
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return (row.what, row.measured, row.bar, met, row.absolute)


def machine() -> str:
    """The machine and the day, without its name or any path."""
    return (
        f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}; {os.cpu_count()} cores, {platform.machine()}; "
        f"{platform.system()} {platform.release().split('-')[0]}; {file_system()}; "
        f"{platform.python_implementation()} {platform.python_version()}."
    )


def file_system() -> str:
    """The kind of file system the benchmarks write to."""
    command = ["df", "--output=fstype", tempfile.gettempdir()]
    found = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603
    return found.stdout.split()[-1] if found.returncode == 0 else "unknown file system"


def _line(columns: Iterable[str]) -> str:
    return f"| {' | '.join(columns)} |"
