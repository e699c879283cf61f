"""What a server offers: tools and resources to the model, with their results as output; prompts to the user."""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec
from anyio import current_time
from mcp import types
from mcp.client import Client
from mcp.shared.dispatcher import ProgressFnT

from nacre.agent.ports import Effect, Notice, Output, Scene, Spec, Tool
from nacre.errors import ToolError
from nacre.tools.mcp.client_types import Config, Deadline, Offer, Prompt, clean
from nacre.tools.tool_output import cut, harmless, limit_output

T = TypeVar("T")

# ---- content as the output of a tool

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


def result_of(result: types.CallToolResult) -> Output:
    """The result of a call; what the server calls an error is a failed one."""
    blocks = result.content
    if not blocks and result.structured_content is not None:
        blocks = [types.TextContent(type="text", text=msgspec.json.encode(result.structured_content).decode())]
    return output_of(blocks, failed=bool(result.is_error))


def output_of(blocks: Iterable[types.ContentBlock], *, failed: bool = False) -> Output:
    """Blocks of content as an output."""
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    size = 0
    for block in blocks:
        text, image = _render(block)
        size += len(image)
        if image and (len(images) == _MAX_IMAGES or size > _MAX_ALL_IMAGES):
            size -= len(image)
            text, image = f"{text}: not shown, too much", ""
        is_text = isinstance(block, types.TextContent | types.EmbeddedResource)
        texts.append(f"[{text}]" if text and not is_text else text)
        images += [{"type": "image_url", "image_url": {"url": image}}] if image else []
    text = "\n".join(text for text in texts if text) or "(no output)"
    shown = limit_output(cut(text, _MAX_TEXT) if len(text) > _MAX_TEXT else text, failed=failed)
    return msgspec.structs.replace(shown, images=tuple(images))


def _render(block: types.ContentBlock) -> tuple[str, str]:
    """The text of a block, and its image as a data URL, each "" if there is none."""
    match block:
        case types.TextContent():
            return block.text, ""
        case types.ImageContent():
            return _image(block.mime_type, block.data)
        case types.AudioContent():
            return f"audio, {block.mime_type}: not shown", ""
        case types.ResourceLink():
            about = ", ".join(part for part in (block.name, block.mime_type, block.description) if part)
            return f"resource {block.uri} ({about})", ""
        case types.EmbeddedResource(resource=types.TextResourceContents() as found):
            return found.text, ""
        case types.EmbeddedResource(resource=types.BlobResourceContents() as found):
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


# ---- offers

_MAX_PAGES = 100
_MAX_ITEMS = 500
"""Tools, resources or prompts of one server."""
_MAX_NAME = 64
_MAX_DESCRIPTION = 4_000
_MAX_SCHEMA = 64_000
_SECONDS_BETWEEN_NOTICES = 2
Act = Callable[[Client, Mapping[str, Any], ProgressFnT], Awaitable[Output]]


class Server(Protocol):
    """A server that can be asked."""

    @property
    def config(self) -> Config: ...

    async def use(
        self, act: Callable[[Client], Awaitable[T]], *, deadline: Deadline | None = None, scene: Scene | None = None
    ) -> T:
        """Ask it; raises ToolError."""


async def offer_of(server: Server) -> Offer:
    """The tools and the prompts of a server, and two tools for its resources if it has some."""

    async def ask(client: Client) -> tuple[list[types.Tool], list[types.Prompt], bool]:
        able = client.server_capabilities
        tools = await _all(client.list_tools, lambda page: page.tools) if able.tools is not None else []
        prompts = await _all(client.list_prompts, lambda page: page.prompts) if able.prompts is not None else []
        return tools, prompts, able.resources is not None

    infos, prompts, has_resources = await server.use(ask)
    tools = [_own_tool(server, info) for info in infos if len(msgspec.json.encode(info.input_schema)) <= _MAX_SCHEMA]
    tools += _resource_tools(server) if has_resources else []
    found: dict[str, Tool] = {}
    for tool in tools:
        found.setdefault(tool.spec.name, tool)
    return Offer(tuple(found.values()), dict(_prompt(server, info) for info in prompts))


class ServerTool:
    """A tool that asks a server; `act` is the request."""

    effect: Effect = "run"
    """What a server says of its own harmlessness is not relied on."""

    def __init__(self, server: Server, name: str, *, description: str, parameters: dict[str, Any], act: Act) -> None:
        self._server, self._act = server, act
        self.spec = Spec(
            name=f"{clean(server.config.name)}_{clean(name)}"[:_MAX_NAME],
            description=harmless(description)[:_MAX_DESCRIPTION],
            parameters=parameters,
        )

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        """Call it; the server's progress is shown, and a call that nobody waits for any more is cancelled there."""
        deadline = Deadline(self._server.config.timeout)
        last = -inf

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            deadline.renew()
            if current_time() - last >= _SECONDS_BETWEEN_NOTICES:
                last = current_time()
                share = f"{progress:g} of {total:g}" if total is not None else f"{progress:g}"
                text = f" {harmless(message)[:200]}" if message else ""
                scene.emit(Notice(f"{self.spec.name}: {share}{text}"))

        async def ask(client: Client) -> Output:
            return await self._act(client, arguments, report)

        return await self._server.use(ask, deadline=deadline, scene=scene)


