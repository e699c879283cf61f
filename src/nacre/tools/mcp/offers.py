"""What a server offers: tools and resources to the model, prompts to the user."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec
from anyio import current_time
from mcp.client import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import EmbeddedResource
from mcp.types import Prompt as PromptInfo
from mcp.types import Tool as ToolInfo

from nacre.agent.ports import Effect, Notice, Output, Scene, Spec, Tool
from nacre.errors import ToolError
from nacre.tools.mcp.client_types import Config, Deadline, Offer, clean
from nacre.tools.mcp.content import output_of, result_of
from nacre.tools.tool_output import bounded, harmless

_MAX_PAGES = 100
_MAX_ITEMS = 500
"""Tools, resources or prompts of one server."""
_MAX_NAME = 64
_MAX_DESCRIPTION = 4_000
_MAX_SCHEMA = 64_000
_SECONDS_BETWEEN_NOTICES = 2

T = TypeVar("T")


class Server(Protocol):
    """The server that is asked."""

    @property
    def config(self) -> Config:
        """Its settings."""

    async def use(
        self,
        act: Callable[[Client], Awaitable[T]],
        *,
        deadline: Deadline | None = None,
        scene: Scene | None = None,
    ) -> T:
        """Ask it, starting it first if need be; raises ToolError."""


Act = Callable[[Client, Mapping[str, Any], ProgressFnT], Awaitable[Output]]


async def offer_of(server: Server) -> Offer:
    """The tools and the prompts of a server, and two tools for its resources if it has some."""

    async def ask(client: Client) -> tuple[list[ToolInfo], list[PromptInfo], bool]:
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
    return Offer(tuple(found.values()), {prompt.command: prompt for prompt in (Prompt(server, one) for one in prompts)})


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


def _own_tool(server: Server, info: ToolInfo) -> ServerTool:
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
        return bounded("\n".join(lines) or "there are no resources")

    async def read_resource(client: Client, arguments: Mapping[str, Any], _: ProgressFnT) -> Output:
        uri = arguments.get("uri")
        if not isinstance(uri, str) or not uri:
            raise ToolError("uri is missing: list_resources shows the addresses")
        contents = (await client.read_resource(uri)).contents
        return output_of(EmbeddedResource(type="resource", resource=one) for one in contents)

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


class Prompt:
    """A prompt of a server: a message that the user sends by a command."""

    def __init__(self, server: Server, info: PromptInfo) -> None:
        self._server, self._name = server, info.name
        self._arguments = info.arguments or []
        self.command = f"{clean(server.config.name)}:{clean(info.name)}"
        names = [one.name if one.required else f"[{one.name}]" for one in self._arguments]
        self.takes = harmless(" ".join(names))
        self.meaning = harmless(info.description or info.title or info.name).partition("\n")[0][:200]

    async def message(self, words: str) -> tuple[str, Sequence[dict[str, Any]]]:
        """The text and the images of the prompt; `words` are its arguments, in order or as NAME=VALUE.

        Raises ToolError for arguments that do not fit, and if the server cannot be asked.
        """
        arguments = self._read(words)

        async def get(client: Client) -> Output:
            found = await client.get_prompt(self._name, arguments)
            return output_of([one.content for one in found.messages])

        output = await self._server.use(get, deadline=Deadline(self._server.config.timeout))
        return output.whole or output.text, output.images

    def _read(self, words: str) -> dict[str, str]:
        names = [one.name for one in self._arguments]
        usage = f"usage: /{self.command} {self.takes}".rstrip()
        try:
            given = shlex.split(words)
        except ValueError as error:
            raise ToolError(f"the arguments cannot be read ({error}); {usage}") from error
        # With a single argument, all words are its value.
        if len(names) == 1 and given and not words.startswith(f"{names[0]}="):
            return {names[0]: words.strip()}
        found: dict[str, str] = {}
        for word in given:
            name, is_named, value = word.partition("=")
            if is_named and name in names:
                found[name] = value
            elif free := [one for one in names if one not in found]:
                found[free[0]] = word
            else:
                raise ToolError(f"there is no argument for {word!r}; {usage}")
        missing = [one.name for one in self._arguments if one.required and one.name not in found]
        if missing:
            raise ToolError(f"{', '.join(missing)} missing; {usage}")
        return found


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
