"""Check the arguments of a public call before anything is written.

Each function returns its value in the plain type, so that a subclass (an enum, a marked string) is stored as what it
stands for. An error names the argument, the value and what is expected. Below the door nothing is checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nacre.errors import InvalidArgument, InvalidKey

_MAX_KEY = 1024
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def plain_text(value: object) -> str | None:
    """Return a text in its plain type, None if it is none; what a subclass says of itself does not count."""
    return str.__str__(value) if issubclass(type(value), str) else None


def check_key(key: object) -> str:
    """Return the key of a session; raises InvalidKey."""
    text = plain_text(key)
    if text is None:
        raise InvalidKey(f"a session key must be text, not {show(key)}")
    if not 1 <= len(text) <= _MAX_KEY:
        raise InvalidKey(f"a session key must have 1 to {_MAX_KEY} characters, this one has {len(text)}")
    if "\0" in text:
        raise InvalidKey(f"a session key must not contain NUL: {text!r}")
    if not is_unicode(text):
        raise InvalidKey(f"a session key must be valid Unicode, this one has a lone surrogate: {text!r}")
    return text


def _plain_int(value: object, name: str) -> int:
    if issubclass(type(value), int) and type(value) is not bool:
        return int.__int__(value)  # type: ignore[arg-type]
    raise InvalidArgument(f"{name} must be an integer, not {show(value)}")


def check_int(value: object, name: str, *, least: int = _SMALLEST) -> int:
    """Return a whole number of at most 64 bits; a float or a bool is none."""
    number = _plain_int(value, name)
    if not least <= number <= _LARGEST:
        expected = f"{least} or more" if number < least and least > _SMALLEST else "an integer of 64 bits"
        raise InvalidArgument(f"{name} must be {expected}, not {show(value)}")
    return number


def check_count(value: object, name: str) -> int:
    """Return how many of something: any whole number, where one below 0 means none and a huge one all."""
    return min(max(_plain_int(value, name), 0), _LARGEST)


def check_optional_count(value: object, name: str) -> int | None:
    """Return how many of something, or None for all."""
    return None if value is None else check_count(value, name)


def check_optional_int(value: object, name: str, *, least: int = _SMALLEST) -> int | None:
    """Return a whole number or None."""
    return None if value is None else check_int(value, name, least=least)


def check_bool(value: object, name: str) -> bool:
    """Return True or False; 0, 1 and None are neither."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {show(value)}")
    return value


def check_text(value: object, name: str) -> str:
    """Return a text; it may be empty, and may have lone surrogates."""
    text = plain_text(value)
    if text is None:
        raise InvalidArgument(f"{name} must be text, not {show(value)}")
    return text


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return one of a few words."""
    text = plain_text(value)
    if text is None or text not in choices:
        raise InvalidArgument(f"{name} must be one of {', '.join(choices)}, not {show(value)}")
    return text


def check_items(value: object, name: str) -> Iterable[Any]:
    """Return a list or another iterable of items; text, bytes and a single mapping are refused, though iterable."""
    if type(value) is list:
        # As nearly always; the other questions take a microsecond.
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name} must be a list, not {show(value)}")
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


def show(value: object) -> str:
    """Return a value as an error message names it, with its type; one that cannot even be shown has only the type."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's own __repr__ may raise anything
        text = "…"
    return f"{text[:60]}{'…' if len(text) > 60 else ''} ({type(value).__name__})"  # noqa: PLR2004 - fits a line
