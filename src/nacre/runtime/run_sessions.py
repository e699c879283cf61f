"""The sessions of a run: the store, or what stands in for it while it cannot be used."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

import nacre
from nacre.errors import Refused, StoreError, describe_error
from nacre.history.session_state import RULES
from nacre.sessions import Sessions

if TYPE_CHECKING:
    from nacre.legacy.standby import StandIn

logger = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The sessions, what is to be said at the start, and why the store cannot be used: "" if it can."""

    sessions: Sessions
    notes: list[str]
    trouble: str = ""


def open_sessions(root: str, *, incognito: bool) -> Opened:
    """Open a store, and bring home what was written while it could not be used.

    If it cannot be used now, sessions are JSON documents in the user's state directory. Raises StoreError if those
    cannot be written either, or if the store is of a newer version.
    """
    if incognito:
        return Opened(nacre.open(":memory:"), [])
    try:
        sessions = _open_to_write(root)
    except StoreError as error:
        if type(error) not in (StoreError, Refused):
            # Its version is newer, or it is damaged: that is not for another store to hide.
            raise
        return _stand_in(root, error)
    return Opened(sessions, _brought_home(sessions))


def _open_to_write(root: str) -> Sessions:
    """Open a store; raises Refused if nothing can be written, since one that may only be read can be opened."""
    sessions = nacre.open(root)
    if not os.access(f"{root}/sessions", os.W_OK | os.X_OK):
        sessions.close()
        raise Refused(f"{root} cannot be written; is its disk read-only?")
    return sessions


def _stand_in(root: str, error: StoreError) -> Opened:
    from nacre.legacy.standby import StandIn  # noqa: PLC0415 - for a store that cannot be used

    store = StandIn(root, error, rules=RULES)
    return Opened(Sessions(store), [_notice(store)], f"the store cannot be used: {error}")


def _notice(store: StandIn) -> str:
    return (
        f"THE STORE CANNOT BE USED: {store.reason}. Messages are saved as JSON documents in {store.location}, "
        "and the next start with a usable store brings them into it, with the titles and folders of new sessions. "
        "Until then there is no search, archive, fork or memory."
    )


def _brought_home(sessions: Sessions) -> list[str]:
    """Bring in what was written while the store could not be used; what a person should be told of that."""
    from nacre.user_files import has_standby  # noqa: PLC0415 - the same

    if not has_standby(sessions.location):
        return []
    from nacre.legacy.standby import bring_home  # noqa: PLC0415 - the same

    try:
        found = [migrated for migration in bring_home(sessions.location) for migrated in migration.report]
    except (StoreError, OSError) as error:
        logger.warning(
            "what was written without the store could not be brought in",
            extra={"error": describe_error(error)},
        )
        return [f"what was written while the store could not be used is not in it yet: {error}"]
    bad = [f"{one.file} could not be brought into the store: {one.detail}" for one in found if one.detail]
    brought = [one for one in found if one.outcome in {"migrated", "separate", "appended"}]
    count, keys = sum(one.messages for one in brought), ", ".join(sorted({one.key for one in brought}))
    good = f"{count} messages that were written while the store could not be used are in it now: {keys}"
    return [good, *bad] if count else bad
