"""Tokens out of `use` records, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from nacre.render.usage import Usage, total_usage, usage_of


@pytest.mark.parametrize(
    "data",
    [
        {"input_tokens": 10, "output_tokens": 5},
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        {"prompt_eval_count": 10, "eval_count": 5},
        {"input": 10, "output": 5, "total": 15},
        {"usage": {"input_tokens": 10, "output_tokens": 5}, "model": "m"},
    ],
)
def test_the_names_of_all_providers_are_known(data: Any) -> None:
    assert usage_of(data) == Usage(10, 5, 15)


@pytest.mark.parametrize("data", [None, [], "x", {}, {"input_tokens": "10"}, {"input_tokens": True}, {"total": -5}])
def test_what_is_no_count_counts_nothing(data: Any) -> None:
    assert usage_of(data) == Usage()


def test_a_total_alone_is_enough() -> None:
    assert usage_of({"total": 7}) == Usage(0, 0, 7)


def test_a_request_told_twice_counts_once() -> None:
    once = {"input_tokens": 10, "request_id": "r"}
    assert total_usage([once, once, {"output_tokens": 1}, {"output_tokens": 1}]) == Usage(10, 2, 12)


def test_what_our_agent_writes_is_read_and_counted_once_per_request() -> None:
    data = {"model": "m", "prompt": 10, "completion": 5, "request": "r1"}
    assert usage_of(data) == Usage(10, 5, 15)
    assert total_usage([data, data, {**data, "request": "r2"}]) == Usage(20, 10, 30)
