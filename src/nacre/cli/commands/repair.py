"""nacre sessions repair: move damaged bytes to quarantine and repair a session."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from nacre.cli.failures import OK, UNRECOVERABLE, Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.notices import hushed
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.refs import add_ref
from nacre.cli.store_choice import opened

if TYPE_CHECKING:
    from nacre.messages import Finding
    from nacre.sessions import Sessions

EXAMPLES = (
    ("see what would be done", "nacre sessions repair telegram:42 --dry-run"),
    ("repair it; damaged bytes are kept in quarantine", "nacre sessions repair telegram:42"),
)

_ASIDE, _ANEW, _BEYOND = "moved to quarantine", "rewritten", "cannot be restored"
_NOTED = "noted in quarantine; what is lost cannot be restored"
_ACTIONS = {
    "damage": _ASIDE,
    "torn": _ASIDE,
    "repeated": _ASIDE,
    "emptied": "noted in quarantine; what was in it cannot be restored",
    "cold": _NOTED,
    "blob": _NOTED,
    "header": _ANEW,
    "newline": _ANEW,
    "order": _ANEW,
    "state": _ANEW,
}


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    lost = 0
    with opened(args) as sessions:

        def repair(key: str) -> Done:
            nonlocal lost
            if args.dry_run:
                return _looked_at(sessions, key)
            done = _repaired(sessions, key)
            lost += done.more["set_aside"] + done.more["noted"]
            return done

        code = each(out, "repair", keys_of(sessions, args.refs, internal=True), repair, dry_run=args.dry_run)
    return UNRECOVERABLE if code == OK and lost else code


def _looked_at(sessions: Sessions, key: str) -> Done:
    findings = _findings(sessions, key)
    if not findings:
        return Done(key, "whole", {"findings": []}, words="no damage, nothing would be done")
    items = [{**asdict(finding), "action": _action(finding)} for finding in findings]
    told = [f"\n  {clean(item['where'])}: {clean(item['detail'])}; {item['action']}" for item in items]
    return Done(key, "repaired", {"findings": items}, words="".join(("would be repaired; nothing was changed", *told)))


def _repaired(sessions: Sessions, key: str) -> Done:
    findings = _findings(sessions, key)
    known = {entry.ref for entry in sessions.quarantine(key)}
    with hushed():
        receipt = sessions.repair(key)
    waiting = sessions.quarantine(key)
    noted = sum(not entry.bytes for entry in waiting if entry.ref not in known)
    pieces = max(receipt.set_aside - noted, 0)
    more = {"kept": receipt.kept, "set_aside": pieces, "noted": noted, "quarantine": receipt.quarantine}
    if not findings and not receipt.set_aside:
        words = "no damage, nothing was done"
    else:
        words = f"{several(receipt.kept, 'record')} kept"
    if pieces:
        words += f", {several(pieces, 'damaged piece')} moved to quarantine"
        words += f"\n  every byte of what was damaged is in {clean(receipt.quarantine or '')}"
    if noted:
        words += f"\n  {several(noted, 'loss', 'losses')} that cannot be repaired noted in quarantine"
    if waiting:
        command = f"nacre sessions quarantine show {shlex.quote(key)}"
        words += f"\n  `{clean(command)}` shows it; it is reported until it is restored or discarded"
    if not findings and not receipt.set_aside:
        return Done(key, "whole", more, words=words)
    left = [finding for finding in sessions.verify(key).findings if finding.kind != "quarantine"]
    told = [f"\n  {clean(finding.where)}: {clean(finding.detail)}; {_BEYOND}" for finding in left]
    return Done(key, "repaired", {**more, "left": left}, words="".join((words, *told)))


def _action(finding: Finding) -> str:
    """What a repair does about a finding; what a fork shares is never changed."""
    return _NOTED if finding.is_shared else _ACTIONS.get(finding.kind, _BEYOND)


def _findings(sessions: Sessions, key: str) -> list[Finding]:
    """What is wrong with a session; raises Failure where there is none, only somebody else's file of its name."""
    found = [finding for finding in sessions.verify(key).findings if finding.kind != "quarantine"]
    for finding in found:
        if finding.kind == "stranger":
            raise Failure("damaged", f"{finding.where} is {finding.detail}", hint="nothing was changed")
    return found
