"""Facts in memory of erased sessions: erasing a session does not erase what was learned there."""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.errors import StoreError, describe_error

if TYPE_CHECKING:
    from nacre.messages import Entry
    from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_MEMORY = "nacre:memory"
_MOST_NAMED = 5


def remembered(sessions: Sessions, keys: Collection[str]) -> Counter[str]:
    """How many lines of memory were learned in each session; read from their records, which needs no agent."""
    found: Counter[str] = Counter()
    for entry in _entries(sessions):
        source = entry.data.get("source") if isinstance(entry.data, dict) else None
        if isinstance(source, dict) and source.get("key") in keys:
            found[source["key"]] += 1
    return found


def _entries(sessions: Sessions) -> list[Entry]:
    """The records of memory; one that cannot be read is in nobody's way, and `verify` says more."""
    try:
        return sessions.records(_MEMORY)
    except (OSError, StoreError) as error:
        logger.warning("memory cannot be read", extra={"error": describe_error(error)})
        return []


def beside(found: Counter[str]) -> str:
    """What a question about erasing says of memory; "" if there is nothing."""
    return f" (memory still has {several(found.total(), 'line')} learned there)" if found else ""


def tell(out: Out, found: Counter[str]) -> None:
    """Say how to erase what memory keeps."""
    for key, count in found.most_common(_MOST_NAMED):
        command = clean(f"nacre memory forget --session {shlex.quote(key)}")
        out.note(f"memory still has {several(count, 'line')} learned in {clean(key)}; `{command}` erases them too")
    if len(found) > _MOST_NAMED:
        out.note(f"… and facts learned in {several(len(found) - _MOST_NAMED, 'more session')}")
