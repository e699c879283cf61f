"""What an editor may send that is wrong: it gets an error with a sentence, and the next request is answered."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema

import nacre
from tests.servers.acp.conftest import Place, run

HELLO = {"jsonrpc": "2.0", "id": 99, "method": "initialize", "params": {"protocolVersion": 1}}


async def exchange(place: Place, *lines: bytes) -> list[Any]:
    """Send lines and then a request; everything that came back before its answer."""
    process = await place.start()
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (*lines, json.dumps(HELLO).encode()):
        process.stdin.write(line + b"\n")
        await process.stdin.drain()
    found: list[Any] = []
    while not found or found[-1].get("id") != HELLO["id"]:
        found.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 60)))
    process.stdin.close()
    rest = await process.stdout.read()
    assert rest == b""
    assert await asyncio.wait_for(process.wait(), 30) == 0
    return found[:-1]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"17", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"id":[1],"result":{}}', -32600),
        (b'{"id":1,"method":5}', -32600),
        (b'{"id":1,"method":"session/new","params":[]}', -32600),
        (b'{"id":1,"error":"no"}', -32600),
        (b'{"id":1,"method":"no/such"}', -32601),
        (b'{"id":1,"method":"_own"}', -32601),
        (b'{"id":1,"method":"session/new","params":{}}', -32602),
        (b'{"id":1,"method":"session/new"}', -32602),
        (b'{"id":1,"method":"session/prompt","params":{"sessionId":"x","prompt":[{"type":"odd"}]}}', -32602),
    ],
)
def test_a_wrong_line_gets_an_error_and_the_next_one_an_answer(place: Place, line: bytes, code: int) -> None:
    (answer,) = run(exchange(place, line))
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


def test_a_line_that_is_too_long_is_skipped(place: Place) -> None:
    (answer,) = run(exchange(place, b'{"id":1,"method":"' + b"x" * (65 << 20) + b'"}'))
    assert answer["error"]["message"] == "a message has at most 67,108,864 bytes; this one was skipped"


def test_wrong_params_are_named_and_not_repeated(place: Place) -> None:
    (answer,) = run(exchange(place, b'{"id":1,"method":"session/new","params":{"cwd":["secret"],"mcpServers":[]}}'))
    assert answer["error"]["message"].startswith("invalid params: cwd: ")
    assert "secret" not in json.dumps(answer)


def test_unknown_notifications_and_answers_to_nothing_are_ignored(place: Place) -> None:
    lines = [b"", b'{"method":"session/cancel","params":{"sessionId":"x"}}', b'{"id":7,"result":{}}', b'{"method":"x"}']
    assert run(exchange(place, *lines)) == []


def test_errors_at_the_door_are_sentences(place: Place) -> None:
    text = [schema.TextContentBlock(type="text", text="hello")]
    audio = [schema.AudioContentBlock(type="audio", data="aaaa", mime_type="audio/wav")]
    sse = schema.SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/", headers=[])
    own = schema.AcpMcpServer(type="acp", name="own", server_id="own")
    nothing = schema.McpServerStdio(name="none", command="", args=[], env=[])
    half = schema.HttpMcpServer(type="http", name="half", url="http://[::1", headers=[])
    header = schema.HttpHeader(name="x", value="${OPENAI_API_KEY}")
    thief = schema.HttpMcpServer(type="http", name="thief", url="http://127.0.0.1:1/", headers=[header])

    async def talk() -> None:
        async with place.editor() as editor:
            agent, here = editor.agent, str(place.folder)
            key = (await agent.new_session(cwd=here, mcp_servers=[])).session_id
            wrong = [
                (agent.new_session(cwd="project", mcp_servers=[]), "cwd must be an absolute path, not 'project'"),
                (agent.new_session(cwd=f"{here}/no", mcp_servers=[]), "there is no folder"),
                (agent.new_session(cwd="/a\0b", mcp_servers=[]), "cwd cannot be a path"),
                (agent.new_session(cwd=here, mcp_servers=[sse]), "'old' speaks SSE, which is not supported"),
                (agent.new_session(cwd=here, mcp_servers=[own]), "'own' must be a program or speak HTTP"),
                (agent.new_session(cwd=here, mcp_servers=[thief]), "which is not replaced"),
                (agent.new_session(cwd=here, mcp_servers=[nothing]), "'none' needs a command or a url"),
                (agent.new_session(cwd=here, mcp_servers=[half]), "'half' needs a url that begins with http"),
                (agent.load_session(cwd=here, session_id="no", mcp_servers=[]), "there is no active session 'no'"),
                (agent.load_session(cwd=here, session_id="../x", mcp_servers=[]), "there is no active session"),
                (agent.load_session(cwd=here, session_id="nacre:memory", mcp_servers=[]), "there is no active session"),
                (agent.prompt(session_id="no", prompt=text), "session 'no' is not open here"),
                (agent.prompt(session_id=key, prompt=[]), "the prompt is empty"),
                (agent.prompt(session_id=key, prompt=audio), "and no audio"),
                (agent.set_session_mode(session_id="no", mode_id="ask"), "session 'no' is not open here"),
                (agent.list_sessions(cwd="x"), "cwd must be an absolute path"),
                (agent.list_sessions(cursor="odd"), "."),
            ]
            for request, sentence in wrong:
                with pytest.raises(RequestError, match=sentence):
                    await request

    run(talk())
    assert place.model.requests == []


@pytest.mark.parametrize(
    ("command", "args", "env", "reason"),
    [
        ("/bin/e\0cho", [], {}, "embedded null byte"),
        ("/bin/echo", ["a\0b"], {}, "embedded null byte"),
        ("/bin/echo", [], {"A=B": "c"}, "illegal environment variable name"),
    ],
)
def test_an_mcp_server_that_cannot_be_a_program_costs_only_its_tools(
    place: Place, command: str, args: list[str], env: dict[str, str], reason: str
) -> None:
    place.model.script = [["Hello."]]
    variables = [schema.EnvVariable(name=name, value=value) for name, value in env.items()]
    server = schema.McpServerStdio(name="odd", command=command, args=args, env=variables)

    async def talk() -> None:
        async with place.editor() as editor:
            key = (await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[server])).session_id
            assert await editor.ask(key, "hello") == "end_turn"
            assert editor.text() == "Hello."
            assert f"the MCP server 'odd' cannot be started: {reason}" in editor.text("agent_thought_chunk")

    run(talk())


def test_a_second_prompt_in_the_same_session_is_refused_and_the_first_goes_on(place: Place) -> None:
    go = threading.Event()
    place.model.script = [["Slow ", {"wait": go}, "end."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = (await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[])).session_id
            turn = asyncio.create_task(editor.ask(key, "one"))
            await editor.until(lambda: editor.text() == "Slow ")
            with pytest.raises(RequestError, match="is at another prompt"):
                await editor.ask(key, "two")
            with pytest.raises(RequestError, match="is at a prompt"):
                await editor.agent.load_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            go.set()
            assert await turn == "end_turn"
            assert editor.text() == "Slow end."

    run(talk())


def test_an_editor_that_leaves_in_mid_turn_leaves_a_stopped_turn(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["Half ", {"wait": never}]]

    async def talk() -> str:
        async with place.editor() as editor:
            key = (await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[])).session_id
            turn = asyncio.create_task(editor.ask(key, "one"))
            await editor.until(lambda: editor.text() == "Half ")
            editor.process.stdin.close()
            assert await asyncio.wait_for(editor.process.wait(), 30) == 0
            await asyncio.gather(turn, return_exceptions=True)
            return str(key)

    key = run(talk())
    never.set()
    with nacre.open(place.root) as sessions:
        assert sessions.get_history(key)[-1].content == "Half\n\n[stopped by the user]"


def test_cancelling_does_not_wait_for_an_mcp_server_that_never_answers(place: Place) -> None:
    place.model.script = [["Hello."]]
    bell = socket.create_server(("127.0.0.1", 0))
    bell.settimeout(0)
    silent = f"import socket, time; bell = socket.create_connection({bell.getsockname()!r}); time.sleep(1000)"
    with Path(place.environ["NACRE_CONFIG"]).open("a", encoding="utf-8") as config:
        # It is waited for as long as this: far longer than the editor here waits for the end of a turn.
        config.write(f"[mcp.silent]\nstart_timeout = 1000\ncommand = {json.dumps(sys.executable)}\n")
        config.write(f"args = {json.dumps(['-c', silent])}\n")

    async def talk() -> None:
        async with place.editor() as editor:
            key = (await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[])).session_id
            turn = asyncio.create_task(editor.ask(key, "one"))
            started, _ = await asyncio.get_running_loop().sock_accept(bell)
            await editor.agent.cancel(session_id=key)
            assert await turn == "cancelled"
            started.close()

    with bell:
        run(talk())
    assert place.model.requests == []


def test_an_editor_that_reads_no_more_does_not_keep_the_process_alive(place: Place) -> None:
    # More than a pipe holds.
    place.model.script = [["x" * 500_000]]
    receiving, sending = os.pipe()

    async def talk() -> None:
        command = [sys.executable, "-m", "nacre", "acp"]
        process = await asyncio.create_subprocess_exec(
            *command, env=place.environ, stdin=asyncio.subprocess.PIPE, stdout=sending
        )
        editor = process.stdin
        assert editor is not None

        async def ask(number: int, method: str, params: Any) -> Any:
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            editor.write(json.dumps(request).encode() + b"\n")
            return json.loads(await asyncio.to_thread(replies.readline)) if number else None

        with os.fdopen(receiving, "rb", closefd=False) as replies:
            await ask(1, "initialize", {"protocolVersion": 1})
            key = (await ask(2, "session/new", {"cwd": "/", "mcpServers": []}))["result"]["sessionId"]
            await ask(0, "session/prompt", {"sessionId": key, "prompt": [{"type": "text", "text": "one"}]})
            with nacre.open(place.root) as sessions:
                following = sessions.follow(key)
                while len(sessions.get_history(key)) < 2:
                    await asyncio.to_thread(next, following)
            editor.close()
            assert await asyncio.wait_for(process.wait(), 60) == 0

    try:
        run(talk())
    finally:
        os.close(receiving)
        os.close(sending)
