"""What an editor sends, checked: folders, MCP servers and prompts."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError, schema

from nacre.channels.file_parts import MAX_IMAGE_BYTES, MAX_TEXT_BYTES, content
from nacre.errors import ConfigError
from nacre.tools.mcp import servers_of

NOT_FOUND, BUSY, FAILED = -32002, -32001, -32603
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def invalid(problem: str) -> RequestError:
    """The error for parameters that cannot be."""
    return RequestError(-32602, problem)


def read_folder(cwd: str, *, must_exist: bool = True) -> Path:
    """The folder of an editor, by its real path; raises RequestError if it cannot be one."""
    if not os.path.isabs(cwd):  # noqa: PTH117 - it need not be a path at all
        raise invalid(f"cwd must be an absolute path, not {cwd!r:.200}")
    try:
        real = os.path.realpath(cwd)
        real.encode()
        is_there = os.path.isdir(real)  # noqa: PTH112 - the same
    except (ValueError, OSError) as error:
        raise invalid(f"cwd cannot be a path: {cwd!r:.200}") from error
    if must_exist and not is_there:
        raise invalid(f"there is no folder {cwd!r:.200}")
    return Path(real)


def read_servers(given: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """The MCP servers of an editor, as our configuration names them; raises RequestError for those we cannot use."""
    found: dict[str, dict[str, Any]] = {}
    for server in given:
        match server:
            case schema.McpServerStdio():
                env = {one.name: one.value for one in server.env}
                config: dict[str, Any] = {"command": server.command, "args": list(server.args), "env": env}
            case schema.HttpMcpServer():
                config = {"url": server.url, "headers": {one.name: one.value for one in server.headers}}
            case _:
                name = getattr(server, "name", "")
                raise invalid(f"the MCP server {name!r:.100} must be a program or speak HTTP: others cannot be used")
        if not server.name or server.name in found:
            raise invalid(f"MCP servers need names, each another one, not {server.name!r:.100}")
        if "${" in str(config):
            # Else it could have the values of our variables, which nobody was asked about.
            raise invalid(f"the MCP server {server.name!r:.100} has ${{…}}, which is not replaced in what editors send")
        found[server.name] = config
    try:
        servers_of(found)
    except ConfigError as error:
        raise invalid(str(error)) from error
    return found


# ---- prompts


def read_prompt(blocks: Sequence[Any]) -> str | list[Any]:
    """The content of a message of the user; raises RequestError for what a model cannot be shown."""
    words: list[str] = []
    parts: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                words.append(block.text)
            case schema.ResourceContentBlock():
                # Tools read it if the model wants to: it is named, as if the user had.
                words.append(_name_of(block.uri))
            case schema.ImageContentBlock():
                parts.append(_image(block.data, block.mime_type))
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
                parts.append(_file(resource.uri, resource.text))
            case schema.EmbeddedResourceContentBlock(resource=resource):
                parts.append(_image(resource.blob, resource.mime_type or ""))
            case _:
                raise invalid("nacre takes text, images and files in a prompt, and no audio")
    text = "".join(words).strip()
    if not text and not parts:
        raise invalid("the prompt is empty")
    whole = content(text, parts) if text else parts
    try:
        json.dumps(whole, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise invalid("the prompt has half of a surrogate pair, which is no text") from error
    return whole


def _name_of(uri: str) -> str:
    parsed = urlsplit(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def _file(uri: str, text: str) -> dict[str, Any]:
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise invalid(f"{uri!r:.200} has more than {MAX_TEXT_BYTES:,} bytes: too many to attach; let the agent read it")
    return {"type": "text", "text": f'<file name="{_name_of(uri)}">\n{text}\n</file>'}


def _image(data: str, kind: str) -> dict[str, Any]:
    if kind not in _IMAGES:
        raise invalid(f"{kind!r:.100} cannot be attached: attach a PNG, JPEG, GIF or WebP image, or text")
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise invalid("the data of an image is base64") from error
    if not 0 < size <= MAX_IMAGE_BYTES:
        raise invalid(f"an image has between 1 and {MAX_IMAGE_BYTES:,} bytes, not {size:,}")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
