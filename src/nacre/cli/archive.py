"""nacre sessions archive: close sessions; they can still be read."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import is_active, opened
from nacre.cli.refs import add_internal, add_ref

EXAMPLES = (
    ("archive the newest session", "nacre sessions archive @last"),
    ("archive several sessions; first see what would happen", "nacre sessions archive @1 @2 telegram:42 --dry-run"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:

        def archive(key: str) -> Done:
            if not is_active(sessions, key):
                raise Failure("conflict", f"session {key!r} is archived already")
            if not args.dry_run:
                sessions.archive(key)
            return Done(key, "archived")

        return each(out, "archive", keys_of(sessions, args.refs, internal=args.internal), archive, dry_run=args.dry_run)
