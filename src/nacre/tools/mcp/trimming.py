"""What a server sends, before the package checks it: without tools that are not valid, and with a bounded content.

The package refuses a list of tools for one that is not valid, and builds an object for each block of a content.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from pydantic import ValidationError

logger = logging.getLogger(__name__)

_MOST = 2_000
_LEFT_OUT = "[… {count:,} more parts of this result left out …]"


class Trimmed:
    """A stream of messages, each trimmed."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name

    @property
    def last_context(self) -> Any:
        """The context of the sender, which the package looks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._trim(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._trim(await self._inner.__anext__())

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        is_handled: bool | None = await self._inner.__aexit__(kind, error, trace)
        return is_handled

    def _trim(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
            result = message.message.result
            if isinstance(tools := result.get("tools"), list):
                valid = [tool for tool in tools[:_MOST] if _is_tool(tool)]
                # If none is left, the package says what is wrong.
                if valid and len(valid) < len(tools):
                    left_out = len(tools) - len(valid)
                    logger.warning(
                        "tools of an MCP server are not valid or too many",
                        extra={"server": self._name, "left_out": left_out},
                    )
                    result["tools"] = valid
            for field in ("content", "contents", "messages"):
                _cut(result, field)
        return message


def _is_tool(value: Any) -> bool:
    try:
        tool = Tool.model_validate(value, by_name=False)
    except ValidationError:
        return False
    return tool.input_schema.get("type") == "object"  # every version of the protocol requires it


def _cut(result: dict[str, Any], field: str) -> None:
    """Leave out what is beyond the most blocks that a content may have, and say so in a last one."""
    blocks = result.get(field)
    if not isinstance(blocks, list) or len(blocks) <= _MOST:
        return
    text = _LEFT_OUT.format(count=len(blocks) - _MOST)
    note: dict[str, Any] = {"type": "text", "text": text}
    if field == "contents":
        note = {"uri": "nacre:left-out", "text": text}
    elif field == "messages":
        note = {"role": "user", "content": note}
    result[field] = [*blocks[:_MOST], note]
