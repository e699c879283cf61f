"""Other names of sessions: what the records of `nacre:aliases` say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nacre.entries import Note, Past

KEY = "nacre:aliases"
"""The session that has them. It is derived: the meta of each session lists its own under `aliases`."""
_KIND = "x.alias"


class Names(NamedTuple):
    """The keys of the sessions that have a name, and the names that a session has."""

    keys: Mapping[str, tuple[str, ...]] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}


def read(past: Past) -> Names:
    """Every name that was given to a session; one that was given to several stands for none of them."""
    keys: dict[str, tuple[str, ...]] = {}
    names: dict[str, tuple[str, ...]] = {}
    for record in past.all():
        if record.t == _KIND:
            alias, key = record.data["alias"], record.data["key"]
            keys[alias] = tuple(dict.fromkeys((*keys.get(alias, ()), key)))
            names[key] = tuple(dict.fromkeys((*names.get(key, ()), alias)))
    return Names(keys, names)


def notes(pairs: Iterable[tuple[str, str]]) -> tuple[Note, ...]:
    """The records that give names to sessions, from pairs of a name and a key."""
    return tuple(Note(_KIND, {"alias": alias, "key": key}) for alias, key in pairs)


def listed(meta: Mapping[str, Any]) -> list[str]:
    """The other names that a session's meta lists."""
    names = meta.get("aliases")
    return [name for name in names if isinstance(name, str) and name] if isinstance(names, list) else []
