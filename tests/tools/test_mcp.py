"""MCP: what becomes of servers that are right, and of those that die, hang, flood and lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.ports import Event, Notice, Output, Scene, Tool
from nacre.errors import ConfigError, ToolError
from nacre.messages import ToolCall
from nacre.tools.mcp import Config, Server, Servers
from tests.tools.scenes import scene
from tests.tools.test_approvals import named

PEER = str(Path(__file__).with_name("mcp_server.py"))
SMALL = str(Path(__file__).with_name("mcp_small.py"))
PIXEL = "iVBORw0KGgo="


def stdio(**changes: Any) -> Server:
    return Server(Config(**{"name": "peer", "command": sys.executable, "args": (PEER,), **changes}))


def small(*args: str, **changes: Any) -> Server:
    return stdio(args=(SMALL, *args), **changes)


def with_tools(server: Server, use: Callable[[dict[str, Tool]], Awaitable[Any]]) -> Any:
    """Start a server, use its tools, and end it."""

    async def used() -> Any:
        async with Servers([server]):
            return await use({tool.spec.name: tool for tool in (await server.offer()).tools})

    return anyio.run(used)


async def called(tool: Tool, **arguments: Any) -> Output:
    return await tool.run(arguments, scene())


def test_tools_of_the_official_sdk_are_listed_with_their_schemas_and_called() -> None:
    async def use(tools: dict[str, Tool]) -> None:
        assert tools["peer_add"].spec.description == "Add two numbers."
        assert tools["peer_add"].spec.parameters["required"] == ["a", "b"]
        assert tools["peer_add"].effect == "run"
        assert (await called(tools["peer_add"], a=2, b=3)) == Output(text="5")
        failure = await called(tools["peer_fail"])
        assert (failure.failed, failure.text) == (True, "Error executing tool fail")
        assert (await called(tools["peer_add"], a="x")).failed

    with_tools(stdio(), use)


def test_images_are_shown_and_what_else_is_no_text_is_named() -> None:
    async def use(tools: dict[str, Tool]) -> Output:
        return await called(tools["peer_look"])

    output = with_tools(stdio(), use)
    assert output.images == ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},)
    assert (
        output.text
        == "before\n[image/png, 9 bytes]\n[audio, audio/wav: not shown]\nin a file\n[resource file:///b (b.txt)]"
    )


JPEG = b64encode(b"\xff\xd8\xff\xe0..").decode()


@pytest.mark.parametrize(
    ("media", "data", "url"),
    [
        ("image/png", JPEG, f"data:image/jpeg;base64,{JPEG}"),
        ("image/png", f"{PIXEL[:4]}\n{PIXEL[4:]}", f"data:image/png;base64,{PIXEL}"),
        ("application/octet-stream", b64encode(b"GIF89a").decode(), "data:image/gif;base64,R0lGODlh"),
        ("image/webp", b64encode(b"RIFF\x01\n\x01\x01WEBP").decode(), "data:image/webp;base64,UklGRgEKAQFXRUJQ"),
        ("image/png", "not base64!", None),
        ("image/png", b64encode(b"<svg>").decode(), None),
        ("image/png", "", None),
        ("image/png", "A" * 7_000_001, None),
    ],
)
def test_an_image_that_no_provider_would_take_is_not_kept(media: str, data: str, url: str | None) -> None:
    """It would be in every later request of the session, and each would fail."""
    from mcp.types import ImageContent  # noqa: PLC0415 - tests of what is not loaded are in this file too

    from nacre.tools.mcp.offers import output_of  # noqa: PLC0415 - the same

    output = output_of([ImageContent(type="image", mime_type=media, data=data)])
    assert output.images == (() if url is None else ({"type": "image_url", "image_url": {"url": url}},))
    assert output.text.endswith("not shown]") == (url is None and len(data) < 1_000)


def test_resources_are_listed_and_read_by_tools() -> None:
    async def use(tools: dict[str, Tool]) -> tuple[str, str, Output]:
        listed = (await called(tools["peer_list_resources"])).text
        with pytest.raises(ToolError, match="uri is missing"):
            await called(tools["peer_read_resource"])
        return (
            listed,
            (await called(tools["peer_read_resource"], uri="note://7")).text,
            await called(tools["peer_read_resource"], uri="pic://one"),
        )

    listed, note, picture = with_tools(stdio(), use)
    assert "pic://one (image/png, A picture.)" in listed
    assert "note://{number}" in listed
    assert note == "note 7"
    assert (picture.text, len(picture.images)) == ("[image/png, 9 bytes, pic://one]", 1)


def test_prompts_become_messages_with_their_arguments_in_order_or_by_name() -> None:
    async def use() -> list[str]:
        server = stdio()
        async with Servers([server]):
            prompts = (await server.offer()).prompts
            assert prompts["peer:greet"].takes == "name [tone]"
            assert prompts["peer:greet"].meaning == "Greet somebody."
            with pytest.raises(ToolError, match=r"name missing; usage: /peer:greet name \[tone\]"):
                await prompts["peer:greet"].message("")
            with pytest.raises(ToolError, match="no argument for 'c'"):
                await prompts["peer:greet"].message("a b c")
            with pytest.raises(ToolError, match="cannot be read"):
                await prompts["peer:greet"].message("'a")
            return [(await prompts["peer:greet"].message(words))[0] for words in ("'Ada L.' warm", "tone=cold Ada")]

    assert anyio.run(use) == ["Greet Ada L. in a warm way.", "Greet Ada in a cold way."]


def test_every_page_of_tools_is_read_and_what_else_the_server_says_is_no_trouble() -> None:
    async def use(tools: dict[str, Tool]) -> list[str]:
        return sorted(tools)[:4]

    assert with_tools(small(), use) == ["peer_add", "peer_ask", "peer_cancelled", "peer_demand"]


def test_a_program_that_ends_when_it_is_asked_in_the_newer_protocol_is_asked_in_the_older_one() -> None:
    async def use(tools: dict[str, Tool]) -> int:
        return len(tools)

    assert with_tools(small("--strict"), use) == 17


def test_lines_are_not_cut_at_what_only_looks_like_an_end_of_line() -> None:
    async def use(tools: dict[str, Tool]) -> str:
        return (await called(tools["peer_line"])).text

    assert with_tools(small(), use) == "a\\u2028b\\u2029c\\x85d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"cut \udca9 and \ud83d\udca9", "cut \ufffd and \U0001f4a9"),
        (r"cut \ud83d, \\ud83d", "cut \ufffd, \\ud83d"),
        ("caf\xe9", "caf\ufffd"),
    ],
)
def test_a_text_that_is_cut_inside_a_character_is_shown_without_it(text: str, shown: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}'

    async def use(tools: dict[str, Tool]) -> str:
        return (await called(tools["peer_raw"], line=line)).text

    assert with_tools(small(), use) == shown


@pytest.mark.parametrize("rest", ['"result":[1]', '"result":null', '"error":{"code":"x"}', '"results":{}'])
def test_an_answer_that_is_none_is_told_at_once(rest: str) -> None:
    async def use(tools: dict[str, Tool]) -> None:
        with pytest.raises(ToolError, match="it sent an answer that is not valid"):
            await called(tools["peer_raw"], line=f'{{"jsonrpc":"2.0","id":ID,{rest}}}')

    with_tools(small(timeout=600), use)


def test_the_environment_has_only_what_is_harmless_and_what_was_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("OF_OURS", "value")

    async def use(tools: dict[str, Tool]) -> str:
        return (await called(tools["peer_environment"])).text

    server = small(env={"GIVEN": "${OF_OURS}"})
    assert server.config.env == {"GIVEN": "value"}
    found = with_tools(server, use).split()
    assert "GIVEN" in found
    assert "SECRET_KEY" not in found


def test_a_server_that_dies_fails_the_call_and_is_started_again_for_the_next() -> None:
    async def use(tools: dict[str, Tool]) -> None:
        before = (await called(tools["peer_pid"])).text
        with pytest.raises(ToolError, match=r"'peer' ended: its exit status is 3\. It is not known what it did"):
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


def test_a_call_that_takes_too_long_or_is_cancelled_is_cancelled_there_and_leaves_the_server_usable() -> None:
    async def use(tools: dict[str, Tool]) -> tuple[str, str, str]:
        before = (await called(tools["peer_pid"])).text
        with pytest.raises(ToolError, match="did not answer in time"):
            await called(tools["peer_never"])
        with anyio.move_on_after(0.05):
            await called(tools["peer_never"])
        return before, (await called(tools["peer_pid"])).text, (await called(tools["peer_cancelled"])).text

    before, after, cancelled = with_tools(small(timeout=2), use)
    assert before == after
    assert len(cancelled.split(",")) == 2


def test_progress_is_told_and_a_call_that_makes_progress_may_take_longer() -> None:
    events: list[Event] = []
    watched = Scene(key="k", call=ToolCall(id="c", name="peer_progress", arguments={}), emit=events.append)

    async def use(tools: dict[str, Tool]) -> str:
        return (await tools["peer_progress"].run({"pause": 1.5}, watched)).text

    assert with_tools(small(timeout=4), use) == "finished"
    assert Notice("peer_progress: 1 of 3 step 1\\x1b[31m") in events


@pytest.mark.parametrize(
    ("name", "refusal", "answer"),
    [
        ("peer_ask", "", {"action": "accept", "content": {"sure": True}}),
        ("peer_ask", "the user said no", {"action": "decline"}),
        ("peer_demand", "", {"action": "decline"}),
    ],
)
def test_a_question_is_answered_with_its_defaults_if_the_user_agrees(name: str, refusal: str, answer: Any) -> None:
    events: list[Event] = []
    asked: list[Any] = []

    async def permit(arguments: Mapping[str, Any]) -> str:
        asked.append(dict(arguments))
        return refusal

    call = ToolCall(id="c", name=name, arguments={})
    watched = Scene(key="k", call=call, emit=events.append, permit=permit)

    async def use(tools: dict[str, Tool]) -> str:
        return (await tools[name].run({}, watched)).text

    assert json.loads(with_tools(small(), use)) == answer
    if name == "peer_ask":
        assert asked == [{"question": "Sure?\\x1b[2J", "answer": {"sure": True}}]
    else:
        assert (asked, events) == ([], [Notice("peer asked, and nobody could answer here: Sure?\\x1b[2J")])


def test_tools_that_change_are_listed_again_when_the_server_says_so() -> None:
    async def use() -> list[str]:
        server, changed = small(), anyio.Event()

        async def renew() -> None:
            changed.set()

        server.on_change = renew
        async with Servers([server]):
            tools = {tool.spec.name: tool for tool in (await server.offer()).tools}
            await called(tools["peer_grow"])
            with anyio.fail_after(20):
                await changed.wait()
            return [tool.spec.name for tool in (await server.offer()).tools if tool.spec.name not in tools]

    assert anyio.run(use) == ["peer_grown"]


def test_a_question_that_may_be_about_the_calls_of_two_sessions_is_declined() -> None:
    async def permit(_: Mapping[str, Any]) -> str:
        raise AssertionError

    def asking(key: str, name: str) -> Scene:
        return Scene(key=key, call=ToolCall(id="c", name=name), emit=lambda _: None, permit=permit)

    async def use(tools: dict[str, Tool]) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tools["peer_never"].run, {}, asking("a", "peer_never"))
            await anyio.wait_all_tasks_blocked()
            found = (await tools["peer_ask"].run({}, asking("b", "peer_ask"))).text
            tasks.cancel_scope.cancel()
        return found

    assert json.loads(with_tools(small(), use)) == {"action": "decline"}


def test_a_server_that_lists_its_tools_again_takes_no_name_that_was_another_tools_first() -> None:
    mine = named("peer_pid", "read")

    async def use() -> bool:
        server, changed = small(), anyio.Event()
        async with Servers([server]) as servers:
            offers, _ = await servers.offers()
            tools: dict[str, Tool] = {tool.spec.name: tool for tool in offers["peer"].tools} | {"peer_pid": mine}
            servers.follow(offers, tools, {}, accepts=lambda _: True)
            renew = server.on_change

            async def watch() -> None:
                await renew()
                changed.set()

            server.on_change = watch
            await called(tools["peer_grow"])
            with anyio.fail_after(60):
                await changed.wait()
            return "peer_grown" in tools and tools["peer_pid"] is mine

    assert anyio.run(use)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("peer_flood", "more than 10,000 messages in a minute that answer nothing"),
        ("peer_junk", "more than 10,000 messages in a minute that answer nothing"),
        ("peer_endless", "a message of more than 67,108,864 bytes"),
    ],
)
def test_a_server_that_floods_is_ended_and_started_again(name: str, reason: str) -> None:
    async def use(tools: dict[str, Tool]) -> str:
        with pytest.raises(ToolError, match=reason):
            await called(tools[name])
        return (await called(tools["peer_pid"])).text

    assert with_tools(small(timeout=120), use).isdecimal()


def test_a_huge_result_is_cut_for_the_model_and_kept_as_far_as_a_record_goes() -> None:
    async def use(tools: dict[str, Tool]) -> Output:
        return await called(tools["peer_long"])

    output = with_tools(small(timeout=120), use)
    assert len(output.text) < 20_000
    assert output.whole is not None
    assert "19,000,000 characters left out" in output.whole


def test_closing_ends_the_process() -> None:
    async def use(tools: dict[str, Tool]) -> int:
        return int((await called(tools["peer_pid"])).text)

    pid = with_tools(small(), use)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


LIES = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"protocolVersion": "%s", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "server/discover":
        message |= {"error": {"code": -32601, "message": "no"}}
    if message["method"] == "tools/list":
        result = %s
    answer = {"error": message["error"]} if "error" in message else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/does/not/exist",), "cannot be started: .*No such file"),
        ((sys.executable, "-c", "pass"), "cannot be started: its exit status is 0"),
        ((sys.executable, "-c", "import sys; sys.stdin.read()"), "no answer within 0.5 s"),
        ((sys.executable, "-c", LIES % ("1999", "{}")), "Unsupported protocol version from the server: 1999"),
        (
            (sys.executable, "-c", LIES % ("2025-06-18", "{'tools': [{'name': 5}]}")),
            r"'peer': it sent .* not valid: tools\.0",
        ),
    ],
)
def test_a_server_that_cannot_be_had_is_a_problem_and_no_more(command: tuple[str, ...], reason: str) -> None:
    seconds = 0.5 if "0.5" in reason else 30
    server = stdio(command=command[0], args=command[1:], start_timeout=seconds)

    async def ask() -> tuple[dict[str, Any], list[str]]:
        async with Servers([server]) as servers:
            return await servers.offers()

    offers, (problem,) = anyio.run(ask)
    assert offers == {}
    with pytest.raises(ToolError, match=reason):
        raise ToolError(problem)


def test_hostile_names_descriptions_and_schemas_are_made_harmless() -> None:
    hostile = """{"tools": [
        {"name": "a\\x1b]0;x\\x07/../b", "description": "\\x1b[2Jdo\\u202e", "inputSchema": {"type": "object"}},
        {"name": "a\\x1b]0;x\\x07/../b", "description": "the same again", "inputSchema": {"type": "object"}},
        {"name": "n" * 500, "description": "d" * 100_000, "inputSchema": {"type": "object"}},
        {"name": "huge", "inputSchema": {"type": "object", "properties": {"p": {"description": "s" * 100_000}}}},
    ]}"""

    async def use(tools: dict[str, Tool]) -> list[tuple[str, str]]:
        return [(name, tool.spec.description) for name, tool in tools.items()]

    found = with_tools(stdio(args=("-c", LIES % ("2025-06-18", hostile))), use)
    assert found == [("peer_a_0_x_b", "\\x1b[2Jdo\\u202e"), (f"peer_{'n' * 59}", "d" * 4000)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 5, "inputSchema": {"type": "object"}},
        {"name": "x"},
        {"name": "x", "inputSchema": "object"},
        {"name": "x", "inputSchema": {"type": "object"}, "description": 5},
        {"name": "x", "inputSchema": {"type": "object"}, "annotations": []},
        {"name": "x", "inputSchema": {"type": "array"}},
        {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": 5},
        {"name": "x", "inputSchema": {"type": "object"}, "icons": 5},
        "x",
        None,
    ],
    ids=repr,
)
def test_a_tool_that_is_not_valid_is_left_out_alone(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    right = [{"name": name, "inputSchema": {"type": "object"}} for name in "ab"]

    async def use(tools: dict[str, Tool]) -> list[str]:
        return list(tools)

    program = LIES % ("2025-06-18", {"tools": [right[0], wrong, right[1]]})
    assert with_tools(stdio(args=("-c", program)), use) == ["peer_a", "peer_b"]
    assert [(record.message, vars(record)["left_out"]) for record in caplog.records] == [
        ("tools of an MCP server are not valid or too many", 1)
    ]


def test_of_a_result_with_very_many_parts_the_first_are_shown() -> None:
    listed = """{'tools': [{'name': 'many', 'inputSchema': {'type': 'object'}}]}
    if message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": str(number)} for number in range(400_000)]}"""

    async def use(tools: dict[str, Tool]) -> Output:
        return await called(tools["peer_many"])

    output = with_tools(stdio(args=("-c", LIES % ("2025-06-18", listed)), timeout=120), use)
    shown = output.whole or output.text
    assert shown.endswith("1998\n1999\n[… 398,000 more parts of this result left out …]")


