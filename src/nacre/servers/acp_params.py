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

from nacre.channels.file_parts import content, image_part, text_part
from nacre.errors import ConfigError, NacreError
from nacre.tools.mcp import servers_of

NOT_FOUND, BUSY, FAILED = -32002, -32001, -32603


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
            case schema.SseMcpServer():
                problem = "speaks SSE, which is not supported: use its address for streamable HTTP, or a program"
                raise invalid(f"the MCP server {server.name!r:.100} {problem}")
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
            case _:
                try:
                    parts.append(_read_attachment(block))
                except NacreError as error:
                    raise invalid(str(error)) from error
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
    try:
        parsed = urlsplit(uri)
    except ValueError:
        return uri
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def _read_attachment(block: Any) -> dict[str, Any]:
    match block:
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
            return text_part(_name_of(resource.uri), resource.text)
        case schema.EmbeddedResourceContentBlock(resource=resource):
            uri, kind, data = resource.uri, resource.mime_type or "", resource.blob
        case schema.ImageContentBlock():
            uri, kind, data = block.uri or "", block.mime_type, block.data
        case _:
            raise invalid("nacre takes text, images and files in a prompt, and no audio")
    try:
        image = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("the data of an image must be base64") from error
    return image_part(_name_of(uri) or kind, kind, image)
