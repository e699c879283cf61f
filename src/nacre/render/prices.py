"""What requests cost in money, by the prices in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nacre.render.usage import text_of, usage_of

_PER = 1_000_000


class Price(Struct, frozen=True, kw_only=True):
    """Money for a million tokens; tokens that the server had cached cost `cached`, or as much as others."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None


class Prices:
    """The prices of models, which are named by `provider/model` or by the model alone."""

    def __init__(self, table: Mapping[str, Mapping[str, float]]) -> None:
        self._prices = {name: Price(**fields) for name, fields in table.items()}

    def __bool__(self) -> bool:
        return bool(self._prices)

    def of(self, model: str) -> Price | None:
        """The price of a model; None if none is configured."""
        for name, price in self._prices.items():
            if model and model in (name, name.partition("/")[2]):
                return price
        return None

    def cost(self, use: Any) -> float | None:
        """What one `use` record cost; None if there is no price for its model."""
        price, usage = self.of(text_of(use, "model")), usage_of(use)
        if price is None:
            return None
        found = use.get("cached", 0)
        cached = min(found, usage.input) if isinstance(found, int) else 0
        full = price.input if price.cached is None else price.cached
        return ((usage.input - cached) * price.input + cached * full + usage.output * price.output) / _PER


def money(amount: float) -> str:
    """An amount for people: two digits after the point, more where it is small."""
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
