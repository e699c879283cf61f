"""nacre sessions migrate: import the sessions of an earlier agent."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import FAILED, NOT_FOUND, OK, PARTIAL, Failure
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.store_choice import root_of

if TYPE_CHECKING:
    from nacre.legacy.migration import Migrated, Migration

EXAMPLES = (
    ("see what would be done", "nacre sessions migrate ~/.picoclaw/workspace --dry-run"),
    ("import them; the originals are kept as ….migrated", "nacre sessions migrate ~/.picoclaw/workspace"),
)

_LEFT_BEHIND = ("unreadable", "failed")
_MOST_NAMED = 20


def add(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="folder of the earlier sessions; DIR/sessions is searched too")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    if not os.path.isdir(args.directory):
        raise Failure("not_found", f"there is no directory {args.directory}")
    migration = _migrated(args, out)
    left = sum(found.outcome in _LEFT_BEHIND for found in migration.report)
    if out.json:
        document = {"ok": migration.ok and migration.is_known, "operation": "migrate", "dry_run": args.dry_run}
        results = [_result(found) for found in migration.report]
        out.document({**document, "results": results, "unknown": list(migration.unknown)})
    else:
        _tell(out, migration, dry_run=args.dry_run)
    if not migration.is_known:
        return NOT_FOUND
    if not left:
        return OK
    return FAILED if left == len(migration.report) else PARTIAL


def _migrated(args: Namespace, out: Out) -> Migration:
    try:
        from nacre.legacy.migration import migrate_into  # noqa: PLC0415 - so that its absence is one clear line
    except ModuleNotFoundError as error:
        raise Failure("unavailable", "this version of nacre cannot migrate sessions") from error
    seen = 0
    with out.progress("migrating") as step:

        def progress(done: int, total: int) -> None:
            nonlocal seen
            step.total = total
            step(done - seen)
            seen = done

        return migrate_into(root_of(args), args.directory, dry_run=args.dry_run, progress=progress)


def _result(found: Migrated) -> dict[str, object]:
    item: dict[str, object] = {"ref": found.file, "key": found.key, "ok": found.outcome not in _LEFT_BEHIND}
    item |= {"status": found.outcome, "messages": found.messages, "set_aside": found.set_aside}
    return {**item, "detail": found.detail} if found.detail else item


def _tell(out: Out, migration: Migration, *, dry_run: bool) -> None:
    for found in migration.report:
        line = f"{clean(found.file)}: {found.outcome}"
        if found.outcome in _LEFT_BEHIND:
            out.warn(f"nacre: {line}: {clean(found.detail)}")
            continue
        line += f" as {clean(found.key)}, {several(found.messages, 'message')}" if found.key else ""
        aside = f", {several(found.set_aside, 'bad line')} moved to quarantine" if found.set_aside else ""
        out.say(f"{line}{aside}")
    for path in migration.unknown[:_MOST_NAMED]:
        out.warn(f"nacre: not a session that nacre knows: {clean(path)}")
    if len(migration.unknown) > _MOST_NAMED:
        out.warn(f"nacre: {len(migration.unknown) - _MOST_NAMED} more files are unknown; --json names all")
    if not migration.is_known:
        out.warn("nacre: no session of an earlier agent was found; docs/migration.md says what is recognised")
    elif not migration.report:
        out.note("there is nothing to migrate")
    elif dry_run:
        out.note("nothing was done: --dry-run")
