"""The tokens of a `use` record, in any program's spelling, and what they cost by the configured prices.

Read are, in the record's data or in a mapping `usage` inside it, the first that is there of

- input: `prompt`, `input_tokens`, `prompt_tokens`, `prompt_eval_count`, `input`
- output: `completion`, `output_tokens`, `completion_tokens`, `eval_count`, `output`
- total: `total_tokens`, `total`, else the sum of the two

and of the data itself `model`, and `request` or `request_id`. The first names are those that our agent writes; anything
else is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

_INPUT = ("prompt", "input_tokens", "prompt_tokens", "prompt_eval_count", "input")
_OUTPUT = ("completion", "output_tokens", "completion_tokens", "eval_count", "output")
_TOTAL = ("total_tokens", "total")
_PER = 1_000_000


class Usage(Struct, frozen=True):
    """Tokens that went in and came out; `total` may be more than both where a provider counts others too."""

    input: int = 0
    output: int = 0
    total: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.output + other.output, self.total + other.total)


def usage_of(data: Any) -> Usage:
    """The tokens of one `use` record; nothing where it does not say."""
    if not isinstance(data, Mapping):
        return Usage()
    inner = data.get("usage")
    fields = {**inner, **data} if isinstance(inner, Mapping) else data

    def first(names: Iterable[str]) -> int:
        found = (fields.get(name) for name in names)
        return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)

    given, made = first(_INPUT), first(_OUTPUT)
    return Usage(given, made, first(_TOTAL) or given + made)


def text_of(data: Any, field: str) -> str:
    """A field of a `use` record that is text, "" if there is none."""
    value = data.get(field) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


def request_of(data: Any) -> str:
    """The provider's name for the request of a `use` record, "" if there is none."""
    return text_of(data, "request") or text_of(data, "request_id")


def total_usage(records: Iterable[Any]) -> Usage:
    """The tokens of several `use` records; two records of the same request count once."""
    total, seen = Usage(), set[str]()
    for data in records:
        request = request_of(data)
        if request and request in seen:
            continue
        seen.add(request)
        total += usage_of(data)
    return total


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

    def cost(self, use: Any) -> float | None:
        """What one `use` record cost; None if there is no price for its model."""
        model, usage = text_of(use, "model"), usage_of(use)
        known = (price for name, price in self._prices.items() if model in (name, name.partition("/")[2]))
        price = next(known, None)
        if not model or price is None:
            return None
        found = use.get("cached", 0)
        cached = min(found, usage.input) if isinstance(found, int) else 0
        full = price.input if price.cached is None else price.cached
        return ((usage.input - cached) * price.input + cached * full + usage.output * price.output) / _PER


def money(amount: float) -> str:
    """An amount for people: two digits after the point, more where it is small."""
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
