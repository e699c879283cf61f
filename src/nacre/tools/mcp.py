"""MCP servers as tools: each of a server's tools is one of ours, under the server's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anyio import CancelScope, Lock, fail_after, move_on_after
from msgspec import Struct

from nacre.agent.ports import Effect, Output, Scene, Spec
from nacre.errors import ConfigError, ToolError
from nacre.tools.output import bounded

VERSION = "2025-06-18"
KNOWN = ("2024-11-05", "2025-03-26", VERSION, "2025-11-25")
_MOST_PAGES = 100
_LONGEST_NAME = 64
_SECONDS_TO_SAY_GOODBYE = 5
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: a program to start (`command`), or an address (`url`)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout: float = 60
    start_timeout: float = 30


class Gone(ToolError):
    """The server is not there any more; what became of a call it had is not known."""


class Wire(Protocol):
    """A way to a server; once it has raised Gone it is of no more use."""

    @property
    def is_open(self) -> bool:
        """Whether the server can still be asked."""

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask, and give the result; raises ToolError with the server's error, or Gone."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell without waiting for an answer."""

    async def close(self) -> None:
        """End it; twice is harmless."""


class Server:
    """One configured server; started when it is first needed, and again when it has died.

    A call that was under way when the server died fails and is not repeated: it may have been done.
    """

    def __init__(self, config: Config) -> None:
        if bool(config.command) == bool(config.url):
            raise ConfigError(f"the MCP server {config.name!r} needs a command or a url, and not both")
        self.config = config
        self._wire: Wire | None = None
        self._starting = Lock()

    async def tools(self) -> tuple[ServerTool, ...]:
        """What the server offers; raises ToolError if it cannot be asked."""
        found: dict[str, ServerTool] = {}
        cursor: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await self.request("tools/list", cursor, seconds=self.config.start_timeout)
            for item in page.get("tools", ()):
                tool = ServerTool(self, item)
                found.setdefault(tool.spec.name, tool)
            if not page.get("nextCursor"):
                break
            cursor = {"cursor": page["nextCursor"]}
        return tuple(found.values())

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Mapping[str, Any]:
        """Ask the server, starting it first if need be."""
        wire = await self._ready()
        try:
            with fail_after(seconds):
                return await wire.request(method, params)
        except TimeoutError as error:
            raise ToolError(f"the MCP server {self.config.name!r} did not answer within {seconds:g} s") from error
        except Gone as error:
            await self.close()
            raise ToolError(
                f"the MCP server {self.config.name!r} ended: {error}. It is not known what it did."
            ) from error

    async def close(self) -> None:
        """End the server; twice is harmless, and a later request starts it again."""
        wire, self._wire = self._wire, None
        if wire is not None:
            with CancelScope(shield=True):
                await wire.close()

    async def _ready(self) -> Wire:
        async with self._starting:
            if self._wire is None or not self._wire.is_open:
                await self.close()
                self._wire = await self._started()
            return self._wire

    async def _started(self) -> Wire:
        wire: Wire | None = None
        try:
            with fail_after(self.config.start_timeout):
                wire = await _connected(self.config)
                await _greet(wire)
        except BaseException as error:
            if wire is not None:
                with CancelScope(shield=True), move_on_after(_SECONDS_TO_SAY_GOODBYE):
                    await wire.close()
            if not isinstance(error, TimeoutError | OSError | ToolError):
                raise
            reason = str(error) or f"no answer within {self.config.start_timeout:g} s"
            raise ToolError(f"the MCP server {self.config.name!r} cannot be started: {reason}") from error
        return wire


class ServerTool:
    """A tool of a server; its schema is passed on as it came."""

    def __init__(self, server: Server, item: Mapping[str, Any]) -> None:
        self._server = server
        self._name = str(item["name"])
        schema = dict(item.get("inputSchema") or {})
        self._spec = Spec(
            name=_ODD.sub("_", f"{server.config.name}_{self._name}")[:_LONGEST_NAME],
            description=str(item.get("description") or item.get("title") or self._name),
            parameters={**schema, "type": "object", "properties": schema.get("properties", {})},
        )

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def effect(self) -> Effect:
        """What a server says of its own harmlessness is not relied on."""
        return "run"

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:  # noqa: ARG002 - a tool's shape
        """Call it; what the server calls an error is a failed result."""
        params = {"name": self._name, "arguments": dict(arguments)}
        result = await self._server.request("tools/call", params, seconds=self._server.config.timeout)
        return bounded(_text(result), failed=bool(result.get("isError")))


async def tools_of(servers: Iterable[Server]) -> tuple[list[ServerTool], list[str]]:
    """The tools of all servers, and what went wrong with those that have none to offer."""
    found: list[ServerTool] = []
    problems: list[str] = []
    for server in servers:
        try:
            found += await server.tools()
        except ToolError as error:
            problems.append(str(error))
    return found, problems


async def _connected(config: Config) -> Wire:
    if config.command:
        from nacre.tools.mcp_stdio import Stdio  # noqa: PLC0415 - only what is configured is loaded

        return await Stdio.started(config)
    from nacre.tools.mcp_http import Http  # noqa: PLC0415 - the same

    return Http(config)


async def _greet(wire: Wire) -> None:
    answer = await wire.request("initialize", hello())
    version = answer.get("protocolVersion")
    if version not in KNOWN:
        raise ToolError(f"it uses version {version!r} of the protocol, and nacre supports {', '.join(KNOWN)}")
    await wire.notify("notifications/initialized", {})


def hello() -> dict[str, Any]:
    """How a client introduces itself."""
    return {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "nacre", "version": "1"}}


def result_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result in an answer; raises ToolError with the error in it."""
    if "error" in answer:
        error = answer["error"]
        raise ToolError(str(error.get("message") or error) if isinstance(error, dict) else str(error))
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


def _text(result: Mapping[str, Any]) -> str:
    parts = [_part(item) for item in result.get("content") or () if isinstance(item, Mapping)]
    if not parts and "structuredContent" in result:
        import msgspec  # noqa: PLC0415 - rarely needed

        return msgspec.json.encode(result["structuredContent"]).decode()
    return "\n".join(parts) or "(no output)"


def _part(item: Mapping[str, Any]) -> str:
    match item:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": uri}:
            return f"[resource: {uri}]"
        case {"type": str(kind)}:
            return f"[{kind}, {item.get('mimeType', 'of unknown type')}: not shown]"
        case _:
            return "[content of an unknown kind: not shown]"
