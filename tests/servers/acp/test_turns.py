"""Turns in an editor: streaming, tool calls, questions, modes, cancelling, and what is stored of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from acp import RequestError, schema

import nacre
from tests.servers.acp.conftest import Editor, Place, run

WRITE = {"call": "write_file", "path": "a.txt", "content": "pearl\n"}


async def begin(editor: Editor, place: Place, **more: Any) -> str:
    return str((await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[], **more)).session_id)


def stored(place: Place, key: str) -> list[tuple[str, Any]]:
    with nacre.open(place.root) as sessions:
        return [(message.role, message.content) for message in sessions.get_history(key)]


def test_an_answer_is_streamed_and_the_session_is_an_ordinary_one(place: Place) -> None:
    place.model.script = [[{"thinks": "hm"}, "It is ", "fine."]]

    async def talk() -> str:
        async with place.editor() as editor:
            key = await begin(editor, place)
            assert await editor.ask(key, "How is it?") == "end_turn"
            assert editor.text() == "It is fine."
            assert "hm" in editor.text("agent_thought_chunk")
            return key

    key = run(talk())
    assert stored(place, key) == [("user", "How is it?"), ("assistant", "It is fine.")]
    command = [sys.executable, "-m", "nacre", "sessions", "show", key]
    shown = subprocess.run(command, env=place.environ, capture_output=True, text=True, check=True).stdout
    assert "How is it?" in shown
    assert "It is fine." in shown


def test_an_allowed_write_is_shown_as_a_diff(place: Place) -> None:
    place.model.script = [[WRITE], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "write it")
            trust, write = editor.questions
            assert trust[0].title.startswith("Trust the folder")
            assert [option.kind for option in write[1]] == ["allow_once", "allow_always", "reject_once"]
            (start,) = editor.of("tool_call")
            diff = start.content[0]
            assert (diff.type, diff.path, diff.old_text, diff.new_text) == (
                "diff",
                str(place.folder / "a.txt"),
                None,
                "pearl\n",
            )
            assert (start.kind, start.status) == ("edit", "pending")
            assert [one.status for one in editor.of("tool_call_update")] == ["in_progress", "completed"]

    run(talk())
    assert (place.folder / "a.txt").read_text() == "pearl\n"


def test_a_rejected_write_changes_nothing_and_the_model_is_told(place: Place) -> None:
    place.model.script = [[WRITE], ["As you like."]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "yes" if (call.title or "").startswith("Trust") else "no"
            assert await editor.ask(await begin(editor, place), "write it") == "end_turn"
            assert [one.status for one in editor.of("tool_call_update")] == ["failed"]

    run(talk())
    assert not (place.folder / "a.txt").exists()
    assert "the user said no" in json.dumps(place.model.requests[-1])


def test_always_is_kept_for_the_folder(place: Place) -> None:
    place.model.script = [[WRITE], ["Done."], [WRITE], ["Done again."]]

    async def talk() -> None:
        async with place.editor() as editor:
            kinds = {"Trust": "yes"}
            editor.answer = lambda call, options: kinds.get((call.title or "")[:5], "always")
            await editor.ask(await begin(editor, place), "write it")
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "write it")
            assert editor.questions == []

    run(talk())


def test_cancel_ends_the_turn_and_what_was_said_is_stored(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["Once upon ", {"wait": never}]]

    async def talk() -> str:
        async with place.editor() as editor:
            key = await begin(editor, place)
            turn = asyncio.create_task(editor.ask(key, "tell"))
            await editor.until(lambda: editor.text() == "Once upon ")
            await editor.agent.cancel(session_id=key)
            assert await turn == "cancelled"
            return key

    key = run(talk())
    never.set()
    assert stored(place, key) == [("user", "tell"), ("assistant", "Once upon\n\n[stopped by the user]")]


def test_cancel_at_a_question_runs_nothing(place: Place) -> None:
    place.model.script = [[WRITE], ["never asked"]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "yes" if (call.title or "").startswith("Trust") else None
            assert await editor.ask(await begin(editor, place), "write it") == "cancelled"

    run(talk())
    assert not (place.folder / "a.txt").exists()
    assert len(place.model.requests) == 1


def test_in_read_only_mode_nothing_is_asked_and_nothing_written(place: Place) -> None:
    place.model.script = [["Hello."], [WRITE], ["I may not."]]

    async def talk() -> None:
        async with place.editor() as editor:
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[])
            assert made.modes.current_mode_id == "ask"
            await editor.ask(made.session_id, "hello")
            await editor.agent.set_session_mode(session_id=made.session_id, mode_id="read-only")
            await editor.ask(made.session_id, "write it")
            assert len(editor.questions) == 1

    run(talk())
    assert not (place.folder / "a.txt").exists()
    assert "read-only" in json.dumps(place.model.requests[-1])


def test_yolo_needs_a_trusted_folder_and_an_unknown_mode_is_refused(place: Place) -> None:
    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            with pytest.raises(RequestError, match="yolo needs a folder that you trust"):
                await editor.agent.set_session_mode(session_id=key, mode_id="yolo")
            with pytest.raises(RequestError, match="there is no mode 'root'; there are: ask, read-only, yolo"):
                await editor.agent.set_session_mode(session_id=key, mode_id="root")

    run(talk())


def test_in_a_folder_that_is_not_trusted_only_reading_is_offered(place: Place) -> None:
    (place.folder / "AGENTS.md").write_text("Say arr.")
    place.model.script = [["Hello."]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "no"
            await editor.ask(await begin(editor, place), "hello")
            ((question, _),) = editor.questions
            assert "Say arr." in str(question.content)
            assert "is not trusted" in editor.text("agent_thought_chunk")

    run(talk())
    (request,) = place.model.requests
    names = {tool["function"]["name"] for tool in request["tools"]}
    assert "read_file" in names
    assert not names & {"write_file", "edit_file", "shell", "web_fetch"}
    assert "Say arr." not in json.dumps(request)
    assert not (place.root.parent / "state" / "nacre" / "trust.json").exists()


def test_an_mcp_server_of_the_editor_that_is_refused_is_never_started(place: Place) -> None:
    place.model.script = [["Hello."]]
    mark = place.folder / "started"
    server = schema.McpServerStdio(name="evil", command="/usr/bin/touch", args=[str(mark)], env=[])

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "yes" if (call.title or "").startswith("Trust") else "no"
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[server])
            await editor.ask(made.session_id, "hello")
            question = editor.questions[1][0]
            assert question.title == "Start the MCP server evil?"
            assert f"/usr/bin/touch {mark}" in str(question.content)

    run(talk())
    assert not mark.exists()


def test_an_mcp_server_of_the_editor_that_is_accepted_is_started(place: Place) -> None:
    place.model.script = [["Hello."]]
    mark = place.folder / "started"
    server = schema.McpServerStdio(name="good", command="/usr/bin/touch", args=[str(mark)], env=[])

    async def talk() -> None:
        async with place.editor() as editor:
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[server])
            assert not mark.exists()
            await editor.ask(made.session_id, "hello")

    run(talk())
    assert mark.exists()


def test_images_and_files_of_a_prompt_reach_the_model(place: Place) -> None:
    place.model.script = [["Nice."]]
    image = schema.ImageContentBlock(type="image", mime_type="image/png", data="iVBORw0KGgo=")
    text = schema.TextResourceContents(uri="file:///x/pearl%20one.txt", text="inside")
    file = schema.EmbeddedResourceContentBlock(type="resource", resource=text)
    link = schema.ResourceContentBlock(type="resource_link", name="b", uri="file:///x/b.txt")

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "Look at ", link, image, file)

    run(talk())
    said = json.dumps(place.model.requests[0]["messages"][-1])
    assert "data:image/png;base64,iVBORw0KGgo=" in said
    assert "inside" in said
    assert "Look at /x/b.txt" in said


def test_a_conversation_is_replayed_and_listed(place: Place) -> None:
    place.model.script = [[{"call": "read_file", "path": "x.txt"}], ["It says pearl."]]
    (place.folder / "x.txt").write_text("pearl")

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "read it")
        async with place.editor() as editor:
            (info,) = (await editor.agent.list_sessions(cwd=str(place.folder))).sessions
            assert (info.session_id, info.cwd, info.title) == (key, str(place.folder), "read it")
            await editor.agent.load_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            assert [update.session_update for update in editor.updates] == [
                "user_message_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk",
            ]
            assert editor.of("tool_call_update")[0].status == "completed"
            assert (editor.text("user_message_chunk"), editor.text()) == ("read it", "It says pearl.")

    run(talk())


def test_after_a_kill_in_mid_turn_load_shows_what_was_stored(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["First."], ["Half of ", {"wait": never}]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "one")
            turn = asyncio.create_task(editor.ask(key, "two"))
            await editor.until(lambda: editor.text().endswith("Half of "))
            editor.process.kill()
            await editor.process.wait()
            with pytest.raises((ConnectionError, RequestError)):
                await turn
        async with place.editor() as editor:
            await editor.agent.load_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            assert (editor.text("user_message_chunk"), editor.text()) == ("onetwo", "First.")

    run(talk())
    never.set()


def test_a_second_editor_at_the_same_session_is_told_that_it_is_busy(place: Place) -> None:
    go = threading.Event()
    place.model.script = [["First."], ["Slow ", {"wait": go}, "end."], ["Other."]]

    async def talk() -> None:
        async with place.editor() as one, place.editor() as two:
            key = await begin(one, place)
            await one.ask(key, "one")
            await two.agent.load_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            turn = asyncio.create_task(one.ask(key, "two"))
            await one.until(lambda: one.text().endswith("Slow "))
            with pytest.raises(RequestError, match="another program is at a turn of session"):
                await two.ask(key, "three")
            go.set()
            assert await turn == "end_turn"
            assert await two.ask(key, "four") == "end_turn"

    run(talk())


def test_the_output_of_a_command_is_shown_as_it_is(place: Place) -> None:
    place.model.script = [[{"call": "shell", "command": "echo '```' pearl"}], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "run it")
            (start,) = editor.of("tool_call")
            assert (start.kind, start.title) == ("execute", "shell: echo '```' pearl")
            shown = editor.of("tool_call_update")[-1].content[0].content.text
            assert shown.startswith("````\n")
            assert "``` pearl" in shown

    run(talk())


def test_read_only_in_the_middle_of_a_turn_refuses_what_would_be_asked(place: Place) -> None:
    go = threading.Event()
    place.model.script = [["Wait. ", {"wait": go}, WRITE], ["I may not."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            turn = asyncio.create_task(editor.ask(key, "write it"))
            await editor.until(lambda: editor.text() == "Wait. ")
            await editor.agent.set_session_mode(session_id=key, mode_id="read-only")
            go.set()
            assert await turn == "end_turn"
            assert len(editor.questions) == 1

    run(talk())
    assert not (place.folder / "a.txt").exists()


def test_a_call_with_the_id_of_an_earlier_one_is_shown_and_asked_about_as_itself(place: Place) -> None:
    place.model.script = [[WRITE], [{"call": "shell", "command": "echo pearl"}], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            write, shell = editor.of("tool_call")
            assert [write.title, shell.title] == ["write_file: a.txt", "shell: echo pearl"]
            assert [call.tool_call_id for call, _ in editor.questions[1:]] == [write.tool_call_id, shell.tool_call_id]
            assert write.tool_call_id != shell.tool_call_id
            assert [one.type for one in editor.of("tool_call_update")[-1].content] == ["content"]

    run(talk())
