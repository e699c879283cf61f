"""MCP: our client against a real server of the official SDK."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.ports import Output, Tool
from nacre.errors import ConfigError, ToolError
from nacre.tools.mcp import Config, Server, tools_of
from tests.tools.scenes import scene

PEER = str(Path(__file__).with_name("mcp_server.py"))
SMALL = str(Path(__file__).with_name("mcp_small.py"))
needs_sdk = pytest.mark.skipif(find_spec("mcp") is None, reason="the official SDK is not installed: pip install mcp")


def stdio(**changes: Any) -> Server:
    return Server(Config(**{"name": "peer", "command": sys.executable, "args": (PEER,), **changes}))


def with_tools(server: Server, use: Callable[[dict[str, Tool]], Awaitable[Any]]) -> Any:
    """Start a server, use its tools, and end it."""

    async def used() -> Any:
        try:
            return await use({tool.spec.name: tool for tool in await server.tools()})
        finally:
            await server.close()

    return anyio.run(used)


async def called(tool: Tool, **arguments: Any) -> Output:
    return await tool.run(arguments, scene())


@needs_sdk
def test_tools_of_the_official_sdk_are_listed_with_their_schemas_and_called() -> None:
    async def use(tools: dict[str, Tool]) -> None:
        assert sorted(tools) == ["peer_add", "peer_fail"]
        assert tools["peer_add"].spec.description == "Add two numbers."
        assert tools["peer_add"].spec.parameters["required"] == ["a", "b"]
        assert tools["peer_add"].effect == "run"
        assert (await called(tools["peer_add"], a=2, b=3)) == Output(text="5")
        failure = await called(tools["peer_fail"])
        assert (failure.failed, failure.text) == (True, "Error executing tool fail")
        assert (await called(tools["peer_add"], a="x")).failed

    with_tools(stdio(), use)


def small(**changes: Any) -> Server:
    return stdio(args=(SMALL,), **changes)


def test_every_page_of_tools_is_read_and_what_else_the_server_says_is_no_trouble() -> None:
    async def use(tools: dict[str, Tool]) -> list[str]:
        return sorted(tools)

    assert with_tools(small(), use) == ["peer_add", "peer_die", "peer_environment", "peer_never", "peer_pid"]


def test_the_environment_has_only_what_is_harmless_and_what_was_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")

    async def use(tools: dict[str, Tool]) -> str:
        return (await called(tools["peer_environment"])).text

    found = with_tools(small(env={"GIVEN": "1"}), use).split()
    assert "GIVEN" in found
    assert "SECRET_KEY" not in found


def test_a_server_that_dies_fails_the_call_and_is_started_again_for_the_next() -> None:
    async def use(tools: dict[str, Tool]) -> None:
        before = (await called(tools["peer_pid"])).text
        with pytest.raises(ToolError, match=r"'peer' ended: .* It is not known what it did"):
            await called(tools["peer_die"])
        assert (await called(tools["peer_pid"])).text != before

    with_tools(small(), use)


def test_calls_at_once_each_get_their_own_answer_in_whatever_order_they_come() -> None:
    async def use(tools: dict[str, Tool]) -> list[str]:
        found: list[str] = [""] * 20

        async def add(at: int) -> None:
            found[at] = (await called(tools["peer_add"], a=at, b=1000)).text

        async with anyio.create_task_group() as group:
            for at in range(20):
                group.start_soon(add, at)
        return found

    assert with_tools(small(), use) == [str(1000 + at) for at in range(20)]


def test_a_call_that_takes_too_long_or_is_cancelled_leaves_the_server_usable() -> None:
    async def use(tools: dict[str, Tool]) -> tuple[str, str]:
        before = (await called(tools["peer_pid"])).text
        with pytest.raises(ToolError, match=r"did not answer within 0\.3 s"):
            await called(tools["peer_never"])
        with anyio.move_on_after(0.05):
            await called(tools["peer_never"])
        return before, (await called(tools["peer_pid"])).text

    before, after = with_tools(small(timeout=0.3), use)
    assert before == after


def test_closing_ends_the_process() -> None:
    async def use(tools: dict[str, Tool]) -> int:
        return int((await called(tools["peer_pid"])).text)

    pid = with_tools(small(), use)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/does/not/exist",), "cannot be started: .*No such file"),
        ((sys.executable, "-c", "pass"), "cannot be started: its exit status is 0|cannot be started: it closed"),
        ((sys.executable, "-c", "import sys; sys.stdin.read()"), "no answer within 0.5 s"),
        (
            (
                sys.executable,
                "-c",
                'input(); print(\'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999"}}\', flush=True); input()',
            ),
            "uses version '1999'",
        ),
    ],
)
def test_a_server_that_cannot_be_had_is_a_problem_and_no_more(command: tuple[str, ...], reason: str) -> None:
    server = stdio(command=command[0], args=command[1:], start_timeout=0.5)
    tools, problems = anyio.run(tools_of, [server])
    assert tools == []
    (problem,) = problems
    with pytest.raises(ToolError, match=reason):
        raise ToolError(problem)


def test_a_configuration_names_a_command_or_an_address() -> None:
    for command, url in (("", ""), ("x", "http://x")):
        with pytest.raises(ConfigError, match="needs a command or a url"):
            Server(Config(name="x", command=command, url=url))


def test_nothing_of_the_sdk_or_of_http_is_loaded_for_a_program() -> None:
    program = (
        "import sys, nacre.tools.mcp, nacre.tools.mcp_stdio; "
        "print([name for name in ('mcp', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


@pytest.fixture
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, PEER, str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as peer:
        assert peer.stdout is not None
        for line in peer.stdout:
            if b"running on" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        peer.kill()


@needs_sdk
def test_a_server_at_an_address_is_spoken_to_over_http(address: str) -> None:
    async def use(tools: dict[str, Tool]) -> list[Output]:
        return [await called(tools["peer_add"], a=2, b=3), await called(tools["peer_fail"])]

    sum_, failure = with_tools(Server(Config(name="peer", url=address)), use)
    assert sum_ == Output(text="5")
    assert failure.failed
