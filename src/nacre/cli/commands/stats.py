"""nacre sessions stats: messages and tokens, per day, model and session.

Messages are all that were ever written, truncated ones too; what a fork shares with its parent counts once.
Tokens are what `use` records say; nacre.render.usage lists the fields that are read. The cost is that of requests to
models with a price in the configuration.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from nacre.cli.failures import OK
from nacre.cli.one_line import clean, several, span
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import opened
from nacre.codec import time_of
from nacre.config import load
from nacre.messages import Message
from nacre.records import Record, View
from nacre.render.conversation import Notice, notices
from nacre.render.text import bars, count
from nacre.render.usage import Prices, Usage, money, request_of, text_of, usage_of

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("an overview", "nacre sessions stats"),
    ("the last month, day by day", "nacre sessions stats --by day --since 30d"),
    ("the tools that one session used", "nacre sessions stats @last --by tool"),
    ("for a spreadsheet", "nacre sessions stats --by model --jsonl"),
)

_SORTS = ("day", "model", "session", "role", "tool")
_GLANCE = ("day", "model", "session")
_MOST_ROWS = 15
_WIDEST = 100
_MOST_GAPS = 400
_MOST_NAMED = 5


def add(parser: ArgumentParser) -> None:
    add_ref(parser, required=False)
    parser.add_argument("--by", choices=_SORTS, help="only this table, with all rows; days are in local time")
    parser.add_argument("--since", metavar="WHEN", help="only from a date (2026-11-01) or the last days (30d)")
    parser.add_argument("--ascii", action="store_true", help="draw bars with #")


def run(args: Namespace, out: Out) -> int:
    since = _since(args.since)
    with opened(args) as sessions:
        tally = Tally(since, Prices(load().table("prices")))
        keys = [find(sessions, args.ref).key] if args.ref else _keys(sessions)
        with out.progress("counting", total=len(keys), unit="sessions") as step:
            for key in keys:
                sessions.read_generations(key, partial(tally.read, key))
                step(1)
        aside = {key: found for key, found in notices(sessions.quarantine()).items() if key in keys}
    chosen = (args.by,) if args.by else _GLANCE
    if out.json:
        _print_json(out, tally, chosen, aside)
    else:
        _print(out, tally, chosen, is_ascii=args.ascii or not _is_utf8())
    for key, notice in list(aside.items())[:_MOST_NAMED]:
        out.note(f"not counted: {clean(key)}: {notice.text}: `{clean(notice.command)}`")
    if len(aside) > _MOST_NAMED:
        out.note(f"… and {several(len(aside) - _MOST_NAMED, 'more session')}: `nacre sessions quarantine`")
    return OK


class Count:
    """Messages or calls, and tokens."""

    def __init__(self) -> None:
        self.times = 0
        self.usage = Usage()
        self.cost: float | None = None

    def use(self, usage: Usage, cost: float | None) -> None:
        """Add what a request used; the cost is that of the requests that have a price."""
        self.usage += usage
        if cost is not None:
            self.cost = cost + (self.cost or 0)

    def to_mapping(self, noun: str) -> dict[str, int | float]:
        usage = self.usage
        tokens = {"input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.total}
        return {noun: self.times, **tokens, **({} if self.cost is None else {"cost": round(self.cost, 6)})}


class Tally:
    """What was said and used, counted in every way that may be asked for."""

    def __init__(self, since: datetime | None, prices: Prices) -> None:
        self.total = Count()
        self.by: dict[str, dict[str, Count]] = {sort: {} for sort in _SORTS}
        self._since = since
        self._prices = prices
        self._read: dict[str, int] = {}
        self._requests: set[str] = set()

    def read(self, key: str, view: View) -> None:
        """Count one generation of a session, without what was counted as another's already."""
        uid, floor = "", 0
        for record in view.all():
            if record.t == "open":
                # A fork's past begins with the header of the session it came from.
                uid = record.uid or ""
                floor = self._read.get(uid, 0)
            if record.n <= floor:
                continue
            self._read[uid] = record.n
            if record.m is not None:
                self._say(key, record, record.m)
            elif record.t == "use":
                self._use(key, record)

    def _say(self, key: str, record: Record, message: Message) -> None:
        moment = message.created or time_of(record)
        if self._since is not None and moment < self._since:
            return
        self.total.times += 1
        names = {"day": _day(moment), "session": key, "role": message.role, "model": message.model or ""}
        for sort, name in names.items():
            if name:
                self._at(sort, name).times += 1
        for call in message.tool_calls:
            self._at("tool", call.name or "?").times += 1

    def _use(self, key: str, record: Record) -> None:
        moment, request = time_of(record), request_of(record.data)
        if (self._since is not None and moment < self._since) or request in self._requests:
            return
        if request:
            self._requests.add(request)
        usage = usage_of(record.data)
        cost = self._prices.cost(record.data)
        self.total.use(usage, cost)
        for sort, name in (("day", _day(moment)), ("session", key), ("model", text_of(record.data, "model") or "?")):
            self._at(sort, name).use(usage, cost)

    def _at(self, sort: str, name: str) -> Count:
        return self.by[sort].setdefault(name, Count())


