"""Changes of a text: lines taken away, lines put there, and a few around them; as HTML, and for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from nacre.agent.ports import Change
from nacre.render.html import escape
from nacre.render.terminal import Sheet
from nacre.render.text import clip, visible

_CONTEXT = 3
_MAX_COMPARED = 5_000
_MAX_COMPARED_HTML = 1_000
_MIN_COLUMNS = 12
_WINDOW = 8
"""How many characters are looked at for each column: some have no width."""
_BEGINNING = re.compile(r"\s*(?:diff --git |\*\*\* Begin Patch|(?:Index: .*\n=+\n)?--- \S.*\n\+\+\+ )")
_HEADS = ("diff --git ", "index ", "--- ", "+++ ", "*** ", "new file", "deleted file", "similarity ", "rename ")
COLOURS = {"+": "32", "-": "31", "@": "36", " ": ""}


def edit_html(old: str, new: str) -> str:
    """The lines that an edit takes away and puts there, with a few that stay next to each change."""
    before, after = _split(old), _split(new)
    if max(len(before), len(after)) > _MAX_COMPARED_HTML:
        return _pre([*(_line("-", line) for line in before), *(_line("+", line) for line in after)])
    lines = []
    # Lines that are everywhere do not count as matches: with them, a thousand lines may take ten seconds.
    for kind, start, end, first, last in SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            head = start + (_CONTEXT if start else 0)
            tail = end - (_CONTEXT if end < len(before) else 0)
            hidden = tail - head
            if hidden <= 1:
                head = tail = end
            lines += [_line(" ", line) for line in before[start:head]]
            lines += [f'<span class="hunk">… {hidden:,} lines\n</span>'] if hidden > 1 else []
            lines += [_line(" ", line) for line in before[tail:end]]
        else:
            lines += [_line("-", line) for line in before[start:end]]
            lines += [_line("+", line) for line in after[first:last]]
    return _pre(lines)


def addition_html(text: str) -> str:
    """A text that is all new."""
    return _pre([_line("+", line) for line in _split(text)])


def is_patch(text: str) -> bool:
    """Tell whether a text is changes already, as diff and git write them."""
    return _BEGINNING.match(text) is not None


def patch_html(text: str) -> str:
    """Changes as diff and git write them."""
    lines = []
    for line in _split(text):
        if line.startswith(("@@", *_HEADS)):
            lines.append(f'<span class="hunk">{escape(line)}\n</span>')
        else:
            sign = line[:1] if line[:1] in {"+", "-"} else ""
            lines.append(_line(sign, line.removeprefix(sign)))
    return _pre(lines)


def _pre(lines: list[str]) -> str:
    return f'<pre class="diff" tabindex="0">{"".join(lines)}</pre>'


def _line(sign: str, text: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(sign, "span")
    return f"<{tag}>{sign}{escape(text)}\n</{tag}>"


def _split(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines


def diff(before: str, after: str) -> Iterator[tuple[str, str]]:
    """The changed lines with their sign: `-` removed, `+` added, ` ` unchanged next to a change, `@` where it is."""
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
    room = max(sheet.columns - 5 - len(lead), _MIN_COLUMNS)
    for line in visible(text).expandtabs().split("\n"):
        start, at, is_first = lead, 0, True
        while at < len(line) or is_first:
            # Not all that is left: to copy it for each piece of a line of megabytes would take minutes.
            rest = line[at : at + _WINDOW * room]
            piece = clip(rest, room, mark="") or rest[:1]
            yield f"    {sheet.paint(start + piece, sgr)}"
            start, at, is_first = " " * len(lead) or " ", at + len(piece), False
