"""Cursors: any text comes in over HTTP, and whatever is taken for a cursor is something that an index can look for."""

from __future__ import annotations

import json
import sqlite3
from base64 import urlsafe_b64encode
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.errors import InvalidArgument
from nacre.history.list_page import Order, parse_cursor

ORDERS = get_args(Order)
numbers = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), 2**64, 2**200])
texts = st.text(st.characters() | st.characters(categories=["Cs"]))
values = texts | numbers | st.floats() | st.none() | st.booleans()


def encode(place: object) -> str:
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


@given(st.data(), st.sampled_from(ORDERS), st.booleans())
def test_any_text_is_refused_or_a_place_that_sqlite_takes(data: st.DataObject, order: str, is_reverse: bool) -> None:
    places = st.tuples(st.just(order), st.just(is_reverse), values, texts, texts)
    cursor = data.draw(texts | st.recursive(values, st.lists).map(encode) | places.map(encode))
    try:
        place = parse_cursor(cursor, order=order, reverse=is_reverse)
    except InvalidArgument:
        return
    sqlite3.connect(":memory:").execute("SELECT ?, ?, ?", place[2:]).fetchone()


@pytest.mark.parametrize("order", ["bytes", "messages"])
@pytest.mark.parametrize("value", [2**63, -(2**63), 2**64, 10**30, 1.5, "1"])
def test_a_number_that_no_index_holds_is_refused(order: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match="cursor must be"):
        parse_cursor(encode([order, False, value, "k", "uid"]), order=order, reverse=False)


def test_the_largest_number_is_a_place() -> None:
    cursor = encode(["bytes", False, 2**63 - 1, "k", "uid"])
    assert parse_cursor(cursor, order="bytes", reverse=False).value == 2**63 - 1
