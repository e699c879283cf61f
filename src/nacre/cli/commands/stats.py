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
from typing import Any

from nacre.amounts import count
from nacre.cli.failures import OK
from nacre.cli.one_line import clean, parse_duration, several
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import open_store
from nacre.codec import time_of
from nacre.config import load
from nacre.messages import Message
from nacre.records import Record, View
from nacre.render.conversation import Notice, notices
from nacre.render.text import bars
from nacre.render.usage import Prices, Usage, money, request_of, text_of, usage_of

EXAMPLES = (
    ("an overview", "nacre sessions stats"),
    ("the last month, day by day", "nacre sessions stats --by day --since 30d"),
    ("the tools that one session used", "nacre sessions stats @last --by tool"),
    ("for a spreadsheet", "nacre sessions stats --by model --jsonl"),
)

_SORTS = ("day", "model", "session", "role", "tool")
_OVERVIEW = ("day", "model", "session")
_MAX_ROWS = 15
_MAX_WIDTH = 100
_MAX_GAPS = 400
_MAX_NAMED = 5


def add(parser: ArgumentParser) -> None:
    add_ref(parser, required=False)
    parser.add_argument("--by", choices=_SORTS, help="only this table, with all rows; days are in local time")
    parser.add_argument("--since", metavar="WHEN", help="only from a date (2026-11-01) or the last days (30d)")
    parser.add_argument("--ascii", action="store_true", help="draw bars with #")


def run(args: Namespace, out: Out) -> int:
    since = _since(args.since)
    with open_store(args) as sessions:
        tally = Tally(since, Prices(load().table("prices")))
        if args.ref:
            keys = [find(sessions, args.ref).key]
        else:
            # The oldest first, so that a fork comes after the session it came from.
            infos = sorted([*sessions.list(), *sessions.list(archived=True)], key=lambda info: info.created)
            keys = list(dict.fromkeys(info.key for info in infos))
        with out.progress("counting", total=len(keys), unit="sessions") as step:
            for key in keys:
                sessions.read_generations(key, partial(tally.read, key))
                step(1)
        aside = {key: found for key, found in notices(sessions.quarantine()).items() if key in keys}
    chosen = (args.by,) if args.by else _OVERVIEW
    if out.json:
        _print_json(out, tally, chosen, aside)
    else:
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        _print(out, tally, chosen, is_ascii=args.ascii or not is_utf8)
    for key, notice in list(aside.items())[:_MAX_NAMED]:
        out.note(f"not counted: {clean(key)}: {notice.text}: `{clean(notice.command)}`")
    if len(aside) > _MAX_NAMED:
        out.note(f"… and {several(len(aside) - _MAX_NAMED, 'more session')}: `nacre sessions quarantine`")
    return OK


class Count:
    """Messages or calls, and tokens."""

    def __init__(self) -> None:
        self.times = 0
        self.usage = Usage()
        self.cost: float | None = None

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
                self._count_message(key, record, record.m)
            elif record.t == "use":
                self._count_usage(key, record)

    def _count_message(self, key: str, record: Record, message: Message) -> None:
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

    def _count_usage(self, key: str, record: Record) -> None:
        """Count what a request used, once; the cost is that of the requests that have a price."""
        moment, request = time_of(record), request_of(record.data)
        if (self._since is not None and moment < self._since) or request in self._requests:
            return
        if request:
            self._requests.add(request)
        usage, cost = usage_of(record.data), self._prices.cost(record.data)
        names = {"day": _day(moment), "session": key, "model": text_of(record.data, "model") or "?"}
        for one in (self.total, *(self._at(sort, name) for sort, name in names.items())):
            one.usage += usage
            if cost is not None:
                one.cost = cost + (one.cost or 0)

    def _at(self, sort: str, name: str) -> Count:
        return self.by[sort].setdefault(name, Count())


def _since(given: str | None) -> datetime | None:
    if not given:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return datetime.now(UTC) - parse_duration(given)
    return moment.astimezone() if moment.tzinfo is None else moment


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"


# ---- how it is shown


def _print_json(out: Out, tally: Tally, chosen: Sequence[str], aside: Mapping[str, Notice]) -> None:
    tables: dict[str, list[dict[str, Any]]] = {}
    for sort in chosen:
        tables[sort] = [{sort: name, **found.to_mapping(_noun(sort))} for name, found in _sorted(tally, sort)]
    if out.jsonl:
        out.listing(row for rows in tables.values() for row in rows)
        return
    missing = sum(notice.records for notice in aside.values())
    document = {"sessions": len(tally.by["session"]), **tally.total.to_mapping("messages"), "quarantined": missing}
    out.document({**document, "by": tables})


def _print(out: Out, tally: Tally, chosen: Sequence[str], *, is_ascii: bool) -> None:
    usage = tally.total.usage
    dot = "," if is_ascii else " ·"
    tokens = f"{dot} {count(usage.total)} tokens ({count(usage.input)} in, {count(usage.output)} out)"
    total = f"{several(len(tally.by['session']), 'session')}{dot} {several(tally.total.times, 'message')}"
    with out.pager():
        cost = "" if tally.total.cost is None else f"{dot} {money(tally.total.cost)}"
        out.say(out.bold(total + (tokens if usage.total else "") + cost))
        for sort in chosen:
            rows = [(clean(name), found) for name, found in _sorted(tally, sort)]
            messages = [(name, found.times) for name, found in rows]
            used = [(name, found.usage.total) for name, found in rows]
            for noun, numbers in ((_noun(sort), messages), ("tokens", used)):
                _plot(out, f"{noun} per {sort}", numbers, is_ascii=is_ascii, is_whole=len(chosen) == 1)


def _plot(out: Out, title: str, rows: list[tuple[str, int]], *, is_ascii: bool, is_whole: bool) -> None:
    """Bars under a title; nothing where there is nothing to show."""
    rows = [row for row in rows if row[1]]
    if not rows:
        return
    is_by_day = title.endswith(" day")
    if is_by_day:
        # With the days between them on which nothing was said, unless that would be a great many.
        first, last = (date.fromisoformat(rows[place][0]) for place in (0, -1))
        days = [str(first + timedelta(days=day)) for day in range((last - first).days + 1)]
        if len(days) <= _MAX_GAPS:
            known = dict(rows)
            rows = [(day, known.get(day, 0)) for day in days]
    else:
        rows.sort(key=lambda row: -row[1])
    left_out = 0 if is_whole else max(len(rows) - _MAX_ROWS, 0)
    if left_out:
        rows = rows[left_out:] if is_by_day else rows[:_MAX_ROWS]
    out.say()
    out.say(out.bold(title))
    for line in bars(rows, min(out.width, _MAX_WIDTH), is_ascii=is_ascii):
        out.say(line)
    if left_out:
        out.say(out.dim(f"and {left_out} more; --by {title.rsplit(maxsplit=1)[-1]} shows all"))


def _sorted(tally: Tally, sort: str) -> list[tuple[str, Count]]:
    """Days in their order, everything else the greatest first."""
    rows = sorted(tally.by[sort].items())
    if sort != "day":
        rows.sort(key=lambda row: (row[1].times, row[1].usage.total), reverse=True)
    return rows


def _noun(sort: str) -> str:
    return "calls" if sort == "tool" else "messages"
