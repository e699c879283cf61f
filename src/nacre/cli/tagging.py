"""Changing the tags of a session, whichever way."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.place import changeable, opened
from nacre.cli.refs import add_ref, find
from nacre.cli.text import clean
from nacre.history.labels import labels, tags_in

Change = Callable[[list[str], list[str]], list[str]]
"""The tags that a session will have, from those it has and those that were given."""


def wanted(parser: ArgumentParser, what: str) -> None:
    """Add the arguments that name a session and tags."""
    add_ref(parser)
    parser.add_argument("tags", metavar="TAG", nargs="+", help=what)


def retag(args: Namespace, out: Out, operation: str, change: Change) -> int:
    """Change the tags of a session and say what it has then."""
    given = tags_in(",".join(args.tags))
    if not given:
        raise Failure("usage", "a tag has a character at least that is no blank and no comma")
    with opened(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key)
        before = list(labels(sessions.get_meta(key)).tags)
        after = change(before, given)
        if after != before and not args.dry_run:
            sessions.set_meta(key, tags=after or None)
    if out.json:
        document = {"ok": True, "operation": operation, "dry_run": args.dry_run, "key": key, "tags": after}
        out.document({**document, "previous": before})
    else:
        status = "would be tagged" if args.dry_run else "is now tagged" if after != before else "is tagged"
        out.say(f"{clean(key)}: {status} {clean(', '.join(after)) or 'with nothing'}")
    return OK
