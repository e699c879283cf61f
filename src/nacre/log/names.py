"""A session's key as a file name: injective, readable, safe on every file system."""

from __future__ import annotations

import re
from functools import lru_cache

from nacre.checks import check_key

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


@lru_cache(maxsize=4096)
def stem(key: str) -> str:
    """Return the file name, without its ending, under which the session `key` is kept.

    A safe key is its own name; any other gets a readable slug, `~` and a hash of the whole key.
    `~` is not in the safe alphabet, so the two kinds never meet.
    Raises InvalidKey for what cannot be a key.
    """
    key = check_key(key)
    if _SAFE.match(key) and key not in _RESERVED:
        return key
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, which plain keys can do without

    slug = re.sub(r"[^a-z0-9]+", "-", key.lower().encode("ascii", "ignore").decode()).strip("-")[:40]
    return f"{slug}~{blake2b(key.encode(), digest_size=16).hexdigest()}"


def key_of(name: str) -> str | None:
    """Return the key that a file name alone tells, if it does."""
    return name if _SAFE.match(name) and name not in _RESERVED else None
