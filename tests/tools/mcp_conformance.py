"""The client that the conformance kit starts: our own, with a browser that agrees to everything.

Called with the address of the kit's server; what else it may need to know is in the environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2

from nacre.agent.ports import Scene, Tool
from nacre.errors import ToolError
from nacre.messages import ToolCall
from nacre.tools.mcp import Config, Server, Servers
from nacre.tools.mcp.client_types import TokenFile
from nacre.tools.mcp.oauth import Interactive

CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


async def agree(address: str) -> None:
    """Follow the page to the end, as a browser would whose user agrees."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


async def use(url: str) -> None:
    """Connect, list what there is, and call every tool."""
    config = Config(
        name="kit",
        url=url,
        client_id=CONTEXT.get("client_id") or "https://conformance-test.local/client-metadata.json",
        client_secret=CONTEXT.get("client_secret") or "",
    )
    with TemporaryDirectory() as folder:
        async with Interactive(config, TokenFile(Path(folder), config), show=agree) as login:
            server = Server(config, login=lambda _: login.auth)
            async with Servers([server]):
                tools = (await server.offer()).tools
                schemas = {tool.spec.name: tool.spec.parameters for tool in tools}
                for tool in tools:
                    await call(tool, schemas)


async def call(tool: Tool, schemas: dict[str, Any]) -> None:
    name = tool.spec.name
    given = [one["arguments"] for one in CONTEXT.get("toolCalls", ()) if f"kit_{one['name']}" == name]
    if name == "kit_json_schema_echo":
        given = [{"schema": schemas["kit_json_schema_2020_12_tool"]}]
    for arguments in given or [sample(tool.spec.parameters)]:
        scene = Scene(key="k", call=ToolCall(id="c", name=name, arguments=arguments), emit=lambda _: None)
        try:
            told = (await tool.run(arguments, scene)).text
        except ToolError as error:
            # Some scenarios end in a refusal: whether it was right is for the kit to say.
            told = str(error)
        sys.stderr.write(f"{name}: {told[:500]}\n")


def sample(schema: Any) -> dict[str, Any]:
    """Arguments that a schema allows."""
    kinds: dict[str, Any] = {"number": 2, "integer": 3, "boolean": True, "string": "text", "array": [], "object": {}}
    needed = schema.get("required") or ()
    return {name: kinds.get(schema["properties"][name].get("type"), "text") for name in needed}


if __name__ == "__main__":
    anyio.run(use, sys.argv[-1])
