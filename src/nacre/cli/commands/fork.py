"""nacre sessions fork: start a new session that shares the history of another."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, find_active, refuse_internal
from nacre.cli.store_choice import opened
from nacre.history.session_state import after
from nacre.keys import INTERNAL

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("continue in a new session", "nacre sessions fork @last"),
    (
        "from record 17, with its own key and title",
        "nacre sessions fork telegram:42@17 try-2 --name 'Second try'",
    ),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument(
        "key", metavar="KEY", nargs="?", help="the new session's key (default: the old one and a number)"
    )
    parser.add_argument("--name", metavar="TITLE", help="the new session's title")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        source = find_active(sessions, args.ref)
        refuse_internal(source.key, allowed=args.internal)
        at = None if source.n is None else _group_end(sessions, source.key, source.n)
        key = args.key or sessions.free_key(source.key.removeprefix(INTERNAL))
        refuse_internal(key, allowed=args.internal)
        if sessions.exists(key):
            raise Failure("conflict", f"there is a session {key!r} already", hint="choose another key")
        if not args.dry_run:
            target = sessions.with_internal_keys() if args.internal else sessions
            target.fork(source.key, key, at=at)
            if args.name:
                sessions.set_meta(key, title=args.name)
    _tell(out, source.key, key, args, at=at)
    return OK


def _group_end(sessions: Sessions, key: str, n: int) -> int:
    """The record to fork at for what was said up to record `n`: the last that was stored with it."""
    return sessions.read(key, lambda view: after(view, n)) or n


def _tell(out: Out, source: str, key: str, args: Namespace, *, at: int | None) -> None:
    if out.json:
        out.document({"ok": True, "operation": "fork", "dry_run": args.dry_run, "source": source, "at": at, "key": key})
        return
    where = f"{clean(source)}@{at}" if at is not None else clean(source)
    out.say(f"{clean(key)}: {'would be ' if args.dry_run else ''}forked from {where}")
