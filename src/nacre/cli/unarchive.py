"""nacre sessions unarchive: open archived sessions again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import is_active, opened
from nacre.cli.refs import add_internal, add_ref

EXAMPLES = (
    ("list archived sessions", "nacre sessions list --archived"),
    ("make the first of that list active again", "nacre sessions unarchive @1"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:

        def unarchive(key: str) -> Done:
            if is_active(sessions, key):
                hint = "archive the active one first to bring an earlier one back"
                raise Failure("conflict", f"session {key!r} is active", hint=hint)
            if not args.dry_run:
                sessions.unarchive(key)
            return Done(key, "active again")

        return each(
            out, "unarchive", keys_of(sessions, args.refs, internal=args.internal), unarchive, dry_run=args.dry_run
        )
