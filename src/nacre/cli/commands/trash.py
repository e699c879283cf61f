"""nacre sessions rm, trash, restore: move sessions to the trash, bring them back, or erase them for good."""

from __future__ import annotations

import logging
import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of, resolve_refs
from nacre.cli.one_line import chop, clean, parse_duration, several, size
from nacre.cli.output import Out
from nacre.cli.refs import Choice, add_internal, add_ref, choose, is_key
from nacre.cli.store_choice import open_store
from nacre.cli.table import Column
from nacre.errors import StoreError, describe_error

if TYPE_CHECKING:
    from nacre.messages import TrashedSession
    from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_MEMORY = "nacre:memory"
_MAX_NAMED = 5
_LIST = "`nacre sessions trash list` shows them"


# ---- facts in memory: erasing a session does not erase what was learned there


def _count_facts(sessions: Sessions, keys: Collection[str]) -> Counter[str]:
    """How many lines of memory were learned in each session; read from their records, which needs no agent."""
    found: Counter[str] = Counter()
    try:
        for entry in sessions.records(_MEMORY):
            source = entry.data.get("source") if isinstance(entry.data, dict) else None
            if isinstance(source, dict) and source.get("key") in keys:
                found[source["key"]] += 1
    except (OSError, StoreError) as error:
        # Memory that cannot be read must not hinder anyone here; `verify` says more.
        logger.warning("memory cannot be read", extra={"error": describe_error(error)})
    return found


def _confirm_erasing(out: Out, what: str, facts: Counter[str], *, yes: bool) -> None:
    kept = f" (memory still has {several(facts.total(), 'line')} learned there)" if facts else ""
    out.confirm(f"Erase {what} for good{kept}?", yes=yes)


def _report_facts(out: Out, facts: Counter[str]) -> None:
    """Say how to erase what memory keeps."""
    for key, count in facts.most_common(_MAX_NAMED):
        command = clean(f"nacre memory forget --session {shlex.quote(key)}")
        out.note(f"memory still has {several(count, 'line')} learned in {clean(key)}; `{command}` erases them too")
    if len(facts) > _MAX_NAMED:
        out.note(f"… and facts learned in {several(len(facts) - _MAX_NAMED, 'more session')}")


# ---- rm


