"""Which keys are nacre's own. Imports nothing, so that a listing can use it without loading the store."""

from __future__ import annotations

INTERNAL = "nacre:"
"""How the keys of internal sessions begin."""

OWN_KEYS = frozenset(
    (
        "nacre:aliases",
        "nacre:aliases:2",
        "nacre:inbox",
        "nacre:inbox:2",
        "nacre:memory",
        "nacre:memory.lock",
        "nacre:memory.next",
    )
)
"""The internal sessions of this version. `doctor` names others: a caller made them before the prefix was reserved."""


def is_internal(key: str) -> bool:
    """Tell whether a session is one of nacre's own, such as `nacre:memory`: hidden from people, not theirs to write."""
    return isinstance(key, str) and key.startswith(INTERNAL)
