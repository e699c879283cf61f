"""What sessions used: counted for the list, and drawn for one: tokens of each request, and how full the context was."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from threading import Lock
from weakref import WeakKeyDictionary

from msgspec import Struct

from nacre.amounts import count
from nacre.errors import StoreError
from nacre.history import branches
from nacre.messages import Entry, SessionInfo
from nacre.records import View
from nacre.render.html import escape
from nacre.render.usage import usage_of
from nacre.sessions import Sessions

_SMALL = 256 * 1024
_WIDTH, _HEIGHT, _GROUND = 720, 120, 104
_MIN_BARS, _MAX_BARS = 24, 180
KEY = '<i class="cached"></i> cached <i class="given"></i> input <i class="made"></i> output, ▲ summary'


# ---- what sessions hold beyond what the catalogue has


class Tally(Struct, frozen=True, kw_only=True):
    """What a session holds up to record `n` of one of its lives, on all its branches."""

    uid: str = ""
    n: int = 0
    calls: int = 0
    failed: int = 0
    given: int = 0
    made: int = 0
    branches: int = 1


class Tallies:
    """What the sessions of one store hold; asking again costs nothing as long as they are as they were."""

    def __init__(self) -> None:
        # How large each was and when it was written, and what was found then. Two threads that read the same session
        # at once find the same, so nobody waits for another.
        self._kept: dict[str, tuple[int, datetime, Tally]] = {}

    def count(self, sessions: Sessions, infos: Iterable[SessionInfo], until: float) -> dict[str, Tally]:
        """What sessions hold; a large one is read from end to end the first time, and only if there is time."""
        is_hurried = until - time.monotonic() < 1
        found: dict[str, Tally] = {}
        for info in infos:
            known = self._kept.get(info.key)
            if known is None or known[:2] != (info.bytes, info.updated):
                if time.monotonic() > until or (is_hurried and info.bytes > _SMALL):
                    continue
                before = known[2] if known else Tally()
                try:
                    tally = sessions.read(info.key, partial(_tally, before=before)) or Tally()
                except StoreError:
                    tally = Tally()
                known = self._kept[info.key] = (info.bytes, info.updated, tally)
            found[info.key] = known[2]
        return found


def _tally(view: View, before: Tally) -> Tally:
    """Count on from what was found before, or all of it."""
    goes_on = before.n and before.uid == view.uid
    calls, failed, given, made = (before.calls, before.failed, before.given, before.made) if goes_on else (0, 0, 0, 0)
    for record in takewhile(lambda one: one.n > before.n, view.back(view.n)) if goes_on else view.all():
        if record.m is not None:
            calls += len(record.m.tool_calls)
            failed += record.m.extra.get("failed") is True
        elif record.t == "use":
            used = usage_of(record.data)
            given, made = given + used.input, made + used.output
    ways = sum(one.end.hd != one.parent for one in branches.segments(view)) if view.state.br else 1
    return Tally(uid=view.uid, n=view.n, calls=calls, failed=failed, given=given, made=made, branches=max(ways, 1))


def tallies_of(sessions: Sessions) -> Tallies:
    """What is known of a store in this process."""
    with _lock:
        return _by_store.setdefault(sessions, Tallies())


_lock = Lock()
_by_store: WeakKeyDictionary[Sessions, Tallies] = WeakKeyDictionary()


# ---- one session, drawn


class Use(Struct, frozen=True, kw_only=True):
    """One request: where it is in the log, what went in, how much of that was cached, and what came out."""

    n: int
    given: int = 0
    cached: int = 0
    made: int = 0


def _uses(entries: Iterable[Entry]) -> list[Use]:
    """The requests for which somebody counted."""
    found = []
    for entry in entries:
        if entry.kind == "use" and isinstance(entry.data, Mapping):
            used, cached = usage_of(entry.data), entry.data.get("cached")
            if used.input or used.output:
                kept = min(cached, used.input) if isinstance(cached, int) and cached > 0 else 0
                found.append(Use(n=entry.n, given=used.input, cached=kept, made=used.output))
    return found


def drawing(entries: Sequence[Entry], *, limit: int, base: str = "") -> str:
    """An inline SVG of `use` and `sum` records; nothing where nobody counted.

    `limit` is the context's, in tokens; `base` is the page that its links lead to.
    """
    uses = _uses(entries)
    if len(uses) > _MAX_BARS:
        # As many as can be distinguished: of neighbours, the largest.
        size = -(-len(uses) // _MAX_BARS)
        groups = [uses[at : at + size] for at in range(0, len(uses), size)]
        uses = [max(group, key=lambda use: use.given + use.made) for group in groups]
    if not uses:
        return ""
    most = max(use.given + use.made for use in uses)
    step = _WIDTH / max(len(uses), _MIN_BARS)
    label = f"Tokens of {len(uses)} request{'s' * (len(uses) != 1)}, the largest with {count(most)}"
    head = f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{label}"'
    pieces = [f'{head} preserveAspectRatio="none">']
    if 0 < limit <= most:
        y = _GROUND - limit * (_GROUND - 8) / most
        place = f'x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"'
        pieces.append(f'<line class="limit" {place}><title>limit</title></line>')
    pieces += [_bar(use, place * step, step, most, base) for place, use in enumerate(uses)]
    for mark in (entry.n for entry in entries if entry.kind == "sum"):
        x = sum(use.n < mark for use in uses) * step
        shape = f'd="M{x:.1f} {_GROUND + 2}l5 10h-10z"'
        pieces.append(f'<path class="mark" {shape}><title>summary #{mark}</title></path>')
    return "".join((*pieces, "</svg>"))


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
    return f'<a href="{escape(base)}#{use.n}"><title>{title}</title>{"".join(parts)}</a>'


def legend(entries: Sequence[Entry], *, limit: int) -> str:
    """The numbers of a drawing in words."""
    uses = _uses(entries)
    if not uses:
        return "No model has reported tokens here yet."
    last = uses[-1]
    share = f", {last.given * 100 // limit} % of {count(limit)}" if limit else ""
    given, made = sum(use.given for use in uses), sum(use.made for use in uses)
    requests = f"{len(uses)} request{'s' * (len(uses) != 1)}"
    return f"{count(given)} tokens in, {count(made)} out in {requests}; context now {count(last.given)}{share}"


def savings(entries: Sequence[Entry], n: int) -> str:
    """How large the context was before and after summary `n`; "" where nobody counted."""
    uses = _uses(entries)
    before = next((use.given for use in reversed(uses) if use.n < n), 0)
    after = next((use.given for use in uses if use.n > n), 0)
    return f"{count(before)} → {count(after)} tokens" if before and after else ""
