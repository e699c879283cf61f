"""nacre sessions retain: archive and remove old sessions, as it is set."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.many import Done, each
from nacre.cli.output import Out
from nacre.cli.store_choice import opened
from nacre.errors import install_command

if TYPE_CHECKING:
    from nacre.runtime.retention import Act, Rules

EXAMPLES = (
    ("see what would be done", "nacre sessions retain --dry-run"),
    ("do it now; `nacre serve` does it every day", "nacre sessions retain"),
    ("try other limits", "nacre sessions retain --archive-after 90d --dry-run"),
)

_STATUS = {"archive": "archived", "delete": "in the trash"}


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--archive-after", metavar="SPAN", help="instead of retention.archive_after: 12h, 90d, 8w, 1y")
    parser.add_argument("--delete-after", metavar="SPAN", help="instead of retention.delete_after")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done and why, and do nothing")


def run(args: Namespace, out: Out) -> int:
    try:
        from nacre.runtime.retention import Keeper, Left, due  # noqa: PLC0415 - needs what `nacre chat` needs
    except ImportError as error:
        raise Failure("unavailable", f"`retain` needs {error.name}", hint=install_command("agent")) from error
    rules = _rules(args)
    with opened(args) as sessions, ExitStack() as stack:
        acts = {f"{act.key}.{act.uid}": act for act in due(sessions, rules)} if rules else {}
        keeper = None if args.dry_run or not acts else stack.enter_context(Keeper(sessions))

        def keep(act: Act) -> Done:
            status = _STATUS[act.act]
            more = {"uid": act.uid, "why": act.why, "bytes": act.bytes}
            if keeper is None:
                return Done(act.key, status, more, f"would be {status}: {act.why}")
            try:
                keeper.do(act)
            except Left as left:
                return Done(act.key, "left", {**more, "why": str(left)}, f"left alone: {left}")
            return Done(act.key, status, more, f"{status}: {act.why}")

        code = each(out, "retain", acts, keep, dry_run=args.dry_run)
    if not acts:
        out.note(
            "nothing is due" if rules else "no rule is set: see retention.archive_after and retention.delete_after"
        )
    return code or OK


def _rules(args: Namespace) -> Rules:
    from nacre.config import load  # noqa: PLC0415 - the same
    from nacre.runtime.retention import Rules, span  # noqa: PLC0415 - the same

    usual = Rules.of(load())
    archive, delete = args.archive_after, args.delete_after
    return Rules(
        archive_after=usual.archive_after if archive is None else span(archive, "--archive-after"),
        delete_after=usual.delete_after if delete is None else span(delete, "--delete-after"),
    )
