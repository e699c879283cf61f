"""nacre sessions rm: move sessions to the trash, or erase them for good."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from nacre.cli.discard import discard
from nacre.cli.failures import OK, Failure
from nacre.cli.many import Done, each
from nacre.cli.output import Out
from nacre.cli.place import is_active, opened
from nacre.cli.refs import add_ref, find
from nacre.cli.text import clean, several

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("into the trash", "nacre sessions rm telegram:42"),
    ("and back", "nacre sessions restore telegram:42"),
    ("erased for good, archived generations too", "nacre sessions rm telegram:42 --permanent --yes"),
)

_MOST_NAMED = 5


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--permanent", action="store_true", help="erase for good instead of moving to the trash")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        if args.permanent and not args.dry_run:
            out.confirm(f"Erase {_named(sessions, args.refs)} for good?", yes=args.yes)
        work = _erasing(sessions) if args.permanent else _discarding(sessions)

        def remove(ref: str) -> Done:
            key = find(sessions, ref).key
            if not args.dry_run:
                work(key)
            return Done(key, "erased" if args.permanent else "in the trash")

        code = each(out, "rm", args.refs, remove, dry_run=args.dry_run)
    if code == OK and not args.permanent and not args.dry_run:
        out.note("`nacre sessions restore` brings back what is in the trash")
    return code


def _named(sessions: Sessions, refs: list[str]) -> str:
    """What would be erased, by key while there are few; a reference that names nothing is told later."""
    keys: list[str] = []
    for ref in refs:
        with suppress(Failure):
            keys.append(find(sessions, ref).key)
    return clean(", ".join(keys)) if 0 < len(keys) <= _MOST_NAMED else several(len(keys), "session")


def _erasing(sessions: Sessions) -> Callable[[str], None]:
    return sessions.delete


def _discarding(sessions: Sessions) -> Callable[[str], None]:
    return lambda key: discard(sessions, key, is_active=is_active(sessions, key))