def _own_tool(server: Server, info: types.Tool) -> ServerTool:
    """A tool of the server; its schema is passed on as it came."""

    async def call(client: Client, arguments: Mapping[str, Any], report: ProgressFnT) -> Output:
        return result_of(await client.call_tool(info.name, dict(arguments), progress_callback=report))

    schema = dict(info.input_schema)
    return ServerTool(
        server,
        info.name,
        description=info.description or info.title or info.name,
        parameters={**schema, "type": "object", "properties": schema.get("properties", {})},
        act=call,
    )


def _resource_tools(server: Server) -> list[ServerTool]:
    """Tools of ours that ask a server for its resources."""
    name = server.config.name

    async def list_resources(client: Client, _: Mapping[str, Any], __: ProgressFnT) -> Output:
        lines = [_line(str(one.uri), one) for one in await _all(client.list_resources, lambda page: page.resources)]
        templates = await _all(client.list_resource_templates, lambda page: page.resource_templates)
        lines += [_line(one.uri_template, one) for one in templates]
        return limit_output("\n".join(lines) or "there are no resources")

    async def read_resource(client: Client, arguments: Mapping[str, Any], _: ProgressFnT) -> Output:
        uri = arguments.get("uri")
        if not isinstance(uri, str) or not uri:
            raise ToolError("uri is missing: list_resources shows the addresses")
        contents = (await client.read_resource(uri)).contents
        return output_of(types.EmbeddedResource(type="resource", resource=one) for one in contents)

    return [
        ServerTool(
            server,
            "list_resources",
            description=f"List the resources of {name}: addresses for its read_resource, with {{fields}} to fill in.",
            parameters={"type": "object", "properties": {}},
            act=list_resources,
        ),
        ServerTool(
            server,
            "read_resource",
            description=f"Read a resource of {name}.",
            parameters={
                "type": "object",
                "properties": {"uri": {"type": "string", "description": "address of the resource"}},
                "required": ["uri"],
            },
            act=read_resource,
        ),
    ]


def _prompt(server: Server, info: types.Prompt) -> tuple[str, Prompt]:
    """A prompt of the server, and the command that sends it."""
    names = [one.name for one in info.arguments or []]
    required = [one.name for one in info.arguments or [] if one.required]
    command = f"{clean(server.config.name)}:{clean(info.name)}"
    takes = harmless(" ".join(name if name in required else f"[{name}]" for name in names))
    usage = f"usage: /{command} {takes}".rstrip()

    async def message(words: str) -> tuple[str, Sequence[dict[str, Any]]]:
        # 1. The arguments, in order or as NAME=VALUE; a single one has all words as its value.
        try:
            given = shlex.split(words)
        except ValueError as error:
            raise ToolError(f"the arguments cannot be read ({error}); {usage}") from error
        found: dict[str, str] = {}
        if len(names) == 1 and given and not words.startswith(f"{names[0]}="):
            found, given = {names[0]: words.strip()}, []
        for word in given:
            name, is_named, value = word.partition("=")
            if is_named and name in names:
                found[name] = value
            elif free := [one for one in names if one not in found]:
                found[free[0]] = word
            else:
                raise ToolError(f"there is no argument for {word!r}; {usage}")
        if missing := [name for name in required if name not in found]:
            raise ToolError(f"{', '.join(missing)} missing; {usage}")

        # 2. The message, from the server.
        async def get(client: Client) -> Output:
            return output_of([one.content for one in (await client.get_prompt(info.name, found)).messages])

        output = await server.use(get, deadline=Deadline(server.config.timeout))
        return output.whole or output.text, output.images

    meaning = harmless(info.description or info.title or info.name).partition("\n")[0][:200]
    return command, Prompt(takes=takes, meaning=meaning, message=message)


def _line(address: str, one: Any) -> str:
    about = ", ".join(str(part) for part in (one.mime_type, one.description or one.title or one.name) if part)
    return f"{address} ({about})"


async def _all(ask: Callable[..., Any], items: Callable[[Any], Sequence[T]]) -> list[T]:
    """All pages of a list, as far as they can be meant."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await ask(cursor=cursor)
        found += items(page)
        cursor = page.next_cursor
        if not cursor or len(found) >= _MAX_ITEMS:
            break
    return found[:_MAX_ITEMS]
