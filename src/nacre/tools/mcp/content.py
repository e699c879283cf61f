"""What a server sends: bounded before the package checks it, and its answers as the output of a tool."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable
from typing import Any, Self

import msgspec
from mcp.shared.message import SessionMessage
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JSONRPCResponse,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import ValidationError

from nacre.agent.ports import Output
from nacre.tools.tool_output import bounded, cut

logger = logging.getLogger(__name__)

# What providers take, by how the bytes begin: another type than they have would fail every later request.
_IMAGES = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
)
_MAX_IMAGES = 8
_MAX_IMAGE = 7_000_000
"""Characters of base64: about 5 MB, the most that providers take."""
_MAX_ALL_IMAGES = 8_000_000
_MAX_TEXT = 1_000_000
"""Characters. With the images, less than the 16 MiB that a record may have, however the text is escaped."""


_MAX_BLOCKS = 2_000
_LEFT_OUT = "[… {count:,} more parts of this result left out …]"


def result_of(result: CallToolResult) -> Output:
    """The result of a call; what the server calls an error is a failed one."""
    if not result.content and result.structured_content is not None:
        return _bounded(msgspec.json.encode(result.structured_content).decode(), failed=bool(result.is_error))
    return output_of(result.content, failed=bool(result.is_error))


def output_of(blocks: Iterable[ContentBlock], *, failed: bool = False) -> Output:
    """Blocks of content as an output."""
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    size = 0
    for block in blocks:
        text, image = _shown(block)
        size += len(image)
        if image and (len(images) == _MAX_IMAGES or size > _MAX_ALL_IMAGES):
            size -= len(image)
            text, image = f"{text}: not shown, too much", ""
        texts.append(f"[{text}]" if text and not isinstance(block, TextContent | EmbeddedResource) else text)
        images += [{"type": "image_url", "image_url": {"url": image}}] if image else []
    shown = _bounded("\n".join(text for text in texts if text) or "(no output)", failed=failed)
    return msgspec.structs.replace(shown, images=tuple(images))


def _bounded(text: str, *, failed: bool) -> Output:
    return bounded(cut(text, _MAX_TEXT) if len(text) > _MAX_TEXT else text, failed=failed)


def _shown(block: ContentBlock) -> tuple[str, str]:  # noqa: PLR0911 - one per kind of content
    """The text of a block, and its image as a data URL, each "" if there is none."""
    match block:
        case TextContent():
            return block.text, ""
        case ImageContent():
            return _image(block.mime_type, block.data)
        case AudioContent():
            return f"audio, {block.mime_type}: not shown", ""
        case ResourceLink():
            about = ", ".join(part for part in (block.name, block.mime_type, block.description) if part)
            return f"resource {block.uri} ({about})", ""
        case EmbeddedResource(resource=TextResourceContents() as found):
            return found.text, ""
        case EmbeddedResource(resource=BlobResourceContents() as found):
            text, image = _image(found.mime_type or "", found.blob)
            return f"[{text}, {found.uri}]", image
        case _:
            return "content of an unknown kind: not shown", ""


def _image(media: str, data: str) -> tuple[str, str]:
    """The text and the data URL of an image; the URL has the type that its bytes are, and is "" if they are none."""
    size = f"{media or 'bytes of an unknown type'}, {len(data) * 3 // 4:,} bytes"
    if len(data) > _MAX_IMAGE:
        return f"{size}: not shown, too much", ""
    try:
        found = a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError:
        found = b""
    kind = next((kind for kind, sign in _IMAGES if sign.match(found)), "")
    return (size, f"data:{kind};base64,{b64encode(found).decode()}") if kind else (f"{size}: not shown", "")


# ---- before the package checks it


class Trimmed:
    """A stream of messages, each without tools that are not valid, and with a bounded content.

    The package refuses a list of tools for one that is not valid, and builds an object for each block of a content.
    """

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

    async def __aexit__(self, *details: object) -> bool | None:
        is_handled: bool | None = await self._inner.__aexit__(*details)
        return is_handled

    def _trim(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
            result = message.message.result
            if isinstance(tools := result.get("tools"), list):
                valid = [tool for tool in tools[:_MAX_BLOCKS] if _is_tool(tool)]
                # If none is left, the package says what is wrong.
                if valid and len(valid) < len(tools):
                    left_out = len(tools) - len(valid)
                    logger.warning(
                        "tools of an MCP server are not valid or too many",
                        extra={"server": self._name, "left_out": left_out},
                    )
                    result["tools"] = valid
            for field in ("content", "contents", "messages"):
                _cut_blocks(result, field)
        return message


def _is_tool(value: Any) -> bool:
    try:
        tool = Tool.model_validate(value, by_name=False)
    except ValidationError:
        return False
    return tool.input_schema.get("type") == "object"  # every version of the protocol requires it


def _cut_blocks(result: dict[str, Any], field: str) -> None:
    """Leave out what is beyond the limit of a content, and say so in a last block."""
    blocks = result.get(field)
    if not isinstance(blocks, list) or len(blocks) <= _MAX_BLOCKS:
        return
    text = _LEFT_OUT.format(count=len(blocks) - _MAX_BLOCKS)
    note: dict[str, Any] = {"type": "text", "text": text}
    if field == "contents":
        note = {"uri": "nacre:left-out", "text": text}
    elif field == "messages":
        note = {"role": "user", "content": note}
    result[field] = [*blocks[:_MAX_BLOCKS], note]
