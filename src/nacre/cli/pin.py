"""nacre sessions pin: keep sessions; retention leaves them alone."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import changeable, opened
from nacre.cli.refs import add_internal, add_ref
from nacre.history.labels import labels

EXAMPLES = (
    ("pin the newest session", "nacre sessions pin @last"),
    ("list pinned sessions", "nacre sessions list --pinned"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:

        def pin(key: str) -> Done:
            changeable(sessions, key, internal=args.internal)
            if labels(sessions.get_meta(key)).pinned:
                return Done(key, "pinned", words="already pinned")
            if not args.dry_run:
                sessions.set_meta(key, pinned=True)
            return Done(key, "pinned")

        return each(out, "pin", keys_of(sessions, args.refs, internal=args.internal), pin, dry_run=args.dry_run)
