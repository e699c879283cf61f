"""nacre sessions archive, unarchive: close sessions, which can still be read, and open them again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from nacre.cli.failures import Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref
from nacre.cli.store_choice import is_active, opened


def _add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def _run(args: Namespace, out: Out, *, opens: bool) -> int:
    with opened(args) as sessions:

        def archive(key: str) -> Done:
            if not is_active(sessions, key):
                raise Failure("conflict", f"session {key!r} is archived already")
            if not args.dry_run:
                sessions.archive(key)
            return Done(key, "archived")

        def unarchive(key: str) -> Done:
            if is_active(sessions, key):
                hint = "archive the active one first to bring an earlier one back"
                raise Failure("conflict", f"session {key!r} is active", hint=hint)
            if not args.dry_run:
                sessions.unarchive(key)
            return Done(key, "active again")

        verb, work = ("unarchive", unarchive) if opens else ("archive", archive)
        return each(out, verb, keys_of(sessions, args.refs, internal=args.internal), work, dry_run=args.dry_run)


archive = Command(
    (
        ("archive the newest session", "nacre sessions archive @last"),
        ("archive several sessions; first see what would happen", "nacre sessions archive @1 @2 telegram:42 --dry-run"),
    ),
    _add,
    partial(_run, opens=False),
)
unarchive = Command(
    (
        ("list archived sessions", "nacre sessions list --archived"),
        ("make the first of that list active again", "nacre sessions unarchive @1"),
    ),
    _add,
    partial(_run, opens=True),
)
