"""The store that a command works on."""

from __future__ import annotations

import os
import stat
import sys
from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure
from nacre.cli.flags import MAIN, default_place
from nacre.cli.one_line import clean

if TYPE_CHECKING:
    from nacre.sessions import Sessions


def root_of(args: Namespace) -> str:
    """Where the store is: --store, else NACRE_HOME, else the user's data directory."""
    return os.path.abspath(os.path.expanduser(args.store or default_place()))


def main_root(args: Namespace) -> str:
    """The store of the main agent: --agent makes `root_of` that of another."""
    return root_of(args) if args.agent == MAIN else root_of(args).removesuffix(f"/agents/{args.agent}")


def opened(args: Namespace, *, create: bool = False) -> Sessions:
    """Open the store; one that was named and is not there is an error, the default one is then just empty.

    Raises Failure for a place that cannot be a store: it must not look like a store without sessions.
    """
    from nacre.cli.notices import tell_warnings  # noqa: PLC0415 - a list that is up to date opens nothing
    from nacre.opening import open as open_sessions  # noqa: PLC0415 - the same

    tell_warnings()
    root = root_of(args)
    if _is_folder(root) or create:
        return open_sessions(root)
    if args.store:
        raise Failure(
            "not_found",
            f"there is no store at {root}",
            hint="the first message creates one; check --store and --agent",
        )
    if not getattr(args, "quiet", True):
        sys.stderr.write(f"no store at {clean(root)} yet; the first message creates it\n")
    return open_sessions(":memory:")


def _is_folder(path: str) -> bool:
    """Tell whether there is a folder; False if there is nothing. Raises Failure for anything else."""
    hint = "move it away, or choose another store with --store"
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.path.islink(path):
            return False
        mode = 0
    except NotADirectoryError:
        above = os.path.dirname(path)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        raise Failure("failed", f"{above} is not a directory, so there is no store at {path}", hint=hint) from None
    except OSError as error:
        raise Failure("failed", f"the store at {path} cannot be read: {error.strerror or error}", hint=hint) from error
    if not stat.S_ISDIR(mode):
        raise Failure("failed", f"{path} is not a directory", hint=hint)
    return True


def emptied_logs(root: str) -> list[str]:
    """Logs that have lost everything; one that is being created has a file beside it that says so."""
    found: list[str] = []
    for folder in ("sessions", "archive"):
        with suppress(OSError), os.scandir(f"{root}/{folder}") as files:
            empty = {file.name for file in files if file.name.endswith((".jsonl", ".new")) and not file.stat().st_size}
            logs = (name for name in empty if name.endswith(".jsonl"))
            found += [f"{folder}/{name}" for name in logs if f"{name.removesuffix('.jsonl')}.new" not in empty]
    return sorted(found)


def is_active(sessions: Sessions, key: str) -> bool:
    """Tell whether a key has an active session; a write to any other would begin a new one."""
    return sessions.status(key) == "active"


def changeable(sessions: Sessions, key: str, *, internal: bool) -> str:
    """The key of a session whose meta may be changed; raises Failure for an archived one, which would begin anew."""
    from nacre.cli.refs import refuse_internal  # noqa: PLC0415 - whoever has sessions has it loaded

    refuse_internal(key, allowed=internal)
    if not is_active(sessions, key):
        hint = "`nacre sessions unarchive` makes it active again"
        raise Failure("conflict", f"session {key!r} is archived and cannot be changed", hint=hint)
    return key