@pytest.mark.parametrize(
    ("field", "block"),
    [
        ("contents", {"uri": "x:y", "text": "a"}),
        ("messages", {"role": "user", "content": {"type": "text", "text": "a"}}),
    ],
)
def test_resources_and_prompts_with_very_many_parts_are_bounded_and_valid(field: str, block: dict[str, Any]) -> None:
    async def receive() -> dict[str, Any]:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as late as in the program
        from mcp.types import GetPromptResult, JSONRPCResponse, ReadResourceResult  # noqa: PLC0415

        from nacre.tools.mcp.transports import Trimmed  # noqa: PLC0415

        sending, receiving = anyio.create_memory_object_stream[SessionMessage](1)
        async with sending, Trimmed(receiving, "peer") as trimmed:
            await sending.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={field: [block] * 9_000})))
            message = await trimmed.receive()
        assert isinstance(message, SessionMessage)
        assert isinstance(message.message, JSONRPCResponse)
        (ReadResourceResult if field == "contents" else GetPromptResult).model_validate(message.message.result)
        return message.message.result

    blocks = anyio.run(receive)[field]
    assert len(blocks) == 2_001
    assert "7,000 more parts" in json.dumps(blocks[-1])


def test_a_result_is_not_checked_against_a_schema_that_takes_for_ever() -> None:
    evil = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    tools = [{"name": "evil", "inputSchema": {"type": "object"}, "outputSchema": evil}]
    listed = f"""{{'tools': {tools}}}
    if message["method"] == "tools/call":
        result = {{"content": [], "structuredContent": {{"a": "a" * 60 + "!"}}}}"""
    program = LIES % ("2025-06-18", listed)

    async def use(tools: dict[str, Tool]) -> str:
        return (await called(tools["peer_evil"])).text

    assert with_tools(stdio(args=("-c", program)), use) == f'{{"a":"{"a" * 60}!"}}'


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "needs a command or a url"),
        ({"command": "x", "url": "http://x"}, "needs a command or a url"),
        ({"url": "ftp://x"}, "begins with http"),
        ({"url": "https://"}, "begins with http"),
        ({"command": "x", "timeout": 0}, "more than 0 seconds"),
        ({"command": "x", "env": {"A": "${NOT_SET_AT_ALL}"}}, "needs the variable NOT_SET_AT_ALL"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Server(Config(name="x", **changes))


def test_a_program_in_a_loop_of_its_own_needs_a_context() -> None:
    async def use() -> None:
        await small().offer()

    with pytest.raises(ToolError, match="outside of `Servers`"):
        anyio.run(use)


def test_nothing_of_the_sdk_or_of_http_is_loaded_before_a_server_is_used() -> None:
    program = (
        "import sys, nacre.tools.mcp, nacre.runtime.assembly; "
        "print([name for name in ('mcp', 'pydantic', 'jsonschema') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_without_the_package_one_line_says_how_to_install_it() -> None:
    program = f"""
import sys, anyio
sys.modules["mcp"] = None
from nacre.tools.mcp import Config, Server, Servers
async def ask():
    async with Servers([Server(Config(name="x", command={sys.executable!r}))]) as servers:
        print((await servers.offers())[1])
anyio.run(ask)
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    install = 'pip install "nacre-sessions[mcp]"'
    assert said == f"""['the MCP server \\'x\\' cannot be started: MCP servers need another package: {install}']\n"""
