"""Other names of sessions: what the records of `nacre:aliases` and `nacre:aliases:2` say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from nacre.records import AppendRecord, Records

KEY = "nacre:aliases"
"""The session that has them. It is derived: the meta of each session lists its own under `aliases`."""
TABLES = (KEY, "nacre:aliases:2")
"""All that have them. What one must no longer have is erased with it, once the other has the rest."""
_KIND = "x.alias"


class Names(NamedTuple):
    """The keys of the sessions that have a name, and the names that a session has; oldest first."""

    keys: dict[str, tuple[str, ...]]
    aliases: dict[str, tuple[str, ...]]


def read(view: Records, known: Names | None = None, *, after: int = 0) -> Names:
    """Every name that was given to a session; one that was given to several stands for none of them.

    With those that are `known` from the records up to `after`, only later ones are read.
    """
    newest = list(takewhile(lambda record: record.n > after, view.back(view.n)))[::-1]
    if known is None or len(newest) != view.n - after:
        # What compaction has moved out since is not among the newest.
        known, newest = Names({}, {}), list(view.all())
    for record in newest:
        given = record.data if record.t == _KIND and isinstance(record.data, dict) else {}
        alias, key = given.get("alias"), given.get("key")
        if isinstance(alias, str) and isinstance(key, str):
            known.keys[alias] = tuple(dict.fromkeys((*known.keys.get(alias, ()), key)))
            known.aliases[key] = tuple(dict.fromkeys((*known.aliases.get(key, ()), alias)))
    return known


def join(tables: Iterable[Names]) -> Names:
    """The names of several tables as one."""
    filled = [table for table in tables if table.keys]
    if len(filled) == 1:
        return filled[0]
    known = Names({}, {})
    for alias, key in dict.fromkeys(pair for table in filled for pair in pairs(table)):
        known.keys[alias] = (*known.keys.get(alias, ()), key)
        known.aliases[key] = (*known.aliases.get(key, ()), alias)
    return known


def pairs(table: Names) -> list[tuple[str, str]]:
    """Every name in a table, with a key that it was given to."""
    return [(alias, key) for key, names in table.aliases.items() for alias in names]


def notes(pairs: Iterable[tuple[str, str]]) -> tuple[AppendRecord, ...]:
    """The records that give names to sessions, from pairs of a name and a key."""
    return tuple(AppendRecord(_KIND, {"alias": alias, "key": key}) for alias, key in pairs)


def aliases_in(meta: Mapping[str, Any]) -> list[str]:
    """The other names that a session's meta lists."""
    names = meta.get("aliases")
    return [name for name in names if isinstance(name, str) and name] if isinstance(names, list) else []
