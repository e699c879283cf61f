"""nacre sessions restore: bring sessions back from the trash."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli import discard
from nacre.cli.discard import Item
from nacre.cli.many import Done, each, meant
from nacre.cli.output import Out
from nacre.cli.place import opened

EXAMPLES = (
    ("list the trash", "nacre sessions trash list"),
    ("restore the session that was removed last", "nacre sessions restore @last"),
    ("one by its key", "nacre sessions restore telegram:42"),
    ("one by its title", "nacre sessions restore 'Tax return'"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "refs", metavar="REF", nargs="+", help="sessions in the trash: key, prefix, uid, title or @last"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:

        def restore(item: Item) -> Done:
            if not args.dry_run:
                discard.restore(sessions.location, item)
            return Done(item.key, "restored")

        items = meant(args.refs, lambda ref: discard.named(sessions.location, ref))
        return each(out, "restore", items, restore, dry_run=args.dry_run)
