"""Where the index of a store is kept, and whether what is there can be trusted; loads next to nothing."""

# Paths are text, as SQLite and the store take them.
# ruff: noqa: PTH100, PTH111, PTH116, PTH118
from __future__ import annotations

import os
import stat as modes

FILE = "index.sqlite"
VERSION = 13


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
