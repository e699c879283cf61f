"""What a session used, drawn: tokens of each request, and how full the context was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nacre.messages import Entry
from nacre.render.html import escaped
from nacre.render.text import count
from nacre.render.usage import usage_of

_WIDTH, _HEIGHT, _GROUND = 720, 120, 104
_FEWEST_BARS, _MOST_BARS = 24, 180
KEY = '<i class="cached"></i> cached <i class="given"></i> input <i class="made"></i> output, ▲ summary'


class Use(Struct, frozen=True, kw_only=True):
    """One request: where it is in the log, what went in, how much of that was cached, and what came out."""

    n: int
    given: int = 0
    cached: int = 0
    made: int = 0


def drawing(entries: Sequence[Entry], *, limit: int, base: str = "") -> str:
    """An inline SVG of `use` and `sum` records; nothing where nobody counted.

    `limit` is the context's, in tokens; `base` is the page that its links lead to.
    """
    uses = _thinned([use for use in map(_use, entries) if use is not None])
    if not uses:
        return ""
    most = max(use.given + use.made for use in uses)
    step = _WIDTH / max(len(uses), _FEWEST_BARS)
    marks = [entry.n for entry in entries if entry.kind == "sum"]
    label = f"Tokens of {len(uses)} request{'s' * (len(uses) != 1)}, the largest with {count(most)}"
    head = f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{label}"'
    return "".join(
        (
            f'{head} preserveAspectRatio="none">',
            *_limit(limit, most),
            *(_bar(use, place * step, step, most, base) for place, use in enumerate(uses)),
            *_summaries(uses, marks, step),
            "</svg>",
        )
    )


def legend(entries: Sequence[Entry], *, limit: int) -> str:
    """The numbers of a drawing in words."""
    uses = [use for use in map(_use, entries) if use is not None]
    if not uses:
        return "No model has reported tokens here yet."
    last = uses[-1]
    share = f", {last.given * 100 // limit} % of {count(limit)}" if limit else ""
    given, made = sum(use.given for use in uses), sum(use.made for use in uses)
    requests = f"{len(uses)} request{'s' * (len(uses) != 1)}"
    return f"{count(given)} tokens in, {count(made)} out in {requests}; context now {count(last.given)}{share}"


def saved(entries: Sequence[Entry], n: int) -> str:
    """How large the context was before and after summary `n`; "" where nobody counted."""
    uses = [use for use in map(_use, entries) if use is not None]
    before = next((use.given for use in reversed(uses) if use.n < n), 0)
    after = next((use.given for use in uses if use.n > n), 0)
    return f"{count(before)} → {count(after)} tokens" if before and after else ""


def _use(entry: Entry) -> Use | None:
    if entry.kind != "use" or not isinstance(entry.data, Mapping):
        return None
    found = usage_of(entry.data)
    given = found.input or _number(entry.data, "prompt")
    made = found.output or _number(entry.data, "completion")
    use = Use(n=entry.n, given=given, cached=min(_number(entry.data, "cached"), given), made=made)
    return use if use.given or use.made else None


def _number(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _thinned(uses: Sequence[Use]) -> Sequence[Use]:
    """As many as can be told apart: of neighbours, the largest."""
    if len(uses) <= _MOST_BARS:
        return uses
    size = -(-len(uses) // _MOST_BARS)
    return [max(uses[at : at + size], key=lambda use: use.given + use.made) for at in range(0, len(uses), size)]


def _bar(use: Use, x: float, step: float, most: int, base: str) -> str:
    """One request as a link to it: cached, then other input, then output, on top of each other."""
    title = f"#{use.n}: {count(use.given)} in ({count(use.cached)} cached), {count(use.made)} out"
    width = max(step - 1, 0.5)
    parts, y = [], float(_GROUND)
    for name, value in (("cached", use.cached), ("given", use.given - use.cached), ("made", use.made)):
        height = value * (_GROUND - 8) / most
        y -= height
        if height:
            parts.append(f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>')
    return f'<a href="{escaped(base)}#{use.n}"><title>{title}</title>{"".join(parts)}</a>'


def _limit(limit: int, most: int) -> Iterator[str]:
    y = _GROUND - limit * (_GROUND - 8) / most
    if 0 < limit <= most:
        yield f'<line class="limit" x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"><title>limit</title></line>'


def _summaries(uses: Sequence[Use], marks: Sequence[int], step: float) -> Iterator[str]:
    for mark in marks:
        x = sum(use.n < mark for use in uses) * step
        yield f'<path class="mark" d="M{x:.1f} {_GROUND + 2}l5 10h-10z"><title>summary #{mark}</title></path>'
