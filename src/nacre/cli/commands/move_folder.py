"""nacre sessions move-folder: tell the chats of a folder that it was moved."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.store_choice import opened

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("after `mv ~/work/shop ~/shop`", "nacre sessions move-folder ~/work/shop ~/shop"),
    ("see which sessions would change", "nacre sessions move-folder ~/work/shop ~/shop --dry-run"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="where the folder was")
    parser.add_argument("new", metavar="NEW", help="where it is now")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    old, new = (os.path.realpath(os.path.expanduser(path)) for path in (args.old, args.new))
    if not os.path.isdir(new):
        raise Failure("not_found", f"there is no folder {new}", hint="move the folder first, then run this")
    with opened(args) as sessions:
        moved = _moved(sessions, old, new)
        if not moved:
            hint = "`nacre chat -r` shows the folder of each session; archived sessions are not changed"
            raise Failure("not_found", f"no session was started in {old} or below it", hint=hint)
        if not args.dry_run:
            # The oldest first, so that the newest stays the newest: a change of meta counts as one of the session.
            for key, _, cwd in reversed(moved):
                sessions.set_meta(key, cwd=cwd)
    if out.json:
        items = [{"key": key, "from": before, "to": after} for key, before, after in moved]
        head = {"schema_version": 1, "ok": True, "operation": "move-folder", "dry_run": args.dry_run}
        out.document({**head, "count": len(items), "items": items})
        return OK
    for key, before, after in moved:
        out.say(f"{clean(key)}: {clean(before)} → {clean(after)}")
    out.note(f"{several(len(moved), 'session')} {'would be moved' if args.dry_run else 'moved'}")
    _tell_trust(old, new, out)
    return OK


def _tell_trust(old: str, new: str, out: Out) -> None:
    """Say how to move trust along: it is given by people, so it does not move by itself."""
    from nacre.runtime.trust import TrustStore, find_root  # noqa: PLC0415 - loads the agent, which help does not need

    store = TrustStore()
    if store.covering(find_root(Path(new))) is None:
        out.note(f"{clean(new)} is not trusted yet: nacre trust {shlex.quote(clean(new))}")
    if old in store.entries() and not os.path.isdir(old):
        out.note(
            f"{clean(old)} is still in the list of trusted folders: nacre trust --revoke {shlex.quote(clean(old))}"
        )


def _moved(sessions: Sessions, old: str, new: str) -> list[tuple[str, str, str]]:
    """The active sessions of a folder and of those below it, newest first: key, folder before, folder after."""
    found: list[tuple[str, str, str]] = []
    for info in sessions.list():
        cwd = sessions.get_meta(info.key).get("cwd")
        if isinstance(cwd, str) and (cwd == old or cwd.startswith(f"{old.rstrip('/')}/")):
            found.append((info.key, cwd, os.path.normpath(new + cwd[len(old.rstrip("/")) :])))
    return found