# ---- what is read


def _keys(sessions: Sessions) -> list[str]:
    """Every session, the oldest first, so that a fork comes behind the session it came from."""
    infos = [*sessions.list(), *sessions.list(archived=True)]
    return list(dict.fromkeys(info.key for info in sorted(infos, key=lambda info: info.created)))


def _since(given: str | None) -> datetime | None:
    if not given:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return datetime.now(UTC) - span(given)
    return moment.astimezone() if moment.tzinfo is None else moment


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"


# ---- how it is shown


def _print_json(out: Out, tally: Tally, chosen: Sequence[str], aside: Mapping[str, Notice]) -> None:
    tables = {sort: [_row(sort, name, found) for name, found in _sorted(tally, sort)] for sort in chosen}
    if out.jsonl:
        out.listing(row for rows in tables.values() for row in rows)
        return
    sessions = len(tally.by["session"])
    missing = sum(notice.records for notice in aside.values())
    document = {"schema_version": 1, "sessions": sessions, **tally.total.to_mapping("messages"), "quarantined": missing}
    out.document({**document, "by": tables})


def _row(sort: str, name: str, found: Count) -> dict[str, Any]:
    return {sort: name, **found.to_mapping(_noun(sort))}


def _print(out: Out, tally: Tally, chosen: Sequence[str], *, is_ascii: bool) -> None:
    usage = tally.total.usage
    dot = "," if is_ascii else " ·"
    tokens = f"{dot} {count(usage.total)} tokens ({count(usage.input)} in, {count(usage.output)} out)"
    total = f"{several(len(tally.by['session']), 'session')}{dot} {several(tally.total.times, 'message')}"
    with out.pager():
        cost = "" if tally.total.cost is None else f"{dot} {money(tally.total.cost)}"
        out.say(out.bold(total + (tokens if usage.total else "") + cost))
        for sort in chosen:
            rows = _sorted(tally, sort)
            numbers = [(clean(name), found.times) for name, found in rows]
            _plot(out, f"{_noun(sort)} per {sort}", numbers, is_ascii=is_ascii, is_whole=len(chosen) == 1)
            numbers = [(clean(name), found.usage.total) for name, found in rows]
            _plot(out, f"tokens per {sort}", numbers, is_ascii=is_ascii, is_whole=len(chosen) == 1)


def _plot(out: Out, title: str, rows: list[tuple[str, int]], *, is_ascii: bool, is_whole: bool) -> None:
    """Bars under a title; nothing where there is nothing to show."""
    if not any(number for _, number in rows):
        return
    rows = [row for row in rows if row[1]]
    is_by_day = title.endswith(" day")
    rows = _without_gaps(rows) if is_by_day else sorted(rows, key=lambda row: -row[1])
    left_out = 0 if is_whole else max(len(rows) - _MOST_ROWS, 0)
    if left_out:
        rows = rows[left_out:] if is_by_day else rows[:_MOST_ROWS]
    out.say()
    out.say(out.bold(title))
    for line in bars(rows, min(out.width, _WIDEST), is_ascii=is_ascii):
        out.say(line)
    if left_out:
        out.say(out.dim(f"and {left_out} more; --by {title.rsplit(maxsplit=1)[-1]} shows all"))


def _sorted(tally: Tally, sort: str) -> list[tuple[str, Count]]:
    """Days in their order, everything else the greatest first."""
    rows = sorted(tally.by[sort].items())
    if sort != "day":
        rows.sort(key=lambda row: (row[1].times, row[1].usage.total), reverse=True)
    return rows


def _without_gaps(rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Days with those between them on which nothing was said, unless that would be a great many."""
    first, last = (date.fromisoformat(rows[place][0]) for place in (0, -1))
    days = (last - first).days + 1
    if days > _MOST_GAPS:
        return rows
    known = dict(rows)
    every = (str(first + timedelta(days=day)) for day in range(days))
    return [(day, known.get(day, 0)) for day in every]


def _noun(sort: str) -> str:
    return "calls" if sort == "tool" else "messages"


def _is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
