"""nacre sessions rename, tag, untag, pin, unpin: what people put on a session to find and keep it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, find
from nacre.cli.store_choice import changeable, opened
from nacre.history.overview import MAX_TAGS, labels, tags_in


def _add(parser: ArgumentParser, *, words: tuple[str, str] | None = None) -> None:
    """Add the sessions, or one session and the words for it, and what all these verbs take."""
    add_ref(parser, many=words is None)
    if words is not None:
        name, what = words
        parser.add_argument(name, metavar=name.upper().removesuffix("S"), nargs="+", help=what)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def _rename(args: Namespace, out: Out) -> int:
    title = " ".join(args.title).strip()
    with opened(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = sessions.get_meta(key).get("title", "")
        if not args.dry_run:
            sessions.set_labels(key, title=title)
    if out.json:
        document = {"ok": True, "operation": "rename", "dry_run": args.dry_run, "key": key, "title": title}
        out.document({**document, "previous": before})
    else:
        would = "would be " if args.dry_run else ""
        out.say(f"{clean(key)}: {would}renamed to {clean(title)}" if title else f"{clean(key)}: title {would}removed")
    return OK


def _tag(args: Namespace, out: Out, *, adds: bool) -> int:
    given = tags_in(",".join(args.tags))
    if not given:
        raise Failure("usage", "a tag needs at least one character that is not a space or a comma")
    with opened(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = list(labels(sessions.get_meta(key)).tags)
        after = list(dict.fromkeys((*before, *given))) if adds else [tag for tag in before if tag not in given]
        if len(after) > max(MAX_TAGS, len(before)):
            hint = "`nacre sessions untag` removes tags"
            raise Failure("conflict", f"the session would have {len(after)} tags; the limit is {MAX_TAGS}", hint=hint)
        if after != before and not args.dry_run:
            sessions.set_labels(key, tags=after)
    if out.json:
        operation = "tag" if adds else "untag"
        document = {"ok": True, "operation": operation, "dry_run": args.dry_run, "key": key, "tags": after}
        out.document({**document, "previous": before})
    else:
        status = "would be" if args.dry_run else "is now" if after != before else "is"
        tags = f"tagged {clean(', '.join(after))}" if after else "untagged"
        out.say(f"{clean(key)}: {status} {tags}")
    return OK


def _pin(args: Namespace, out: Out, *, pinned: bool) -> int:
    verb, status, unchanged = ("pin", "pinned", "already pinned") if pinned else ("unpin", "unpinned", "was not pinned")
    with opened(args) as sessions:

        def set_pin(key: str) -> Done:
            changeable(sessions, key, internal=args.internal)
            if labels(sessions.get_meta(key)).pinned == pinned:
                return Done(key, status, words=unchanged)
            if not args.dry_run:
                sessions.set_labels(key, pinned=pinned)
            return Done(key, status)

        return each(out, verb, keys_of(sessions, args.refs, internal=args.internal), set_pin, dry_run=args.dry_run)


rename = Command(
    (
        ("name the newest session", "nacre sessions rename @last 'Tax return'"),
        ("remove a title", "nacre sessions rename telegram:42 ''"),
    ),
    partial(_add, words=("title", "the new title; empty removes it")),
    _rename,
)
tag = Command(
    (
        ("tag the newest session", "nacre sessions tag @last work taxes"),
        ("list the sessions with a tag", "nacre sessions list --tag work"),
    ),
    partial(_add, words=("tags", "the tags to add; commas also separate tags")),
    partial(_tag, adds=True),
)
untag = Command(
    (
        ("remove a tag from the newest session", "nacre sessions untag @last work"),
        ("see what would be done", "nacre sessions untag telegram:42 work taxes --dry-run"),
    ),
    partial(_add, words=("tags", "the tags to remove; commas also separate tags")),
    partial(_tag, adds=False),
)
pin = Command(
    (
        ("pin the newest session", "nacre sessions pin @last"),
        ("list pinned sessions", "nacre sessions list --pinned"),
    ),
    _add,
    partial(_pin, pinned=True),
)
unpin = Command(
    (
        ("list pinned sessions", "nacre sessions list --pinned"),
        ("remove the pin from the first of that list", "nacre sessions unpin @1"),
    ),
    _add,
    partial(_pin, pinned=False),
)
