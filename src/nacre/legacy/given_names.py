"""The aliases that an earlier agent gave to its sessions: kept, so that they are found by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nacre.entries import Past, Unit
from nacre.history import live, other_names
from nacre.keys import is_internal
from nacre.store.files import Files

_MAIN = re.compile(r"agent:[^:]*:main\Z", re.IGNORECASE)
"""The main session of an agent, which it lists as an alias of every other one."""


class GivenNames:
    """The names in a store's table, and those that are to be in it."""

    def __init__(self, store: Files) -> None:
        self._store = store
        self._known: set[tuple[str, str]] | None = None

    def give(self, key: str, meta: Mapping[str, Any]) -> None:
        """Give a session the aliases that its meta lists, durably, unless it has them."""
        wanted = [(name, key) for name in other_names.listed(meta) if name != key and _may_be_given(name)]
        if not wanted:
            return
        if self._known is None:
            self._known = {pair for table in other_names.TABLES for pair in self._in(table)}
        new = [pair for pair in wanted if pair not in self._known]
        if new:
            self._store.run(other_names.KEY, Unit(other_names.notes(new)))
            # A relaxed store has not flushed it yet.
            self._store.compact(other_names.KEY, live.keep)
            self._known.update(new)

    def restore(self) -> None:
        """Give every session the names that its meta lists: the table may have lost some, or be lost itself."""
        for archived in (False, True):
            for found in self._store.each(archived=archived):
                if found.past.state.mp:
                    self.give(found.key, {"aliases": _own(found.past)})

    def _in(self, table: str) -> list[tuple[str, str]]:
        # Whoever wrote what is there may have been killed before its flush.
        self._store.run(table, Unit(wishes=(), creates=False))
        names = self._store.read(table, other_names.read)
        return other_names.pairs(names) if names is not None else []


def _own(past: Past) -> list[str]:
    """The names that a session's meta lists, without those that a fork has from what it grew from."""
    names = other_names.listed(live.meta(past, past.state))
    headers = (record for record in past.back(past.n) if record.t == "open" and record.base is not None)
    header = next(headers, None) if names else None
    inherited = other_names.listed(live.meta(past, header.st)) if header is not None else []
    return [name for name in names if name not in inherited]


def _may_be_given(name: str) -> bool:
    """Tell whether a name can be one session's: not that of a main session, nor one that is reserved."""
    return not _MAIN.match(name) and not is_internal(name)
