"""Small conversations to render."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from nacre.messages import Message, Stored, ToolCall

NOW = datetime(2026, 11, 15, 18, 0, tzinfo=UTC)


def stored(n: int, role: str, content: Any = None, *, generation: str = "g", **fields: Any) -> Stored:
    message = Message(role=role, content=content, **fields)
    return Stored(generation=generation, n=n, ts=NOW + timedelta(minutes=n), message=message)


def call(id: str, name: str, arguments: Any = "{}") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def listing() -> list[Stored]:
    """A question, a call with its result, an answer."""
    return [
        stored(2, "user", "what is **here**?"),
        stored(3, "assistant", "", tool_calls=(call("c1", "list_files", '{"path": "."}'),), model="tiny"),
        stored(4, "tool", "a.py\nb.py", tool_call_id="c1"),
        stored(5, "assistant", "Two files:\n\n- `a.py`\n- `b.py`"),
    ]


def long(count: int) -> Iterator[Stored]:
    """As many messages as are asked for, one at a time."""
    return (stored(n, "user" if n % 2 else "assistant", f"message *{n}* of many") for n in range(2, count + 2))
