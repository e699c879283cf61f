"""Servers that others wrote and people use, installed by npm."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.ports import Event, Notice, Output, Scene, Tool
from nacre.messages import ToolCall
from nacre.tools.mcp import Config, Offer, Server, Servers
from tests.tools.npm import installed

VERSIONS = {"everything": "2026.8.31", "filesystem": "2026.8.31", "memory": "2026.8.31"}

Named = Callable[..., Server]


@pytest.fixture(scope="session")
def named(request: pytest.FixtureRequest) -> Named:
    """Makes one of the servers, with arguments for it."""
    if shutil.which("node") is None:
        pytest.skip("the servers need Node, which is not on the path")
    packages = [f"@modelcontextprotocol/server-{name}@{version}" for name, version in VERSIONS.items()]
    programs = installed(request.config, *packages) / ".bin"

    def made(name: str, *args: str, **env: str) -> Server:
        command = str(programs / f"mcp-server-{name}")
        return Server(Config(name=name, command=command, args=args, env=env, start_timeout=120))

    return made


async def called(tool: Tool, events: list[Event] | None = None, **arguments: Any) -> Output:
    call = ToolCall(id="c", name=tool.spec.name, arguments=arguments)
    emit = (events if events is not None else []).append
    return await tool.run(arguments, Scene(key="k", call=call, emit=emit))


def test_everything(named: Named) -> None:
    async def use() -> None:
        server = named("everything", "stdio")
        async with Servers([server]):
            offer: Offer = await server.offer()
            tools = {tool.spec.name: tool for tool in offer.tools}
            assert (await called(tools["everything_echo"], message="hello")).text == "Echo: hello"
            assert (await called(tools["everything_get-sum"], a=2, b=3)).text.endswith("is 5.")
            image = await called(tools["everything_get-tiny-image"])
            assert [part["image_url"]["url"][:22] for part in image.images] == ["data:image/png;base64,"]
            events: list[Event] = []
            done = await called(tools["everything_trigger-long-running-operation"], events, duration=1, steps=2)
            assert "completed" in done.text
            assert Notice("everything_trigger-long-running-operation: 1 of 2") in events
            listed = (await called(tools["everything_list_resources"])).text
            first = listed.split(" ", 1)[0]
            assert not (await called(tools["everything_read_resource"], uri=first)).failed
            text, _ = await offer.prompts["everything:args-prompt"].message("Paris")
            assert "Paris" in text

    anyio.run(use)


def test_files(named: Named, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\u2028two")

    async def use() -> tuple[str, bool]:
        server = named("filesystem", str(tmp_path))
        async with Servers([server]):
            tools = {tool.spec.name: tool for tool in (await server.offer()).tools}
            read = await called(tools["filesystem_read_text_file"], path=str(tmp_path / "a.txt"))
            return read.text, (await called(tools["filesystem_read_text_file"], path="/etc/hostname")).failed

    assert anyio.run(use) == ("one\\u2028two", True)


def test_memory(named: Named, tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}

    async def use() -> str:
        server = named("memory", MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl"))
        async with Servers([server]):
            tools = {tool.spec.name: tool for tool in (await server.offer()).tools}
            await called(tools["memory_create_entities"], entities=[entity])
            return (await called(tools["memory_search_nodes"], query="Ada")).text

    assert "likes engines" in anyio.run(use)
