"""The store that a command works on."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure
from nacre.cli.flags import default_place

if TYPE_CHECKING:
    from nacre.sessions import Sessions


def root_of(args: Namespace) -> str:
    """Where the store is: --store, else NACRE_HOME, else the user's data directory."""
    return os.path.abspath(os.path.expanduser(args.store or default_place()))


def opened(args: Namespace, *, create: bool = False) -> Sessions:
    """Open the store; one that was named and is not there is an error, the default one is then just empty."""
    from nacre.cli.notices import tell_warnings  # noqa: PLC0415 - a list that is up to date opens nothing
    from nacre.opening import open as open_sessions  # noqa: PLC0415 - the same

    tell_warnings()
    root = root_of(args)
    if create or os.path.isdir(root):
        return open_sessions(root)
    if args.store:
        raise Failure(
            "not_found",
            f"there is no store at {root}",
            hint="the first message creates one; check --store and --agent",
        )
    return open_sessions(":memory:")


def is_active(sessions: Sessions, key: str) -> bool:
    """Tell whether a key has an active session; a write to any other would begin a new one."""
    from nacre.log.ops import Ops  # noqa: PLC0415 - whoever has sessions has it loaded
    from nacre.log.place import Place  # noqa: PLC0415 - the same
    from nacre.log.plain import path_now  # noqa: PLC0415 - the same

    return bool(path_now(Ops(), Place.of(sessions.location, key)))


def changeable(sessions: Sessions, key: str, *, internal: bool) -> str:
    """The key of a session whose meta may be changed; raises Failure for an archived one, which would begin anew."""
    from nacre.cli.refs import refuse_internal  # noqa: PLC0415 - whoever has sessions has it loaded

    refuse_internal(key, allowed=internal)
    if not is_active(sessions, key):
        hint = "`nacre sessions unarchive` makes it active again"
        raise Failure("conflict", f"session {key!r} is archived and cannot be changed", hint=hint)
    return key
