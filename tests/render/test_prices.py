"""What requests cost in money."""

from __future__ import annotations

import pytest

from nacre.render.usage import Prices, money

TABLE = {"anthropic/claude": {"input": 3.0, "output": 15.0, "cached": 0.3}, "gpt": {"input": 2.0, "output": 8.0}}


@pytest.mark.parametrize(
    ("use", "cost"),
    [
        ({"model": "claude", "prompt": 1_000_000, "completion": 100_000, "cached": 0}, 4.5),
        ({"model": "claude", "prompt": 1_000_000, "cached": 900_000}, 0.57),
        ({"model": "anthropic/claude", "completion": 1_000_000}, 15.0),
        ({"model": "gpt", "prompt": 1_000_000, "cached": 900_000}, 2.0),
        ({"model": "gpt", "prompt": 10, "cached": "many"}, 0.00002),
        ({"model": "other", "prompt": 10}, None),
        ({"prompt": 10}, None),
        ("not a mapping", None),
    ],
)
def test_a_request_costs_what_its_model_does(use: object, cost: float | None) -> None:
    assert Prices(TABLE).cost(use) == (None if cost is None else pytest.approx(cost))


def test_a_small_amount_has_more_digits() -> None:
    assert [money(amount) for amount in (0, 0.00312, 1.5, 1234.567)] == ["$0.00", "$0.0031", "$1.50", "$1,234.57"]
