"""nacre sessions trash: list, restore or empty the trash."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from nacre.cli import discard, restore, table
from nacre.cli.discard import Item
from nacre.cli.failures import OK, Failure
from nacre.cli.many import Done, each
from nacre.cli.output import Out
from nacre.cli.place import opened
from nacre.cli.refs import is_key
from nacre.cli.remembered import beside, remembered, tell
from nacre.cli.table import Column
from nacre.cli.text import chop, clean, several, size
from nacre.cli.times import span

EXAMPLES = (
    ("list the trash", "nacre sessions trash list"),
    ("bring a session back", "nacre sessions trash restore telegram:42"),
    ("erase what was removed more than 30 days ago", "nacre sessions trash empty --older-than 30d --yes"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "restore", "empty"), nargs="?", default="list", help="default: list")
    parser.add_argument("refs", metavar="REF", nargs="*", help="restore: the sessions; empty: only these")
    parser.add_argument(
        "--older-than", metavar="SPAN", help="empty: only what was removed longer ago than this, as 30d"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="empty: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    if args.action == "restore":
        if not args.refs:
            raise Failure(
                "usage",
                "restore needs the key or the title of a session",
                hint="`nacre sessions trash list` shows them",
            )
        return restore.run(args, out)
    return _list(args, out) if args.action == "list" else _empty(args, out)


def _list(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        found = discard.items(sessions.location)
        titles = [discard.title_of(sessions.location, item) for item in found]
    if out.json:
        out.listing(map(_listed, found, titles))
    elif found:
        columns = [
            Column("KEY", wraps=chop, style=out.bold),
            Column("TITLE", shrinks=True),
            Column("SIZE", right=True),
            Column("REMOVED", style=out.dim),
        ]
        rows = [
            (clean(item.key), clean(title), size(item.bytes), out.when(item.removed))
            for item, title in zip(found, titles, strict=True)
        ]
        table.show(out, columns, rows)
    else:
        out.note("the trash is empty")
    return OK


def _listed(item: Item, title: str) -> dict[str, Any]:
    return {
        "key": item.key,
        "title": title,
        "removed": item.removed,
        "generations": len(item.logs),
        "bytes": item.bytes,
    }


def _empty(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        root = sessions.location
        doomed = _doomed(root, args)
        learned = remembered(sessions, {item.key for item in doomed if not is_key(sessions, item.key)})
        if doomed and not args.dry_run:
            room = size(sum(item.bytes for item in doomed))
            out.confirm(f"Erase {several(len(doomed), 'session')} ({room}) for good{beside(learned)}?", yes=args.yes)
            _forget(root, {item.key for item in doomed})

        def erase(item: Item) -> Done:
            if not args.dry_run:
                discard.empty(root, item)
            return Done(item.key, "erased", {"bytes": item.bytes, "remembered": learned[item.key]})

        if not doomed:
            out.note("nothing to erase")
        by_ref = {f"{item.key}.{item.stamp}": item for item in doomed}
        code = each(out, "trash empty", by_ref, erase, dry_run=args.dry_run)
        if not args.dry_run:
            # One that is in the trash still, removed another time, may come back under its other names.
            for key in {item.key for item in doomed} - {item.key for item in discard.items(root)}:
                sessions.forget_aliases(key)
    tell(out, learned)
    return code


def _forget(root: str, keys: set[str]) -> None:
    """Erase what the index knows of sessions; before they are erased, so that a crash leaves what can be done again."""
    try:
        from nacre.index import Index  # noqa: PLC0415 - loads SQLite, and a Python may have been built without it

        index = Index(root)
    except ModuleNotFoundError:
        return
    with closing(index):
        for key in keys:
            index.forget(key)


def _doomed(root: str, args: Namespace) -> list[Item]:
    found = discard.items(root)
    if args.refs:
        keys = {discard.named(root, ref).key for ref in args.refs}
        found = [item for item in found if item.key in keys]
    if args.older_than:
        before = datetime.now(UTC) - span(args.older_than)
        found = [item for item in found if item.removed < before]
    return found
