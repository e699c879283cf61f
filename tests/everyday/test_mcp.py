"""MCP servers in a conversation: asked for, shown, stopped; and conversations that go on without them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Call, Reply, Request
from tests.everyday.terminal import Screen
from tests.everyday.test_permissions import calling

PEERS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def project(person: Person) -> Path:
    """A folder that the person trusts, and two servers: of the official package, and a small one."""
    person.config(
        f'[mcp.peer]\ncommand = "{sys.executable}"\nargs = ["{PEERS / "mcp_server.py"}"]\n'
        f'[mcp.small]\ncommand = "{sys.executable}"\nargs = ["{PEERS / "mcp_small.py"}"]\n'
        f'env = {{NOTES = "{person.home / "notes"}"}}\n'
        '[mcp.gone]\ncommand = "/not/there"\n'
    )
    return person.trust(person.folder("project"))


def test_a_tool_of_a_server_is_asked_about_and_its_image_reaches_the_model(person: Person, project: Path) -> None:
    def answer(request: Request) -> Reply:
        has_looked = any(message["role"] == "tool" for message in request.messages)
        return f"Result: {request.said}" if has_looked else [Call("peer_look", {})]

    person.model.answer = answer
    refused = person.nacre("chat", "look", at=project)
    assert (refused.code, "refused peer_look()" in refused.err) == (10, True), refused
    assert "the MCP server 'gone' cannot be started" in refused.err
    done = person.nacre("chat", "--allow", "peer_look", "look", at=project)
    assert done.code == 0, done
    assert [image for chat in person.model.chats for image in chat.messages[-1].get("images", ())] == ["iVBORw0KGgo="]


def test_a_turn_goes_on_after_a_huge_result_and_a_server_that_died(person: Person, project: Path) -> None:
    person.model.answer = calling(Call("small_long", {}), Call("small_die", {}), Call("small_line", {}))
    done = person.nacre("chat", "--allow", "small_*", "do it", at=project)
    assert (done.code, "Result: a\\u2028b" in done.out) == (0, True), done


def test_where_the_folder_is_not_trusted_no_server_is_started(person: Person, project: Path) -> None:
    done = person.nacre("chat", "hello", at=person.folder("other"))
    assert done.code == 0, done
    assert not [name for name in person.model.chats[-1].tools if name.startswith(("peer_", "small_"))]
    assert not (person.home / "notes").exists()


def test_tokens_of_servers_are_hidden_from_tools_where_the_folder_has_the_store(person: Person) -> None:
    above = person.trust(person.folder(".local/share"))
    tokens = person.store / "mcp/desk~1.json"
    tokens.parent.mkdir(parents=True)
    tokens.write_text('{"tokens": {"access_token": "canary"}}')
    path = str(tokens.relative_to(above))
    for call in (Call("read_file", {"path": path}), Call("shell", {"command": f"cat {path}"})):
        person.model.answer = calling(call)
        done = person.nacre("chat", "--allow", "shell", "look", at=above)
        assert "Result: " in done.out, done
    assert "canary" not in str([request.body for request in person.model.chats])


def test_tools_that_a_server_adds_are_there_in_the_same_turn(person: Person, project: Path) -> None:
    def answer(request: Request) -> Reply:
        if "small_grown" in request.tools:
            return "It has grown."
        steps = sum(message["role"] == "tool" for message in request.messages)
        return [Call("peer_add", {"a": 1, "b": steps}) if steps else Call("small_grow", {})]

    person.model.answer = answer
    done = person.nacre(
        "chat", "--allow", "small_*", "--allow", "peer_add", "grow", at=project, NACRE_AGENT_MAX_STEPS="500"
    )
    assert (done.code, "It has grown." in done.out) == (0, True), done


def test_no_tool_of_a_server_takes_the_place_of_one_of_ours(person: Person) -> None:
    person.config(f'[mcp.read]\ncommand = "{sys.executable}"\nargs = ["{PEERS / "mcp_small.py"}"]\n')
    project = person.trust(person.folder("project"))
    (project / "a.txt").write_text("of the project")

    def answer(request: Request) -> Reply:
        results = [message for message in request.messages if message["role"] == "tool"]
        if not results:
            return [Call("read_grow", {})]
        if "read_grown" not in request.tools:
            return [Call("read_pid", {"n": len(results)})]
        return f"Result: {request.said}" if "of the project" in request.said else [Call("read_file", {"path": "a.txt"})]

    person.model.answer = answer
    words = ("chat", "--allow", "read_*", "grow")
    done = person.nacre(*words, at=project, NACRE_AGENT_MAX_STEPS="500")
    assert (done.code, "Result: of the project" in done.out) == (0, True), done


def test_ctrl_c_tells_the_server_that_nobody_waits_any_more(person: Person, project: Path) -> None:
    person.model.answer = calling(Call("small_never", {}))
    os.mkfifo(person.home / "notes")
    # Open for both, so that it does not end when the server has written a line.
    with os.fdopen(os.open(person.home / "notes", os.O_RDWR), "r") as notes:
        with person.start("chat", "--allow", "small_never", "wait", at=project) as process:
            while notes.readline() != "tools/call never\n":
                pass
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert notes.readline() == "notifications/cancelled\n"


def test_a_prompt_of_a_server_is_a_command(person: Person, project: Path) -> None:
    with Screen(person, "chat", at=project) as screen:
        screen.until("gemma4:e4b")
        screen.say("/peer:greet")
        screen.until("name missing; usage: /peer:greet name [tone]")
        screen.say("/peer:greet 'Ada L.' warm")
        screen.until("You said: Greet Ada L. in a warm way.")
        screen.leave()
