"""nacre sessions tail: the last records of a session, and those to come."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, size
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find_active
from nacre.cli.store_choice import opened

if TYPE_CHECKING:
    from nacre.messages import Entry
    from nacre.sessions import Sessions

EXAMPLES = (
    ("the last records", "nacre sessions tail @last"),
    ("follow a session, with the text of messages", "nacre sessions tail -f --full telegram:42"),
    ("the same for a program", "nacre sessions tail -f --jsonl telegram:42"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument("-f", "--follow", action="store_true", help="print new records as any process writes them")
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="number of records to begin with (10)")
    parser.add_argument("--full", action="store_true", help="print the text of messages too")


def run(args: Namespace, out: Out) -> int:
    if args.lines < 0:
        raise Failure("usage", f"--lines is 0 or more, not {args.lines}")
    if args.follow and out.json and not out.jsonl:
        raise Failure("usage", "--json prints one document and cannot follow a session", hint="use --jsonl")
    with opened(args) as sessions:
        target = find_active(sessions, args.ref)
        entries = sessions.records(target.key)
        last = _last(entries, args.lines, after=target.n)
        if out.json and not out.jsonl:
            out.listing([_item(entry, full=args.full) for entry in last], total=len(entries))
            return OK
        for entry in last:
            _print(out, entry, full=args.full)
        if args.follow:
            _follow(sessions, target.key, out, after=entries[-1].n if entries else 0, full=args.full)
    return OK


def _last(entries: list[Entry], count: int, *, after: int | None) -> list[Entry]:
    if after is not None:
        return [entry for entry in entries if entry.n >= after]
    return entries[-count:] if count else []


def _follow(sessions: Sessions, key: str, out: Out, *, after: int, full: bool) -> None:
    out.flush()
    for entry in sessions.follow(key, after=after):
        _print(out, entry, full=full)
        out.flush()


def _print(out: Out, entry: Entry, *, full: bool) -> None:
    if out.jsonl:
        out.line(_item(entry, full=full))
        return
    data = entry.data if isinstance(entry.data, dict) else {}
    what = f"{entry.kind} {data['role']}" if entry.kind == "msg" and "role" in data else entry.kind
    out.say(
        f"{out.bold(f'{entry.n:>6}')}  {out.dim(out.when(entry.ts))}  {out.cyan(clean(what))}  {_gist(data)}".rstrip()
    )
    words = _words(data) if full else ""
    for line in clean(words, lines=True).splitlines():
        out.say(f"        {line}")


def _item(entry: Entry, *, full: bool) -> dict[str, Any]:
    item = {"generation": entry.generation, "n": entry.n, "ts": entry.ts, "kind": entry.kind}
    if full:
        return {**item, "data": entry.data}
    data = entry.data if isinstance(entry.data, dict) else {}
    return {**item, "role": data.get("role"), "bytes": len(_words(data).encode()), "tools": _tools(data)}


def _gist(data: dict[str, Any]) -> str:
    """What a record is about without its words: how long it is, and which tools are called."""
    words = _words(data)
    parts = [f"calls {clean(', '.join(_tools(data)))}"] if _tools(data) else []
    if words:
        parts.append(size(len(words.encode())))
    return ", ".join(parts)


def _tools(data: dict[str, Any]) -> list[str]:
    calls = data.get("tool_calls") or ()
    return [str(call.get("name", "")) for call in calls if isinstance(call, dict)]


def _words(data: dict[str, Any]) -> str:
    content = data.get("content", data.get("text"))
    if isinstance(content, list):
        parts = (part.get("text", "") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
