"""nacre sessions repair: set damaged bytes aside and mend a session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, UNRECOVERABLE
from nacre.cli.many import Done, each
from nacre.cli.output import Out
from nacre.cli.place import opened
from nacre.cli.refs import add_ref, find
from nacre.cli.text import clean, several

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("look first", "nacre sessions repair telegram:42 --dry-run"),
    ("mend it; every damaged byte is kept in quarantine", "nacre sessions repair telegram:42"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def run(args: Namespace, out: Out) -> int:
    lost = 0
    with opened(args) as sessions:

        def repair(ref: str) -> Done:
            nonlocal lost
            key = find(sessions, ref).key
            if args.dry_run:
                return _looked_at(sessions, key)
            done = _repaired(sessions, key)
            lost += done.more["set_aside"]
            return done

        code = each(out, "repair", args.refs, repair, dry_run=args.dry_run)
    return UNRECOVERABLE if code == OK and lost else code


def _looked_at(sessions: Sessions, key: str) -> Done:
    findings = sessions.verify(key).findings
    if not findings:
        return Done(key, "whole", {"findings": []}, words="nothing is damaged, nothing would be done")
    told = "; ".join(f"{clean(finding.kind)} at {clean(finding.where)}" for finding in findings)
    return Done(key, "repaired", {"findings": list(findings)}, words=f"would be repaired: {told}")


def _repaired(sessions: Sessions, key: str) -> Done:
    damaged = not sessions.verify(key).ok
    receipt = sessions.repair(key)
    more = {"kept": receipt.kept, "set_aside": receipt.set_aside, "quarantine": receipt.quarantine}
    if not damaged and not receipt.set_aside:
        return Done(key, "whole", more, words="nothing is damaged, nothing was done")
    words = f"{several(receipt.kept, 'record')} kept, {several(receipt.set_aside, 'damaged piece')} set aside"
    if receipt.quarantine:
        words += f" in {clean(receipt.quarantine)}"
    return Done(key, "repaired", more, words=words)
