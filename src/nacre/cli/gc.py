"""nacre sessions gc: remove what no session needs any more."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import NamedTuple

from nacre.cli.failures import OK
from nacre.cli.output import Out
from nacre.cli.place import opened
from nacre.cli.text import clean, several, size
from nacre.log.blobs import unused
from nacre.log.ops import Ops
from nacre.log.place import settle_names, unlink_if_there

EXAMPLES = (
    ("see what would be deleted", "nacre sessions gc --dry-run"),
    ("delete it", "nacre sessions gc"),
    ("the trash is emptied separately", "nacre sessions trash empty --older-than 30d"),
)

_OLD = 3600.0


class Leftover(NamedTuple):
    """A file that no session needs, and why."""

    path: str
    bytes: int
    reason: str


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        root = sessions.location
        found = [left for left in leftovers(root) if args.dry_run or _removed(left.path)]
    freed = sum(left.bytes for left in found)
    if out.json:
        document = {"ok": True, "operation": "gc", "dry_run": args.dry_run, "bytes": freed}
        out.document({**document, "removed": [left._asdict() for left in found]})
        return OK
    for left in found:
        out.say(f"{clean(os.path.relpath(left.path, root))}: {left.reason}, {size(left.bytes)}")
    done = "would be deleted" if args.dry_run else "deleted"
    out.note(f"{several(len(found), 'file')} {done}, {size(freed)}" if found else "nothing to delete")
    return OK


def leftovers(root: str) -> Iterator[Leftover]:
    """Rewrites of logs whose writer was killed, long enough ago that nobody is at it still, and unused payloads."""
    for path in unused(Ops(), root):
        yield Leftover(path, os.stat(path).st_size, "a payload that no session uses")
    for folder in (f"{root}/sessions", f"{root}/archive", f"{root}/blobs"):
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if entry.name.endswith(".tmp") and entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                if found.st_mtime < time.time() - _OLD:
                    yield Leftover(entry.path, found.st_size, "left by a writer that was killed")


def _removed(path: str) -> bool:
    """Remove a leftover unless somebody holds it: a writer locks it from the moment it is made."""
    ops = Ops()
    try:
        fd = ops.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        if not ops.flock(fd, wait=False) or ops.fstat(fd).st_ino != ops.stat(path).st_ino:
            return False
        unlink_if_there(ops, path)
        settle_names(ops, os.path.dirname(path))
    finally:
        ops.close(fd)
    return True
