"""A listing straight from the index, for as long as no log has changed since: loads nothing but SQLite."""

# Paths are text, as SQLite takes them.
# ruff: noqa: PTH113, PTH114, PTH208
from __future__ import annotations

import os
import sqlite3
import stat as modes
from contextlib import closing
from datetime import datetime
from typing import Any, NamedTuple

_PATIENCE = 0.05
# Going through the whole table takes half as long as looking every row up in the order of its path.
_ACTIVE = """
SELECT substr(path, 10), inode, size, mtime, key, title, live, created, updated, bytes, counts, pinned, cwd, role, model
FROM log WHERE +archived = 0
"""
_TAGS = "SELECT substr(path, 10), tag FROM tag JOIN log ON log.id = tag.log WHERE NOT archived ORDER BY place"
# In a store's root these belong to an earlier agent: they are taken in when the store is opened.
_EARLIER = (".json", ".jsonl", ".archived")


class Listed(NamedTuple):
    """What a listing says of an active session."""

    key: str
    title: str
    messages: int
    created: datetime
    updated: datetime
    bytes: int
    pinned: bool
    tags: tuple[str, ...]
    cwd: str
    role: str
    model: str
    archived: bool = False


def listed(root: str, *, cache: str | None = None) -> list[Listed] | None:
    """The active sessions, in no order; None if the index cannot be used or does not know every log as it is now."""
    try:
        folder = folder_of(root, cache)
        path = f"{folder}/{FILE}"
        # 1. What the index knows, and tags, by the log's name, if it is ours to read and of this version.
        if not is_own(folder) or not os.path.isfile(path) or os.path.islink(path):
            return None
        tags: dict[str, tuple[str, ...]] = {}
        with closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
            if connection.execute("PRAGMA user_version").fetchone() != (VERSION,):
                return None
            for name, tag in connection.execute(_TAGS):
                tags[name] = (*tags.get(name, ()), tag)
            rows: dict[str, tuple[Any, ...]] = {row[0]: row for row in connection.execute(_ACTIVE)}
        if not rows or any(name.endswith(_EARLIER) for name in os.listdir(root)):
            return None
        # 2. The logs must be just those that are known, each as it was.
        count = 0
        with os.scandir(f"{root}/sessions") as entries:
            for count, entry in enumerate(entries, 1):  # noqa: B007 - how many there were
                found, row = entry.stat(follow_symlinks=False), rows.get(entry.name)
                if row is None or row[1:4] != (found.st_ino, found.st_size, found.st_mtime_ns):
                    return None
        if count != len(rows):
            return None
        parsed = datetime.fromisoformat
        return [
            Listed(
                key, title, live, parsed(created), parsed(updated), size, bool(pinned), tags.get(name, ()), cwd, *last
            )
            for name, _, _, _, key, title, live, created, updated, size, counts, pinned, cwd, *last in rows.values()
            if counts
        ]
    except (OSError, sqlite3.Error, TypeError, ValueError):
        # In a damaged database values may be anything; the next opening will see to it.
        return None


# ---- Where the index of a store is kept, and whether what is there can be trusted; loads next to nothing


# Paths are text, as SQLite and the store take them.
# ruff: noqa: PTH100, PTH111, PTH116, PTH118


FILE = "index.sqlite"
VERSION = 15


def folder_of(root: str, cache: str | None) -> str:
    """Where the index of a store is kept: in the user's cache, under a name made from the store's place."""
    try:
        from _blake2 import blake2b  # noqa: PLC0415 - hashlib would bring OpenSSL along, for longer than a listing takes
    except ImportError:
        from hashlib import blake2b  # noqa: PLC0415 - another Python than CPython

    base = cache or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "nacre")
    name = blake2b(os.fsencode(os.path.abspath(root)), digest_size=16).hexdigest()
    return os.path.join(base, f"index-{name}")


def is_own(folder: str) -> bool:
    """Tell whether that is a directory of this user; raises OSError if it is not there."""
    found = os.stat(folder, follow_symlinks=False)
    return modes.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
