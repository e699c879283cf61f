"""What a server answers, as the output of a tool: bounded, harmless to a terminal, images as images."""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable
from typing import Any

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from nacre.agent.ports import Output
from nacre.tools.tool_output import bounded, cut

# What providers take, by how the bytes begin: another type than they have would fail every later request.
_IMAGES = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
)
_MOST_IMAGES = 8
_LONGEST_IMAGE = 7_000_000
"""Characters of base64: about 5 MB, the most that providers take."""
_MOST_OF_IMAGES = 8_000_000
_LONGEST_TEXT = 1_000_000
"""Characters. With the images, less than the 16 MiB that a record may have, however the text is escaped."""


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
        if image and (len(images) == _MOST_IMAGES or size > _MOST_OF_IMAGES):
            size -= len(image)
            text, image = f"{text}: not shown, too much", ""
        texts.append(f"[{text}]" if text and not isinstance(block, TextContent | EmbeddedResource) else text)
        images += [{"type": "image_url", "image_url": {"url": image}}] if image else []
    shown = _bounded("\n".join(text for text in texts if text) or "(no output)", failed=failed)
    return msgspec.structs.replace(shown, images=tuple(images))


def contents_of(contents: Iterable[TextResourceContents | BlobResourceContents]) -> Output:
    """What a resource has, as an output."""
    return output_of(EmbeddedResource(type="resource", resource=one) for one in contents)


def _bounded(text: str, *, failed: bool) -> Output:
    return bounded(cut(text, _LONGEST_TEXT) if len(text) > _LONGEST_TEXT else text, failed=failed)


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
    if len(data) > _LONGEST_IMAGE:
        return f"{size}: not shown, too much", ""
    try:
        found = a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError:
        found = b""
    kind = next((kind for kind, sign in _IMAGES if sign.match(found)), "")
    return (size, f"data:{kind};base64,{b64encode(found).decode()}") if kind else (f"{size}: not shown", "")
