"""nacre sessions du: how much space sessions take."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import chop, clean, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import opened
from nacre.cli.table import Column

if TYPE_CHECKING:
    from nacre.messages import DiskUsage
    from nacre.sessions import Sessions

EXAMPLES = (
    ("the ten largest sessions, and the parts of the store", "nacre sessions du"),
    ("one session", "nacre sessions du telegram:42"),
    ("total size in bytes", "nacre sessions du --json | jq .total"),
)

MEANINGS = {
    "sessions": "active logs",
    "archive": "archived logs",
    "cold": "moved out by compaction",
    "quarantine": "damaged bytes",
    "base": "shared by forks",
    "blobs": "large payloads",
    "trash": "removed",
}


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument("-n", "--limit", type=int, default=10, metavar="N", help="maximum number of sessions (10)")


def run(args: Namespace, out: Out) -> int:
    if args.limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {args.limit}")
    with opened(args) as sessions:
        usage = sessions.disk_usage(_keys(sessions, args.refs))
    sizes = sorted(((count, key) for key, count in usage.sessions.items()), reverse=True)
    shown = sizes if args.refs else sizes[: args.limit]
    if out.jsonl:
        out.listing([{"key": key, "bytes": count} for count, key in shown])
    elif out.json:
        items = [{"key": key, "bytes": count} for count, key in shown]
        more = {"count": len(items), "sessions": len(sizes), "has_more": len(items) < len(sizes)}
        out.document({"schema_version": 1, "total": usage.total, "folders": usage.folders, **more, "items": items})
    else:
        _print(out, usage, shown, parts=not args.refs)
        if len(shown) < len(sizes):
            out.note(f"{several(len(sizes) - len(shown), 'more session')}; --limit shows more")
    return OK


def _keys(sessions: Sessions, refs: list[str]) -> set[str]:
    if refs:
        return {find(sessions, ref).key for ref in refs}
    return {info.key for archived in (False, True) for info in sessions.list(archived=archived, internal=True)}


def _print(out: Out, usage: DiskUsage, sizes: list[tuple[int, str]], *, parts: bool) -> None:
    columns = [Column("SIZE", right=True), Column("SESSION", wraps=chop, style=out.bold)]
    if sizes:
        table.show(out, columns, [(size(count), clean(key)) for count, key in sizes])
    if parts:
        out.say()
        named = [(size(count), folder, MEANINGS[folder]) for folder, count in usage.folders.items() if count]
        columns = [Column("SIZE", right=True), Column("PART", style=out.bold), Column("")]
        table.show(out, columns, [*named, (size(usage.total), "total", "")])
