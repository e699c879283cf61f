"""nacre sessions gc: remove what no session needs any more."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from msgspec.structs import asdict

from nacre.cli.failures import OK
from nacre.cli.one_line import clean, several, size
from nacre.cli.output import Out
from nacre.cli.store_choice import opened

EXAMPLES = (
    ("see what would be deleted", "nacre sessions gc --dry-run"),
    ("delete it", "nacre sessions gc"),
    ("the trash is emptied separately", "nacre sessions trash empty --older-than 30d"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        root = sessions.location
        found = sessions.remove_leftovers(dry_run=args.dry_run)
    freed = sum(left.bytes for left in found)
    if out.json:
        document = {"ok": True, "operation": "gc", "dry_run": args.dry_run, "bytes": freed}
        out.document({**document, "removed": [asdict(left) for left in found]})
        return OK
    for left in found:
        out.say(f"{clean(os.path.relpath(left.path, root))}: {left.reason}, {size(left.bytes)}")
    done = "would be deleted" if args.dry_run else "deleted"
    out.note(f"{several(len(found), 'file')} {done}, {size(freed)}" if found else "nothing to delete")
    return OK
