"""A session's key as a file name: injective, readable, safe on every file system.

The log of an active session is always `<slug>~<hash>.jsonl`, a name that no earlier agent makes by accident. The other
files of a session, which stand in folders of nacre's own, have its stem: a plain key itself, else the same.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nacre.checks import check_key

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_LOG = re.compile(r"[a-z0-9_-]*~[0-9a-f]{32}\Z")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


@lru_cache(maxsize=4096)
def stem(key: str) -> str:
    """Return the name, without its ending, that the files of the session `key` have beside its log.

    A safe key is its own name; any other gets a readable slug, `~` and a hash of the whole key.
    `~` is not in the safe alphabet, so the two kinds never meet.
    Raises InvalidKey for what cannot be a key.
    """
    key = check_key(key)
    if _is_plain(key):
        return key
    slug = re.sub(r"[^a-z0-9]+", "-", key.lower().encode("ascii", "ignore").decode()).strip("-")[:40]
    return f"{slug}~{_hash(key)}"


@lru_cache(maxsize=4096)
def log_stem(name: str) -> str:
    """Return the name of the active log, without its ending, of the session whose stem is `name`."""
    return name if "~" in name else f"{name}~{_hash(name)}"


def stem_of_log(file: str) -> str:
    """Return the stem of the session whose active log has this name, without its ending.

    A log that an earlier version made may have the plain key as its name.
    """
    name = file.partition("~")[0]
    return name if name != file and _is_plain(name) and log_stem(name) == file else file


def is_log_name(file: str) -> bool:
    """Tell whether a name, without its ending, is one that active logs have today."""
    return _LOG.match(file) is not None


def key_of(name: str) -> str | None:
    """Return the key that a stem alone tells, if it does."""
    return name if _is_plain(name) else None


def _is_plain(key: str) -> bool:
    return _SAFE.match(key) is not None and key not in _RESERVED


def _hash(key: str) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, which a program that only imports does not need

    return blake2b(key.encode(), digest_size=16).hexdigest()
