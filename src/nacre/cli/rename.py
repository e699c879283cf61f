"""nacre sessions rename: give a session a title."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import OK
from nacre.cli.output import Out
from nacre.cli.place import changeable, opened
from nacre.cli.refs import add_internal, add_ref, find
from nacre.cli.text import clean

EXAMPLES = (
    ("name the newest session", "nacre sessions rename @last 'Tax return'"),
    ("remove a title", "nacre sessions rename telegram:42 ''"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser)
    parser.add_argument("title", metavar="TITLE", nargs="+", help="the new title; empty removes it")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    title = " ".join(args.title).strip()
    with opened(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = sessions.get_meta(key).get("title", "")
        if not args.dry_run:
            sessions.set_meta(key, title=title or None)
    if out.json:
        document = {"ok": True, "operation": "rename", "dry_run": args.dry_run, "key": key, "title": title}
        out.document({**document, "previous": before})
    else:
        would = "would be " if args.dry_run else ""
        out.say(f"{clean(key)}: {would}renamed to {clean(title)}" if title else f"{clean(key)}: title {would}removed")
    return OK
