# mypy: ignore-errors
"""Check messages against the types of the clients that are installed; prints how many each of them takes."""

import json
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from pydantic import TypeAdapter


def whole(value: Any) -> Any:
    """A value with its iterables run through: the fields of these types are checked only then."""
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [whole(item) for item in value]
    return value


def count_taken(kind: Any, messages: list[Any]) -> int:
    """How many messages are of a type; fails for the first that is not, or that has a field that the type has not."""
    adapter = TypeAdapter(kind)
    for message in messages:
        # What a typed dict does not know it leaves out.
        taken = whole(adapter.validate_python(message))
        if taken != message:
            sys.exit(f"{message} was taken as {taken}")
    return len(messages)


given = json.load(sys.stdin)
found: dict[str, int] = {}
if find_spec("openai"):
    from openai.types.chat import ChatCompletionMessageParam

    found["openai"] = count_taken(ChatCompletionMessageParam, given["openai"])
if find_spec("anthropic"):
    from anthropic.types import MessageParam

    found["anthropic"] = count_taken(MessageParam, given["anthropic"])
sys.stdout.write(json.dumps(found))
