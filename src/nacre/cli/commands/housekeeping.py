"""Verbs for the whole store: du, compact, gc and retain show and free disk space, backup copies it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of
from nacre.cli.one_line import chop, clean, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, find
from nacre.cli.store_choice import is_active, is_url, open_store, show, store_of
from nacre.cli.table import Column
from nacre.errors import install_command
from nacre.opening import back_up

if TYPE_CHECKING:
    from nacre.runtime.retention import Act

MEANINGS = {
    "sessions": "active logs",
    "archive": "archived logs",
    "cold": "moved out by compaction",
    "quarantine": "damaged bytes",
    "base": "shared by forks",
    "blobs": "large payloads",
    "trash": "removed",
}
TABLES = {
    "sessions": "one row for each session",
    "records": "messages and all else, with indexes",
    "blobs": "large payloads",
    "forks": "what forks share",
    "quarantine": "damaged bytes",
    "leases": "who has the turn of a session",
    "texts": "index of the search",
    "documents": "journals and positions",
    "redactions": "erasures that are not finished",
    "counts": "number of sessions",
    "indexing": "what the search has yet to read",
    "store": "version of the tables",
}
# Below that the store does not compact a log.
_MIN_GAIN = 256 * 1024
_PARTIAL = ".partial"
_RETAIN_STATUS = {"archive": "archived", "delete": "in the trash"}


# ---- du


def _add_du(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument("-n", "--limit", type=int, default=10, metavar="N", help="maximum number of sessions (10)")


def _du(args: Namespace, out: Out) -> int:
    if args.limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {args.limit}")
    with open_store(args) as sessions:
        keys = {find(sessions, ref).key for ref in args.refs}
        if not args.refs:
            lists = (sessions.list(archived=archived, internal=True) for archived in (False, True))
            keys = {info.key for infos in lists for info in infos}
        usage, location = sessions.disk_usage(keys), sessions.location
    sizes = sorted(((count, key) for key, count in usage.sessions.items()), reverse=True)
    shown = sizes if args.refs else sizes[: args.limit]
    items = [{"key": key, "bytes": count} for count, key in shown]
    if out.jsonl:
        return out.listing(items)
    if out.json:
        more = {"count": len(items), "sessions": len(sizes), "has_more": len(items) < len(sizes)}
        return out.document({"total": usage.total, "folders": usage.folders, **more, "items": items})
    if shown:
        columns = [Column("SIZE", right=True), Column("SESSION", wraps=chop, style=out.bold)]
        table.show(out, columns, [(size(count), clean(key)) for count, key in shown])
    if not args.refs:
        out.say()
        meanings = TABLES if is_url(location) else MEANINGS
        parts = [(size(count), part, meanings.get(part, "")) for part, count in usage.folders.items() if count]
        columns = [Column("SIZE", right=True), Column("PART", style=out.bold), Column("")]
        table.show(out, columns, [*parts, (size(usage.total), "total", "")])
    if len(shown) < len(sizes):
        out.note(f"{several(len(sizes) - len(shown), 'more session')}; --limit shows more")
    return OK


du = Command(
    _add_du,
    _du,
    ("the ten largest sessions, and the parts of the store", "nacre sessions du"),
    ("one session", "nacre sessions du telegram:42"),
    ("total size in bytes", "nacre sessions du --json | jq .total"),
)


# ---- compact


def _add_compact(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument("--all", action="store_true", help="every active session")
    parser.add_argument("--dry-run", action="store_true", help="show what could be saved, and do nothing")
    add_internal(parser)


def _compact(args: Namespace, out: Out) -> int:
    if bool(args.refs) == args.all:
        raise Failure("usage", "name the sessions, or use --all", hint="`nacre sessions compact --help` has examples")
    with open_store(args) as sessions:
        keys: dict[str, str | Failure] = {info.key: info.key for info in sessions.list(internal=True)}
        if not args.all:
            keys = keys_of(sessions, args.refs, internal=args.internal)
        with out.progress("compacting", total=len(keys), unit="sessions") as step:

            def compact(key: str) -> Done:
                step()
                if not is_active(sessions, key):
                    hint = "`nacre sessions unarchive` makes it active again"
                    raise Failure("conflict", f"session {key!r} is archived", hint=hint)
                before = sessions.log_size(key)
                if args.dry_run:
                    gain = max(0, before - sessions.log_size(key, kept=True))
                    # Rows of a database that are not live cost nothing, and stay where they are.
                    is_worth = gain >= max(_MIN_GAIN, before - gain) and not is_url(sessions.location)
                    more = {"bytes_before": before, "bytes_not_live": gain}
                    words = f"would be compacted: {size(gain)} of {size(before)} would move out of the log"
                else:
                    sessions.save(key)
                    after = sessions.log_size(key)
                    is_worth = after < before
                    more = {"bytes_before": before, "bytes_after": after}
                    words = f"{size(before)} → {size(after)}; the moved records can still be read"
                if not is_worth:
                    return Done(key, "unchanged", more, words="nothing to save")
                return Done(key, "compacted", more, words=words)

            return each(out, "compact", keys, compact, dry_run=args.dry_run)


compact = Command(
    _add_compact,
    _compact,
    ("one session", "nacre sessions compact telegram:42"),
    ("every session where it saves space", "nacre sessions compact --all"),
)


# ---- gc


def _add_gc(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")


def _gc(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        root = sessions.location
        found = sessions.remove_leftovers(dry_run=args.dry_run)
    freed = sum(left.bytes for left in found)
    lines = [f"{clean(os.path.relpath(left.path, root))}: {left.reason}, {size(left.bytes)}" for left in found]
    done = "would be deleted" if args.dry_run else "deleted"
    note = f"{several(len(found), 'file')} {done}, {size(freed)}" if found else "nothing to delete"
    document = {"operation": "gc", "dry_run": args.dry_run, "bytes": freed, "removed": [asdict(left) for left in found]}
    return out.receipt(document, "\n".join(lines), note=note)


gc = Command(
    _add_gc,
    _gc,
    ("see what would be deleted", "nacre sessions gc --dry-run"),
    ("delete it", "nacre sessions gc"),
    ("the trash is emptied separately", "nacre sessions trash empty --older-than 30d"),
)


# ---- retain


def _add_retain(parser: ArgumentParser) -> None:
    parser.add_argument("--archive-after", metavar="SPAN", help="instead of retention.archive_after: 12h, 90d, 8w, 1y")
    parser.add_argument("--delete-after", metavar="SPAN", help="instead of retention.delete_after")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done and why, and do nothing")


def _retain(args: Namespace, out: Out) -> int:
    from nacre.config import load  # noqa: PLC0415 - help does not need it

    try:
        from nacre.runtime.retention import Keeper, Left, Rules, due, span  # noqa: PLC0415 - needs what chat needs
    except ImportError as error:
        raise Failure("unavailable", f"`retain` needs {error.name}", hint=install_command("agent")) from error
    usual = Rules.of(load())
    archive, delete = args.archive_after, args.delete_after
    rules = Rules(
        archive_after=usual.archive_after if archive is None else span(archive, "--archive-after"),
        delete_after=usual.delete_after if delete is None else span(delete, "--delete-after"),
    )
    with open_store(args) as sessions, ExitStack() as stack:
        acts = {f"{act.key}.{act.uid}": act for act in due(sessions, rules)} if rules else {}
        keeper = None if args.dry_run or not acts else stack.enter_context(Keeper(sessions))

        def keep(act: Act) -> Done:
            status = _RETAIN_STATUS[act.act]
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
        unset = "no rule is set: see retention.archive_after and retention.delete_after"
        out.note("nothing is due" if rules else unset)
    return code


retain = Command(
    _add_retain,
    _retain,
    ("see what would be done", "nacre sessions retain --dry-run"),
    ("do it now; `nacre serve` does it every day", "nacre sessions retain"),
    ("try other limits", "nacre sessions retain --archive-after 90d --dry-run"),
)


# ---- backup


def _add_backup(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder for the copy; it must not exist yet")


def _backup(args: Namespace, out: Out) -> int:
    if is_url(root := store_of(args)):
        raise Failure(
            "usage",
            f"{show(root)} is a database, which its own tools copy",
            hint="pg_dump, or a base backup with the WAL for any point in time: docs/postgres.md\n"
            "nacre sessions copy copies the sessions into a folder or another database",
        )
    goal = os.path.abspath(os.path.expanduser(args.folder))
    partial = goal + _PARTIAL
    # There must be a store, and room for a copy outside of it.
    if not os.path.isdir(f"{root}/sessions"):
        raise Failure("not_found", f"there is no store at {root}", hint="check --store")
    inside, outside = os.path.realpath(goal), os.path.realpath(root)
    if os.path.commonpath((inside, outside)) == outside:
        raise Failure("usage", f"{goal} is inside the store", hint="choose a folder elsewhere, best on another disk")
    if os.path.lexists(goal):
        raise Failure("conflict", f"{goal} exists already", hint="a copy is made into a new folder")
    if os.path.lexists(partial):
        what = f"{partial} is left of a copy that was interrupted"
        raise Failure("conflict", what, hint=f"remove it: rm -r {partial}")
    if not os.path.isdir(os.path.dirname(goal)):
        raise Failure("not_found", f"there is no folder {os.path.dirname(goal)}", hint="create it first")
    try:
        with out.progress("copying", total=None, unit="files") as step:
            copied = back_up(root, goal, step=step)
    except OSError as error:
        what = f"the store was not copied: {error.filename or partial}: {error.strerror or error}"
        hint = f"the part that was copied is {partial}: remove it, and try again"
        raise Failure("failed", what, hint=hint) from error
    document = {"operation": "backup", "store": root, "folder": goal, "files": copied.files, "bytes": copied.bytes}
    done = f"{several(copied.files, 'file')}, {size(copied.bytes)}, copied to {clean(goal)}"
    return out.receipt(document, note=f"{done}\ncheck it with: nacre --store {clean(goal)} sessions verify")


backup = Command(
    _add_backup,
    _backup,
    ("into a new folder, while the daemon runs", "nacre sessions backup /backup/nacre-2026-11-17"),
    ("check it", "nacre --store /backup/nacre-2026-11-17 sessions verify"),
    ("bring it back, with the daemon stopped", "cp -a /backup/nacre-2026-11-17 ~/.local/share/nacre"),
)
