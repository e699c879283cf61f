"""What the door lets in: the plain value, or an error that names the argument, the value and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from nacre.checks import (
    check_bool,
    check_choice,
    check_count,
    check_int,
    check_items,
    check_key,
    check_optional_count,
    check_optional_int,
    check_text,
)
from nacre.errors import InvalidArgument, InvalidKey


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("check", "value", "plain"),
    [
        (check_key, Colour.RED, "red"),
        (lambda value: check_int(value, "n"), Level.HIGH, 3),
        (lambda value: check_int(value, "n"), -7, -7),
        (lambda value: check_optional_int(value, "n"), None, None),
        (lambda value: check_optional_int(value, "n"), 2, 2),
        (lambda value: check_count(value, "last"), Level.HIGH, 3),
        (lambda value: check_count(value, "last"), -(2**70), 0),
        (lambda value: check_optional_count(value, "last"), 2**70, 2**63 - 1),
        (lambda value: check_optional_count(value, "last"), None, None),
        (lambda value: check_bool(value, "flag"), True, True),
        (lambda value: check_text(value, "text"), Colour.RED, "red"),
        (lambda value: check_choice(value, "colour", ["red"]), Colour.RED, "red"),
        (lambda value: check_items(value, "items"), (1, 2), (1, 2)),
    ],
)
def test_what_is_right_comes_back_in_its_plain_type(check: Callable[[Any], Any], value: Any, plain: Any) -> None:
    assert check(value) == plain
    assert type(check(value)) is type(plain)


@pytest.mark.parametrize(
    ("check", "value", "says"),
    [
        (lambda value: check_int(value, "upto"), 2.5, "upto must be an integer, not 2.5 (float)"),
        (lambda value: check_int(value, "upto"), True, "upto must be an integer, not True (bool)"),
        (lambda value: check_int(value, "upto"), "2", "upto must be an integer, not '2' (str)"),
        (lambda value: check_int(value, "upto"), None, "upto must be an integer, not None"),
        (lambda value: check_int(value, "upto", least=1), 0, "upto must be 1 or more, not 0 (int)"),
        (lambda value: check_int(value, "upto"), -(2**63) - 1, "upto must be an integer of 64 bits"),
        (lambda value: check_optional_int(value, "at", least=0), 2**63, "at must be an integer of 64 bits"),
        (lambda value: check_count(value, "last"), 2.0, "last must be an integer, not 2.0 (float)"),
        (lambda value: check_count(value, "last"), False, "last must be an integer, not False (bool)"),
        (lambda value: check_bool(value, "archived"), 1, "archived must be True or False, not 1 (int)"),
        (lambda value: check_text(value, "query"), b"x", "query must be text, not b'x' (bytes)"),
        (lambda value: check_text(value, "query"), Unshowable(), "query must be text, not … (Unshowable)"),
        (lambda value: check_choice(value, "order", ["key", "size"]), "x", "order must be one of key, size, not 'x'"),
        (lambda value: check_choice(value, "order", ["key"]), [], "order must be one of key, not [] (list)"),
        (lambda value: check_items(value, "messages"), 5, "messages must be a list, not 5 (int)"),
        (lambda value: check_items(value, "messages"), "abc", "messages must be a list, not 'abc' (str)"),
        (
            lambda value: check_items(value, "messages"),
            {"role": "user"},
            "messages must be a list, not {'role': 'user'}",
        ),
    ],
)
def test_an_error_names_argument_value_and_what_is_expected(check: Callable[[Any], Any], value: Any, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check(value)
    assert says in str(caught.value)


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(InvalidArgument, match=r"^n must be an integer, not '1{59}… \(str\)$"):
        check_int("1" * 1000, "n")


@pytest.mark.parametrize("key", [None, 5, b"k", [], "", "a\0b", "k" * 1025, "\ud800"])
def test_what_cannot_name_a_session_is_refused(key: Any) -> None:
    with pytest.raises(InvalidKey, match="a session key must"):
        check_key(key)
