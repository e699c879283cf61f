"""nacre sessions unpin: take the pin off sessions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import changeable, opened
from nacre.cli.refs import add_internal, add_ref
from nacre.history.labels import labels

EXAMPLES = (
    ("list pinned sessions", "nacre sessions list --pinned"),
    ("remove the pin from the first of that list", "nacre sessions unpin @1"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:

        def unpin(key: str) -> Done:
            changeable(sessions, key, internal=args.internal)
            if not labels(sessions.get_meta(key)).pinned:
                return Done(key, "unpinned", words="was not pinned")
            if not args.dry_run:
                sessions.set_meta(key, pinned=None)
            return Done(key, "unpinned")

        return each(out, "unpin", keys_of(sessions, args.refs, internal=args.internal), unpin, dry_run=args.dry_run)
