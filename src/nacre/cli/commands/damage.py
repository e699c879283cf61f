"""nacre sessions verify, repair, quarantine: find damage, set it aside, and settle what was set aside."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import asdict

from nacre.cli import table
from nacre.cli.failures import DAMAGED, OK, UNRECOVERABLE, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of, resolve_refs
from nacre.cli.notices import silence_warnings
from nacre.cli.one_line import chop, clean, cut, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, find, refuse_internal
from nacre.cli.store_choice import open_store
from nacre.cli.table import Column

if TYPE_CHECKING:
    from nacre.messages import Finding, QuarantineEntry
    from nacre.sessions import Sessions

_ASIDE, _REWRITTEN, _BEYOND = "moved to quarantine", "rewritten", "cannot be restored"
_NOTED = "noted in quarantine; what is lost cannot be restored"
_ACTIONS = {
    "damage": _ASIDE,
    "torn": _ASIDE,
    "repeated": _ASIDE,
    "emptied": "noted in quarantine; what was in it cannot be restored",
    "cold": _NOTED,
    "blob": _NOTED,
    "header": _REWRITTEN,
    "newline": _REWRITTEN,
    "order": _REWRITTEN,
    "state": _REWRITTEN,
}
_ENTRY = re.compile(r"(.+)#(\d{1,15})\Z", re.DOTALL)
_PREVIEW = 60


# ---- verify: read everything and say what is damaged; nothing is changed


class _Problem(NamedTuple):
    """Something that was found; `damage` decides the exit code."""

    key: str
    kind: str
    where: str
    detail: str
    damage: bool = True


def _add_verify(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also report tool calls without a result (an interrupted turn leaves one), results without a call, "
        "duplicate results and a stale head; these are not damage, and the exit code stays 0",
    )


def _verify(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        if args.refs:
            sizes = dict.fromkeys((find(sessions, ref).key for ref in args.refs), 0)
        else:
            # Of a session that has no log any more, only what is in quarantine tells.
            sizes = dict.fromkeys((entry.key for entry in sessions.quarantine()), 0)
            for info in (*sessions.list(internal=True), *sessions.list(archived=True, internal=True)):
                sizes[info.key] = sizes.get(info.key, 0) + info.bytes
        findings: list[Finding] = []
        if not args.refs and sessions.has_other_logs([*sizes]):
            # A log that could not even be listed: only the store can say what is wrong with it.
            findings += sessions.verify().findings
        else:
            # One session after the other, so that it can be said how far it has come.
            with out.progress("verifying", total=sum(sizes.values())) as step:
                for key, count in sizes.items():
                    findings += sessions.verify(key).findings
                    step(count)
        found = [_Problem(finding.key, finding.kind, finding.where, finding.detail) for finding in findings]
        if args.deep:
            found += _snags(sessions, sizes.keys() - {one.key for one in found}, out)
    damaged = sum(one.damage for one in found)
    if out.jsonl:
        out.listing(one._asdict() for one in found)
    elif out.json:
        problems = [one._asdict() for one in found]
        out.document({"ok": not damaged, "operation": "verify", "sessions": len(sizes), "findings": problems})
    else:
        _print_problems(out, found, len(sizes), damaged=damaged)
    return DAMAGED if damaged else OK


def _snags(sessions: Sessions, keys: set[str], out: Out) -> Iterator[_Problem]:
    """What hinders a session from continuing, in sessions that are whole: to read a damaged one would repair it."""
    from nacre.history.lint import snags  # noqa: PLC0415 - only where it is asked for

    with out.progress("replaying", total=len(keys), unit="sessions") as step:
        for key in sorted(keys):
            for found in sessions.read_generations(key, snags):
                yield from (_Problem(key, snag.kind, f"record {snag.n}", snag.detail, damage=False) for snag in found)
            step(1)


def _print_problems(out: Out, found: list[_Problem], sessions: int, *, damaged: int) -> None:
    for one in found:
        paint = out.red if one.damage else out.yellow
        what = f"{paint(clean(one.kind))}, {clean(one.where)}: {clean(one.detail)}"
        out.say(f"{out.bold(clean(one.key))}: {what}")
    aside = sum(one.kind == "quarantine" for one in found)
    if damaged > aside:
        hint = "`nacre sessions repair KEY --dry-run` shows what can be repaired"
        out.note(f"{several(damaged - aside, 'finding')}; {hint}")
    if aside:
        entries = several(aside, "entry", "entries")
        out.note(f"{entries} in quarantine; `nacre sessions quarantine` shows and settles")
    if not damaged:
        out.note(f"{several(sessions, 'session')} checked, no damage")
    if len(found) > damaged:
        others = several(len(found) - damaged, "finding")
        out.note(f"{others} of --deep: not damage, an agent continues from them by itself")


verify = Command(
    _add_verify,
    _verify,
    ("every session", "nacre sessions verify"),
    ("one session, and its tool calls", "nacre sessions verify @last --deep"),
    ("for a cron job: mail only if something is damaged", "nacre sessions verify --quiet"),
)


# ---- repair: move damaged bytes to quarantine


def _add_repair(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _repair(args: Namespace, out: Out) -> int:
    lost = 0
    with open_store(args) as sessions:

        def repair(key: str) -> Done:
            nonlocal lost
            findings = _findings(sessions, key)
            for finding in findings:
                if finding.kind == "stranger":
                    # There is no session, only somebody else's file of its name.
                    raise Failure("damaged", f"{finding.where} is {finding.detail}", hint="nothing was changed")
            if args.dry_run:
                return _plan_repair(key, findings)
            done = _repair_one(sessions, key, findings)
            lost += done.more["set_aside"] + done.more["noted"]
            return done

        code = each(out, "repair", keys_of(sessions, args.refs, internal=True), repair, dry_run=args.dry_run)
    return UNRECOVERABLE if code == OK and lost else code


def _findings(sessions: Sessions, key: str) -> list[Finding]:
    return [finding for finding in sessions.verify(key).findings if finding.kind != "quarantine"]


def _plan_repair(key: str, findings: list[Finding]) -> Done:
    if not findings:
        return Done(key, "whole", {"findings": []}, words="no damage, nothing would be done")
    items: list[dict[str, Any]] = []
    words = "would be repaired; nothing was changed"
    for finding in findings:
        # What a fork shares is never changed.
        action = _NOTED if finding.is_shared else _ACTIONS.get(finding.kind, _BEYOND)
        items.append({**asdict(finding), "action": action})
        words += f"\n  {clean(finding.where)}: {clean(finding.detail)}; {action}"
    return Done(key, "repaired", {"findings": items}, words=words)


def _repair_one(sessions: Sessions, key: str, findings: list[Finding]) -> Done:
    known = {entry.ref for entry in sessions.quarantine(key)}
    with silence_warnings():
        receipt = sessions.repair(key)
    waiting = sessions.quarantine(key)
    noted = sum(not entry.bytes for entry in waiting if entry.ref not in known)
    pieces = max(receipt.set_aside - noted, 0)
    is_whole = not findings and not receipt.set_aside
    more = {"kept": receipt.kept, "set_aside": pieces, "noted": noted, "quarantine": receipt.quarantine}
    words = "no damage, nothing was done" if is_whole else f"{several(receipt.kept, 'record')} kept"
    if pieces:
        words += f", {several(pieces, 'damaged piece')} moved to quarantine"
        words += f"\n  every byte of what was damaged is in {clean(receipt.quarantine or '')}"
    if noted:
        words += f"\n  {several(noted, 'loss', 'losses')} that cannot be repaired noted in quarantine"
    if waiting:
        command = f"nacre sessions quarantine show {shlex.quote(key)}"
        words += f"\n  `{clean(command)}` shows it; it is reported until it is restored or discarded"
    if is_whole:
        return Done(key, "whole", more, words=words)
    left = _findings(sessions, key)
    words += "".join(f"\n  {clean(finding.where)}: {clean(finding.detail)}; {_BEYOND}" for finding in left)
    return Done(key, "repaired", {**more, "left": left}, words=words)


repair = Command(
    _add_repair,
    _repair,
    ("see what would be done", "nacre sessions repair telegram:42 --dry-run"),
    ("repair it; damaged bytes are kept in quarantine", "nacre sessions repair telegram:42"),
)


# ---- quarantine: see what was set aside, and settle it


class _Choice(NamedTuple):
    """What a reference names: a session, or one entry of it."""

    key: str
    n: int | None = None

    def has(self, entry: QuarantineEntry) -> bool:
        return entry.key == self.key and self.n in (None, entry.n)

    @property
    def ref(self) -> str:
        return self.key if self.n is None else f"{self.key}#{self.n}"


def _add_quarantine(parser: ArgumentParser) -> None:
    actions = ("list", "show", "restore", "discard")
    parser.add_argument("action", choices=actions, nargs="?", default="list", help="default: list")
    parser.add_argument(
        "refs", metavar="REF", nargs="*", help="sessions, or entries as KEY#N; list and show: only these"
    )
    parser.add_argument("--all", action="store_true", help="list and show: settled entries too")
    parser.add_argument("-y", "--yes", action="store_true", help="restore and discard: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def _quarantine(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        if args.action in {"restore", "discard"}:
            return _settle(sessions, args, out)
        chosen = [_choose(sessions, ref) for ref in args.refs]
        known = sessions.quarantine(settled=args.all)
    found = [entry for entry in known if not chosen or any(choice.has(entry) for choice in chosen)]
    if out.json:
        out.listing({"ref": entry.ref, **asdict(entry), "settled": entry.settled or None} for entry in found)
    elif not found:
        out.note("nothing is in quarantine")
    elif args.action == "list":
        columns = [
            Column("ENTRY", wraps=chop, style=out.bold),
            Column("RECORDS", right=True),
            Column("SIZE", right=True),
            Column("SINCE", style=out.dim),
            Column("WHY", shrinks=True),
        ]
        rows = []
        for entry in found:
            why = clean(f"{entry.settled}: {entry.reason}" if entry.settled else entry.reason)
            rows.append((clean(entry.ref), f"{len(entry.records):,}", size(entry.bytes), out.when(entry.ts), why))
        table.show(out, columns, rows)
        out.note("`nacre sessions quarantine show REF` shows them, `restore REF` or `discard REF` settles them")
    else:
        _show(found, out)
    return OK


def _choose(sessions: Sessions, ref: str) -> _Choice:
    """What a reference names; a session of which only the quarantine is left is named by its key."""
    for entry in sessions.quarantine(settled=True):
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
    """Restore or discard what references name."""
    is_restore = args.action == "restore"
    if not args.refs:
        hint = "`nacre sessions quarantine` lists what there is"
        raise Failure("usage", f"{args.action} needs a session or an entry", hint=hint)

    def look_up(ref: str) -> _Choice:
        choice = _choose(sessions, ref)
        refuse_internal(choice.key, allowed=args.internal)
        return choice

    def can_settle(found: list[QuarantineEntry]) -> bool:
        return not is_restore or any(entry.records for entry in found)

    chosen = resolve_refs(args.refs, look_up)
    choices = [choice for choice in chosen.values() if not isinstance(choice, Failure)]
    waiting = {choice: [entry for entry in sessions.quarantine(choice.key) if choice.has(entry)] for choice in choices}
    asked = [entry for found in waiting.values() for entry in found if can_settle(found)]
    if asked and not args.dry_run:
        count = sum(len(entry.records) for entry in asked)
        records = several(count, "whole record")
        named = clean(", ".join(entry.ref for entry in asked))
        without = f" without {records}" if count else ", of which nothing can be restored"
        restoring = f"Restore {records} ({cut(named, _PREVIEW)}) at the end?"
        out.confirm(restoring if is_restore else f"Settle {named}{without}?", yes=args.yes)

    def settle(choice: _Choice) -> Done:
        act, status = (sessions.restore, "restored") if is_restore else (sessions.discard, "discarded")
        if waiting[choice] and not can_settle(waiting[choice]):
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
            numbers = f"{receipt.numbers[0]} to {receipt.numbers[-1]}"
            words += f", {several(len(receipt.numbers), 'record')} appended: {numbers}"
        return Done(choice.ref, status, more, words=words)

    return each(out, f"quarantine {args.action}", chosen, settle, dry_run=args.dry_run)


quarantine = Command(
    _add_quarantine,
    _quarantine,
    ("what is in quarantine", "nacre sessions quarantine"),
    ("read the records of a session that are in it", "nacre sessions quarantine show telegram:42"),
    ("put them back, at the end of the session", "nacre sessions quarantine restore telegram:42"),
    ("settle one entry without them", "nacre sessions quarantine discard telegram:42#2 --yes"),
)
