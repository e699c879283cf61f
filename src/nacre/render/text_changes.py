"""A change to a text file as lines: what goes, what comes, and a few lines around it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from nacre.agent.ports import Change
from nacre.render.terminal import Sheet
from nacre.render.text import clip, visible

_CONTEXT = 3
_MAX_COMPARED = 5_000
_NARROWEST = 12
_WINDOW = 8
"""How many characters are looked at for each column: some have no width."""
COLOURS = {"+": "32", "-": "31", "@": "36", " ": ""}


def diff(before: str, after: str) -> Iterator[tuple[str, str]]:
    """The changed lines with their sign: `-` removed, `+` added, ` ` unchanged beside a change, `@` where it is."""
    if before.endswith("\n") and after.endswith("\n"):
        before, after = before[:-1], after[:-1]
    old, new = before.split("\n"), after.split("\n")
    if max(len(old), len(new)) > _MAX_COMPARED:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    else:
        groups = list(SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT))
    for group in groups:
        first, last = group[0], group[-1]
        yield "@", f"@ line {first[3] + 1}" if last[4] - first[3] <= 1 else f"@ lines {first[3] + 1}-{last[4]}"
        for kind, start, end, from_, to in group:
            if kind == "equal":
                yield from ((" ", line) for line in old[start:end])
            else:
                yield from (("-", line) for line in old[start:end])
                yield from (("+", line) for line in new[from_:to])


def change_lines(change: Change, sheet: Sheet) -> Iterator[str]:
    """A change as lines for a terminal; a new file is all `+`, a deleted one all `-`."""
    before, after = change.before, change.after
    if before is None or after is None:
        sign, text = ("+", after or "") if before is None else ("-", before)
        lines: Iterator[tuple[str, str]] = ((sign, line) for line in text.removesuffix("\n").split("\n"))
    elif before == after:
        lines = iter([(" ", "(nothing changes)")])
    else:
        lines = diff(before, after)
    for sign, line in lines:
        yield from mark(line, "" if sign == "@" else f"{sign} ", sheet, COLOURS[sign])


def mark(text: str, lead: str, sheet: Sheet, sgr: str) -> Iterator[str]:
    """Every line of a text with every character in it, after a mark; a line that is too long continues without one."""
    room = max(sheet.columns - 5 - len(lead), _NARROWEST)
    for line in visible(text).expandtabs().split("\n"):
        start, at, is_first = lead, 0, True
        while at < len(line) or is_first:
            # Not all that is left: to copy it for each piece of a line of megabytes would take minutes.
            rest = line[at : at + _WINDOW * room]
            piece = clip(rest, room, mark="") or rest[:1]
            yield f"    {sheet.paint(start + piece, sgr)}"
            start, at, is_first = " " * len(lead) or " ", at + len(piece), False
