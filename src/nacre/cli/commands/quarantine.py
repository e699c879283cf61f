"""nacre sessions quarantine: see what was set aside because it was damaged, and settle it."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, NamedTuple

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.many import Done, each, meant
from nacre.cli.one_line import chop, clean, cut, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, find, refuse_internal
from nacre.cli.store_choice import opened
from nacre.cli.table import Column

if TYPE_CHECKING:
    from nacre.messages import QuarantineEntry
    from nacre.sessions import Sessions

EXAMPLES = (
    ("what is in quarantine", "nacre sessions quarantine"),
    ("read the records of a session that are in it", "nacre sessions quarantine show telegram:42"),
    ("put them back, at the end of the session", "nacre sessions quarantine restore telegram:42"),
    ("settle one entry without them", "nacre sessions quarantine discard telegram:42#2 --yes"),
)

_ACTIONS = ("list", "show", "restore", "discard")
_STATUS = {"restore": "restored", "discard": "discarded"}
_ENTRY = re.compile(r"(.+)#(\d{1,15})\Z", re.DOTALL)
_PREVIEW = 60


class _Choice(NamedTuple):
    """What a reference names: a session, or one entry of it."""

    key: str
    n: int | None = None

    def has(self, entry: QuarantineEntry) -> bool:
        return entry.key == self.key and self.n in (None, entry.n)

    @property
    def ref(self) -> str:
        return self.key if self.n is None else f"{self.key}#{self.n}"


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, nargs="?", default="list", help="default: list")
    parser.add_argument(
        "refs", metavar="REF", nargs="*", help="sessions, or entries as KEY#N; list and show: only these"
    )
    parser.add_argument("--all", action="store_true", help="list and show: settled entries too")
    parser.add_argument("-y", "--yes", action="store_true", help="restore and discard: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        if args.action in {"restore", "discard"}:
            return _settle(sessions, args, out)
        chosen = [_choose(sessions, ref) for ref in args.refs]
        known = sessions.quarantine(settled=args.all)
    found = [entry for entry in known if not chosen or any(choice.has(entry) for choice in chosen)]
    if out.json:
        out.listing(map(as_item, found))
    elif not found:
        out.note("nothing is in quarantine")
    elif args.action == "list":
        _list(found, out)
    else:
        _show(found, out)
    return OK


def as_item(entry: QuarantineEntry) -> dict[str, Any]:
    """An entry as JSON lists it."""
    return {
        "ref": entry.ref,
        "key": entry.key,
        "n": entry.n,
        "generation": entry.generation,
        "ts": entry.ts,
        "kind": entry.kind,
        "reason": entry.reason,
        "bytes": entry.bytes,
        "records": [{"n": one.n, "ts": one.ts, "kind": one.kind, "text": one.text} for one in entry.records],
        "text": entry.text,
        "settled": entry.settled or None,
    }


def _choose(sessions: Sessions, ref: str) -> _Choice:
    """What a reference names; a session of which only the quarantine is left is named by its key."""
    known = sessions.quarantine(settled=True)
    for entry in known:
        if ref in (entry.key, entry.ref):
            return _Choice(entry.key, None if ref == entry.key else entry.n)
    named = _ENTRY.match(ref)
    if named is not None:
        try:
            return _Choice(find(sessions, named[1]).key, int(named[2]))
        except Failure as failure:
            if failure.kind != "not_found":
                raise
    return _Choice(find(sessions, ref).key)


def _list(found: list[QuarantineEntry], out: Out) -> None:
    columns = [
        Column("ENTRY", wraps=chop, style=out.bold),
        Column("RECORDS", right=True),
        Column("SIZE", right=True),
        Column("SINCE", style=out.dim),
        Column("WHY", shrinks=True),
    ]
    rows = [
        (
            clean(entry.ref),
            f"{len(entry.records):,}",
            size(entry.bytes),
            out.when(entry.ts),
            clean(f"{entry.settled}: {entry.reason}" if entry.settled else entry.reason),
        )
        for entry in found
    ]
    table.show(out, columns, rows)
    out.note("`nacre sessions quarantine show REF` shows them, `restore REF` or `discard REF` settles them")


def _show(found: list[QuarantineEntry], out: Out) -> None:
    with out.pager():
        for entry in found:
            state = f", {entry.settled}" if entry.settled else ""
            out.say(f"{out.bold(clean(entry.ref))}: {clean(entry.reason)}{state}")
            records = several(len(entry.records), "whole record") if entry.records else "nothing that can be restored"
            out.say(f"  {size(entry.bytes)} since {out.when(entry.ts)}, {records}")
            for one in entry.records:
                out.say(f"  {one.n} {out.dim(out.when(one.ts))} {clean(one.kind)}: {clean(one.text)}")
            if not entry.records and entry.text:
                out.say(f"  {clean(entry.text)}")


def _settle(sessions: Sessions, args: Namespace, out: Out) -> int:
    if not args.refs:
        hint = "`nacre sessions quarantine` lists what there is"
        raise Failure("usage", f"{args.action} needs a session or an entry", hint=hint)

    def can_settle(found: list[QuarantineEntry]) -> bool:
        return args.action == "discard" or any(entry.records for entry in found)

    def look_up(ref: str) -> _Choice:
        choice = _choose(sessions, ref)
        refuse_internal(choice.key, allowed=args.internal)
        return choice

    chosen = meant(args.refs, look_up)
    choices = [choice for choice in chosen.values() if not isinstance(choice, Failure)]
    waiting = {choice: [entry for entry in sessions.quarantine(choice.key) if choice.has(entry)] for choice in choices}
    asked = [entry for found in waiting.values() for entry in found if can_settle(found)]
    if asked and not args.dry_run:
        out.confirm(_question(args.action, asked), yes=args.yes)

    def settle(choice: _Choice) -> Done:
        act = sessions.restore if args.action == "restore" else sessions.discard
        status = _STATUS[args.action]
        if not can_settle(waiting[choice]) and waiting[choice]:
            hint = f"`nacre sessions quarantine discard {shlex.quote(choice.ref)}` settles it"
            raise Failure("failed", f"{choice.ref}: nothing in it can be restored", hint=hint)
        if args.dry_run:
            return Done(choice.ref, status, {"entries": [entry.n for entry in waiting[choice]]})
        receipt = act(choice.key, choice.n)
        more = {"entries": receipt.entries, "numbers": receipt.numbers}
        if not receipt.entries:
            return Done(choice.ref, "settled", more, words="nothing was left to settle")
        words = f"{several(len(receipt.entries), 'entry', 'entries')} {status}"
        if receipt.numbers:
            words += (
                f", {several(len(receipt.numbers), 'record')} appended: {receipt.numbers[0]} to {receipt.numbers[-1]}"
            )
        return Done(choice.ref, status, more, words=words)

    return each(out, f"quarantine {args.action}", chosen, settle, dry_run=args.dry_run)


def _question(action: str, found: list[QuarantineEntry]) -> str:
    records = sum(len(entry.records) for entry in found)
    named = clean(", ".join(entry.ref for entry in found))
    if action == "restore":
        return f"Restore {several(records, 'whole record')} ({cut(named, _PREVIEW)}) at the end?"
    without = f" without {several(records, 'whole record')}" if records else ", of which nothing can be restored"
    return f"Settle {named}{without}?"
