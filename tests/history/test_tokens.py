"""About four characters a token, and something for each message."""

from __future__ import annotations

from typing import Any

import pytest

from nacre.entries import Message, ToolCall
from nacre.history.tokens import PER_MEDIUM, estimate

IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "x" * 9999}}
CALL = ToolCall(id="call", name="read", arguments={"a": 1})


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (Message(role="user"), 4),
        (Message(role="user", content=""), 4),
        (Message(role="user", content="a"), 5),
        (Message(role="user", content="x" * 400), 104),
        (Message(role="user", content=["x" * 8, {"type": "text", "text": "y" * 8}]), 8),
        (Message(role="user", content=[IMAGE]), 4 + PER_MEDIUM),
        (Message(role="user", content=[7, {"type": "audio"}]), 4 + 5),
        (Message(role="user", content="four", media=("a.png",)), 5 + PER_MEDIUM),
        (Message(role="assistant", tool_calls=(CALL,)), 8 + 4),
        (Message(role="assistant", content="four", reasoning="four"), 6),
        (Message(role="tool", tool_call_id="call", name="read", content="four"), 7),
    ],
)  # fmt: skip
def test_the_estimate(message: Message, tokens: int) -> None:
    assert estimate(message) == tokens


@pytest.mark.parametrize("arguments", ['{"a":1}', {"a": 1}])
def test_arguments_cost_what_their_json_does(arguments: Any) -> None:
    assert estimate(Message(role="assistant", tool_calls=(ToolCall(arguments=arguments),))) == 10
