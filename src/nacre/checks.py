"""Check the arguments of a public call before anything is written.

Each function returns its value in the plain type, so that a subclass (an enum, a marked string) is stored as what it
stands for. An error names the argument, the value and what is expected. Below the door nothing is checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nacre.errors import InvalidArgument, InvalidKey

_LONGEST_KEY = 1024
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def check_key(key: object) -> str:
    """Return the key of a session; raises InvalidKey."""
    if not isinstance(key, str):
        raise InvalidKey(f"a session key must be text, not {_show(key)}")
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidKey(f"a session key must have 1 to {_LONGEST_KEY} characters, this one has {len(key)}")
    if "\0" in key:
        raise InvalidKey(f"a session key must not contain NUL: {key!r}")
    if not is_unicode(key):
        raise InvalidKey(f"a session key must be valid Unicode, this one has a lone surrogate: {key!r}")
    return key if type(key) is str else str.__str__(key)


def check_int(value: object, name: str, *, least: int = _SMALLEST) -> int:
    """Return a whole number of at most 64 bits; a float or a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be an integer, not {_show(value)}")
    if not least <= value <= _LARGEST:
        expected = f"{least} or more" if value < least and least > _SMALLEST else "an integer of 64 bits"
        raise InvalidArgument(f"{name} must be {expected}, not {_show(value)}")
    return value if type(value) is int else int.__int__(value)


def check_optional_int(value: object, name: str, *, least: int = _SMALLEST) -> int | None:
    """Return a whole number or None."""
    return None if value is None else check_int(value, name, least=least)


def check_bool(value: object, name: str) -> bool:
    """Return True or False; 0, 1 and None are neither."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {_show(value)}")
    return value


def check_text(value: object, name: str) -> str:
    """Return a text; it may be empty, and may have lone surrogates."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, not {_show(value)}")
    return str.__str__(value)


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgument(f"{name} must be one of {', '.join(choices)}, not {_show(value)}")
    return str.__str__(value)


def check_items(value: object, name: str) -> Iterable[Any]:
    """Return a list or another iterable of items; text, bytes and a single mapping are refused, though iterable."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name} must be a list, not {_show(value)}")
    return value


def is_unicode(text: str) -> bool:
    """Tell whether a text can be stored as it is: whether it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _show(value: object) -> str:
    """A value for an error message, with its type; one that cannot even be shown has only the type."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's own __repr__ may raise anything
        text = "…"
    return f"{text[:60]}{'…' if len(text) > 60 else ''} ({type(value).__name__})"  # noqa: PLR2004 - fits a line