def _add_rm(parser: ArgumentParser) -> None:
    add_ref(parser, many=True)
    parser.add_argument("--permanent", action="store_true", help="erase for good instead of moving to the trash")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def _rm(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        found = keys_of(sessions, args.refs, internal=args.internal)
        keys = [key for key in found.values() if not isinstance(key, Failure)]
        facts = _count_facts(sessions, set(keys)) if args.permanent else Counter[str]()
        is_erasing = args.permanent and keys and not args.dry_run
        if is_erasing:
            names = clean(", ".join(keys)) if len(keys) <= _MAX_NAMED else several(len(keys), "session")
            _confirm_erasing(out, names, facts, yes=args.yes)

        def remove(key: str) -> Done:
            if not args.dry_run:
                sessions.delete(key) if args.permanent else sessions.move_to_trash(key)
            if not args.permanent:
                return Done(key, "in the trash")
            return Done(key, "erased", {"remembered": facts[key]})

        code = each(out, "rm", found, remove, dry_run=args.dry_run)
        if is_erasing:
            _forget_copies(sessions, out)
    if code == OK and not args.permanent and not args.dry_run:
        out.note("`nacre sessions restore` brings sessions back from the trash")
    _report_facts(out, facts)
    return code


def _forget_copies(sessions: Sessions, out: Out) -> None:
    """Erase the copies that the inbox has of messages which channels brought; a daemon that serves does so itself."""
    try:
        from nacre.runtime.gateway.inbox import KEYS, forget_answered  # noqa: PLC0415 - needs packages that a store does not
    except ImportError:
        return
    if any(map(sessions.exists, KEYS)) and not forget_answered(sessions):
        out.note("the daemon erases its copies of answered messages (nacre:inbox) within the hour")


# ---- trash and restore


def _add_trash(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "restore", "empty"), nargs="?", default="list", help="default: list")
    parser.add_argument("refs", metavar="REF", nargs="*", help="restore: the sessions; empty: only these")
    parser.add_argument(
        "--older-than", metavar="SPAN", help="empty: only what was removed longer ago than this, as 30d"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="empty: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _trash(args: Namespace, out: Out) -> int:
    if args.action == "restore" and not args.refs:
        raise Failure("usage", "restore needs the key or the title of a session", hint=_LIST)
    return {"list": _list, "restore": _restore, "empty": _empty}[args.action](args, out)


def _list(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        found = sessions.list_trash()
    if out.json:
        out.listing(
            {
                "key": item.key,
                "title": item.title,
                "removed": item.removed,
                "generations": len(item.generations),
                "bytes": item.bytes,
            }
            for item in found
        )
    elif found:
        columns = [
            Column("KEY", wraps=chop, style=out.bold),
            Column("TITLE", shrinks=True),
            Column("SIZE", right=True),
            Column("REMOVED", style=out.dim),
        ]
        rows = [(clean(item.key), clean(item.title), size(item.bytes), out.when(item.removed)) for item in found]
        table.show(out, columns, rows)
    else:
        out.note("the trash is empty")
    return OK


def _add_restore(parser: ArgumentParser) -> None:
    parser.add_argument(
        "refs", metavar="REF", nargs="+", help="sessions in the trash: key, prefix, uid, title or @last"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _restore(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        found = sessions.list_trash()

        def restore(item: TrashedSession) -> Done:
            if not args.dry_run:
                sessions.restore_from_trash(item.id)
            return Done(item.key, "restored")

        items = resolve_refs(args.refs, lambda ref: _named(found, ref))
        return each(out, "restore", items, restore, dry_run=args.dry_run)


def _empty(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        doomed = sessions.list_trash()
        if args.refs:
            keys = {_named(doomed, ref).key for ref in args.refs}
            doomed = [item for item in doomed if item.key in keys]
        if args.older_than:
            before = datetime.now(UTC) - parse_duration(args.older_than)
            doomed = [item for item in doomed if item.removed < before]
        facts = _count_facts(sessions, {item.key for item in doomed if not is_key(sessions, item.key)})
        if doomed and not args.dry_run:
            room = size(sum(item.bytes for item in doomed))
            _confirm_erasing(out, f"{several(len(doomed), 'session')} ({room})", facts, yes=args.yes)

        def erase(item: TrashedSession) -> Done:
            if not args.dry_run:
                sessions.erase_from_trash(item.id)
            return Done(item.key, "erased", {"bytes": item.bytes, "remembered": facts[item.key]})

        if not doomed:
            out.note("nothing to erase")
        by_ref = {f"{item.key}.{item.id.rpartition('.')[2]}": item for item in doomed}
        code = each(out, "trash empty", by_ref, erase, dry_run=args.dry_run)
    _report_facts(out, facts)
    return code


def _named(found: list[TrashedSession], ref: str) -> TrashedSession:
    """The session in the trash that a key, a title, a uid, or `@last` means; of one key the last removed."""
    if ref == "@last" and found:
        return found[0]
    choices = (Choice(item.key, item.title, item.generations) for item in found)
    key = choose(ref, choices, hint=_LIST, where=" in the trash")
    # A title may be that of an earlier one with the same key.
    same = [item for item in found if item.key == key]
    return next((item for item in same if item.title.casefold() == ref.casefold()), same[0])


rm = Command(
    _add_rm,
    _rm,
    ("move a session to the trash", "nacre sessions rm telegram:42"),
    ("bring it back", "nacre sessions restore telegram:42"),
    ("erase it for good, with its archived generations", "nacre sessions rm telegram:42 --permanent --yes"),
)
trash = Command(
    _add_trash,
    _trash,
    ("list the trash", "nacre sessions trash list"),
    ("bring a session back", "nacre sessions trash restore telegram:42"),
    ("erase what was removed more than 30 days ago", "nacre sessions trash empty --older-than 30d --yes"),
)
restore = Command(
    _add_restore,
    _restore,
    ("list the trash", "nacre sessions trash list"),
    ("restore the session that was removed last", "nacre sessions restore @last"),
    ("one by its key", "nacre sessions restore telegram:42"),
    ("one by its title", "nacre sessions restore 'Tax return'"),
)
