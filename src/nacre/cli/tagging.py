"""Changing the tags of a session, whichever way."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.place import changeable, opened
from nacre.cli.refs import add_internal, add_ref, find
from nacre.cli.text import clean
from nacre.history.labels import labels, tags_in

Change = Callable[[list[str], list[str]], list[str]]
"""The tags that a session will have, from those it has and those that were given."""


def wanted(parser: ArgumentParser, what: str) -> None:
    """Add the arguments that name a session and tags."""
    add_ref(parser)
    parser.add_argument("tags", metavar="TAG", nargs="+", help=what)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def retag(args: Namespace, out: Out, operation: str, change: Change) -> int:
    """Change the tags of a session and say what it has then."""
    given = tags_in(",".join(args.tags))
    if not given:
        raise Failure("usage", "a tag needs at least one character that is not a space or a comma")
    with opened(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = list(labels(sessions.get_meta(key)).tags)
        after = change(before, given)
        if after != before and not args.dry_run:
            sessions.set_meta(key, tags=after or None)
    if out.json:
        document = {"ok": True, "operation": operation, "dry_run": args.dry_run, "key": key, "tags": after}
        out.document({**document, "previous": before})
    else:
        status = "would be" if args.dry_run else "is now" if after != before else "is"
        tags = f"tagged {clean(', '.join(after))}" if after else "untagged"
        out.say(f"{clean(key)}: {status} {tags}")
    return OK
