"""Tools called as the loop calls them."""

from __future__ import annotations

from typing import Any

import anyio

from nacre.agent.ports import Output, Scene, Tool
from nacre.messages import ToolCall


def scene(key: str = "cli:1", id: str = "call_1") -> Scene:
    return Scene(key=key, call=ToolCall(id=id), emit=lambda _: None)


def output(tool: Tool, **arguments: Any) -> Output:
    """What came of a call."""

    async def called() -> Output:
        return await tool.run(arguments, scene())

    return anyio.run(called)


def text(tool: Tool, **arguments: Any) -> str:
    return output(tool, **arguments).text
