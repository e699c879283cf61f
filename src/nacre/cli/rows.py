"""The rows of the last list, so that `@3` can name one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from zlib import crc32

# Between the store's path and the keys: neither has it within.
_BETWEEN = "\0"


def remember(store: str, keys: Sequence[str]) -> None:
    """Keep the rows of a list; where the cache cannot be written, `@3` will just not work."""
    path = _path(store)
    scratch = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_BETWEEN.join((store, *keys)).encode("utf-8", "surrogateescape"))
        os.replace(scratch, path)
    except OSError:
        return


def recall(store: str) -> list[str]:
    """The keys of the last list of a store, in order; none if there was no such list."""
    try:
        with open(_path(store), "rb") as file:
            listed, *keys = file.read().decode("utf-8", "surrogateescape").split(_BETWEEN)
    except OSError:
        return []
    return keys if listed == store else []


def _path(store: str) -> str:
    """One file per store, so that a list of another does not take the rows away; two may share a file, seldom."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "nacre", f"rows-{crc32(os.fsencode(store)):08x}")
