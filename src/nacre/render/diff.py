"""Changes of a text as HTML: lines taken away, lines put there, and a few around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from nacre.render.html import escaped

_MOST_COMPARED = 1_000
_AROUND = 3
_BEGINNING = re.compile(r"\s*(?:diff --git |\*\*\* Begin Patch|(?:Index: .*\n=+\n)?--- \S.*\n\+\+\+ )")
_HEADS = ("diff --git ", "index ", "--- ", "+++ ", "*** ", "new file", "deleted file", "similarity ", "rename ")


def changed(old: str, new: str) -> str:
    """What an edit takes away and puts there, line by line."""
    before, after = _split(old), _split(new)
    return f'<pre class="diff" tabindex="0">{"".join(_changes(before, after))}</pre>'


def written(text: str) -> str:
    """A text that is all new."""
    return f'<pre class="diff" tabindex="0">{"".join(_line("+", line) for line in _split(text))}</pre>'


def is_patch(text: str) -> bool:
    """Tell whether a text is changes already, as diff and git write them."""
    return _BEGINNING.match(text) is not None


def patch(text: str) -> str:
    """Changes as diff and git write them."""
    return f'<pre class="diff" tabindex="0">{"".join(map(_patched, _split(text)))}</pre>'


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    if max(len(before), len(after)) > _MOST_COMPARED:
        yield from (_line("-", line) for line in before)
        yield from (_line("+", line) for line in after)
        return
    # Lines that are everywhere do not count as matches: with them, a thousand lines may take ten seconds.
    matcher = SequenceMatcher(None, before, after)
    for kind, start, end, first, last in matcher.get_opcodes():
        if kind == "equal":
            yield from _same(before[start:end], is_first=start == 0, is_last=end == len(before))
        else:
            yield from (_line("-", line) for line in before[start:end])
            yield from (_line("+", line) for line in after[first:last])


def _same(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[str]:
    """Lines that stay; of many, those beside a change."""
    head = 0 if is_first else _AROUND
    tail = 0 if is_last else _AROUND
    hidden = len(lines) - head - tail
    if hidden <= 1:
        yield from (_line(" ", line) for line in lines)
        return
    yield from (_line(" ", line) for line in lines[:head])
    yield f'<span class="hunk">… {hidden:,} lines\n</span>'
    yield from (_line(" ", line) for line in lines[len(lines) - tail :])


def _patched(line: str) -> str:
    if line.startswith("@@") or line.startswith(_HEADS):
        return f'<span class="hunk">{escaped(line)}\n</span>'
    return _line(line[:1], line[1:]) if line[:1] in {"+", "-"} else f"<span>{escaped(line)}\n</span>"


def _line(sign: str, text: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(sign, "span")
    return f"<{tag}>{sign}{escaped(text)}\n</{tag}>"


def _split(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
