"""Which session a chat is in, and how to come back to it."""

from __future__ import annotations

import shlex
from argparse import Namespace

from nacre.channels.terminal.ports import App
from nacre.channels.terminal.talk import new_key
from nacre.cli.failures import Failure
from nacre.cli.flags import default_place
from nacre.cli.output import Out
from nacre.cli.place import is_active
from nacre.cli.refs import find
from nacre.cli.text import clean


def session_key(app: App, args: Namespace, out: Out) -> str:
    """The session that the arguments name: -r, -c, or a new one."""
    if args.ref:
        return open_session(app, args.ref, out)
    if args.newest is None:
        return new_key()
    newest = max(app.sessions.list(), key=lambda info: info.updated, default=None)
    if newest is None:
        out.note("there is no session yet; this is the first")
    return newest.key if newest is not None else new_key()


def open_session(app: App, ref: str, out: Out) -> str:
    """Find a session by reference and return its key; an archived one is opened again."""
    if app.sessions.location == ":memory:":
        key = ref
        if not app.sessions.exists(ref):
            raise Failure("not_found", f"there is no session {ref!r}")
        return key
    key = find(app.sessions, ref).key
    if not is_active(app.sessions, key):
        app.sessions.unarchive(key)
        out.note(f"{clean(key)} was archived; it is open again")
    return key


def tell_how_to_resume(app: App, args: Namespace, out: Out, key: str) -> None:
    """Print the command that resumes the session."""
    if args.incognito:
        out.note("nothing of this was kept")
    elif app.sessions.exists(key):
        out.note(f"Resume with: {_resume_command(args, key)}")


def _resume_command(args: Namespace, key: str) -> str:
    inside = f"/agents/{args.agent}"
    root = (args.store or "").removesuffix(inside)
    place = f" --store {shlex.quote(root)}" if root and root != default_place() else ""
    who = f" --agent {args.agent}" if (args.store or "").endswith(inside) else ""
    return f"nacre chat{place}{who} -r {shlex.quote(clean(key))}"
