"""nacre sessions rm: move sessions to the trash, or erase them for good."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from nacre.cli.discard import discard
from nacre.cli.failures import OK, Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import is_active, opened
from nacre.cli.refs import add_internal, add_ref
from nacre.cli.remembered import beside, remembered, tell
from nacre.cli.text import clean, several

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("move a session to the trash", "nacre sessions rm telegram:42"),
    ("bring it back", "nacre sessions restore telegram:42"),
    ("erase it for good, with its archived generations", "nacre sessions rm telegram:42 --permanent --yes"),
)

_MOST_NAMED = 5


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--permanent", action="store_true", help="erase for good instead of moving to the trash")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        found = keys_of(sessions, args.refs, internal=args.internal)
        keys = [key for key in found.values() if not isinstance(key, Failure)]
        learned = remembered(sessions, set(keys)) if args.permanent else Counter[str]()
        if args.permanent and keys and not args.dry_run:
            out.confirm(f"Erase {_named(keys)} for good{beside(learned)}?", yes=args.yes)
        work = _erasing(sessions) if args.permanent else _discarding(sessions)

        def remove(key: str) -> Done:
            if not args.dry_run:
                work(key)
            if not args.permanent:
                return Done(key, "in the trash")
            return Done(key, "erased", {"remembered": learned[key]})

        code = each(out, "rm", found, remove, dry_run=args.dry_run)
        if args.permanent and keys and not args.dry_run:
            _forget_copies(sessions, out)
    if code == OK and not args.permanent and not args.dry_run:
        out.note("`nacre sessions restore` brings sessions back from the trash")
    tell(out, learned)
    return code


def _forget_copies(sessions: Sessions, out: Out) -> None:
    """Erase the copies that the inbox has of messages which channels brought; a daemon that serves does so itself."""
    try:
        from nacre.app.inbox import KEYS, forget_answered  # noqa: PLC0415 - needs packages that a store does not
    except ImportError:
        return
    if any(map(sessions.exists, KEYS)) and not forget_answered(sessions):
        out.note("the daemon erases its copies of answered messages (nacre:inbox) within the hour")


def _named(keys: list[str]) -> str:
    """What would be erased, by key while there are few."""
    return clean(", ".join(keys)) if len(keys) <= _MOST_NAMED else several(len(keys), "session")


def _erasing(sessions: Sessions) -> Callable[[str], None]:
    return sessions.delete


def _discarding(sessions: Sessions) -> Callable[[str], None]:
    return lambda key: discard(sessions, key, is_active=is_active(sessions, key))
