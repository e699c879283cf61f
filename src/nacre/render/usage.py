"""What a `use` record says about tokens, whoever wrote it.

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
    given, made = _first(fields, _INPUT), _first(fields, _OUTPUT)
    return Usage(given, made, _first(fields, _TOTAL) or given + made)


def text_of(data: Any, field: str) -> str:
    """A field of a `use` record that is text, "" if there is none."""
    value = data.get(field) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


def request_of(data: Any) -> str:
    """The provider's name for the request of a `use` record, "" if there is none."""
    return text_of(data, "request") or text_of(data, "request_id")


def summed(records: Iterable[Any]) -> Usage:
    """The tokens of several `use` records; one that tells of the same request twice counts once."""
    total, seen = Usage(), set[str]()
    for data in records:
        request = request_of(data)
        if request and request in seen:
            continue
        seen.add(request)
        total += usage_of(data)
    return total


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> int:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
