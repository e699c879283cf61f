"""Waits between attempts."""

from __future__ import annotations

from itertools import islice

from nacre.backoff import Backoff


def test_waits_double_up_to_the_longest_less_a_random_part() -> None:
    waits = Backoff(first=1.0, longest=5.0).waits()
    for longest in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert longest / 2 <= next(waits) <= longest


def test_a_very_long_row_of_failures_is_no_error() -> None:
    assert max(islice(Backoff(longest=60.0).waits(), 5000)) <= 60.0
